"""Whose a leftover is, and which cordons their marks prove to be their own."""

from dataclasses import replace
from typing import Any

import pytest

from rollout.model.fleetlock import zincati_id
from rollout.model.leftovers import Cordon, HeldLease, NodeLeftover, Standing, System, WrittenNode
from rollout.model.rivals import Coordinator, LockHolder, Workload
from rollout.planning.leftovers import adoption, whose_cordon
from tests.planning.builders import node

FLUO = "flatcar-linux-update.v1.flatcar-linux.net/"
CLUO = "container-linux-update.v1.coreos.com/"
CRO = "reboot-agent.v1.demo.local/"
MACHINE = "1c09ca98649c4c7abc779cd04c96812e"
OURS = {
    "node-rollout.dev/run": "0123456789abcdef",
    "node-rollout.dev/phase": "failed",
    "node-rollout.dev/boot-id-before": "b1",
}


def kured(*holders: LockHolder, running: bool = False) -> Workload:
    lock = "weave.works/kured-node-lock" if holders else ""
    coordinator = Coordinator("kured", "DaemonSet", "kube-system", "kured", tuple(holder.name for holder in holders))
    return Workload(coordinator, running=running, lock=lock, holders=holders, resource_version="7")


def rows(
    *, cordoned_by: str = "", written_by: dict[str, str] | None = None, standing: Standing | None = None, **marked: Any
) -> tuple[NodeLeftover, ...]:
    made = WrittenNode(replace(node("w-1", **marked), machine_id=MACHINE), cordoned_by, written_by or {})
    around = standing or Standing(())
    return adoption(replace(around, nodes=(made,)), {"w-1"}, whole=True).leftovers


def cordons(**given: Any) -> dict[System, Cordon]:
    return {row.system: row.cordon for row in rows(unschedulable=True, **given)}


@pytest.mark.parametrize(
    ("system", "marked", "names"),
    [
        (System.FLUO, {"annotations": {FLUO + "status": "x"}, "labels": {FLUO + "id": "flatcar"}}, 2),
        (System.CLUO, {"labels": {CLUO + "agent": "true"}}, 1),
        (System.KURED, {"annotations": {"weave.works/kured-reboot-in-progress": "x"}}, 1),
        (System.KURED, {"annotations": {"weave.works/kured-most-recent-reboot-needed": "x"}}, 1),
        (System.KRM, {"annotations": {"rebootmanager/status": "Ready"}}, 1),
        (System.CRO, {"annotations": {CRO + "reboot-needed": "", CRO + "reboot": ""}}, 2),
        (System.ROLLOUT, {"annotations": OURS}, 3),
    ],
)
def test_each_systems_marks_are_its_own(system: System, marked: dict[str, Any], names: int) -> None:
    (row,) = rows(**marked)
    assert (row.system, row.cordon, row.obstacle) == (system, Cordon.NONE, "")
    assert len(row.annotations) + len(row.labels) == names


def test_a_pause_and_the_marks_of_others_are_nobodys_leftover() -> None:
    kept = {FLUO + "reboot-paused": "true", CLUO + "reboot-paused": "true", "weave.works/other": "x"}
    ours = {"node-rollout.dev/last-result": "{}", "node-rollout.dev/paused": "true"}
    assert rows(annotations=kept | ours, labels={"kubernetes.io/hostname": "w-1"}, unschedulable=True) == ()


@pytest.mark.parametrize("prefix", [FLUO, CLUO])
@pytest.mark.parametrize(("word", "cordon"), [("true", Cordon.THEIRS), ("false", Cordon.KEPT), (None, Cordon.KEPT)])
def test_an_agent_says_itself_whether_the_cordon_is_its_own(prefix: str, word: str | None, cordon: Cordon) -> None:
    said = {prefix + "agent-made-unschedulable": word} if word else {}
    assert set(cordons(annotations={prefix + "reboot-ok": "true", **said}).values()) == {cordon}


@pytest.mark.parametrize(
    ("holder", "cordon"),
    [
        (LockHolder("w-1", is_by_hand=False, was_cordoned=False), Cordon.THEIRS),
        (LockHolder("w-1", is_by_hand=False, was_cordoned=True), Cordon.KEPT),
        (LockHolder("w-1", is_by_hand=False, was_cordoned=None), Cordon.KEPT),
        (LockHolder("w-1", is_by_hand=True, was_cordoned=False), Cordon.KEPT),
    ],
)
def test_kureds_lock_says_whether_the_node_was_cordoned_before(holder: LockHolder, cordon: Cordon) -> None:
    standing = Standing((), (kured(holder),))
    assert cordons(standing=standing) == {System.KURED: cordon}
    other = Standing((), (kured(replace(holder, name="w-2")),))
    assert cordons(standing=other) == {}


