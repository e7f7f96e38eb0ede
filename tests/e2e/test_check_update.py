"""Checks for updates of real machines, over the real bus with its policy."""

import pytest

from tests.e2e.cluster import NAMES
from tests.e2e.conftest import Rollout
from tests.e2e.machines import STAGED_VERSION, Machines

WAIT = ("check-update", "--wait", "--stall-timeout", "6s", "-o", "json")


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
    told = {key: names for key, names in ended.summary.items() if names and key not in ("type", "at")}
    assert {key: sorted(names) for key, names in told.items()} == {
        "staged": ["control-1", "worker-1"],
        "up_to_date": ["worker-2"],
        "failed": ["worker-3", "worker-4"],
        "stalled": ["worker-5"],
    }
    messages = {line["node"]: line["message"] for line in ended.lines if line["type"] == "result"}
    assert "the update server was not reached" in messages["worker-3"]
    assert "the update failed" in messages["worker-4"] or "given up" in messages["worker-4"]
    loading = [line["progress"] for line in ended.lines if line["type"] == "update" and line["node"] == "worker-1"]
    assert any(0 < progress < 1 for progress in loading)
    assert rollout("plan", "--node", "worker-1", "--detailed-exitcode").code == 2


@pytest.mark.parametrize("user", ["ops", "narrow"])
def test_users_whom_the_bus_denies_ask_as_root(rollout: Rollout, offered: Machines, user: str) -> None:
    offered["worker-1"].write("trouble", "stalls")
    ended = rollout("check-update", "-o", "json", "--node", "worker-1", ssh_user=user)
    assert ended.code == 0, ended.stdout
    assert ended.summary["asked"] == ["worker-1"]
    again = rollout("check-update", "-o", "json", "--node", "worker-1", ssh_user=user)
    assert again.summary["asked"] == ["worker-1"]
    assert "at it already" in again.lines[1]["message"]


def test_users_who_may_not_are_told_why(rollout: Rollout, offered: Machines) -> None:
    ended = rollout("check-update", "-o", "json", ssh_user="careful")
    assert ended.code == 4
    assert sorted(ended.summary["refused"]) == sorted(NAMES)
    (message,) = {line["message"] for line in ended.lines if line["type"] == "result"}
    assert "Access denied" in message or "not allowed" in message
    assert "sudo asks for a password" in message
