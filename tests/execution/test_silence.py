"""The patience that all steps of a run share with one outage."""

import pytest

from rollout.errors import ApiConflictError, ApiUnavailableError
from rollout.execution.base.patience import Silence
from tests.execution.test_stop import SetClock


def fail(silence: Silence, clock: SetClock, *, asker: str = "steps", seconds: float = 0.0) -> None:
    """A request that is not answered, after so many seconds."""
    with pytest.raises(ApiUnavailableError), silence.heard(asker):  # noqa: PT012 - time passes within
        clock.seconds += seconds
        raise ApiUnavailableError("away")


def test_it_is_counted_from_the_first_request_in_a_row_that_failed() -> None:
    clock = SetClock()
    silence = Silence(clock, 100)
    assert silence.remaining == 100
    for _ in range(3):
        fail(silence, clock, seconds=30)
    assert silence.remaining == 10
    fail(silence, clock, seconds=30)
    assert silence.remaining == 0


def test_any_answer_ends_it_for_its_asker() -> None:
    clock = SetClock()
    silence = Silence(clock, 100)
    fail(silence, clock, seconds=30)
    fail(silence, clock, asker="lock")
    with pytest.raises(ApiConflictError), silence.heard("steps"):
        raise ApiConflictError("changed")
    clock.seconds += 20
    assert silence.remaining == 80
    with silence.heard("lock"):
        pass
    assert silence.remaining == 100
