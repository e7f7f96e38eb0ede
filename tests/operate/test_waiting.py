"""What an operate process concludes between its passes, in simulated time."""

import pytest

from rollout.cli import wiring
from rollout.cli.settings.reading import CommandSettings
from rollout.cli.stages import operate
from rollout.errors import ApiUnavailableError
from rollout.execution.base.deadline import GracefulStop
from rollout.execution.lease import LeaseState, LeaseWatch
from rollout.ports import Event
from tests.execution.simulated import SetClock

NEXT_PASS = 600.0


class SkippingClock(SetClock):
    """Skips each wait."""

    def wait(self, event: Event, seconds: float) -> bool:
        self.seconds += seconds
        return event.wait(0)


def test_a_silent_api_server_does_not_show_that_the_holder_of_the_lock_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SkippingClock()

    def read(*_arguments: object) -> LeaseState:
        if clock.seconds == 0:
            return LeaseState("ann", "1", 30)
        raise ApiUnavailableError("connection refused")

    monkeypatch.setattr(wiring, "cluster_api", lambda _settings: object())
    monkeypatch.setattr(operate, "read_lease", read)
    operation = operate.Operation(CommandSettings(), GracefulStop(), None, watch=LeaseWatch(clock))
    operation._await_next_pass(clock, NEXT_PASS)
    assert clock.seconds == NEXT_PASS
