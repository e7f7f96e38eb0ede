"""What was well before an interruption has to be so again before the rollout goes any further."""

import json
from functools import partial
from pathlib import Path

from rollout.lab.api.resources import NODES
from rollout.lab.hosts.faults import HEALTHY
from rollout.lab.lab import Lab
from rollout.lab.objects import is_ready
from tests.apply.conftest import Rollout, Started, command, lose_hosts
from tests.apply.test_resume import APPLY, stopped_at
from tests.state import unlock
from tests.waiting import wait_until

BYSTANDER = "cp-3"
SETTLING = ("--max-unavailable", "2", "--canary", "1", "--settle-timeout", "10s")


def cut_power(lab: Lab, node: str) -> None:
    """For good; and the cluster has noticed."""
    lab.call(lab.machines[node].cut_power)
    wait_until(lambda: node in not_ready(lab))


def boot(lab: Lab, node: str) -> None:
    """Bring back what has gone down, and all that go down later."""
    machine = lab.machines[node]
    wait_until(lambda: not lab.call(lambda: machine.running))
    for other in lab.machines.values():
        lab.call(partial(other.inflict, HEALTHY))
    lab.call(machine.power_on)


def not_ready(lab: Lab) -> list[str]:
    nodes = lab.call(lambda: list(lab.store.items(NODES)))
    return [node["metadata"]["name"] for node in nodes if not is_ready(node)]


def test_what_was_well_before_the_interruption_has_to_be_so_again(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    """A wave is under way when the process dies, and a node with it: measured anew, that would be nothing new."""
    lab = started("default", 6)
    node = stopped_at(lab, tmp_path, "draining", *SETTLING)
    cut_power(lab, BYSTANDER)
    ended = rollout(lab, "resume", "--yes", "-o", "json", *unlock(lab))
    assert ended.code == 4
    assert ended.summary["succeeded"] == [node]
    assert f"node {BYSTANDER} is no longer Ready" in next(iter(ended.summary["reasons"].values()))


def test_between_two_waves_too_and_going_on_once_more_accepts_it(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    """The first node boots only once the cluster has noticed what else is lost: its wave never settles."""
    lab = started("default", 6)
    lab.call(lambda: lose_hosts(lab))
    process = command(lab, tmp_path, *APPLY, *SETTLING)
    assert process.stdout is not None
    for written in process.stdout:
        line = json.loads(written)
        if line.get("phase") == "rebooting" and BYSTANDER not in not_ready(lab):
            cut_power(lab, BYSTANDER)
            boot(lab, line["node"])
        if line["type"] == "wave_settling" and BYSTANDER in line["waiting_for"]:
            break
    process.kill()
    process.communicate()
    first = rollout(lab, "resume", "--yes", "-o", "json", *unlock(lab))
    assert first.code == 4
    assert first.summary["succeeded"] == []
    why = next(iter(first.summary["reasons"].values()))
    assert f"since the interruption the cluster has not settled within 10s: node {BYSTANDER}" in why
    second = rollout(lab, "resume", "--yes", "-o", "json")
    assert second.summary["succeeded"]
    assert lab.scoreboard().cordons_left == ()
