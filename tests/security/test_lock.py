"""Answers with status 200 that no API server gives: a login page's HTML, half a body, none, JSON of another kind.

Mishap: an empty list from a proxy says that a drain is done, and a page that anything else was. Rule: what is not the
answer that was asked for is no answer; it is waited for, and then told. Of renewals of the lock `execution/test_lease`
has the same.
"""

import pytest

from rollout.lab.api.faults import ApiFault, FaultAnswer
from tests.apply.conftest import Rollout
from tests.conftest import StartLab

pytestmark = pytest.mark.exhaustive


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


@pytest.mark.parametrize(("answer", "done"), GARBLINGS)
def test_each_kind_of_request_may_be_garbled(
    start_lab: StartLab, rollout: Rollout, answer: FaultAnswer, *, done: bool
) -> None:
    lab = start_lab(nodes=6)
    faults = garbled(answer, done=done)
    lab.inflict(*faults)
    ended = rollout(lab, *TWO_AT_ONCE, *PATIENT).ends(0)
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
    lab = start_lab(nodes=4)
    lab.inflict(ApiFault(answer=FaultAnswer.HTML))
    ended = rollout(lab, "status").ends(1)
    assert "waiting for the API server" in ended.stderr
    assert "is not what an API server gives" in ended.stderr
    assert "a proxy, a login page" in ended.stderr


def test_a_node_is_not_empty_because_an_answer_is(start_lab: StartLab, rollout: Rollout) -> None:
    """{} and a list of something else hold no pods: believed, they would say that the drain is done."""
    lab = start_lab(nodes=5)
    for body in ("{}", '{"kind":"NodeList","apiVersion":"v1","metadata":{},"items":[]}', '{"items":null}'):
        lab.inflict(
            ApiFault(answer=FaultAnswer.WRONG_KIND, verb="list", resource="pods", from_request=3, requests=3, body=body)
        )
    rollout(lab, *TWO_AT_ONCE, *PATIENT).ends(0)
    score = lab.scoreboard()
    assert score.clean, score
    assert score.rebooted_undrained == ()
    assert score.evictions > 0
