"""`rollout doctor` on clusters that lack one thing or another."""

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rollout.errors import ExitCode
from rollout.gather.cluster.rights import apply_rights
from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.api.resources import CONFIGMAPS
from rollout.lab.lab import Lab
from rollout.model.marks import CLUO_PREFIX, FLUO_PREFIX, REBOOT_NEEDED
from tests.cli.conftest import Command
from tests.conftest import StartLab
from tests.ended import Ended, answered, invoked, start
from tests.scripted_api import Kubeconfig
from tests.state import write, write_spec


def findings(
    command: Command, lab: Lab, *flags: str, variables: dict[str, str] | None = None
) -> tuple[int, list[dict[str, Any]]]:
    ended = command("doctor", "-o", "json", *flags, lab=lab, variables=variables)
    document = json.loads(ended.stdout)
    found = document["checks"]
    assert document["ok"] is (ended.code == ExitCode.OK)
    assert document["summary"]["fail"] == sum(check["verdict"] == "fail" for check in found)
    assert all(check["fix"] for check in found if check["verdict"] != "pass")
    drains = [
        (check["subject"], check["verdict"] == "pass")
        for check in found
        if check["check"] == "drain"
    ]
    assert not {node for node, passes in drains if passes} & {
        node for node, passes in drains if not passes
    }
    return ended.code, found


def test_a_healthy_cluster_passes_every_check(start_lab: StartLab, command: Command) -> None:
    lab = start_lab("idle", nodes=4, speed=1)
    code, checks = findings(command, lab)
    assert code == ExitCode.OK
    names = {check["check"] for check in checks if check["verdict"] == "pass"}
    assert names == {
        *("kubeconfig", "right", "lock", "nodes", "ssh", "host-key", "user", "identity", "sudo"),
        *(
            "rollback",
            "shutdown",
            "update-engine",
            "update-status",
            "update-check",
            "locksmithd",
            "rival",
        ),
        "drain",
    }
    rights = {check["subject"] for check in checks if check["check"] == "right"}
    assert rights == {str(right) for right in apply_rights("kube-system")}
    assert {
        "create events in namespace default",
        "update configmaps node-rollout in namespace kube-system",
    } <= rights
    assert "get leases.coordination.k8s.io node-rollout in namespace kube-system" in rights
    assert sum(check["check"] == "ssh" for check in checks) == 4
    shown = command("doctor", lab=lab).ends(ExitCode.OK)
    assert "0 failed." in shown.stdout
    scores = lab.scoreboard()
    assert scores.evictions == 0
    assert scores.annotations_left == {}
    assert set(scores.reboots.values()) == {0}


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


def test_the_lock_is_shown_with_its_holder(
    start_lab: StartLab, command: Command, home: Path
) -> None:
    """A rollout that is under way is warned of, one that was killed is a failure with its way out."""
    lab = start_lab("slow-return", nodes=4, speed=10)
    running = start(
        home, lab.environment, ["apply", "--yes", "--set", "lock.duration=3s", "-o", "json"]
    )
    assert running.stdout is not None
    for line in running.stdout:
        if '"rebooting"' in line:
            break
    _, checks = findings(command, lab)
    (lock,) = (check for check in checks if check["check"] == "lock")
    assert lock["verdict"] == "warn"
    assert "a rollout is in progress" in lock["message"]
    assert f"/{running.pid}" in lock["message"]
    running.kill()
    running.communicate()
    code, checks = findings(command, lab)
    (lock,) = (check for check in checks if check["check"] == "lock")
    assert code == ExitCode.ERROR
    assert lock["verdict"] == "fail"
    assert "rollout resume" in lock["fix"]