@pytest.mark.parametrize(
    ("system", "annotation", "program"),
    [
        (System.FLUO, FLUO + "reboot-ok", "update-agent"),
        (System.KRM, "rebootmanager/status", "unknown"),
        (System.CRO, CRO + "reboot-in-progress", "reboot-agent"),
    ],
)
def test_a_program_that_wrote_the_mark_and_the_cordon_is_the_system(
    system: System, annotation: str, program: str
) -> None:
    """Only that program: a script that wrote both is none."""
    marked: dict[str, Any] = {"annotations": {annotation: "Rebooting"}}
    assert cordons(**marked) == {system: Cordon.KEPT}
    assert cordons(**marked, cordoned_by=program, written_by={annotation: program}) == {system: Cordon.THEIRS}
    assert cordons(**marked, cordoned_by=program, written_by={annotation: "other"}) == {system: Cordon.KEPT}
    assert cordons(**marked, cordoned_by=program, written_by={"other": program}) == {system: Cordon.KEPT}
    for script in ("kubectl", "python"):
        assert cordons(**marked, cordoned_by=script, written_by={annotation: script}) == {system: Cordon.KEPT}


@pytest.mark.parametrize("system", [System.KURED, System.FLEETLOCK])
def test_a_cordon_of_a_program_with_a_name_of_its_own_is_known_without_any_mark(system: System) -> None:
    """As where its DaemonSet was deleted with the lock on it."""
    assert cordons(cordoned_by=system.value) == {system: Cordon.THEIRS}
    assert cordons(cordoned_by="kubectl") == {}
    assert rows(cordoned_by=system.value) == ()


@pytest.mark.parametrize("manager", ["kubectl-cordon", "kubectl", "kubectl-drain", "k9s", "oc", "Mozilla"])
@pytest.mark.parametrize(
    ("mark", "agent"),
    [(FLUO + "agent-made-unschedulable", "update-agent"), ("node-rollout.dev/cordoned-by-us", "rollout")],
)
def test_a_persons_cordon_stays_where_the_system_itself_has_written_its_mark(
    mark: str, agent: str, manager: str
) -> None:
    """The mark speaks of an earlier cordon. Who writes the mark by hand means this one."""
    marked: dict[str, Any] = {"annotations": (OURS if agent == "rollout" else {}) | {mark: "true"}}
    assert set(cordons(**marked, cordoned_by=manager, written_by={mark: agent}).values()) == {Cordon.KEPT}
    assert Cordon.THEIRS in cordons(**marked, cordoned_by=manager, written_by={mark: "kubectl-annotate"}).values()
    assert Cordon.THEIRS in cordons(**marked, cordoned_by=manager).values()
    assert Cordon.THEIRS in cordons(**marked, cordoned_by="octopus", written_by={mark: agent}).values()


@pytest.mark.parametrize(
    ("writer", "cordon"), [("kured", Cordon.KEPT), ("kubectl", Cordon.THEIRS), ("", Cordon.THEIRS)]
)
def test_so_it_is_with_kureds_lock(writer: str, cordon: Cordon) -> None:
    locked = replace(kured(LockHolder("w-1", is_by_hand=False, was_cordoned=False)), lock_writer=writer)
    assert cordons(standing=Standing((), (locked,)), cordoned_by="kubectl-cordon") == {System.KURED: cordon}
    assert cordons(standing=Standing((), (locked,)), cordoned_by="kured") == {System.KURED: Cordon.THEIRS}


def test_one_proof_is_enough() -> None:
    """A second system without any proof says nothing against it."""
    said = {FLUO + "agent-made-unschedulable": "true", "rebootmanager/status": "Rebooting"}
    assert cordons(annotations=said) == {System.FLUO: Cordon.THEIRS, System.KRM: Cordon.NONE}


def lease(holder: str, name: str = "fleetlock-workers") -> HeldLease:
    return HeldLease("default", name, "uid", "3", holder)


def test_a_lease_is_held_for_the_node_whose_machine_zincati_names_so() -> None:
    standing = Standing(
        (), leases=(lease(zincati_id(MACHINE)), lease("", "fleetlock-b"), lease("0" * 32, "fleetlock-c"))
    )
    assert cordons(standing=standing, cordoned_by="fleetlock") == {System.FLEETLOCK: Cordon.THEIRS}
    assert cordons(standing=standing) == {System.FLEETLOCK: Cordon.KEPT}
    made = WrittenNode(replace(node("w-1"), machine_id=MACHINE))
    every = adoption(replace(standing, nodes=(made,)), {"w-1"}, whole=True)
    assert every.leftovers == ()
    assert {lock.name: lock.nodes for lock in every.locks} == {
        "fleetlock-workers": ("w-1",),
        "fleetlock-b": (),
        "fleetlock-c": (),
    }
    assert [lock.name for lock in adoption(replace(standing, nodes=(made,)), {"w-1"}, whole=False).locks] == [
        "fleetlock-workers"
    ]


