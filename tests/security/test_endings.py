"""No ending hides what was not done.

The mishap: of twelve nodes two hosts are silent, want a password for sudo, or show another key. The
program takes the other ten, says `10 nodes done` and ends with 0; whoever reads the exit code
believes the fleet to be on its new version. The rule: a node that was asked for and could not be
reached, judged or rebooted stands in the last lines with its reason, in the summary for programs
and in the history, and the exit code is 4, in whichever process the rollout ends. A node with
nothing to do, or one that a flag, a cordon or a pause holds back, is counted there and ends with 0.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from rollout.lab.api.resources import NODES
from rollout.lab.hosts.faults import (
    BusFault,
    HostFaults,
    HostKeyFault,
    RebootFault,
    SshFault,
    SudoFault,
)
from rollout.lab.hosts.machine import EngineState, Update
from rollout.lab.lab import Lab
from rollout.lab.scenario import HostOverride, HostSelection, Scenario, load_scenario
from tests.apply.conftest import Rollout, killed_at
from tests.conftest import StartLab
from tests.ended import end_of, start
from tests.state import inflict, node_of, unlock, untouched

NODES_IN_ALL = 4  # a control-plane node and three workers
TEXT = (
    *("--yes", "--control-plane", "exclude", "--max-unavailable", "3"),
    *("--set", "waves.health-checks=1"),
)
JSON = (*TEXT, "-o", "json")

TROUBLE = (
    (HostFaults(ssh=SshFault.CLOSED), "unreachable", "refused"),
    (HostFaults(ssh=SshFault.KEY_REFUSED), "unreachable", "refuses user core"),
    (HostFaults(host_key=HostKeyFault.OTHER), "unreachable", "host key"),
    (HostFaults(garbage=True), "unreachable", "did not run the command"),
    (HostFaults(sudo=SudoFault.REFUSED), "no-sudo", "sudoers"),
    (HostFaults(sudo=SudoFault.PASSWORD), "no-sudo", "password"),
    (HostFaults(bus=BusFault.DENIED, sudo=SudoFault.REFUSED), "unknown-status", ""),
    (HostFaults(inhibited=True), "inhibited", "backup"),
    (HostFaults(shuts_down_after_seconds=9000), "shutdown-pending", "scheduled"),
)


def with_hosts(*numbered: tuple[int, dict[str, Any]]) -> Scenario:
    """The usual cluster, but for these workers."""
    hosts = (
        HostOverride(select=HostSelection(names=(f"worker-{number}",)), **more)
        for number, more in numbered
    )
    return msgspec.structs.replace(load_scenario("default"), hosts=tuple(hosts))


def troubled(start_lab: StartLab, faults: HostFaults) -> Lab:
    return start_lab(with_hosts((2, {"faults": faults})), nodes=NODES_IN_ALL)


def test_trouble_that_nobody_decided_on_ends_with_4_and_is_named(
    start_lab: StartLab, rollout: Rollout
) -> None:
    hosts = [(number, {"faults": faults}) for number, (faults, _, _) in enumerate(TROUBLE, 1)]
    lab = start_lab(with_hosts(*hosts), nodes=16)
    ended = rollout(lab, "apply", *JSON).ends(4)
    left = {one["node"]: one for one in ended.summary["not_done"]}
    for number, (_, reason, said) in enumerate(TROUBLE, 1):
        one = left[f"worker-{number}"]
        assert (one["reason"], said in one["message"]) == (reason, True), one
    workers = {name for name in lab.machines if name.startswith("worker")}
    assert len(left) == len(TROUBLE)
    assert set(ended.summary["succeeded"]) == workers - left.keys() != set()
    assert ended.summary["left_out"] == {"excluded": len(lab.machines) - len(workers)}
    assert ended.summary["failed"] == ended.summary["skipped"] == ended.summary["not_started"] == []


def test_what_is_left_out_by_its_state_or_by_request_is_counted_and_ends_with_0(
    start_lab: StartLab, rollout: Rollout
) -> None:
    idle = {"update": Update(state=EngineState.IDLE, to=None)}
    paused = {"annotations": {"node-rollout.dev/paused": "true"}}
    silent = {"faults": HostFaults(ssh=SshFault.CLOSED)}
    lab = start_lab(with_hosts((1, idle), (2, paused), (3, silent)), nodes=9)
    lab.call(lambda: change(lab, "worker-4", cordoned=True))
    ended = rollout(lab, "apply", *JSON, "--exclude", "worker-3").ends(0)
    assert ended.summary["not_done"] == []
    control_planes = sum(name.startswith("cp-") for name in lab.machines)
    left_out = {"excluded": control_planes + 1, "no-update": 1, "paused": 1, "cordoned": 1}
    assert ended.summary["left_out"] == left_out


def test_a_node_that_falls_silent_before_its_turn_counts(
    start_lab: StartLab, rollout: Rollout, tmp_path: Path
) -> None:
    """It was planned; the plan's word for it would have been the same, had it been made a minute
    later.
    """
    lab = start_lab(nodes=NODES_IN_ALL)
    process = start(tmp_path, lab.environment, ("apply", *JSON, "--max-unavailable", "1"))
    assert process.stdout is not None
    head = []
    for line in process.stdout:
        head.append(line)
        if json.loads(line)["type"] == "wave_started":
            break
    first = json.loads(head[-1])["nodes"][0]
    waiting = sorted({"worker-1", "worker-2", "worker-3"} - {first})
    lab.call(lambda: lab.machines[waiting[0]].inflict(HostFaults(ssh=SshFault.CLOSED)))
    lab.call(lambda: change(lab, waiting[1], {"paused": "true"}))
    ended = end_of(process).ends(4)
    assert sorted(ended.summary["skipped"]) == waiting
    assert [(one["node"], one["reason"]) for one in ended.summary["not_done"]] == [
        (waiting[0], "unreachable")
    ]
    assert ended.summary["left_out"] == {"excluded": 1, "paused": 1}


def change(
    lab: Lab, name: str, marks: Mapping[str, str] = MappingProxyType({}), *, cordoned: bool = False
) -> None:
    """Somebody's hands on a Node."""
    node = node_of(lab, name)
    annotations = {f"node-rollout.dev/{key}": value for key, value in marks.items()}
    metadata = {
        **node["metadata"],
        "annotations": {**node["metadata"].get("annotations", {}), **annotations},
    }
    spec = {**node["spec"], "unschedulable": True} if cordoned else node["spec"]
    lab.store.put(NODES, {**node, "metadata": metadata, "spec": spec})