@pytest.mark.parametrize(
    ("name", "check", "verdict"),
    [("node-rollout", "lock", "fail"), ("node-rollout-memory", "memory", "warn")],
)
def test_what_the_server_would_not_store_is_named(
    start_lab: StartLab, command: Command, name: str, check: str, verdict: str
) -> None:
    """Somebody has made it immutable; a quota, or a webhook, refuses what is not there yet."""
    lab = start_lab("idle", nodes=3, speed=1)
    refused = ApiFault(answer=FaultAnswer.INVALID, verb="create", resource="configmaps")
    lab.inflict(refused)
    code, checks = findings(command, lab)
    refusals = {
        entry["subject"]: entry["check"]
        for entry in checks
        if "cannot be written" in entry["message"]
    }
    assert code == ExitCode.ERROR
    assert refusals == {
        "ConfigMap kube-system/node-rollout": "lock",
        "ConfigMap kube-system/node-rollout-memory": "memory",
    }
    lab.call(lab.faults.clear)
    metadata = {
        "name": name,
        "namespace": "kube-system",
        "annotations": {"node-rollout.dev/ended": "true"},
    }
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "immutable": True}
    lab.call(lambda: lab.store.create(CONFIGMAPS, body))
    _, checks = findings(command, lab)
    entry = next(entry for entry in checks if "cannot be written" in entry["message"])
    assert entry["check"] == check
    assert entry["verdict"] == verdict
    assert entry["subject"] == f"ConfigMap kube-system/{name}"
    assert "immutable" in entry["message"]
    assert f"kubectl -n kube-system delete configmap {name}" in entry["fix"]
    standing = lab.call(lambda: lab.store.get(CONFIGMAPS, name, "kube-system"))
    assert standing is not None
    assert "data" not in standing


def test_an_unreachable_server_is_one_failed_check(command: Command, home: Path) -> None:
    Kubeconfig("http://127.0.0.1:9").write(home / "config")
    ended = command("doctor", "-o", "json", "--kubeconfig", "config").ends(ExitCode.ERROR)
    (check,) = json.loads(ended.stdout)["checks"]
    assert check["check"] == "kubeconfig"
    assert check["verdict"] == "fail"
    assert check["fix"]


# Every fix that is a command, run as it is printed: after it nothing is left to be mended.


def checks(
    command: Command, lab: Lab, *flags: str, variables: dict[str, str] | None = None
) -> list[dict[str, Any]]:
    """What is not as it should be."""
    _, found = findings(command, lab, *flags, variables=variables)
    return [check for check in found if check["verdict"] != "pass"]


def command_of(found: list[dict[str, Any]], name: str, subject: str) -> str:
    """The one command of the check's fix, which its sentence contains, too."""
    (check,) = (check for check in found if (check["check"], check["subject"]) == (name, subject))
    (fixing,) = check["commands"]
    assert fixing in check["fix"]
    return str(fixing)


def known_hosts_command_in(fix: str) -> str:
    found = re.search(r"rollout known-hosts [^;`]*[^;`.]", fix)
    assert found, fix
    return found[0].strip()


def typed(home: Path, lab: Lab, line: str) -> Ended:
    """A line of rollout or kubectl as at a terminal, at which a question is answered with yes."""
    program, *words = shlex.split(line)
    if program == "kubectl":
        return _kubectl(lab, words)
    return answered(home, lab.environment, words, "yes")


def _kubectl(lab: Lab, words: list[str]) -> Ended:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("needs kubectl")
    variables = {**os.environ, **lab.environment}
    done = subprocess.run(
        [kubectl, *words], env=variables, capture_output=True, text=True, check=False
    )
    return Ended(done.returncode, done.stdout, done.stderr)


ANNOTATED = ("--set", "detect.sources=update-engine,annotation")
# By node: the check that tells of it, and what is written there.
SPOILT = {
    "worker-1": ("node", {"node-rollout.dev/paused": "true"}),
    "worker-2": ("node", {FLUO_PREFIX + "reboot-paused": "true"}),
    "worker-3": ("node", {CLUO_PREFIX + "reboot-paused": "true"}),
    "worker-4": ("rival", {FLUO_PREFIX + "reboot-in-progress": "true"}),
    "worker-5": ("detect", {REBOOT_NEEDED: "soon"}),
}


def test_each_fix_of_the_cluster_mends_it(
    start_lab: StartLab, command: Command, home: Path
) -> None:
    lab = start_lab("idle", nodes=9, speed=30)
    for node, (_, annotations) in SPOILT.items():
        write(lab, node, "annotations", **annotations)
    write_spec(lab, "worker-6", unschedulable=True)
    told = {subject: check for subject, (check, _) in SPOILT.items()} | {"worker-6": "node"}
    found = checks(command, lab, *ANNOTATED)
    lines = [command_of(found, check, subject) for subject, check in told.items()]
    for line in lines:
        ended = typed(home, lab, line)
        assert ended.code == 0, (line, ended.stderr)
    invoked(home, lab.environment, ("pause", "--all", "--reason", "fair")).ends(0)
    typed(home, lab, command_of(checks(command, lab), "pause", "all nodes")).ends(0)
    left = {check["subject"]: check["check"] for check in checks(command, lab, *ANNOTATED)}
    assert not left.items() & {**told, "all nodes": "pause"}.items(), left


