"""Lifecycle conditions: rollout's own come and go with a node's phases, and those of others stay."""

from collections.abc import Iterator
from typing import Any

import pytest
from typing_extensions import override

from rollout.adapters.clock import SystemClock
from rollout.errors import ApiError
from rollout.execution.base.deadline import PatientApi
from rollout.execution.base.reporting import Reporter
from rollout.execution.node.conditions import NodeConditions, with_conditions
from rollout.lab.api.resources import NODES
from rollout.model import marks
from rollout.model.node_lifecycle import OUR_REASON, Lifecycle
from rollout.model.progress import Notice, Phase
from rollout.ports import Query
from tests.execution.conftest import Recorder
from tests.execution.drains import add_node, change, stored, unfenced
from tests.execution.fake_cluster import FakeCluster, FakeServer

Json = dict[str, Any]
PLANNED = Lifecycle.MAINTENANCE_PLANNED
DRAINING = Lifecycle.DRAIN_IN_PROGRESS
DRAINED = Lifecycle.DRAINED
MAINTAINED = Lifecycle.MAINTENANCE_IN_PROGRESS
READY = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}
AT = "2026-11-29T02:00:00Z"
pytestmark = pytest.mark.in_memory


def condition(kind: Lifecycle, reason: str = OUR_REASON, status: str = "True") -> Json:
    return {"type": kind.value, "status": status, "reason": reason}


def types_of(conditions: list[Json]) -> list[str]:
    return [found["type"] for found in conditions]


def test_a_condition_is_added_beside_those_of_the_kubelet() -> None:
    found = with_conditions([READY], (DRAINING,), run_id="abc", at=AT)
    assert found[0] == READY
    assert found[1]["type"] == "DrainInProgress"
    assert found[1]["status"] == "True"
    assert found[1]["reason"] == "NodeRollout"
    assert found[1]["lastTransitionTime"] == AT