@pytest.mark.sample
def test_whoever_resumes_accounts_for_what_the_plan_could_not_take(
    start_lab: StartLab, rollout: Rollout, tmp_path: Path
) -> None:
    lab = troubled(start_lab, HostFaults(ssh=SshFault.CLOSED))
    killed_at(lab, tmp_path, "draining", "apply", *JSON, "--max-unavailable", "1")
    ended = rollout(lab, "resume", "--yes", "-o", "json", *unlock(lab)).ends(4)
    assert sorted(ended.summary["succeeded"]) == ["worker-1", "worker-3"]
    (left,) = ended.summary["not_done"]
    assert left["node"] == "worker-2"
    assert left["reason"] == "unreachable"
    assert ended.summary["left_out"] == {"excluded": 1}


@pytest.mark.sample
def test_whoever_resumes_accounts_for_what_failed_before(
    start_lab: StartLab, rollout: Rollout, tmp_path: Path
) -> None:
    """And can still try it again: the record stays for as long as the rollout owes a node."""
    lab = start_lab(nodes=NODES_IN_ALL)
    inflict(lab, HostFaults(reboot=RebootFault.IGNORED))
    first = rollout(lab, "apply", *JSON, "--max-unavailable", "1", "--reboot-timeout", "2s")
    (failed,) = first.failures
    assert first.code == 4
    assert not first.failures[failed]["left_cordoned"]
    inflict(lab, HostFaults())
    second = rollout(lab, "resume", "--yes", "-o", "json").ends(4)
    assert len(second.summary["succeeded"]) == 2
    assert [(one["node"], one["reason"]) for one in second.summary["not_done"]] == [
        (failed, "not-rebooted")
    ]
    third = rollout(lab, "resume", "--yes", "-o", "json", "--retry-failed")
    assert third.code == 0
    assert third.summary["succeeded"] == [failed]


@pytest.mark.sample
def test_a_resume_that_can_take_no_node_tells_of_each_once(
    start_lab: StartLab, rollout: Rollout
) -> None:
    lab = start_lab(nodes=NODES_IN_ALL)
    inflict(lab, HostFaults(reboot=RebootFault.IGNORED))
    rollout(lab, "apply", *TEXT, "--max-unavailable", "1", "--reboot-timeout", "2s").ends(4)
    inflict(lab, HostFaults(ssh=SshFault.CLOSED))
    ended = rollout(lab, "resume", "--yes")
    assert (ended.code, ended.stdout.count("unreachable: ")) == (4, 1), ended.stdout
    assert ended.stdout.endswith("\nNext:\n    rollout doctor\n")


def test_a_node_that_a_failed_rollout_left_cordoned_is_not_forgotten_by_the_next(
    start_lab: StartLab, rollout: Rollout
) -> None:
    """Only what somebody else cordoned is left out by its own state."""
    lab = start_lab(nodes=NODES_IN_ALL)
    marks = {
        "run": "earlier",
        "phase": "failed",
        "boot-id-before": "the-old-one",
        "cordoned-by-us": "true",
    }
    lab.call(lambda: change(lab, "worker-2", marks, cordoned=True))
    ended = rollout(lab, "apply", *JSON).ends(4)
    assert [(one["node"], one["reason"]) for one in ended.summary["not_done"]] == [
        ("worker-2", "left-cordoned")
    ]


def test_a_rollout_that_can_take_no_node_is_no_success(
    start_lab: StartLab, rollout: Rollout
) -> None:
    """Neither where all hosts are silent, nor where only those are that might have something to do."""
    lab = troubled(start_lab, HostFaults(sudo=SudoFault.PASSWORD))
    for flags in (("--node", "worker-2"), ("--ssh-port", "1")):
        for command in ("apply", "--yes"), ("apply", "--dry-run"):
            ended = rollout(lab, *command, *flags).ends(4)
            assert ended.stdout.count(f"Next:\n    rollout doctor {' '.join(flags)}\n") == 1
            assert "Nothing to do" not in ended.stdout
    assert untouched(lab)
    assert lab.scoreboard().annotations_left == {}