def spoil_unit(lab: Lab, node: str, unit: str, **state: bool) -> None:
    def change() -> None:
        found = lab.machines[node].units.find(unit)
        assert found is not None
        for key, value in state.items():
            setattr(found, key, value)

    lab.call(change)


UNITS = {
    "masked": ("update-engine", {"masked": True, "active": False}),
    "stopped": ("update-engine", {"active": False}),
    "not enabled": ("update-engine", {"enabled": False}),
    "locksmithd runs": ("locksmithd", {"masked": False, "enabled": True, "active": True}),
    "locksmithd stopped": ("locksmithd", {"masked": False}),
}


def test_a_fix_of_a_host_mends_it(start_lab: StartLab, command: Command) -> None:
    """As it is printed, by an ssh of this machine's."""
    if not shutil.which("ssh"):
        pytest.skip("needs ssh")
    lab = start_lab("idle", nodes=8, speed=30)
    nodes = {f"worker-{number}": state for number, state in enumerate(UNITS.values(), 1)}
    for node, (unit, state) in nodes.items():
        spoil_unit(lab, node, unit, **state)
    found = checks(command, lab)
    for node, (unit, _) in nodes.items():
        done = ssh(lab, node, command_of(found, unit, node))
        assert done.returncode == 0, (unit, done.stderr)
    # and that a rival has the node in hand is mended with it
    left = checks(command, lab)
    assert not [
        check for check in left if check["check"] in {"update-engine", "locksmithd", "rival"}
    ]
    assert not [
        check for check in found if check["check"] == "rival" and check["subject"] != "cluster"
    ]


def ssh(lab: Lab, node: str, line: str) -> subprocess.CompletedProcess[str]:
    words = ["ssh", "-F", "none", "-i", str(lab.key), "-o", f"UserKnownHostsFile={lab.known_hosts}"]
    words += ["-p", str(lab.ssh_port), f"core@{lab.machines[node].address}", line]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)


def test_unknown_host_keys_are_recorded_by_the_command_that_is_printed(
    start_lab: StartLab, command: Command, home: Path
) -> None:
    lab = start_lab("idle", nodes=4)
    empty = home / "known_hosts"
    empty.write_text("")
    asked = {"ROLLOUT_KNOWN_HOSTS": str(empty)}
    found = checks(command, lab, variables=asked)
    (check,) = (check for check in found if check["subject"] == "worker-1")
    line = known_hosts_command_in(check["fix"])
    assert line == f"rollout known-hosts --out {empty}"
    typed(home, lab, line).ends(0)
    assert not [
        check for check in checks(command, lab, variables=asked) if check["check"] == "host-key"
    ]


def test_a_changed_host_key_is_warned_of_before_it_is_replaced(
    start_lab: StartLab, command: Command, home: Path
) -> None:
    """What the host's console says decides: with another fingerprint the old key stays."""
    lab = start_lab("wrong-host-key", nodes=7)
    (found,) = (check for check in checks(command, lab) if check["subject"] == "worker-2")
    assert found["check"] == "host-key"
    assert found["fix"].startswith("The connection may be intercepted.")
    line = known_hosts_command_in(found["fix"])
    shown, on_file = re.findall(r"SHA256:\S+", found["message"])[:2]
    consoles = home / "consoles"
    consoles.mkdir()
    for fingerprint, code in ((on_file, 4), (shown, 0)):
        (consoles / "worker-2.log").write_text(f"SSH host key: {fingerprint} (ED25519)\n")
        typed(home, lab, line.replace("FILE", str(consoles))).ends(code)
    assert not [check for check in checks(command, lab) if check["check"] == "host-key"]


def test_missing_rights_are_printed_by_the_command_that_is_named(
    start_lab: StartLab, command: Command, home: Path
) -> None:
    lab = start_lab("no-rights", nodes=4)
    line = command_of(checks(command, lab), "right", "create pods/eviction")
    shown = typed(home, lab, line)
    assert shown.code == 0
    assert "pods/eviction" in shown.stdout
