"""A run in a pod leaves the node under it to the next run, which is elsewhere: it is never drained
under itself.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from rollout.lab.api.resources import NODES
from rollout.lab.hosts.faults import HostFaults, RebootFault
from rollout.lab.lab import Lab
from tests.apply.conftest import Rollout, Started, killed_at
from tests.ended import Ended, invoked
from tests.state import node_of, unlock, write_spec

TAINT = {"key": "node-rollout.dev/awaiting-reboot", "effect": "PreferNoSchedule"}
MARK = "node-rollout.dev/deferred"
QUICK = ("--settle-timeout", "20s", "--set", "waves.health-checks=1")
APPLY = ("apply", "--yes", "-o", "json", *QUICK)


@pytest.fixture
def in_pod(tmp_path: Path) -> Callable[..., Ended]:
    """Run the real program to its end as a pod on this node would."""

    def run(lab: Lab, node: str, *arguments: str) -> Ended:
        environment = {
            **lab.environment,
            "ROLLOUT_NODE_NAME": node,
            "ROLLOUT_POD_NAME": "rollout-1",
        }
        return invoked(tmp_path, environment, arguments)

    return run


def is_marked(lab: Lab, name: str) -> bool:
    """Whether annotation, label and taint stand on it; all of them, or none."""
    node = node_of(lab, name)
    metadata = node["metadata"]
    taints = node["spec"].get("taints") or ()
    has_taint = any(
        taint["key"] == TAINT["key"] and taint["effect"] == TAINT["effect"] for taint in taints
    )
    signs = {
        MARK in metadata.get("annotations", {}),
        metadata.get("labels", {}).get(MARK) == "true",
        has_taint,
    }
    assert len(signs) == 1, node
    return bool(signs.pop())


def test_two_passes_do_all_nodes(started: Started, in_pod: Callable[..., Ended]) -> None:
    lab = started("default", 5)
    first = in_pod(lab, "worker-2", *APPLY).ends(4)
    assert first.plan["excluded"][0]["reason"] == "deferred"
    assert "worker-2" not in first.summary["succeeded"]
    assert len(first.summary["succeeded"]) == 4
    assert [(node["node"], node["reason"]) for node in first.summary["not_done"]] == [
        ("worker-2", "deferred")
    ]
    assert is_marked(lab, "worker-2")
    score = lab.scoreboard()
    assert score.reboots["worker-2"] == 0
    assert score.cordons_left == ()
    second = in_pod(lab, "worker-1", *APPLY).ends(0)
    assert second.summary["succeeded"] == ["worker-2"]
    assert not is_marked(lab, "worker-2")
    score = lab.scoreboard()
    assert set(score.reboots.values()) == {1}
    assert score.clean
    assert score.annotations_left == {}


def test_resume_gives_it_back_and_leaves_it_to_the_next_run(
    started: Started, rollout: Rollout, in_pod: Callable[..., Ended], tmp_path: Path
) -> None:
    """Its drain was begun by another process: gone on with, it would end this one."""
    lab = started("default", 5)
    killed_at(lab, tmp_path, "draining", *APPLY, "--node", "worker-2")
    assert "worker-2" in lab.scoreboard().cordons_left
    ended = in_pod(lab, "worker-2", "resume", "--yes", "-o", "json", *unlock(lab)).ends(4)
    assert [(node["node"], node["reason"]) for node in ended.summary["not_done"]] == [
        ("worker-2", "deferred")
    ]
    score = lab.scoreboard()
    assert score.cordons_left == ()
    assert score.reboots["worker-2"] == 0
    assert is_marked(lab, "worker-2")
    rollout(lab, *APPLY).ends(0)
    score = lab.scoreboard()
    assert set(score.reboots.values()) == {1}
    assert score.clean
    assert score.annotations_left == {}


def test_a_reboot_that_may_have_been_requested_is_for_a_process_elsewhere(
    started: Started, rollout: Rollout, in_pod: Callable[..., Ended], tmp_path: Path
) -> None:
    lab = started("default", 5)
    lab.call(lambda: lab.machines["worker-2"].inflict(HostFaults(reboot=RebootFault.IGNORED)))
    killed_at(lab, tmp_path, "rebooting", *APPLY, "--node", "worker-2")
    ended = in_pod(lab, "worker-2", "resume", "--yes", "-o", "json", *unlock(lab)).ends(4)
    assert ended.outcomes["worker-2"] == "stranded"
    assert ended.failures["worker-2"]["left_cordoned"]
    assert (
        node_of(lab, "worker-2")["metadata"]["annotations"]["node-rollout.dev/phase"] == "rebooting"
    )
    lab.call(lambda: lab.machines["worker-2"].inflict(HostFaults()))
    rollout(lab, "resume", "--yes").ends(0)
    assert lab.scoreboard().clean


@pytest.mark.parametrize("nodes", [1, 5])
def test_with_nowhere_to_go_that_is_said_and_nothing_is_left(
    started: Started, in_pod: Callable[..., Ended], nodes: int
) -> None:
    """One node in all, or the last one that takes pods: no later run in this cluster would stand
    elsewhere.
    """
    lab = started("default", nodes)
    own, *others = sorted(node["metadata"]["name"] for node in lab.store.items(NODES))[::-1]
    for name in others:
        write_spec(lab, name, unschedulable=True)
    ended = in_pod(lab, own, "apply", "--yes", *QUICK).ends(4)
    assert f"! {own}  own-node: rollout itself runs on this node" in ended.stdout
    assert "cannot be scheduled on another node" in ended.stdout
    assert "from outside the cluster" in ended.stdout
    assert not any(lab.scoreboard().reboots.values())
    assert not is_marked(lab, own)
