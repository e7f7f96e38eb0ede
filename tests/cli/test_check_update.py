"""`rollout check-update` on hosts that find an update, find none, fail in every way, and cannot be asked."""

from pathlib import Path

import pytest

from rollout.errors import ExitCode
from rollout.lab.hosts.faults import BusFault, HostFaults, SshFault
from tests.cli.conftest import Command
from tests.conftest import StartLab
from tests.ended import Ended, start

pytestmark = pytest.mark.exhaustive

QUICK = ("--stall-timeout", "7s", "--timeout", "90s")


def summary(ended: Ended) -> dict[str, list[str]]:
    assert ended.stdout, ended.stderr
    first, *_, last = ended.lines
    assert (first["type"], last["type"]) == ("version", "summary")
    return {key: sorted(names) for key, names in last.items() if key not in ("type", "at") and names}


def test_hosts_are_followed_until_all_have_come_to_an_end(start_lab: StartLab, command: Command) -> None:
    """One that stays in its download, and one that never begins, are given up in time."""
    # Slowly: a failure that comes and goes between two looks is none that anybody can tell of.
    lab = start_lab("updates", nodes=11, speed=4)
    ended = command("check-update", "--wait", *QUICK, "-o", "json", lab=lab)
    assert ended.code == ExitCode.PARTIAL
    assert summary(ended) == {
        "staged": ["cp-1", "cp-2", "cp-3", "worker-1", "worker-7"],
        "up_to_date": ["worker-2"],
        "failed": ["worker-3", "worker-4", "worker-8"],
        "stalled": ["worker-5"],
        "refused": ["worker-6"],
    }
    by = {line["node"]: line for line in ended.lines if line["type"] == "result"}
    assert by["worker-1"]["version"] == "4152.2.0"
    assert by["worker-2"]["last_checked"] == lab.machines["worker-2"].engine.last_checked
    assert "asks for a password" in by["worker-6"]["message"]
    loading = [line["progress"] for line in ended.lines if line["type"] == "update" and line["node"] == "worker-1"]
    assert loading
    assert all(0 <= progress <= 1 for progress in loading)
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
    (result,) = (line for line in again.lines if line["type"] == "result")
    assert "at it already" in result["message"]


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


def test_a_host_that_goes_away_while_it_is_followed(start_lab: StartLab, home: Path) -> None:
    lab = start_lab("updates", nodes=11, speed=1)
    words = ("check-update", "--wait", "--stall-timeout", "6s", "--node", "worker-1")
    process = start(home, lab.environment, words)
    assert process.stderr is not None
    for line in process.stderr:
        if "worker-1: " in line:
            break
    lab.call(lambda: lab.machines["worker-1"].inflict(HostFaults(ssh=SshFault.CLOSED)))
    out, _ = process.communicate(timeout=60)
    assert process.returncode == ExitCode.PARTIAL
    assert "1 unreachable" in out
