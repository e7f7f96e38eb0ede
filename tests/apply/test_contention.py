"""Others have a say in what a rollout writes: controllers that write it too, and webhooks."""

import json
import threading
import time
from pathlib import Path

import pytest

from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.api.resources import CONFIGMAPS, NODES
from rollout.lab.api.store import Change, Json
from rollout.lab.hosts.faults import HostFaults, SshFault
from rollout.lab.lab import Lab
from tests.apply.conftest import Rollout, Started, command
from tests.apply.test_resume import APPLY, assert_finished, stopped_at
from tests.ended import end_of, start
from tests.security.hands import mark
from tests.state import PREFIX, steal_lease, unlock
from tests.waiting import wait_until

OF_NODES = ApiFault(answer=FaultAnswer.CONFLICT, verb="patch", resource="nodes", requests=25)


OF_RECORD = ApiFault(
    answer=FaultAnswer.CONFLICT,
    verb="update",
    resource=CONFIGMAPS.plural,
    name="node-rollout",
    requests=4,
)


@pytest.mark.exhaustive
@pytest.mark.sample
def test_bursts_of_writes_to_nodes_and_to_the_record_cost_nobody_its_turn(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", 5)
    lab.inflict(OF_NODES)
    stopped_at(lab, tmp_path, "draining", "--set", "drain.prefer-no-schedule-taint=false")
    lab.inflict(OF_RECORD)
    rollout(lab, "resume", "--yes", "-o", "json", *unlock(lab)).ends(0)
    assert lab.struck(OF_NODES) == 25
    assert lab.struck(OF_RECORD) == 4
    assert_finished(lab)


@pytest.mark.exhaustive
def test_a_record_that_webhooks_keep_stands_in_nobodys_way(
    started: Started, rollout: Rollout
) -> None:
    """As those do by which nothing in kube-system may be deleted."""
    lab = started("default", 4)
    lab.inflict(ApiFault(answer=FaultAnswer.FORBIDDEN, verb="delete", resource=CONFIGMAPS.plural))
    ended = rollout(lab, *APPLY).ends(0)
    assert (
        "warning: the record was not removed, but is marked as ended: admission webhook"
        in ended.stdout
    )
    again = rollout(lab, *APPLY, "--allow", "idle", "--max-failures", "2").ends(0)
    assert set(again.summary["succeeded"]) == set(ended.summary["succeeded"])


@pytest.mark.exhaustive
def test_nodes_that_a_rollout_under_another_lock_has_in_flight_use_up_the_limit(
    started: Started, tmp_path: Path
) -> None:
    """Of two with different lock.namespace neither sees the other's lock; their marks both see."""
    lab = started("default", 6)
    process = command(lab, tmp_path, *APPLY, "--max-unavailable", "1", "--control-plane", "exclude")
    assert process.stdout is not None
    lines: list[Json] = []
    planned: list[str] = []
    marked = ""
    other = "0123456789abcdef"

    def is_begun(line: Json) -> bool:
        return (line["type"], line.get("phase")) == ("step", "cordoned")

    for written in process.stdout:
        lines.append(json.loads(written))
        if lines[-1]["type"] == "plan":
            planned = [
                node["name"] for wave in lines[-1]["plan"]["waves"] for node in wave["nodes"]
            ]
        if not marked and is_begun(lines[-1]):
            marked = planned[-1]
            mark(lab, marked, run=other, phase="draining")
        if lines[-1]["type"] == "notice" and other in lines[-1]["message"]:
            began = len([line for line in lines if is_begun(line)])
            mark(lab, marked, run=None, phase=None)
            assert began == 1
    ended = end_of(process)
    told = [
        line["message"] for line in lines if line["type"] == "notice" and other in line["message"]
    ]
    assert (ended.code, len(told)) == (0, 1), ended.stderr
    assert (
        f"rollout {other} has {marked} in flight, under a lock in another lock.namespace" in told[0]
    )
    assert sorted(lines[-1]["succeeded"]) == sorted(planned)


FENCED = (
    *("apply", "--yes", "-o", "json", "--max-unavailable", "1", "--control-plane", "exclude"),
    *("--set", "lock.duration=1s"),
)


def test_a_node_that_another_rollout_marks_is_not_called_a_lost_lock(
    started: Started, tmp_path: Path
) -> None:
    """It can do so only under a lock of its own, in another lock.namespace."""
    lab = started("default", 4)
    process = start(tmp_path, lab.environment, FENCED)
    wait_until(lambda: "draining" in phases(lab))
    nodes: list[Json] = lab.call(lambda: list(lab.store.items(NODES)))
    (node,) = [item["metadata"]["name"] for item in nodes if phase_of(item) == "draining"]
    mark(lab, node, run="20260301t120000z-2")
    ended = end_of(process)
    assert ended.code == 4, ended.stderr
    assert ended.outcomes == {node: "fenced"}
    reason = f"rollout 20260301t120000z-2 has taken over {node}"
    not_started = ended.summary["not_started"]
    assert not_started
    assert ended.summary["reasons"] == dict.fromkeys(not_started, reason)
    assert ended.summary["kinds"] == dict.fromkeys(not_started, "lease-lost")


def phases(lab: Lab) -> list[str]:
    nodes: list[Json] = lab.call(lambda: list(lab.store.items(NODES)))
    return [phase for node in nodes if (phase := phase_of(node))]


def phase_of(node: Json) -> str:
    return str((node["metadata"].get("annotations") or {}).get(PREFIX + "phase", ""))


@pytest.mark.sample
@pytest.mark.parametrize("phase", ["draining", "booted"])
def test_a_write_that_an_outage_held_up_is_not_made_up_for(
    started: Started, tmp_path: Path, phase: str
) -> None:
    """Its Node stands as it was read, and so would take the write: whoever holds the Lease has not
    come to it yet.
    """
    lab = started("default", 4)
    away = ApiFault(answer=FaultAnswer.UNAVAILABLE, verb="patch", resource="nodes")
    reached = threading.Event()

    def seen(change: Change) -> None:
        if change.resource is NODES and not reached.is_set() and phase_of(change.obj) == phase:
            reached.set()
            lab.faults.add(away)

    lab.call(lambda: lab.store.subscribe(seen))
    process = command(lab, tmp_path, *FENCED)
    assert reached.wait(60)
    wait_until(lambda: lab.struck(away))
    steal_lease(lab)
    time.sleep(1.5)  # what was renewed before is over, whenever the program comes to look
    before = phases(lab)
    lab.call(lab.faults.clear)
    _stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 4, stderr
    assert phases(lab) == before
    assert lab.scoreboard().cordons_left


# The program, but for the pause of ten seconds after a host has refused three connections.
IMPATIENT = """
from rollout.execution.node import pace
pace._LONGEST_REFUSED_PAUSE = 1.0
from rollout.cli.entry import main
main()
"""


def test_a_host_that_was_out_of_reach_is_not_asked_to_reboot_once_the_lease_is_lost(
    started: Started, tmp_path: Path
) -> None:
    lab = started("default", 4)
    process = start(tmp_path, lab.environment, FENCED, script=IMPATIENT)
    wait_until(lambda: "draining" in phases(lab))

    def close(fault: SshFault | None) -> None:
        for machine in lab.machines.values():
            machine.inflict(HostFaults(ssh=fault))

    lab.call(lambda: close(SshFault.CLOSED))
    wait_until(lambda: "rebooting" in phases(lab))
    steal_lease(lab)
    time.sleep(1.5)
    lab.call(lambda: close(None))
    _stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 4, stderr
    time.sleep(0.5)
    assert set(lab.scoreboard().reboots.values()) == {0}
