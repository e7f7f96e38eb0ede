"""Two who do not know of each other, each about to cordon a node: whatever the order, one goes and
never both.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from msgspec.structs import replace

from rollout.adapters.clock import SystemClock
from rollout.execution.base.deadline import PatientApi
from rollout.execution.base.reporting import Reporter
from rollout.execution.drain.controllers import find_busy_controller
from rollout.execution.node.claim import claim_and_cordon
from rollout.execution.node.context import NodeContext
from rollout.execution.node.failures import NodeFailure, RefusedError
from rollout.execution.node.marking import return_node
from rollout.gather.cluster.snapshot import read_node
from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.api.resources import NODES
from rollout.lab.api.store import Change
from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.finding import AllNodesPaused, ControllerMoving, Finding
from rollout.model.memory import Pause
from rollout.model.plan import PlannedNode
from rollout.model.progress import Outcome
from rollout.ports import ClusterApi
from tests.execution.drains import (
    Json,
    add_budget,
    add_pod,
    change,
    owner,
    put,
    stored,
    unfenced,
)
from tests.execution.simulated import OpenEngine
from tests.planning.builders import facts
from tests.standalone_api import StandaloneApi

pytestmark = pytest.mark.in_memory
NAMES = ("n1", "n2", "n3", "n4")
CALLS = ("get", "pages", "patch")
PAUSED = AllNodesPaused(Pause("ada"))


@dataclass
class Allowed(OpenEngine):
    """An engine with a limit, and with something that holds the node up."""

    why: Callable[[], Finding | None] = lambda: None

    def why_not_to_cordon(self, planned: PlannedNode) -> Finding | None:
        return self.why()


@dataclass
class OfOneDatabase(OpenEngine):
    """An engine with room for all nodes, of which each has an instance of one database."""

    api: ClusterApi | None = None
    most: int = len(NAMES)

    def find_busy_controller(self, name: str, nodes: Iterable[Node]) -> ControllerMoving | None:
        return find_busy_controller(cast("ClusterApi", self.api), name, nodes)


@dataclass
class Interrupted:
    """A client of the API before whose `number`-th request something else happens."""

    api: ClusterApi
    number: int
    happen: Callable[[], object]
    requests: int = 0

    def __getattr__(self, name: str) -> Any:
        if name in CALLS:
            self.requests += 1
            if self.requests == self.number:
                self.happen()
        return getattr(self.api, name)


@dataclass
class Seen:
    """The most nodes that were cordoned at once."""

    cordoned: set[str] = field(default_factory=set)
    most: int = 0

    def changed(self, change: Change) -> None:
        if change.resource is NODES:
            name = change.obj["metadata"]["name"]
            (
                self.cordoned.add
                if change.obj["spec"].get("unschedulable")
                else self.cordoned.discard
            )(name)
            self.most = max(self.most, len(self.cordoned))


@pytest.fixture
def seen(server: StandaloneApi) -> Seen:
    for name in NAMES:
        status = {
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"bootID": "b", "machineID": "m"},
        }
        put(server, NODES, {"metadata": {"name": name}, "status": status})
    witness = Seen()
    server.call(lambda: server.store.subscribe(witness.changed))
    return witness


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollout.execution.node.claim._WITHDRAW_SECONDS", 0.2)
    monkeypatch.setattr("rollout.execution.node.claim._PAUSE", 0.01)


def context(
    api: object, name: str, admission: OpenEngine, *, cordoned: bool = False
) -> NodeContext:
    clock = SystemClock()
    cluster = PatientApi(cast("ClusterApi", api), clock)
    report = Reporter((), clock)
    uid = read_node(cast("ClusterApi", getattr(api, "api", api)), name).uid
    planned = PlannedNode(name, "b", uid, "1", "2", 0, 0, was_cordoned=cordoned, machine_id="m")
    return NodeContext(
        planned=planned,
        run_id=f"run-{name}",
        cluster=cluster,
        check_may_act=unfenced,
        report=report,
        engine=admission,
        host=cast("Any", None),
    )


def claimed(api: object, name: str, admission: OpenEngine, *, cordoned: bool = False) -> bool:
    try:
        claim_and_cordon(context(api, name, admission, cordoned=cordoned), "2", facts("n1"))
    except RefusedError:
        return False
    return True


def node_of(server: StandaloneApi, name: str) -> Json:
    return stored(server, NODES, name)


def is_unmarked(server: StandaloneApi, name: str) -> bool:
    node = node_of(server, name)
    return not (node["metadata"].get("annotations") or node["spec"].get("unschedulable"))


@pytest.mark.parametrize(("first", "second"), [("n1", "n2"), ("n2", "n1")])
@pytest.mark.parametrize("number", range(1, 7))
def test_at_whichever_request_another_comes_one_of_the_two_goes(
    first: str, second: str, number: int, server: StandaloneApi, api: ClusterApi, seen: Seen
) -> None:
    others: list[bool] = []
    interrupted = Interrupted(
        api, number, lambda: others.append(claimed(api, second, Allowed(most=1)))
    )
    went = {first: claimed(interrupted, first, Allowed(most=1))}
    went[second] = others[0] if others else claimed(api, second, Allowed(most=1))
    assert seen.most == 1
    assert sorted(went.values()) == [False, True]
    assert seen.cordoned == {name for name, has_gone in went.items() if has_gone}
    assert all(is_unmarked(server, name) for name, has_gone in went.items() if not has_gone)


@pytest.mark.parametrize(("first", "second"), [("n1", "n2"), ("n2", "n1")])
@pytest.mark.parametrize("number", range(1, 7))
def test_of_two_nodes_with_instances_of_one_database_one_goes(
    first: str, second: str, number: int, server: StandaloneApi, api: ClusterApi, seen: Seen
) -> None:
    database = owner("Cluster", "shop", "postgresql.cnpg.io/v1")
    for name in (first, second):
        add_pod(server, name, f"shop-{name}", owned=database, metadata={"labels": {"app": "shop"}})
    add_budget(server, "shop", allowed=0, needs=2, has=2, expected=2)
    engine = OfOneDatabase(api=api)
    others: list[bool] = []
    interrupted = Interrupted(api, number, lambda: others.append(claimed(api, second, engine)))
    went = {first: claimed(interrupted, first, engine)}
    went[second] = others[0] if others else claimed(api, second, engine)
    assert seen.most == 1
    assert sorted(went.values()) == [False, True]


def test_many_at_once_all_get_their_turn_and_never_more_than_may(
    server: StandaloneApi, api: ClusterApi, seen: Seen
) -> None:
    turns: list[str] = []

    def take(name: str) -> None:
        while len([turn for turn in turns if turn == name]) < 5:
            if claimed(api, name, Allowed(most=2)):
                turns.append(name)
                return_node(context(api, name, Allowed(most=2)), Outcome.SUCCEEDED, "2")

    threads = [threading.Thread(target=take, args=(name,)) for name in NAMES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(turns) == 5 * len(NAMES)
    assert seen.most <= 2
    assert seen.cordoned == set()


def test_an_outage_before_the_cordon_has_all_of_it_asked_again(
    server: StandaloneApi, api: ClusterApi, seen: Seen
) -> None:
    """The mark is written; the cordon is not, and meanwhile all nodes are paused."""
    asked: list[Finding | None] = []

    def why() -> Finding | None:
        asked.append(PAUSED if len(asked) == 2 else None)
        return asked[-1]

    fault = ApiFault(answer=FaultAnswer.DROP, verb="patch", resource="nodes", requests=1)
    interrupted = Interrupted(api, 4, lambda: server.call(lambda: server.server.faults.add(fault)))
    assert not claimed(interrupted, "n1", Allowed(most=1, why=why))
    assert asked == [None, None, PAUSED]
    assert seen.most == 0
    assert is_unmarked(server, "n1")


def test_an_answer_to_the_mark_that_is_lost_leaves_no_mark(
    server: StandaloneApi, api: ClusterApi, seen: Seen
) -> None:
    asked: list[Finding | None] = []

    def why() -> Finding | None:
        asked.append(PAUSED if asked else None)
        return asked[-1]

    fault = ApiFault(answer=FaultAnswer.LOSE_ANSWER, verb="patch", resource="nodes", requests=1)
    server.call(lambda: server.server.faults.add(fault))
    assert not claimed(api, "n1", Allowed(most=1, why=why))
    assert seen.most == 0
    assert is_unmarked(server, "n1")


def test_a_failed_node_of_an_earlier_run_that_is_refused_stays_marked_as_failed(
    server: StandaloneApi, api: ClusterApi, seen: Seen
) -> None:
    old = {
        marks.RUN: "old",
        marks.PHASE: "failed",
        marks.BOOT_ID_BEFORE: "a",
        marks.CORDONED_BY_US: "true",
    }
    body = {"metadata": {"annotations": old}, "spec": {"unschedulable": True}}
    api.patch("/api/v1/nodes/n1", body)
    asked: list[Finding | None] = []

    def why() -> Finding | None:
        asked.append(PAUSED if asked else None)
        return asked[-1]

    assert not claimed(api, "n1", Allowed(most=1, why=why), cordoned=True)
    assert node_of(server, "n1")["metadata"]["annotations"] == old


@pytest.mark.parametrize("refusal", [1, 2])
def test_a_mark_of_an_earlier_process_is_removed_by_a_refusal(
    refusal: int, server: StandaloneApi, api: ClusterApi, seen: Seen
) -> None:
    """Before the first mark, or after it: others must not wait for a node that nothing is done to."""
    asked: list[Finding | None] = []

    def why() -> Finding | None:
        asked.append(PAUSED if len(asked) + 1 == refusal else None)
        return asked[-1]

    mark = {marks.RUN: "run-n1", marks.PHASE: "pending", marks.BOOT_ID_BEFORE: "b"}
    api.patch("/api/v1/nodes/n1", {"metadata": {"annotations": mark}})
    taken_up = replace(
        context(api, "n1", Allowed(most=1, why=why)), started_by_earlier_process=True
    )
    with pytest.raises(RefusedError):
        claim_and_cordon(taken_up, "2", facts("n1"))
    assert is_unmarked(server, "n1")


@pytest.mark.parametrize("number", [3, 4, 5])
def test_a_node_that_is_cordoned_between_mark_and_cordon_is_left_to_whoever_did(
    number: int, server: StandaloneApi, api: ClusterApi, seen: Seen
) -> None:
    def cordon() -> None:
        api.patch("/api/v1/nodes/n1", {"spec": {"unschedulable": True}})

    with pytest.raises(NodeFailure, match="cordoned outside this rollout"):
        claim_and_cordon(
            context(Interrupted(api, number, cordon), "n1", Allowed(most=1)), "2", facts("n1")
        )
    assert not node_of(server, "n1")["metadata"].get("annotations")


ANOTHERS = {
    "annotations": {marks.RUN: "another", marks.PHASE: "draining", marks.BOOT_ID_BEFORE: "b"}
}
CHANGES: Mapping[str, Json] = {
    "it has annotations of the unfinished rollout another": {"metadata": ANOTHERS},
    "it was cordoned outside this rollout": {"spec": {"unschedulable": True}},
    "its kubelet has reported a new boot": {
        "status": {"nodeInfo": {"bootID": "c", "machineID": "m"}}
    },
    "the Node was deleted and created again": {"metadata": {"uid": "another"}},
}


@pytest.mark.parametrize("says", CHANGES)
def test_a_node_that_is_not_what_was_planned_is_left_as_it_is(
    says: str, server: StandaloneApi, api: ClusterApi, seen: Seen
) -> None:
    planned = context(api, "n1", Allowed(most=1))
    change(server, NODES, "n1", **CHANGES[says])
    before = node_of(server, "n1")
    with pytest.raises(NodeFailure, match=says) as refused:
        claim_and_cordon(planned, "2", facts("n1"))
    assert refused.value.outcome is Outcome.SKIPPED
    assert node_of(server, "n1") == before


def test_a_kubelet_that_reports_a_machine_id_of_its_own_is_claimed(
    server: StandaloneApi, api: ClusterApi, seen: Seen
) -> None:
    change(server, NODES, "n1", status={"nodeInfo": {"bootID": "b", "machineID": "of-its-image"}})
    assert claimed(api, "n1", Allowed(most=2))


def test_only_a_cordon_of_ours_is_ours_to_undo(
    server: StandaloneApi, api: ClusterApi, seen: Seen
) -> None:
    api.patch("/api/v1/nodes/n1", {"spec": {"unschedulable": True}})
    for name, is_ours in (("n1", False), ("n2", True)):
        assert claimed(api, name, Allowed(most=2), cordoned=not is_ours)
        assert (
            node_of(server, name)["metadata"]["annotations"].get(marks.CORDONED_BY_US) == "true"
        ) is is_ours
        return_node(context(api, name, Allowed(most=2)), Outcome.ABORTED, "1")
        assert bool(node_of(server, name)["spec"].get("unschedulable")) is not is_ours
