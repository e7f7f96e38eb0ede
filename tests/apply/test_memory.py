"""What one rollout leaves for the next: versions that are held, nodes that rest; on a lab whose
nights pass.
"""

import json
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rollout.lab.api.access import Denial
from rollout.lab.api.resources import CONFIGMAPS
from rollout.lab.hosts.engine import UpdateEngine
from rollout.lab.hosts.faults import HostFaults, RebootFault
from rollout.lab.lab import Lab
from rollout.model.marks import MEMORY_NAME
from tests.apply.conftest import ONE_LOOK, Rollout, Started, command
from tests.state import inflict
from tests.waiting import wait_until

APPLY = (
    *("apply", "--yes", "-o", "json", "--control-plane", "exclude", "--settle-timeout", "5s"),
    *ONE_LOOK,
)
BAD = "4230.2.0"
FIXED = "4230.2.1"
NIGHT = timedelta(days=1).total_seconds()


def roll_back_everywhere(lab: Lab) -> None:
    """Every host has the bad version staged, and boots its old one instead."""

    for machine in lab.machines.values():
        lab.call(
            partial(setattr, machine, "update_engine", UpdateEngine.with_staged(BAD, checked=1))
        )
    inflict(lab, HostFaults(reboot=RebootFault.ROLLS_BACK))


def let_pass(lab: Lab, seconds: float = NIGHT) -> None:
    """The lab's machines believe that it is that much later; one clock is all of theirs."""
    lab.call(lambda: lab.machines["worker-1"].clock.skip(seconds))


def remembered(lab: Lab) -> dict[str, Any]:
    config_map = lab.call(lambda: lab.store.get(CONFIGMAPS, "node-rollout-memory", "kube-system"))
    text = config_map["data"].get("memory.json", "{}") if config_map else "{}"
    return json.loads(text)  # type: ignore[no-any-return]


def stands(lab: Lab, data: dict[str, str]) -> None:
    metadata = {"name": "node-rollout-memory", "namespace": "kube-system"}
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    lab.call(lambda: lab.store.create(CONFIGMAPS, config_map))


def harmed(lab: Lab) -> list[str]:
    return [node for node, times in lab.scoreboard().reboots.items() if times]


def five_nights(lab: Lab, rollout: Rollout, *words: str) -> None:
    """Whoever rolled back has nothing staged any more, so that each night finds others to try it
    on.
    """
    roll_back_everywhere(lab)
    for _night in range(5):
        rollout(lab, *words)
        let_pass(lab)


@pytest.mark.sample
@pytest.mark.parametrize("most", [1, 2])
def test_five_nights_harm_no_more_nodes_than_may_fail(
    started: Started, rollout: Rollout, most: int
) -> None:
    lab = started("default", 8)
    five_nights(lab, rollout, *APPLY, "--max-failures", str(most))
    assert len(harmed(lab)) == most


def hold(lab: Lab, rollout: Rollout) -> None:
    """One node has rolled back, and so its version is held."""
    roll_back_everywhere(lab)
    ended = rollout(lab, *APPLY)
    assert ended.outcomes == {"worker-1": "rolled-back"}
    (held,) = (line for line in ended.lines if line["type"] == "version_held")
    assert held["version"] == BAD
    assert held["nodes"] == ["worker-1"]
    assert held["message"].startswith(f"version {BAD} is held: it failed on 1 node (worker-1)")


def test_a_held_version_is_shown_and_left_out_until_it_is_released(
    started: Started, rollout: Rollout
) -> None:
    lab = started("default", 6)
    hold(lab, rollout)
    inflict(lab, HostFaults())
    planned = json.loads(rollout(lab, "plan", "-o", "json", "--control-plane", "exclude").stdout)
    reasons = {left["node"]: left["reason"] for left in planned["excluded"]}
    assert planned["waves"] == []
    assert reasons["worker-2"] == "version-held"
    assert reasons["worker-1"] == "no-update"
    shown = rollout(lab, "status").stdout
    assert f"Version {BAD} is held: it failed on 1 node (worker-1)" in " ".join(shown.split())
    assert f"rollout release {BAD}" in shown
    again = rollout(lab, *APPLY)
    assert again.code == 4
    assert again.outcomes == {}
    assert f"left out: version {BAD} is held: it failed on 1 node (worker-1)" in again.stderr
    assert {left["reason"] for left in again.summary["not_done"]} == {"version-held"}
    assert "No holds or failures to clear for: 1.2.3." in rollout(lab, "release", "1.2.3").stdout
    assert rollout(lab, "release", BAD).stdout.startswith(f"Ended the hold on: {BAD}.")
    rollout(lab, *APPLY).ends(0)
    assert remembered(lab)["versions"] == {}


