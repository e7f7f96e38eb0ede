"""`rollout doctor` on clusters that lack one thing or another."""

import json
from pathlib import Path
from typing import Any

import pytest

from rollout.errors import ExitCode
from rollout.gather.cluster.rights import apply_rights
from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.api.resources import CONFIGMAPS
from rollout.lab.lab import Lab
from tests.cli.conftest import Command
from tests.conftest import StartLab
from tests.ended import start


def findings(command: Command, lab: Lab, *flags: str) -> tuple[int, list[dict[str, Any]]]:
    ended = command("doctor", "-o", "json", *flags, lab=lab)
    document = json.loads(ended.stdout)
    checks = document["checks"]
    assert document["ok"] is (ended.code == ExitCode.OK)
    assert document["summary"]["fail"] == sum(check["verdict"] == "fail" for check in checks)
    assert all(check["fix"] for check in checks if check["verdict"] != "pass")
    drains = {verdict: _drains(checks, verdict) for verdict in ("pass", "warn", "fail")}
    assert not drains["pass"] & (drains["warn"] | drains["fail"])
    return ended.code, checks


def _drains(checks: list[dict[str, Any]], verdict: str) -> set[str]:
    return {check["subject"] for check in checks if (check["check"], check["verdict"]) == ("drain", verdict)}


def test_a_healthy_cluster_passes_every_check(start_lab: StartLab, command: Command) -> None:
    lab = start_lab("idle", nodes=4, speed=1)
    code, checks = findings(command, lab)
    assert code == ExitCode.OK
    names = {check["check"] for check in checks if check["verdict"] == "pass"}
    assert names == {
        *("kubeconfig", "server-version", "right", "lock", "nodes", "ssh", "host-key", "user", "identity", "sudo"),
        *("shutdown", "operating-system", "update-engine", "update-status", "locksmithd", "rival", "drain"),
    }
    rights = {check["subject"] for check in checks if check["check"] == "right"}
    assert rights == {str(right) for right in apply_rights("kube-system")}
    assert {"create events in namespace default", "update configmaps node-rollout in namespace kube-system"} <= rights
    assert "get leases.coordination.k8s.io node-rollout in namespace kube-system" in rights
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
        ("budget-never", {("drain", "*")}, "--skip blocked"),
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
    lab = start_lab("idle", nodes=5)

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


def test_the_lock_is_shown_with_its_holder(start_lab: StartLab, command: Command, home: Path) -> None:
    """A rollout that is under way is warned of, one that was killed is a failure with its way out."""
    lab = start_lab("slow-return", nodes=4, speed=10)
    running = start(home, lab.environment, ["apply", "--yes", "--set", "lock.duration=3s", "-o", "json"])
    assert running.stdout is not None
    for line in running.stdout:
        if '"rebooting"' in line:
            break
    _, checks = findings(command, lab)
    (lock,) = (check for check in checks if check["check"] == "lock")
    assert (lock["verdict"], "a rollout is under way" in lock["message"]) == ("warn", True)
    assert f"/{running.pid}" in lock["message"]
    running.kill()
    running.communicate()
    code, checks = findings(command, lab)
    (lock,) = (check for check in checks if check["check"] == "lock")
    assert (code, lock["verdict"]) == (ExitCode.ERROR, "fail")
    assert "rollout resume" in lock["fix"]


@pytest.mark.parametrize(
    ("name", "check", "verdict"), [("node-rollout", "lock", "fail"), ("node-rollout-memory", "memory", "warn")]
)
def test_what_the_server_would_not_store_is_named(
    start_lab: StartLab, command: Command, name: str, check: str, verdict: str
) -> None:
    """Somebody has made it immutable; a quota, or a webhook, refuses what is not there yet."""
    lab = start_lab("idle", nodes=3, speed=1)
    refused = ApiFault(answer=FaultAnswer.INVALID, verb="create", resource="configmaps")
    lab.inflict(refused)
    code, checks = findings(command, lab)
    refusals = {entry["subject"]: entry["check"] for entry in checks if "cannot be written" in entry["message"]}
    assert code == ExitCode.ERROR
    assert refusals == {
        "ConfigMap kube-system/node-rollout": "lock",
        "ConfigMap kube-system/node-rollout-memory": "memory",
    }
    lab.behave()
    metadata = {"name": name, "namespace": "kube-system", "annotations": {"node-rollout.dev/ended": "true"}}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "immutable": True}
    lab.call(lambda: lab.store.create(CONFIGMAPS, body))
    _, checks = findings(command, lab)
    entry = next(entry for entry in checks if "cannot be written" in entry["message"])
    assert (entry["check"], entry["verdict"], entry["subject"]) == (check, verdict, f"ConfigMap kube-system/{name}")
    assert "immutable" in entry["message"]
    assert f"kubectl -n kube-system delete configmap {name}" in entry["fix"]
    standing = lab.call(lambda: lab.store.get(CONFIGMAPS, name, "kube-system"))
    assert standing is not None
    assert "data" not in standing


def test_an_unreachable_server_is_one_failed_check(command: Command, start_lab: StartLab) -> None:
    lab = start_lab("idle", nodes=4)
    environment = lab.environment
    lab.stop()
    ended = command("doctor", "-o", "json", variables=environment)
    assert ended.code == ExitCode.ERROR
    (check,) = json.loads(ended.stdout)["checks"]
    assert (check["check"], check["verdict"]) == ("kubeconfig", "fail")
    assert check["fix"]
