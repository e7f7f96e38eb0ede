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
from tests.apply.conftest import Rollout, command
from tests.conftest import StartLab
from tests.ended import Ended, end_of
from tests.state import lease_of

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
    lease = lease_of(lab)
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


# Answers with status 200 that no API server gives: a login page's HTML, half a body, none, JSON of another kind.


TWO_AT_ONCE = (
    *("apply", "--yes", "--max-unavailable", "2", "--control-plane", "exclude"),
    *("--set", "waves.health-checks=1"),
)


PATIENT = ("--set", "lock.duration=6s", "--drain-timeout", "60s", "--reboot-timeout", "60s", "--ready-timeout", "60s")


# Every kind of request that `apply` makes, by verb and resource, or by path.
ASKED = (
    *(("list", resource) for resource in ("nodes", "pods", "poddisruptionbudgets", "daemonsets", "deployments")),
    *(("list", resource) for resource in ("volumeattachments", "persistentvolumes", "replicasets", "statefulsets")),
    *(("watch", resource) for resource in ("nodes", "pods", "poddisruptionbudgets")),
    *(("get", resource) for resource in ("nodes", "namespaces", "leases", "configmaps")),
    *(("create", resource) for resource in ("leases", "configmaps", "events", "selfsubjectaccessreviews")),
    *(("update", resource) for resource in ("leases", "configmaps")),
    ("patch", "nodes"),
    ("create", "pods/eviction"),
    ("delete", "configmaps"),
)


PAGES = (FaultAnswer.HTML, FaultAnswer.EMPTY, FaultAnswer.WRONG_KIND)


GARBLINGS = [
    *((answer, done) for answer in PAGES for done in (False, True)),
    (FaultAnswer.TRUNCATED, True),
    (FaultAnswer.BROKEN_OFF, True),
]


def garbled(answer: FaultAnswer, *, done: bool) -> list[ApiFault]:
    """Each kind of request is garbled when it is made first, and after that twice more."""
    by_resource = [ApiFault(answer=answer, verb=verb, resource=what, requests=2, done=done) for verb, what in ASKED]
    return [*by_resource, ApiFault(answer=answer, verb="get", path="/version", requests=1)]


@pytest.mark.sample(1)
@pytest.mark.parametrize(("answer", "done"), GARBLINGS)
def test_each_kind_of_request_may_be_garbled(
    start_lab: StartLab, rollout: Rollout, answer: FaultAnswer, *, done: bool
) -> None:
    lab = start_lab(nodes=6, speed=30)
    faults = garbled(answer, done=done)
    lab.inflict(*faults)
    ended = rollout(lab, *TWO_AT_ONCE, *PATIENT)
    assert ended.code == 0, ended.stderr
    assert "waiting for the API server: the answer to" in ended.stderr or answer is FaultAnswer.BROKEN_OFF
    missed = [(fault.verb, fault.resource or fault.path) for fault in faults if not lab.struck(fault)]
    assert missed == []
    score = lab.scoreboard()
    assert score.clean, score
    assert score.annotations_left == {}
    assert score.deletions == 0
    assert sorted(score.reboots.values()) == [0, 0, 0, 1, 1, 1]


def test_a_server_that_answers_with_a_login_page_only_is_waited_for_and_then_told(
    start_lab: StartLab, rollout: Rollout
) -> None:
    lab = start_lab(nodes=4, speed=30)
    lab.inflict(ApiFault(answer=FaultAnswer.HTML))
    ended = rollout(lab, "status")
    assert ended.code == 1
    assert "waiting for the API server" in ended.stderr
    assert "is not what an API server gives" in ended.stderr
    assert "a proxy, a login page" in ended.stderr


def test_a_node_is_not_empty_because_an_answer_is(start_lab: StartLab, rollout: Rollout) -> None:
    """{} and a list of something else hold no pods: believed, they would say that the drain is done."""
    lab = start_lab(nodes=5, speed=30)
    for body in ("{}", '{"kind":"NodeList","apiVersion":"v1","metadata":{},"items":[]}', '{"items":null}'):
        lab.inflict(
            ApiFault(answer=FaultAnswer.WRONG_KIND, verb="list", resource="pods", from_request=3, requests=3, body=body)
        )
    ended = rollout(lab, *TWO_AT_ONCE, *PATIENT)
    assert ended.code == 0, ended.stderr
    score = lab.scoreboard()
    assert score.clean, score
    assert score.rebooted_undrained == ()
    assert score.evictions > 0
