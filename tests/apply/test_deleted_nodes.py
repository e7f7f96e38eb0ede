"""Nodes that somebody takes out of the cluster while a rollout is under way, as autoscalers do."""

from collections.abc import Callable, Mapping
from functools import partial

import pytest

from rollout.lab.api.resources import CONFIGMAPS, NODES
from rollout.lab.api.store import Json
from rollout.lab.hosts.faults import HostFaults, RebootFault
from rollout.lab.hosts.machine import STAGED_LOCK
from rollout.lab.lab import Lab
from rollout.model.marks import LEASE_NAME, MEMORY_NAME
from tests.apply.conftest import ONE_LOOK, Rollout, Started
from tests.apply.test_detect import COMMAND, OWN, nodes
from tests.ended import Ended
from tests.security.hands import at_phase, later
from tests.state import inflict, marks_of, node_of, rebooted

APPLY = (
    *("apply", "--yes", "-o", "json", "--max-unavailable", "1", "--control-plane", "exclude"),
    *("--set", "waves.health-checks=1", "--set", "ssh.probe-timeout=5s"),
)


def gone(lab: Lab, node: str) -> None:
    """The machine is off, and its Node deleted."""
    lab.machines[node].cut_power()
    lab.store.remove(NODES, node)


def held(lab: Lab, node: str) -> None:
    """The Node is deleted, and stands for as long as its machine is being taken away."""
    stored = node_of(lab, node)
    metadata = {"finalizers": ["example.com/machine"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    lab.store.put(NODES, {**stored, "metadata": {**stored["metadata"], **metadata}})


def remade(lab: Lab, node: str) -> None:
    """The Node is deleted; its kubelet registers it anew when it starts: with the next boot of its
    host.
    """
    lab.store.remove(NODES, node)


def taken(lab: Lab, node: str) -> None:
    """An autoscaler has it in hand."""
    taint(lab, node, "ToBeDeletedByClusterAutoscaler")


SPOT = "aws-node-termination-handler/spot-itn"


def on_notice(lab: Lab, node: str) -> None:
    """The spot market takes its machine back in two minutes."""
    taint(lab, node, SPOT)


def taint(lab: Lab, node: str, key: str) -> None:
    stored = node_of(lab, node)
    taint = {"key": key, "effect": "NoSchedule"}
    taints = [*stored["spec"].get("taints", ()), taint]
    lab.store.put(NODES, {**stored, "spec": {**stored["spec"], "taints": taints}})


def once_down(lab: Lab, node: str, act: Callable[[], object]) -> None:
    """Do something as soon as the host is down; in the lab's loop."""
    if lab.machines[node].running:
        later(0.02, lambda: once_down(lab, node, act))
    else:
        act()


def end_of_node(lines: list[Json], node: str) -> Json:
    (end,) = [line for line in lines if line["type"] == "node_finished" and line["node"] == node]
    return end


def assert_skipped(ended: Ended, why: Mapping[str, str]) -> None:
    """The rollout has left out these nodes, and has taken all others."""
    for node, words in why.items():
        end = end_of_node(ended.lines, node)
        assert end["outcome"] == "skipped"
        assert words in end["message"]
        assert not end["left_cordoned"]
    assert ended.summary["failed"] == []
    assert sorted(ended.summary["skipped"]) == sorted(why)
    assert ended.summary["left_out"]["deleting"] == len(why)
    planned = {name["name"] for wave in ended.plan["waves"] for name in wave["nodes"]}
    assert set(ended.summary["succeeded"]) == planned - set(why)


def test_nodes_that_wait_and_are_deleted_are_no_failures(
    started: Started, rollout: Rollout
) -> None:
    ways = {
        gone: "its Node was deleted since the plan was made",
        held: "the Node is being deleted",
        on_notice: f"the AWS node termination handler is about to remove it: taint {SPOT}",
    }
    lab = started("default", 10)
    chosen = [f"worker-{number}" for number in range(1, 5)]
    why = dict[str, str]()

    def remove_others(node: str) -> None:
        others = (name for name in chosen if name != node)
        for other, remove in zip(others, ways, strict=False):
            remove(lab, other)
            why[other] = ways[remove]

    at_phase(lab, "draining", remove_others)
    ended = rollout(lab, *APPLY, *nodes(*chosen)).ends(0)
    assert len(why) == len(ways)
    assert_skipped(ended, why)
    assert not rebooted(lab) & set(why)


def test_nodes_that_are_deleted_in_their_drains_are_no_failures(
    started: Started, rollout: Rollout
) -> None:
    """An autoscaler takes what is empty: the nodes that still wait get their turns."""
    ways = {"worker-1": gone, "worker-2": remade, "worker-3": held, "worker-4": taken}
    lab = started("default", 10)
    for node, remove in ways.items():
        at_phase(lab, "draining", partial(remove, lab), node=node)
    ended = rollout(lab, *APPLY, "--drain-timeout", "30s", *nodes(*ways, "worker-5")).ends(0)
    assert_skipped(ended, dict.fromkeys(ways, "not rebooted: "))
    assert rebooted(lab) == {"worker-5"}


def test_a_machine_that_is_taken_away_while_it_reboots_is_no_failure(
    started: Started, rollout: Rollout
) -> None:
    lab = started("default", 5)
    inflict(lab, HostFaults(reboot=RebootFault.NEVER_RETURNS), "worker-1")
    remove = partial(gone, lab, "worker-1")
    at_phase(lab, "rebooting", lambda node: once_down(lab, node, remove), node="worker-1")
    ended = rollout(lab, *APPLY, "--node", "worker-1", "--reboot-timeout", "3s").ends(0)
    assert_skipped(ended, {"worker-1": "its Node was deleted during its reboot"})
    assert lab.store.get(CONFIGMAPS, MEMORY_NAME, "kube-system") is None
    assert lab.store.get(CONFIGMAPS, LEASE_NAME, "kube-system") is None


def test_a_node_that_is_registered_again_after_its_reboot_has_succeeded(
    started: Started, rollout: Rollout
) -> None:
    """As cloud controllers do it, which delete the Node of a machine that is down."""
    lab = started("default", 5)
    inflict(lab, HostFaults(reboot=RebootFault.NEVER_RETURNS), "worker-1")

    def remake() -> None:
        remade(lab, "worker-1")
        # The cluster deletes the pods of the Node before its kubelet registers it again.
        lab.world.cluster.agenda.after(20, lab.machines["worker-1"].power_on)

    at_phase(lab, "rebooting", lambda node: once_down(lab, node, remake), node="worker-1")
    ended = rollout(lab, *APPLY, "--reboot-timeout", "30s").ends(0)
    assert ended.outcomes == {f"worker-{number}": "succeeded" for number in range(1, 5)}
    score = lab.scoreboard()
    assert score.reboots["worker-1"] == 1
    assert score.cordons_left == ()
    assert set(marks_of(lab, "worker-1")) == {"last-result"}


# What asked for a reboot is gone before the reboot: no host is rebooted for nothing, and its node
# is given back.


GONE = "not rebooted: {}"


NOTHING = GONE.format("no source reports a pending reboot any more")


def no_annotation(lab: Lab, node: str) -> None:
    stored = node_of(lab, node)
    annotations = {
        name: value for name, value in stored["metadata"]["annotations"].items() if name != OWN
    }
    lab.store.put(NODES, {**stored, "metadata": {**stored["metadata"], "annotations": annotations}})


def no_file(name: str) -> Callable[[Lab, str], None]:
    def remove(lab: Lab, node: str) -> None:
        del lab.machines[node].files[name]

    return remove


def nothing_staged(lab: Lab, node: str) -> None:
    """As `update_engine_client -reset_status` and `rpm-ostree cleanup -p` leave it."""
    lab.machines[node].update_engine.reset()
    lab.machines[node].update_engine.staged = None


NEEDS = {
    "update-engine": ("cp-1", (), nothing_staged, GONE.format("the update is no longer staged")),
    "annotation": ("worker-3", (), no_annotation, NOTHING),
    "reboot-required": ("worker-4", (), no_file("/run/reboot-required"), NOTHING),
    "rpm-ostree": ("worker-6", (), nothing_staged, NOTHING),
    "command": ("worker-8", COMMAND, no_file("/run/needs-restart"), NOTHING),
}


TAKE = ("apply", "--yes", "-o", "json", *ONE_LOOK)


@pytest.mark.sample(2)
@pytest.mark.parametrize("source", NEEDS)
def test_a_host_is_not_rebooted_where_nothing_asks_for_it_any_more(
    source: str, started: Started, rollout: Rollout
) -> None:
    lab = started("sources", 12)
    node, flags, vanish, why = NEEDS[source]
    at_phase(lab, "draining", lambda name: vanish(lab, name))
    words = (*TAKE, "--set", f"detect.sources={source}", *flags, *nodes(node))
    ended = rollout(lab, *words).ends(0)
    end = end_of_node(ended.lines, node)
    assert end["outcome"] == "skipped"
    assert end["message"] == why
    assert not end["left_cordoned"]
    assert ended.summary["skipped"] == [node]
    assert ended.summary["left_out"] == {"no-update": 1}
    score = lab.scoreboard()
    assert score.reboots[node] == 0
    assert score.cordons_left == ()
    assert score.annotations_left == {}


def test_a_host_that_cannot_tell_is_rebooted_as_it_was_planned(
    started: Started, rollout: Rollout
) -> None:
    """Its bus denies the question: that is no word that nothing waits."""
    lab = started("default", 5)
    denies = HostFaults(missing=("update_engine_client",))
    at_phase(lab, "draining", lambda node: lab.machines[node].inflict(denies))
    rollout(lab, *TAKE, *nodes("worker-1")).ends(0)
    assert lab.scoreboard().reboots["worker-1"] == 1


def locked(lab: Lab, node: str) -> None:
    lab.machines[node].files[STAGED_LOCK] = ""


@pytest.mark.parametrize(
    ("other", "changes", "why"),
    [
        ("worker-4", no_file("/run/reboot-required"), "no /run/reboot-required"),
        ("worker-7", locked, "finalize-deployment"),
    ],
)
def test_a_node_whose_host_has_changed_before_its_turn_is_not_begun(
    other: str, changes: Callable[[Lab, str], None], why: str, started: Started, rollout: Rollout
) -> None:
    """As it was planned it needed its reboot, and could be rebooted; another node's turn came
    before its own.
    """
    lab = started("sources", 12)
    sources = ("--set", "detect.sources=annotation,reboot-required,rpm-ostree")
    at_phase(lab, "draining", lambda _node: changes(lab, other))
    words = (*TAKE, *sources, "--max-unavailable", "1", *nodes("worker-3", other))
    ended = rollout(lab, *words)
    begun = {line["node"] for line in ended.lines if line.get("phase") == "draining"}
    assert begun == {"worker-3"}
    end = end_of_node(ended.lines, other)
    assert end["outcome"] == "skipped"
    assert not end["left_cordoned"]
    assert why in end["message"]
    assert ended.summary["succeeded"] == ["worker-3"]
    assert ended.summary["skipped"] == [other]
    assert lab.scoreboard().reboots[other] == 0
