"""A host that may know of a grant, however its node's run goes on."""

import pytest

from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.model.marks import LAST_RESULT, PHASE
from rollout.model.progress import Phase
from rollout.server.protocol import AnswerKind
from tests.server.in_memory import Cluster, Replica
from tests.server.test_reports import await_answer, cluster, replica  # noqa: F401 - fixtures
from tests.waiting import wait_until

pytestmark = pytest.mark.in_memory


def test_a_slot_that_cannot_be_reopened_at_once_is_reopened_later(
    cluster: Cluster,  # noqa: F811 - the fixture
    replica: Replica,  # noqa: F811 - the fixture
) -> None:
    await_answer(replica, cluster, "a", AnswerKind.GRANTED)
    wait_until(lambda: cluster.slots()[0]["awaited"] == "boot")
    busy = ApiFault(
        answer=FaultAnswer.TOO_MANY_REQUESTS,
        verb="update",
        resource="configmaps",
        name="node-rollout-fleetlock",
        requests=1,
        retry_after=0,
    )
    cluster.behind.call(lambda: cluster.behind.server.faults.add(busy))
    cluster.add_pod("a")
    wait_until(lambda: cluster.behind.call(lambda: cluster.behind.server.faults.struck(busy)) == 1)
    wait_until(lambda: cluster.annotations("a").get(PHASE) != Phase.DRAINING)
    assert LAST_RESULT not in cluster.annotations("a")
    await_answer(replica, cluster, "a", AnswerKind.GRANTED)
