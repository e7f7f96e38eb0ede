"""A begun node whose host is not known any more, or whose marks say what this program does not understand.

Leaving such a node out made of it one that nobody had begun: it stayed cordoned, did not count as
away, and the rollout ended with 0 and without its record; a phase of a newer version was taken for
a failure, a missing boot ID for a reboot. The rule: what is not understood is never dropped. The
node is stranded: nothing is done to it, it counts as away and as failed, the record stays, the exit
code is 4, and what to do stands in the last lines.
"""

import json
from pathlib import Path

import pytest
import yaml

from rollout.lab.lab import Lab
from tests.apply.conftest import Rollout, Started
from tests.apply.test_resume import assert_finished, stopped_at
from tests.security.hands import mark
from tests.state import marks_of, record, run_of, unlock


def begun(lab: Lab) -> set[str]:
    return {name for name in lab.machines if "run" in marks_of(lab, name)}


def without(lab: Lab, home: Path, node: str) -> str:
    """The lab's inventory, but for one host, and with one that is no Node's."""
    document = yaml.safe_load(lab.inventory.read_text())
    for group in document["all"]["children"].values():
        group["hosts"].pop(node, None)
    document["all"]["hosts"] = {"stray": None}
    path = home / "without.yaml"
    path.write_text(yaml.safe_dump(document))
    return str(path)


def test_a_begun_node_without_a_host_stays_begun(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", 7)
    node = stopped_at(lab, tmp_path, "draining")
    on_node = marks_of(lab, node)
    others = begun(lab) - {node}
    unlocked = unlock(lab)
    words = ("resume", "--yes", "-o", "json", "-i", without(lab, tmp_path, node), *unlocked)
    ended = rollout(lab, *words).ends(4)
    assert ended.outcomes[node] == "stranded"
    assert (
        "no host is known for it now; its cordon and its rollout annotations stay"
        in ended.failures[node]["message"]
    )
    assert "inventory (-i)" in ended.failures[node]["hint"]
    assert set(ended.summary["succeeded"]) == others
    reasons = {why for name, why in ended.summary["reasons"].items() if name != node}
    assert reasons == {"1 node failed, and --max-failures is 1"}
    assert marks_of(lab, node) == on_node
    assert begun(lab) == {node}
    assert node in lab.scoreboard().cordons_left
    assert record(lab) is not None
    rollout(lab, "apply", "--yes").ends(6)
    rollout(lab, "resume", "--yes").ends(0)
    assert_finished(lab)


def test_it_uses_up_what_may_be_away(started: Started, rollout: Rollout, tmp_path: Path) -> None:
    lab = started("default", 6)
    one = (
        *("--set", "lock.duration=3s", "--max-unavailable", "1", "--max-failures", "9"),
        *("--settle-timeout", "2s"),
    )
    node = stopped_at(lab, tmp_path, "draining", *one)
    inventory = without(lab, tmp_path, node)
    ended = rollout(lab, "resume", "--yes", "-i", inventory, *unlock(lab)).ends(4)
    assert "warning: in the inventory, but not in the cluster: stray\n" in ended.stderr
    assert f"warning: no host is known for the Nodes {node}\n" in ended.stderr
    assert f"--max-unavailable 1 is used up by {node}" in ended.stdout
    assert f"✘ {node}  " in ended.stdout
    assert "it was started, but no host is known for it now" in ended.stdout
    assert "rollout resume --retry-failed" not in ended.stdout
    assert not any(lab.scoreboard().reboots.values())
    assert begun(lab) == {node}
    rollout(lab, "abort", "--yes", "-i", inventory).ends(0)
    assert lab.scoreboard().cordons_left == ()
    assert record(lab) is None


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"phase": "defragmenting"}, "phase has the invalid value 'defragmenting'"),
        ({"phase": None}, "phase is missing"),
        ({"boot_id_before": None}, "boot-id-before is missing"),
        ({"run": None}, "run is missing"),
        ({"cordoned_by_us": "perhaps"}, "cordoned-by-us has the invalid value 'perhaps'"),
        ({"quorum": "3"}, "node-rollout.dev/quorum is unknown to this version of rollout"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_marks_that_are_not_understood_stop_it_for_their_node(
    started: Started, rollout: Rollout, tmp_path: Path, changed: dict[str, str | None], says: str
) -> None:
    # With room elsewhere for the pods that were evicted before it was stopped: the node stays
    # cordoned.
    lab = started("default", 7)
    node = stopped_at(
        lab, tmp_path, "draining", "--max-unavailable", "1", "--set", "lock.duration=3s"
    )
    unlocked = unlock(lab)
    mark(lab, node, **changed)
    on_node = marks_of(lab, node)
    shown = json.loads(rollout(lab, "status", "--run", "-o", "json").stdout)
    assert says in shown["not_understood"][node]
    assert node not in shown["not_begun"]
    ended = rollout(lab, "resume", "--yes", "-o", "json", *unlocked)
    assert (ended.code, ended.outcomes) == (4, {node: "stranded"}), ended.stderr
    assert says in ended.failures[node]["message"]
    rollout(lab, "apply", "--yes").ends(6)
    assert record(lab) is not None
    undone = rollout(lab, "abort", "--yes").ends(4)
    assert says in undone.stdout
    assert "kubectl annotate node" in undone.stdout
    assert marks_of(lab, node) == on_node
    assert lab.scoreboard().reboots[node] == 0


def test_a_mark_of_another_version_keeps_its_node_out_of_plans(
    started: Started, rollout: Rollout
) -> None:
    lab = started("default", 4)
    mark(lab, "worker-1", quorum="3")
    plan = json.loads(rollout(lab, "plan", "-o", "json").stdout)
    assert [left["reason"] for left in plan["excluded"] if left["node"] == "worker-1"] == [
        "unknown-marks"
    ]
    assert rollout(lab, "apply", "--yes", "--control-plane", "exclude").code in (0, 4)
    assert lab.scoreboard().reboots["worker-1"] == 0


def test_marks_beside_the_plan_are_nobody_s_consent(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    """A kubelet may write the run's id on its own Node; that takes it into no rollout that does not
    name it.
    """
    lab = started("default", 4)
    node = stopped_at(lab, tmp_path, "draining", "--max-unavailable", "1")
    mark(lab, "cp-1", run=run_of(lab), phase="drained", boot_id_before="b1", cordoned_by_us="true")
    ended = rollout(lab, "resume", "--yes", "-o", "json", *unlock(lab)).ends(4)
    assert ended.outcomes == {node: "succeeded", "cp-1": "stranded"}
    assert "but is not in its plan" in ended.failures["cp-1"]["message"]
    assert lab.scoreboard().reboots["cp-1"] == 0
