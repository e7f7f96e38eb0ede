"""`rollout check-update` on hosts that find an update, find none, fail in every way, and cannot be asked."""

import json
from typing import Any

import pytest

from rollout.errors import ExitCode
from rollout.lab.hosts.faults import BusFault, HostFaults
from tests.cli.conftest import Command
from tests.conftest import StartLab
from tests.ended import Ended

pytestmark = pytest.mark.exhaustive

QUICK = ("--timeout", "40s")


def hosts_of(ended: Ended) -> dict[str, dict[str, Any]]:
    assert ended.stdout, ended.stderr
    return {host["node"]: host for host in json.loads(ended.stdout)["hosts"]}


def summary(ended: Ended) -> dict[str, list[str]]:
    by: dict[str, list[str]] = {}
    for node, host in sorted(hosts_of(ended).items()):
        by.setdefault(host["outcome"], []).append(node)
    return by


def test_hosts_are_followed_until_all_have_come_to_an_end(start_lab: StartLab, command: Command) -> None:
    """One that stays in its download, and one that never begins, are given up in time."""
    # Slowly: a failure that comes and goes between two looks is none that anybody can tell of.
    lab = start_lab("updates", nodes=11, speed=4)
    ended = command("check-update", "--wait", *QUICK, "-o", "json", lab=lab)
    assert ended.code == ExitCode.PARTIAL
    assert summary(ended) == {
        "staged": ["cp-1", "cp-2", "cp-3", "worker-1", "worker-7"],
        "up-to-date": ["worker-2"],
        "failed": ["worker-3", "worker-4", "worker-8"],
        "timed-out": ["worker-5"],
        "refused": ["worker-6"],
    }
    by = hosts_of(ended)
    assert by["worker-1"]["version"] == "4152.2.0"
    assert by["worker-2"]["last_checked"] == lab.machines["worker-2"].engine.last_checked
    assert "asks for a password" in by["worker-6"]["message"]
    after = command("check-update", "--node", "worker-1,worker-7", "--wait", lab=lab)
    assert after.code == ExitCode.OK
    assert "2 hosts: 2 staged." in after.stdout
    assert set(lab.scoreboard().reboots.values()) == {0}


def test_asking_alone_waits_for_nothing(start_lab: StartLab, command: Command) -> None:
    lab = start_lab("updates", nodes=11, speed=1)
    ended = command("check-update", "-o", "json", "--exclude", "worker-6", lab=lab)
    assert ended.code == ExitCode.OK
    assert len(summary(ended)["asked"]) == 9
    assert summary(ended)["staged"] == ["worker-7"]
    again = command("check-update", "-o", "json", "--node", "worker-1", lab=lab)
    assert summary(again) == {"asked": ["worker-1"]}
    assert "at it already" in hosts_of(again)["worker-1"]["message"]


@pytest.mark.sample
@pytest.mark.parametrize("fault", [HostFaults(client_missing=True), HostFaults(bus=BusFault.DENIED)])
def test_other_ways_to_ask(fault: HostFaults, start_lab: StartLab, command: Command) -> None:
    """Over the bus where there is no client, as root where the bus denies the user."""
    lab = start_lab("updates", nodes=11, speed=20)
    lab.call(lambda: lab.machines["worker-1"].inflict(fault))
    ended = command("check-update", "--wait", "--node", "worker-1", "-o", "json", lab=lab)
    assert summary(ended) == {"staged": ["worker-1"]}


def test_hosts_that_cannot_be_reached(start_lab: StartLab, command: Command) -> None:
    lab = start_lab("unreachable", nodes=7)
    ended = command("check-update", "-o", "json", "--node", "worker-2", lab=lab)
    assert ended.code == ExitCode.PARTIAL
    assert summary(ended) == {"unreachable": ["worker-2"]}
