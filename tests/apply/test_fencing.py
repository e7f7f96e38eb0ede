"""A process that has lost the Lease: whatever it was about to do, it does no more."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.api.resources import LEASES, NODES
from rollout.lab.api.store import Change, Json
from rollout.lab.hosts.faults import HostFaults, SshFault
from rollout.lab.lab import Lab
from tests.apply.conftest import command
from tests.waiting import wait_until

APPLY = (
    *("apply", "--yes", "-o", "json", "--max-unavailable", "1", "--control-plane", "exclude"),
    *("--set", "lock.duration=1s"),
)
PREFIX = "node-rollout.dev/"
Start = Callable[[str, int], Lab]


def phases(lab: Lab) -> list[str]:
    nodes: list[Json] = lab.call(lambda: list(lab.store.items(NODES)))
    return [phase for node in nodes if (phase := phase_of(node))]


def phase_of(node: Json) -> str:
    return str((node["metadata"].get("annotations") or {}).get(PREFIX + "phase", ""))


def steal(lab: Lab) -> None:
    """The Lease is somebody else's."""

    def do() -> None:
        lease = lab.store.get(LEASES, "node-rollout", "kube-system")
        assert lease is not None
        lab.store.put(LEASES, {**lease, "spec": {**lease["spec"], "holderIdentity": "thief"}})

    lab.call(do)


@pytest.mark.sample
@pytest.mark.parametrize("phase", ["draining", "booted"])
def test_a_write_that_an_outage_held_up_is_not_made_up_for(started: Start, tmp_path: Path, phase: str) -> None:
    """Its Node stands as it was read, and so would take the write: whoever holds the Lease has not come to it yet."""
    lab = started("default", 4)
    away = ApiFault(answer=FaultAnswer.UNAVAILABLE, verb="patch", resource="nodes")
    reached = threading.Event()

    def seen(change: Change) -> None:
        if change.resource is NODES and not reached.is_set() and phase_of(change.obj) == phase:
            reached.set()
            lab.faults.add(away)

    lab.call(lambda: lab.store.subscribe(seen))
    process = command(lab, tmp_path, *APPLY)
    assert reached.wait(60)
    time.sleep(2.5)
    steal(lab)
    time.sleep(1.5)  # what was renewed before is over, whenever the program comes to look
    before = phases(lab)
    lab.call(lab.faults.clear)
    _stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 4, stderr
    assert phases(lab) == before
    assert lab.scoreboard().cordons_left


def test_a_host_that_was_out_of_reach_is_not_asked_to_reboot_once_the_lease_is_lost(
    started: Start, tmp_path: Path
) -> None:
    lab = started("default", 4)
    process = command(lab, tmp_path, *APPLY)
    wait_until(lambda: "draining" in phases(lab))

    def close(fault: SshFault) -> None:
        for machine in lab.machines.values():
            machine.inflict(HostFaults(ssh=fault))

    lab.call(lambda: close(SshFault.CLOSED))
    wait_until(lambda: "rebooting" in phases(lab))
    steal(lab)
    time.sleep(1.5)
    lab.call(lambda: close(SshFault.NONE))
    _stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 4, stderr
    time.sleep(0.5)
    assert set(lab.scoreboard().reboots.values()) == {0}
