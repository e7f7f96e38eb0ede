"""The table of leftovers, and the sentences on what came of them."""

from dataclasses import replace

from rollout.execution.rollout.adopt import Adopted
from rollout.model.leftovers import Adoption, Cordon, LeftLock, NodeLeftover, System
from rollout.model.rivals import Coordinator, Workload
from rollout.report.leftovers import adopted_text, leftovers_document, leftovers_text

ROW = NodeLeftover("w-1", System.FLUO, ("a/b", "a/c"), ("a/d",), Cordon.THEIRS, "agent-made-unschedulable is true")
LOCK = LeftLock(System.KURED, "daemonset", "kube-system", "kured", "x/lock", "w-1", ("w-1",), "1")


def of(kind: str, name: str, *, rival: str = "fluo", agent: bool = False) -> Workload:
    return Workload(Coordinator(rival, kind, "ops", name), running=True, agent=agent)


def test_nodes_with_the_same_left_on_them_share_a_row() -> None:
    alike = tuple(replace(ROW, node=f"w-{number}") for number in range(1, 1001))
    text = leftovers_text(Adoption((*alike, replace(ROW, node="w-0", cordon=Cordon.NONE, because=""))), 120)
    assert "w-1, w-2, w-3, w-4 and 996 more" in " ".join(text.split())
    assert len(text.splitlines()) < 15
    assert "w-1000" in leftovers_text(Adoption(alike), None)


def test_a_row_says_what_goes_and_what_becomes_of_the_cordon() -> None:
    (line,) = (line for line in leftovers_text(Adoption((ROW,))).splitlines() if line.startswith("w-1"))
    assert line.split(None, 3)[:3] == ["w-1", "fluo", "theirs"]
    assert "remove 2 annotations (b, c), 1 label (d); uncordon: agent-made-unschedulable is true" in line
    kept = leftovers_text(Adoption((replace(ROW, cordon=Cordon.KEPT, because="kubectl-cordon cordoned it"),)))
    assert "stays" in kept
    assert "uncordon:" not in kept
    left = leftovers_text(Adoption((replace(ROW, system=System.ROLLOUT, obstacle="it is not Ready"),)))
    assert "left as it is: it is not Ready" in left
    assert "remove" not in left.partition("Locks in etcd")[0]


def test_what_runs_is_stopped_in_this_order_and_its_commands_are_never_broken() -> None:
    """kured's lock stands on its DaemonSet: it is stopped, not deleted."""
    running = (
        of("DaemonSet", "agent", agent=True),
        of("Deployment", "operator"),
        of("DaemonSet", "kured", rival="kured"),
    )
    text = leftovers_text(Adoption((ROW,), running=running), 60)
    commands = [line.strip() for line in text.splitlines() if line.startswith("  kubectl")]
    assert commands[0] == "kubectl -n ops delete deployment operator"
    assert commands[-1] == "kubectl -n ops delete daemonset agent"
    assert '"nodeSelector":{"rollout-adopt":"stopped"}' in commands[1]
    document = leftovers_document(Adoption((ROW,), running=running), None)
    assert [entry["command"] for entry in document["running"]] == commands


def test_locks_in_etcd_are_named_with_the_only_nodes_id_or_a_place_for_it() -> None:
    one = Adoption(machines={"w-1": "1c09ca98649c4c7abc779cd04c96812e"})
    assert "locksmithctl unlock 1c09ca98649c4c7abc779cd04c96812e" in leftovers_text(one)
    assert "locksmithctl unlock MACHINE_ID" in leftovers_text(Adoption(machines={**one.machines, "w-2": "0"}))
    locksmith, airlock = leftovers_document(one, None)["elsewhere"]
    assert (locksmith["holder"], airlock["holder"]) == (one.machines["w-1"], "978a225b3d7b40e9acd7ce9b62f68444")


def test_the_end_says_what_was_done_and_what_is_left() -> None:
    shown = Adoption((ROW, replace(ROW, node="w-2", cordon=Cordon.KEPT, because="kubectl cordoned it")), (LOCK,))
    text = adopted_text(Adopted(("w-1",), ("w-1",), (LOCK.place,), {"w-2": "it has changed"}), shown)
    assert text.splitlines() == [
        "1 node cleaned: w-1.",
        "Uncordoned: w-1.",
        "Locks removed: daemonset/kube-system/kured.",
        "Still cordoned: w-2 (kubectl cordoned it). Once it is not needed: kubectl uncordon w-2",
        "Left as it is: w-2: it has changed",
        "Next: rollout status",
    ]


def test_nothing_of_a_cluster_moves_the_cursor() -> None:
    evil = "a/\x1b[2Jb"
    lock = replace(LOCK, annotation=evil, holder=evil, nodes=())
    text = leftovers_text(Adoption((replace(ROW, annotations=(evil,), because=evil),), (lock,), unseen=(evil,)))
    assert "\x1b" not in text
