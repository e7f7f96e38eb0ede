"""What one rollout leaves for the next: versions that are held, nodes that rest; on a lab whose nights pass."""

import json
from collections.abc import Callable
from datetime import timedelta

import pytest

from rollout.lab.api.resources import CONFIGMAPS
from rollout.lab.hosts.engine import UpdateEngine
from rollout.lab.hosts.faults import HostFaults, RebootFault
from rollout.lab.lab import Lab
from tests.apply.conftest import Rollout

APPLY = ("apply", "--yes", "-o", "json", "--control-plane", "exclude", "--settle-timeout", "5s", "--health-checks", "1")
BAD, FIXED = "4230.2.0", "4230.2.1"
NIGHT = timedelta(days=1).total_seconds()
Started = Callable[[str, int], Lab]


def roll_back_everywhere(lab: Lab, version: str = BAD) -> None:
    """Every host has this version staged, and boots its old one instead."""

    def inflict() -> None:
        for machine in lab.machines.values():
            machine.engine = UpdateEngine.with_staged(version, checked=1)
            machine.inflict(HostFaults(reboot=RebootFault.ROLLS_BACK))

    lab.call(inflict)


def let_pass(lab: Lab, seconds: float = NIGHT) -> None:
    """The lab's machines believe that it is that much later; one clock is all of theirs."""
    lab.call(lambda: lab.machines["worker-1"].clock.skip(seconds))


def remembered(lab: Lab) -> dict[str, object]:
    config_map = lab.call(lambda: lab.store.get(CONFIGMAPS, "node-rollout-memory", "kube-system"))
    return json.loads(config_map["data"]["memory.json"]) if config_map else {}


def forget(lab: Lab) -> None:
    lab.call(lambda: lab.store.remove(CONFIGMAPS, "node-rollout-memory", "kube-system"))


def harmed(lab: Lab) -> list[str]:
    return [node for node, times in lab.scoreboard().reboots.items() if times]


def five_nights(lab: Lab, rollout: Rollout, *flags: str, between: Callable[[Lab], None] = lambda _lab: None) -> None:
    """Whoever rolled back has nothing staged any more, so that each night finds others to try it on."""
    roll_back_everywhere(lab)
    for _night in range(5):
        rollout(lab, *APPLY, *flags)
        between(lab)
        let_pass(lab)


@pytest.mark.parametrize("most", [1, 2])
def test_five_nights_harm_no_more_nodes_than_may_fail(started: Started, rollout: Rollout, most: int) -> None:
    lab = started("default", 8)
    five_nights(lab, rollout, "--max-failures", str(most))
    assert len(harmed(lab)) == most


def test_without_its_memory_each_night_harms_one_more(started: Started, rollout: Rollout) -> None:
    """What the test above would not see otherwise: that it is the memory that holds the version."""
    lab = started("default", 8)
    five_nights(lab, rollout, "--max-failures", "1", between=forget)
    assert len(harmed(lab)) == 5
