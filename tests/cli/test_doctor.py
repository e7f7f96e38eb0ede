"""`rollout doctor` on clusters that lack one thing or another."""

import json
from typing import Any

import pytest

from rollout.errors import ExitCode
from rollout.lab.lab import Lab
from tests.cli.conftest import Command
from tests.conftest import StartLab


def findings(command: Command, lab: Lab, *flags: str) -> tuple[int, list[dict[str, Any]]]:
    ended = command("doctor", "-o", "json", *flags, lab=lab)
    document = json.loads(ended.stdout)
    checks = document["checks"]
    assert document["ok"] is (ended.code == ExitCode.OK)
    assert document["summary"]["fail"] == sum(check["verdict"] == "fail" for check in checks)
    assert all(check["fix"] for check in checks if check["verdict"] != "pass")
    return ended.code, checks


def test_a_healthy_cluster_passes_every_check(start_lab: StartLab, command: Command) -> None:
    lab = start_lab("idle", nodes=4, speed=1)
    code, checks = findings(command, lab)
    assert code == ExitCode.OK
    names = {check["check"] for check in checks if check["verdict"] == "pass"}
    assert names == {
        *("kubeconfig", "server-version", "right", "nodes", "ssh", "host-key", "user", "sudo", "operating-system"),
        *("update-engine", "update-status", "locksmithd", "clock", "drain"),
    }
    assert sum(check["check"] == "ssh" for check in checks) == 4
    shown = command("doctor", lab=lab)
    assert shown.code == ExitCode.OK
    assert "0 failed." in shown.stdout
    scores = lab.scoreboard()
    assert (scores.evictions, scores.annotations_left, set(scores.reboots.values())) == (0, {}, {0})


@pytest.mark.parametrize(
    ("scenario", "failing", "fix"),
    [
        ("no-sudo", {("sudo", "worker-2"), ("sudo", "worker-3")}, "NOPASSWD"),
        ("dbus-denied", {("update-status", "worker-3"), ("sudo", "worker-3")}, "core"),
        ("wrong-host-key", {("host-key", "worker-2")}, ""),
        ("budget-never", {("drain", "*")}, "--skip-blocked"),
        ("no-rights", {("right", "create pods/eviction"), ("right", "patch nodes")}, "ClusterRole"),
    ],
)
def test_what_is_wrong_is_named_with_its_fix(
    scenario: str, failing: set[tuple[str, str]], fix: str, start_lab: StartLab, command: Command
) -> None:
    code, checks = findings(command, start_lab(scenario, nodes=7))
    assert code == ExitCode.ERROR
    found = [check for check in checks if check["verdict"] == "fail"]
    told = {(check["check"], check["subject"]) for check in found}
    if failing == {("drain", "*")}:
        assert {name for name, _ in told} == {"drain"}
    else:
        assert told == failing
    assert all(fix in check["fix"] for check in found)


def test_units_that_are_wrong_on_a_host(start_lab: StartLab, command: Command) -> None:
    lab = start_lab("idle", nodes=5, speed=1)

    def spoil() -> None:
        engine = lab.machines["worker-1"].units.find("update-engine")
        locksmithd = lab.machines["worker-2"].units.find("locksmithd")
        assert engine is not None
        assert locksmithd is not None
        engine.masked, engine.active = True, False
        locksmithd.masked = False

    lab.call(spoil)
    code, checks = findings(command, lab, "-l", "!node-role.kubernetes.io/control-plane")
    assert code == ExitCode.ERROR
    by = {(check["check"], check["subject"]): check["verdict"] for check in checks}
    assert by["update-engine", "worker-1"] == "fail"
    assert by["locksmithd", "worker-2"] == "warn"
    assert by["update-engine", "worker-2"] == "pass"


def test_rivals_fail(start_lab: StartLab, command: Command) -> None:
    lab = start_lab("rivals", nodes=7)
    _, checks = findings(command, lab)
    failed = {(check["check"], check["subject"]) for check in checks if check["verdict"] == "fail"}
    assert ("locksmithd", "worker-2") in failed
    assert ("rival", "worker-2") in failed


def test_an_unreachable_server_is_one_failed_check(command: Command, start_lab: StartLab) -> None:
    lab = start_lab("idle", nodes=4)
    environment = lab.environment
    lab.stop()
    ended = command("doctor", "-o", "json", variables=environment)
    assert ended.code == ExitCode.ERROR
    (check,) = json.loads(ended.stdout)["checks"]
    assert (check["check"], check["verdict"]) == ("kubeconfig", "fail")
    assert check["fix"]
