"""The lock of a rollout against answers that are none, and against answers that never come.

Mishap: one page of HTML in answer to a renewal ended the thread that renews; one renewal that the server accepted and
never answered took as long as the Lease lasts. Either way another process may take the Lease and reboot nodes beside
this one. Rule: each renewal is given a third of the duration and is tried again at once, and nothing that an answer may
be ends the renewing. Where renewals fail for longer than the Lease lasts, the next act waits for one that succeeds.
"""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.api.resources import LEASES
from rollout.lab.api.store import Change
from rollout.lab.lab import Lab
from tests.apply.conftest import command
from tests.conftest import StartLab
from tests.ended import Ended, end_of

pytestmark = pytest.mark.exhaustive

SECONDS = 3
APPLY = (
    "apply",
    "--yes",
    "--control-plane",
    "exclude",
    "--set",
    f"lock.duration={SECONDS}s",
    "--set",
    "waves.soak=2s",
    "--set",
    "waves.health-checks=1",
)
GARBLED = (FaultAnswer.HTML, FaultAnswer.EMPTY, FaultAnswer.WRONG_KIND, FaultAnswer.TRUNCATED, FaultAnswer.BROKEN_OFF)


class Renewals:
    """When the Lease was written while it was held, in real seconds."""

    def __init__(self, lab: Lab) -> None:
        self.at: list[float] = []
        lab.call(lambda: lab.store.subscribe(self._see))

    def _see(self, change: Change) -> None:
        if change.resource is LEASES and change.obj["spec"].get("holderIdentity"):
            self.at.append(time.monotonic())

    @property
    def longest_pause(self) -> float:
        return max(later - earlier for earlier, later in zip(self.at, self.at[1:], strict=False))


def renewals_meet(lab: Lab, fault: FaultAnswer, requests: int) -> ApiFault:
    """The first write takes the Lease; a few renewals later the fault begins."""
    rule = ApiFault(
        answer=fault, verb="update", resource="leases", from_request=3, requests=requests, delay=100_000, done=False
    )
    lab.inflict(rule)
    return rule


def assert_undisturbed(lab: Lab, ended: Ended, rule: ApiFault, requests: int) -> None:
    assert ended.code == 0, ended.stderr
    assert lab.struck(rule) == requests
    score = lab.scoreboard()
    assert score.clean, score
    assert score.annotations_left == {}
    lease = lab.call(lambda: lab.store.get(LEASES, "node-rollout", "kube-system"))
    assert lease is not None
    assert not lease["spec"]["holderIdentity"]


@pytest.fixture
def lab(start_lab: StartLab) -> Lab:
    return start_lab(nodes=5, speed=30)


@pytest.fixture
def apply(lab: Lab, tmp_path: Path) -> Callable[[], Ended]:
    return lambda: end_of(command(lab, tmp_path, *APPLY))


@pytest.mark.sample
@pytest.mark.parametrize("answer", GARBLED)
def test_garbled_answers_to_renewals_end_nothing(lab: Lab, apply: Callable[[], Ended], answer: FaultAnswer) -> None:
    renewals, rule = Renewals(lab), renewals_meet(lab, answer, 3)
    ended = apply()
    assert_undisturbed(lab, ended, rule, 3)
    assert renewals.longest_pause < SECONDS


def test_one_hung_renewal_does_not_cost_the_lease(lab: Lab, apply: Callable[[], Ended]) -> None:
    """It hangs for ever; whoever watches the Lease for its whole duration sees another renewal meanwhile."""
    renewals, rule = Renewals(lab), renewals_meet(lab, FaultAnswer.HANG, 1)
    ended = apply()
    assert_undisturbed(lab, ended, rule, 1)
    assert renewals.longest_pause < SECONDS


def test_hung_renewals_in_a_row_delay_the_rollout_and_no_more(lab: Lab, apply: Callable[[], Ended]) -> None:
    rule = renewals_meet(lab, FaultAnswer.HANG, 5)
    assert_undisturbed(lab, apply(), rule, 5)
