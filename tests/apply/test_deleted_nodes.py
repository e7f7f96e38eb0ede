"""Nodes that somebody takes out of the cluster while a rollout is under way, as autoscalers do."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rollout.lab.api.resources import CONFIGMAPS, NODES
from rollout.lab.api.store import Json
from rollout.lab.hosts.faults import HostFaults
from rollout.lab.hosts.machine import STAGED_LOCK
from rollout.lab.lab import Lab
from rollout.model.marks import LEASE_NAME, MEMORY_NAME
from tests.apply.conftest import Started, command
from tests.apply.test_detect import COMMAND, OWN, nodes
from tests.state import marks_of, node_of

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


Meanwhile = Callable[[list[Json]], object]


def told_while(
    lab: Lab, home: Path, words: tuple[str, ...], phase: str, meanwhile: Meanwhile
) -> tuple[int, list[Json]]:
    """An apply's exit code and lines; once a node comes to this phase something happens, by what
    was told so far.
    """
    process = command(lab, home, *words)
    lines: list[Json] = []
    has_happened = False
    with process:
        assert process.stdout is not None
        for written in process.stdout:
            lines.append(json.loads(written))
            if not has_happened and lines[-1]["type"] == "step" and lines[-1]["phase"] == phase:
                has_happened = True
                lab.call(lambda: meanwhile(lines))
    return process.returncode, lines


def end_of_node(lines: list[Json], node: str) -> Json:
    (end,) = [line for line in lines if line["type"] == "node_finished" and line["node"] == node]
    return end


@pytest.mark.sample
@pytest.mark.parametrize(
    ("remove", "why"),
    [
        (gone, "its Node was deleted since it was planned"),
        (held, "the Node is being deleted"),
        (
            on_notice,
            f"the AWS node termination handler is about to remove it: taint {SPOT}",
        ),
    ],
)
def test_a_node_that_waits_and_is_deleted_is_no_failure(
    started: Started, tmp_path: Path, remove: Callable[[Lab, str], None], why: str
) -> None:
    lab = started("default", 7)

    def last_but_one(lines: list[Json]) -> str:
        plan = next(line["plan"] for line in lines if line["type"] == "plan")
        return [str(node["name"]) for wave in plan["waves"] for node in wave["nodes"]][-2]

    code, lines = told_while(
        lab, tmp_path, APPLY, "draining", lambda lines: remove(lab, last_but_one(lines))
    )
    chosen = last_but_one(lines)
    summary = lines[-1]
    end = end_of_node(lines, chosen)
    assert code == 0
    assert end["outcome"] == "skipped"
    assert end["message"] == why
    assert summary["failed"] == []
    assert summary["skipped"] == [chosen]
    assert summary["left_out"]["deleting"] == 1
    assert len(summary["succeeded"]) == 3
    assert lab.scoreboard().reboots[chosen] == 0


def ended_after(
    lab: Lab, home: Path, phase: str, remove: Callable[[Lab, str], None]
) -> tuple[int, str, Json, Json]:
    """A rollout whose first node is taken away in this phase: exit code, the node, its end, and the
    summary.
    """
    chosen: list[str] = []

    def meanwhile(lines: list[Json]) -> None:
        chosen.append(lines[-1]["node"])
        remove(lab, chosen[0])

    code, lines = told_while(
        lab, home, (*APPLY, "--drain-timeout", "30s", "--reboot-timeout", "30s"), phase, meanwhile
    )
    return code, chosen[0], end_of_node(lines, chosen[0]), lines[-1]


@pytest.mark.parametrize("remove", [gone, remade, held, taken])
def test_a_node_that_is_deleted_in_its_drain_is_no_failure(
    started: Started, tmp_path: Path, remove: Callable[[Lab, str], None]
) -> None:
    """An autoscaler takes what is empty: the nodes that still wait get their turns."""
    lab = started("default", 7)
    code, chosen, end, summary = ended_after(lab, tmp_path, "draining", remove)
    assert code == 0
    assert end["outcome"] == "skipped"
    assert not end["left_cordoned"]
    assert summary["failed"] == []
    assert summary["skipped"] == [chosen]
    assert summary["left_out"]["deleting"] == 1
    assert end["message"].startswith("not rebooted: ")
    assert len(summary["succeeded"]) == 3
    assert lab.scoreboard().reboots[chosen] == 0


def test_a_machine_that_is_taken_away_while_it_reboots_is_no_failure(
    started: Started, tmp_path: Path
) -> None:
    lab = started("default", 7)
    code, chosen, end, summary = ended_after(lab, tmp_path, "rebooting", gone)
    assert code == 0
    assert end["outcome"] == "skipped"
    assert not end["left_cordoned"]
    assert summary["failed"] == []
    assert summary["skipped"] == [chosen]
    assert summary["left_out"]["deleting"] == 1
    assert "its Node was deleted during its reboot" in end["message"]
    assert len(summary["succeeded"]) == 3
    assert lab.store.get(CONFIGMAPS, MEMORY_NAME, "kube-system") is None
    assert lab.store.get(CONFIGMAPS, LEASE_NAME, "kube-system") is None


def test_a_node_that_is_registered_again_after_its_reboot_has_succeeded(
    started: Started, tmp_path: Path
) -> None:
    """As cloud controllers do it, which delete the Node of a machine that is down."""
    lab = started("default", 7)
    code, chosen, end, summary = ended_after(lab, tmp_path, "rebooting", remade)
    assert code == 0
    assert end["outcome"] == "succeeded"
    assert summary["skipped"] == []
    assert len(summary["succeeded"]) == 4
    score = lab.scoreboard()
    assert score.reboots[chosen] == 1
    assert score.cordons_left == ()
    assert set(marks_of(lab, chosen)) == {"last-result"}


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
    lab.machines[node].engine.reset()
    lab.machines[node].engine.staged = None


NEEDS = {
    "update-engine": ("cp-1", (), nothing_staged, GONE.format("the update is no longer staged")),
    "annotation": ("worker-3", (), no_annotation, NOTHING),
    "reboot-required": ("worker-4", (), no_file("/run/reboot-required"), NOTHING),
    "rpm-ostree": ("worker-6", (), nothing_staged, NOTHING),
    "command": ("worker-8", COMMAND, no_file("/run/needs-restart"), NOTHING),
}


DELAYED = (
    "apply",
    "--yes",
    "-o",
    "json",
    "--set",
    "waves.health-checks=1",
    "--set",
    "reboot.delay=1s",
)


@pytest.mark.sample(2)
@pytest.mark.parametrize("source", NEEDS)
def test_a_host_is_not_rebooted_where_nothing_asks_for_it_any_more(
    source: str, started: Started, tmp_path: Path
) -> None:
    lab = started("sources", 12)
    node, flags, vanish, why = NEEDS[source]
    words = (*DELAYED, "--set", f"detect.sources={source}", *flags, *nodes(node))
    code, lines = told_while(lab, tmp_path, words, "draining", lambda _lines: vanish(lab, node))
    end = end_of_node(lines, node)
    assert code == 0
    assert end["outcome"] == "skipped"
    assert end["message"] == why
    assert not end["left_cordoned"]
    assert lines[-1]["skipped"] == [node]
    assert lines[-1]["left_out"] == {"no-update": 1}
    score = lab.scoreboard()
    assert score.reboots[node] == 0
    assert score.cordons_left == ()
    assert score.annotations_left == {}


def test_a_host_that_cannot_tell_is_rebooted_as_it_was_planned(
    started: Started, tmp_path: Path
) -> None:
    """Its bus denies the question: that is no word that nothing waits."""
    lab = started("default", 4)
    denies = HostFaults(missing=("update_engine_client",))
    words = (*DELAYED, *nodes("worker-1"))
    code, _ = told_while(
        lab, tmp_path, words, "draining", lambda _lines: lab.machines["worker-1"].inflict(denies)
    )
    assert code == 0
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
    other: str, changes: Callable[[Lab, str], None], why: str, started: Started, tmp_path: Path
) -> None:
    """As it was planned it needed its reboot, and could be rebooted; another node's turn came
    before its own.
    """
    lab = started("sources", 12)
    sources = (
        "--set",
        "detect.sources=annotation,reboot-required,rpm-ostree",
        "--max-unavailable",
        "1",
    )
    words = (*DELAYED, *sources, *nodes("worker-3", other))
    _, lines = told_while(lab, tmp_path, words, "draining", lambda _lines: changes(lab, other))
    begun = [
        line["node"] for line in lines if line["type"] == "step" and line["phase"] == "draining"
    ]
    assert set(begun) == {"worker-3"}
    end = end_of_node(lines, other)
    assert end["outcome"] == "skipped"
    assert not end["left_cordoned"]
    assert why in end["message"]
    assert lines[-1]["succeeded"] == ["worker-3"]
    assert lines[-1]["skipped"] == [other]
    assert lab.scoreboard().reboots[other] == 0