def test_a_saved_plan_and_a_resume_leave_it_out_too(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", 6)
    saved = tmp_path / "saved.plan"
    roll_back_everywhere(lab)
    rollout(
        lab,
        *("plan", "--out", str(saved), "--control-plane", "exclude", "--node", "worker-2,worker-3"),
    )
    hold(lab, rollout)
    resumed = rollout(lab, "resume", "--yes", "-o", "json")
    assert resumed.code == 4
    assert resumed.outcomes == {}
    applied = rollout(lab, "apply", str(saved), "-o", "json")
    assert applied.code == 4
    assert applied.outcomes == {}
    assert all(f"version {BAD} is held" in why for why in applied.summary["reasons"].values())
    assert harmed(lab) == ["worker-1"]
    # neither began a node, so no record is left to be resumed
    chosen = ("--node", "worker-2,worker-3", "--allow", "held")
    despite = rollout(lab, "apply", "--yes", "-o", "json", *chosen)
    assert len(despite.outcomes) == 1
    assert len(harmed(lab)) == 2


def test_no_rollout_is_lost_for_a_memory_that_cannot_be_written(
    started: Started, rollout: Rollout
) -> None:
    """Nor does this very rollout forget what it has seen itself."""
    lab = started("default", 6)
    stands(lab, {})
    lab.call(
        lambda: lab.api.access.denials.add(
            Denial("update", "configmaps", "kube-system", MEMORY_NAME)
        )
    )
    roll_back_everywhere(lab)
    ended = rollout(lab, *APPLY, "--max-failures", "2")
    assert ended.code == 4
    assert len(ended.outcomes) == 2
    assert remembered(lab) == {}
    told = [
        line["message"]
        for line in ended.lines
        if line["type"] == "notice" and "warning" in line["message"]
    ]
    assert any(
        "cannot write the failure history" in message and "forbidden" in message for message in told
    )


def test_whoever_may_not_read_it_begins_nothing_and_may_plan(
    started: Started, rollout: Rollout
) -> None:
    lab = started("default", 4)
    rollout(lab, "pause", "--all").ends(0)
    lab.call(
        lambda: lab.api.access.denials.add(Denial("get", "configmaps", "kube-system", MEMORY_NAME))
    )
    ended = rollout(lab, *APPLY).ends(1)
    assert f"get configmaps {MEMORY_NAME}" in ended.stderr
    assert "rollout manifests roles" in ended.stderr
    assert "rollout cannot tell which versions are held" in rollout(lab, "plan").ends(0).stderr
    assert harmed(lab) == []


@pytest.mark.sample
@pytest.mark.parametrize(
    ("text", "why"), [("{", "is invalid"), ('{"format_version": "7.0"}', "format 7.0")]
)
def test_what_goes_by_a_memory_that_cannot_be_read_does_not_begin_until_it_is_reset(
    started: Started, rollout: Rollout, text: str, why: str
) -> None:
    lab = started("default", 5)
    stands(lab, {"memory.json": text, "own": "kept"})
    assert why in rollout(lab, "status").stderr
    checks = json.loads(rollout(lab, "doctor", "-o", "json").stdout)["checks"]
    assert "memory" in {check["check"] for check in checks if check["verdict"] == "fail"}
    relying = (
        APPLY,
        ("operate", "--once"),
        ("plan",),
        ("evidence",),
        ("pause", "--all"),
        ("release", BAD),
    )
    for words in relying:
        ended = rollout(lab, *words).ends(6)
        assert why in ended.stderr
        assert "rollout release --all" in ended.stderr
    config_map = lab.call(lambda: lab.store.get(CONFIGMAPS, MEMORY_NAME, "kube-system"))
    assert config_map is not None
    assert config_map["data"] == {"memory.json": text, "own": "kept"}
    assert harmed(lab) == []
    assert (
        "Reset: ConfigMap kube-system/node-rollout-memory."
        in rollout(lab, "release", "--all").ends(0).stdout
    )
    rollout(lab, *APPLY).ends(0)


def test_what_a_killed_process_saw_is_remembered_and_counts_once(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    """It is written before the marks go: whoever goes on tells the same end again."""
    lab = started("default", 6)
    roll_back_everywhere(lab)
    process = command(lab, tmp_path, *APPLY, "--max-unavailable", "1", "--set", "lock.duration=1s")
    wait_until(lambda: bool(remembered(lab)))
    process.kill()
    process.communicate()
    rollout(lab, "resume", "--yes", "-o", "json")
    known = remembered(lab)
    assert {name: entry["failures"] for name, entry in known["nodes"].items()} == {"worker-1": 1}
    assert known["versions"][BAD]["nodes"] == ["worker-1"]
    assert harmed(lab) == ["worker-1"]


def test_another_version_is_taken_and_a_success_despite_the_hold_ends_it(
    started: Started, rollout: Rollout
) -> None:
    lab = started("default", 6)
    hold(lab, rollout)
    inflict(lab, HostFaults())
    lab.call(
        lambda: setattr(
            lab.machines["worker-2"], "update_engine", UpdateEngine.with_staged(FIXED, checked=1)
        )
    )
    ended = rollout(lab, *APPLY)
    assert ended.code == 4
    assert ended.outcomes == {"worker-2": "succeeded"}
    assert list(remembered(lab)["versions"]) == [BAD]
    by_hand = rollout(lab, *APPLY, "--allow", "held", "--node", "worker-3")
    assert by_hand.code == 0
    assert by_hand.outcomes == {"worker-3": "succeeded"}
    assert "version-held" in {warning["kind"] for warning in by_hand.plan["warnings"]}
    assert remembered(lab)["versions"] == {}
    rollout(lab, *APPLY).ends(0)
