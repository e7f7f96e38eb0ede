"""Checks for updates of real machines, over the real bus with its policy."""

import json
from typing import Any

import pytest

from tests.e2e.cluster import NAMES
from tests.e2e.conftest import Rollout
from tests.e2e.machines import STAGED_VERSION, Machines
from tests.ended import Ended

WAIT = ("check-update", "--wait", "--timeout", "30s", "-o", "json")


def hosts_of(ended: Ended) -> dict[str, dict[str, Any]]:
    return {host["node"]: host for host in json.loads(ended.stdout)["hosts"]}


@pytest.fixture
def offered(machines: Machines) -> Machines:
    """Nothing is staged any more, and an update is offered to each."""
    for machine in machines:
        machine.clear()
        machine.write("available", STAGED_VERSION)
    return machines


def test_each_host_is_followed_to_its_own_end(rollout: Rollout, offered: Machines) -> None:
    offered["worker-2"].clear()
    for name, trouble in (("worker-3", "check-fails"), ("worker-4", "download-fails"), ("worker-5", "stalls")):
        offered[name].write("trouble", trouble)
    ended = rollout(*WAIT)
    assert ended.code == 4
    hosts = hosts_of(ended)
    assert {node: host["outcome"] for node, host in hosts.items()} == {
        "control-1": "staged",
        "worker-1": "staged",
        "worker-2": "up-to-date",
        "worker-3": "failed",
        "worker-4": "failed",
        "worker-5": "timed-out",
    }
    assert "the update server was not reached" in hosts["worker-3"]["message"]
    assert "the update failed, or was given up" in hosts["worker-4"]["message"]
    assert rollout("plan", "--node", "worker-1", "--detailed-exitcode").code == 2


@pytest.mark.parametrize("user", ["ops", "narrow"])
def test_users_whom_the_bus_denies_ask_as_root(rollout: Rollout, offered: Machines, user: str) -> None:
    offered["worker-1"].write("trouble", "stalls")
    ended = rollout("check-update", "-o", "json", "--node", "worker-1", ssh_user=user)
    assert ended.code == 0, ended.stdout
    assert hosts_of(ended)["worker-1"]["outcome"] == "asked"
    again = hosts_of(rollout("check-update", "-o", "json", "--node", "worker-1", ssh_user=user))["worker-1"]
    assert again["outcome"] == "asked"
    assert "at it already" in again["message"]


def test_users_who_may_not_are_told_why(rollout: Rollout, offered: Machines) -> None:
    ended = rollout("check-update", "-o", "json", ssh_user="careful")
    assert ended.code == 4
    hosts = hosts_of(ended)
    assert {node: host["outcome"] for node, host in hosts.items()} == dict.fromkeys(NAMES, "refused")
    (message,) = {host["message"] for host in hosts.values()}
    assert "Access denied" in message or "not allowed" in message
    assert "sudo asks for a password" in message