def test_a_condition_that_is_there_keeps_its_time() -> None:
    present = [READY, {**condition(DRAINED), "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    found = with_conditions(present, (DRAINED, MAINTAINED), run_id="abc", at=AT)
    assert found[:2] == present
    assert types_of(found) == ["Ready", "Drained", "MaintenanceInProgress"]


def test_the_conditions_of_the_phase_before_go() -> None:
    found = with_conditions([READY, condition(DRAINING)], (DRAINED,), run_id="abc", at=AT)
    assert types_of(found) == ["Ready", "Drained"]


def test_a_condition_that_someone_else_has_set_stays_theirs() -> None:
    theirs = [READY, condition(DRAINING, "KubectlDrain")]
    assert with_conditions(theirs, (DRAINING,), run_id="abc", at=AT) == theirs
    assert with_conditions(theirs, (), run_id="abc", at=AT) == theirs


def test_a_condition_of_someone_else_that_is_over_is_replaced_only_if_needed() -> None:
    theirs = [READY, condition(DRAINING, "KubectlDrain", "False")]
    assert with_conditions(theirs, (DRAINED,), run_id="abc", at=AT)[:2] == theirs
    replaced = with_conditions(theirs, (DRAINING,), run_id="abc", at=AT)
    assert types_of(replaced) == ["Ready", "DrainInProgress"]
    assert replaced[1]["reason"] == OUR_REASON


def test_another_condition_with_the_same_reason_is_not_touched() -> None:
    odd = {"type": "DiskPressure", "status": "False", "reason": OUR_REASON}
    assert with_conditions([odd], (), run_id="abc", at=AT) == [odd]


NAMES = ("n1", "n2", "n3")


@pytest.fixture
def cluster(server: FakeServer) -> FakeServer:
    for name in NAMES:
        add_node(server, name)
    return server


def conditions_of(
    server: FakeServer, recorder: Recorder, *, is_on: bool = True, run_id: str = "abc"
) -> NodeConditions:
    clock = SystemClock()
    report = Reporter((recorder,), clock)
    cluster = PatientApi(FakeCluster(server), clock)
    return NodeConditions(cluster, unfenced, report, run_id=run_id, sets_conditions=is_on)


def seen(server: FakeServer, name: str) -> list[str]:
    found = types_of(stored(server, NODES, name)["status"]["conditions"])
    return [kind for kind in found if kind != "Ready"]


def test_nodes_that_wait_are_planned_and_others_are_not(
    cluster: FakeServer, recorder: Recorder
) -> None:
    with conditions_of(cluster, recorder).while_running({"n1", "n2"}, ()):
        assert [seen(cluster, name) for name in NAMES] == [[PLANNED], [PLANNED], []]
    assert [seen(cluster, name) for name in NAMES] == [[], [], []]


def test_conditions_follow_the_phases(cluster: FakeServer, recorder: Recorder) -> None:
    conditions = conditions_of(cluster, recorder)
    shown = {}
    with conditions.while_running({"n1"}, ()):
        for phase in Phase:
            conditions.set_phase_conditions("n1", phase)
            shown[phase] = seen(cluster, "n1")
        conditions.remove("n1")
        assert seen(cluster, "n1") == []
    assert shown[Phase.PENDING] == [PLANNED]
    assert shown[Phase.CORDONED] == [DRAINING]
    assert shown[Phase.DRAINING] == [DRAINING]
    assert shown[Phase.DRAINED] == [DRAINED]
    assert shown[Phase.REBOOTING] == [DRAINED, MAINTAINED]
    assert shown[Phase.READY] == [DRAINED, MAINTAINED]
    assert recorder.events == []


def test_nothing_is_written_if_the_setting_is_off(cluster: FakeServer, recorder: Recorder) -> None:
    conditions = conditions_of(cluster, recorder, is_on=False)
    with conditions.while_running(NAMES, ()):
        conditions.set_phase_conditions("n1", Phase.DRAINING)
        assert [seen(cluster, name) for name in NAMES] == [[], [], []]


def test_what_an_earlier_process_left_is_removed_even_if_the_setting_is_off(
    cluster: FakeServer, recorder: Recorder
) -> None:
    conditions_of(cluster, recorder).set_phase_conditions("n2", Phase.REBOOTING)
    with conditions_of(cluster, recorder, is_on=False, run_id="later").while_running((), ()):
        assert seen(cluster, "n2") == []


def test_a_node_that_another_rollout_has_in_flight_keeps_its_conditions(
    cluster: FakeServer, recorder: Recorder
) -> None:
    change(cluster, NODES, "n2", metadata={"annotations": {marks.RUN: "other"}})
    conditions_of(cluster, recorder, run_id="other").set_phase_conditions("n2", Phase.DRAINING)
    with conditions_of(cluster, recorder).while_running((), ()):
        pass
    assert seen(cluster, "n2") == [DRAINING]


def test_an_abort_removes_the_conditions_of_every_rollout(
    cluster: FakeServer, recorder: Recorder
) -> None:
    change(cluster, NODES, "n2", metadata={"annotations": {marks.RUN: "other"}})
    conditions_of(cluster, recorder, run_id="other").set_phase_conditions("n2", Phase.DRAINING)
    conditions_of(cluster, recorder, is_on=False, run_id="").remove_all()
    assert seen(cluster, "n2") == []


def test_a_node_in_flight_keeps_its_conditions_until_its_next_phase(
    cluster: FakeServer, recorder: Recorder
) -> None:
    conditions_of(cluster, recorder).set_phase_conditions("n1", Phase.REBOOTING)
    with conditions_of(cluster, recorder).while_running({"n2"}, {"n1"}):
        assert seen(cluster, "n1") == [DRAINED, MAINTAINED]
        assert seen(cluster, "n2") == [PLANNED]


def test_a_kubelet_that_writes_in_between_loses_nothing(
    cluster: FakeServer, recorder: Recorder
) -> None:
    clock = SystemClock()
    heartbeat = {**READY, "lastHeartbeatTime": "2026-11-29T02:00:10Z"}

    class Contended(FakeCluster):
        """The kubelet reports once, right before the first write."""

        writes = 0

        @override
        def patch(self, path: str, body: object, query: Query | None = None) -> bytes:
            self.writes += 1
            if self.writes == 1:
                change(cluster, NODES, "n1", status={"conditions": [heartbeat]})
            return super().patch(path, body, query)

    contended = PatientApi(Contended(cluster), clock)
    report = Reporter((recorder,), clock)
    conditions = NodeConditions(contended, unfenced, report, run_id="abc", sets_conditions=True)
    conditions.set_phase_conditions("n1", Phase.DRAINED)
    found = stored(cluster, NODES, "n1")["status"]["conditions"]
    assert found[0] == heartbeat
    assert types_of(found) == ["Ready", "Drained"]


class Refusing(FakeCluster):
    """A server on which this user may not patch the status of Nodes."""

    @override
    def patch(self, path: str, body: object, query: Query | None = None) -> bytes:
        name = path.split("/")[-2]
        raise ApiError(f"nodes {name} is forbidden", status=403)


def test_a_missing_right_is_reported_once_and_stops_nothing(
    cluster: FakeServer, recorder: Recorder
) -> None:
    clock = SystemClock()
    report = Reporter((recorder,), clock)
    refusing = PatientApi(Refusing(cluster), clock)
    conditions = NodeConditions(refusing, unfenced, report, run_id="abc", sets_conditions=True)
    with conditions.while_running(NAMES, ()):
        conditions.set_phase_conditions("n1", Phase.DRAINING)
    (notice,) = recorder.events
    assert isinstance(notice, Notice)
    assert notice.message.startswith("the conditions of the nodes cannot be written: nodes n")


class Closing(Refusing):
    """A server that later does not list Nodes either."""

    is_closed = False

    @override
    def pages(self, path: str, query: Query | None = None) -> Iterator[bytes]:
        if self.is_closed:
            raise ApiError("nodes is forbidden", status=403)
        return super().pages(path, query)


def test_the_end_reports_conditions_that_may_stay_because_no_node_can_be_read(
    cluster: FakeServer, recorder: Recorder
) -> None:
    clock = SystemClock()
    server = Closing(cluster)
    report = Reporter((recorder,), clock)
    conditions = NodeConditions(
        PatientApi(server, clock), unfenced, report, run_id="abc", sets_conditions=True
    )
    with conditions.while_running(NAMES, ()):
        server.is_closed = True
    refused, left = recorder.events
    assert isinstance(refused, Notice)
    assert isinstance(left, Notice)
    assert left.message.startswith("conditions may stay on nodes that could not be read: ")


def test_the_end_removes_them_also_after_a_defect(cluster: FakeServer, recorder: Recorder) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        conditions_of(cluster, recorder).while_running({"n1"}, ()),
    ):
        raise ZeroDivisionError
    assert seen(cluster, "n1") == []