def test_a_lease_of_two_nodes_with_one_machine_id_is_held_for_neither() -> None:
    twins = tuple(WrittenNode(replace(node(name), machine_id=MACHINE)) for name in ("w-1", "w-2"))
    (lock,) = adoption(Standing(twins, leases=(lease(zincati_id(MACHINE)),)), {"w-1", "w-2"}, whole=True).locks
    assert lock.nodes == ()


def test_the_id_is_the_one_that_zincati_sends() -> None:
    assert zincati_id("1c09ca98-649c-4c7a-bc77-9cd04c96812e") == "978a225b3d7b40e9acd7ce9b62f68444"
    assert (zincati_id(""), zincati_id("none"), zincati_id("1c09")) == ("", "", "")


def test_a_lock_that_a_person_took_stays() -> None:
    (lock,) = adoption(
        Standing((), (kured(LockHolder("manual", is_by_hand=True, was_cordoned=None)),)), set(), whole=True
    ).locks
    assert "a person holds it" in lock.obstacle


def test_a_lock_that_is_held_for_other_nodes_too_goes_with_the_last_of_them() -> None:
    """For it alone says whose their cordons are."""
    holders = [LockHolder(name, is_by_hand=False, was_cordoned=False) for name in ("w-1", "w-2")]
    nodes = tuple(WrittenNode(node(name, unschedulable=True)) for name in ("w-1", "w-2"))
    standing = Standing(nodes, (kured(*holders),))
    one = adoption(standing, {"w-1"}, whole=False)
    assert (one.nodes, [lock.obstacle for lock in one.locks]) == (
        ("w-1",),
        ["it stays: it is held for w-2, too, not selected here"],
    )
    both = adoption(standing, {"w-1", "w-2"}, whole=False)
    assert (both.nodes, [lock.obstacle for lock in both.locks]) == (("w-1", "w-2"), [""])


@pytest.mark.parametrize(
    ("marked", "obstacle"),
    [
        ({"annotations": OURS | {"node-rollout.dev/phase": "draining"}}, "rollout resume"),
        ({"annotations": OURS | {"node-rollout.dev/newer": "x"}}, "unknown to this version"),
        ({"annotations": {"node-rollout.dev/run": "a"}}, "missing"),
        ({"annotations": OURS, "ready": False}, "not Ready"),
        ({"annotations": OURS | {"node-rollout.dev/run": "fleetlock-0123456789ab"}}, "rollout fleetlock release w-1"),
    ],
)
def test_what_is_under_way_or_not_understood_or_not_well_is_not_touched(marked: dict[str, Any], obstacle: str) -> None:
    (row,) = rows(**marked)
    assert obstacle in row.obstacle


def test_the_labels_that_our_marks_claim_go_with_them_and_no_others() -> None:
    excluded, hook = "node.kubernetes.io/exclude-from-external-load-balancers", FLUO + "before-reboot"
    claimed = {"node-rollout.dev/excluded-by-us": "true", "node-rollout.dev/hook-label": hook}
    (row,) = rows(annotations=OURS | claimed, labels={excluded: "", hook: "true"})
    assert set(row.labels) == {excluded, hook}
    fluo, ours = rows(annotations=OURS, labels={excluded: "", hook: "true"})
    assert (fluo.labels, ours.labels) == ((hook,), ())


def test_only_workloads_of_systems_that_left_something_keep_it_from_being_cleaned() -> None:
    operator = Workload(Coordinator("fluo", "Deployment", "ops", "fluo"), running=True)
    stopped = Workload(Coordinator("fluo", "Deployment", "ops", "old"), running=False)
    standing = Standing((), (operator, stopped, kured(running=True)))
    made = WrittenNode(node("w-1", annotations={FLUO + "reboot-ok": "true"}))
    assert adoption(replace(standing, nodes=(made,)), {"w-1"}, whole=True).running == (operator,)


@pytest.mark.parametrize(
    ("writer", "annotations", "system", "sentence"),
    [
        ("kubectl-cordon", {}, "", "cordoned by an operator with kubectl-cordon"),
        ("", {}, "", "cordoned by an operator"),
        ("unknown", {}, "", "cordoned by an operator"),
        ("cluster-autoscaler", {}, "", "cordoned by cluster-autoscaler"),
        ("kured", {}, "kured", "cordoned by kured"),
        # kured leaves this one after each reboot: of a cordon it says nothing
        ("", {"weave.works/kured-most-recent-reboot-needed": "x"}, "", "cordoned by an operator"),
        ("", {"weave.works/kured-reboot-in-progress": "x"}, "kured", "cordoned, most likely by kured, whose marks"),
        ("\x1b[2Jx", {}, "", "cordoned by x"),
    ],
)
def test_whose_a_cordon_is_as_far_as_a_node_tells(
    writer: str, annotations: dict[str, str], system: str, sentence: str
) -> None:
    cordoned = node("w-1", unschedulable=True, cordoned_by=writer, annotations=annotations)
    owner, told = whose_cordon(cordoned)
    assert owner == system
    assert told.startswith(sentence)
