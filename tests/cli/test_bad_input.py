"""What is wrong with the input is one line and a hint, the right exit code, and no change."""

import json
from pathlib import Path

import pytest

from rollout.errors import ExitCode
from rollout.lab.api.resources import NAMESPACES
from tests.cli.conftest import Command
from tests.conftest import StartLab
from tests.scripted_api import Kubeconfig
from tests.state import untouched

USAGE = [
    (("apply", "--yes", "--set", "lock.duration=999999999h"), "lock.duration", "is too long"),
    (("plan", "--max-unavailble", "3"), "unknown flag", "--max-unavailable"),
    (
        ("plan", "--soak", "3m"),
        "waves.soak has no flag: write --set waves.soak=VALUE.",
        "rollout plan --help",
    ),
    (
        ("resume", "--max-unavailable", "3"),
        "--max-unavailable cannot be changed now",
        "rollout abort, then rollout apply",
    ),
    (
        ("resume", "-l", "a=b"),
        "--selector cannot be changed now",
        "rollout abort, then rollout apply",
    ),
    (("history", "-c", "missing.toml"), "cannot read missing.toml", ""),
    (("paln",), "unknown command", "plan"),
    (("--yes", "apply"), "Flags come after the command", "rollout --help"),
    (("operate", "worker-1"), "unexpected extra argument", "rollout operate --help"),
    (
        ("plan", "config", "--max-unavailable", "3", "--node", "worker-1"),
        "--node, --max-unavailable cannot",
        "",
    ),
    (("plan", "--grace-period", "30s"), "'30s' is not a whole number", "--grace-period"),
    (("pause", "--all", "--until", ""), "it is empty", "--until"),
    (("plan", "--node", ","), "it is empty", "--node"),
    (("plan", "--set", "nodes.node="), "it is empty", "--set nodes.node"),
    (("plan", "--set", "nodes.exclude="), "it is empty", "--set nodes.exclude"),
    (("plan", "--out", "plans/"), "plans/ is a directory", "--out"),
    (("plan", "--snapshot", "copies/"), "copies/ is a directory", "--snapshot"),
    (("report", "--out", "pages/"), "pages/ is a directory", "--out"),
    (("known-hosts", "--out", "keys/"), "keys/ is a directory", "--out"),
    (
        ("pause", "--all", "--until", "8h", "--reason", "x" * 121),
        "at most 120 are stored",
        "--reason",
    ),
]


@pytest.mark.parametrize(("arguments", "told", "also"), USAGE, ids=lambda value: str(value)[:40])
def test_usage(
    arguments: tuple[str, ...], told: str, also: str, command: Command, home: Path
) -> None:
    (home / "config").write_text("", encoding="utf-8")
    ended = command(*arguments, variables={"KUBECONFIG": str(home / "config")}).ends(ExitCode.USAGE)
    assert_one_error(ended.stderr, told, also)


def assert_one_error(stderr: str, *told: str) -> None:
    lines = stderr.splitlines()
    assert lines[0].startswith("rollout: error: "), stderr
    assert len(lines) <= 2, stderr
    assert all(line.startswith("hint: ") for line in lines[1:]), stderr
    assert all(word in stderr for word in told), stderr


def test_a_server_that_is_not_there(command: Command, home: Path) -> None:
    Kubeconfig("http://127.0.0.1:9").write(home / "config")
    ended = command("plan", "--kubeconfig", "config").ends(ExitCode.ERROR)
    assert_one_error(ended.stderr, "127.0.0.1:9")
    verbose = command("plan", "--kubeconfig", "config", "-v")
    assert "caused by: " in verbose.stderr
    quiet = command("plan", "--kubeconfig", "config", variables={"ROLLOUT_VERBOSE": "0"})
    assert "caused by: " not in quiet.stderr


ON_A_CLUSTER: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
    (("status", "--context", "nowhere"), ("nowhere",)),
    (("status", "--kubeconfig", "nowhere"), ("there is no kubeconfig",)),
    (("status", "--kubeconfig", "broken.yaml"), ("kubeconfig",)),
    (("history", "--set", "output.journal=broken.yaml"), ("no run is recorded in broken.yaml",)),
    (
        ("plan", "-l", "node-role.kubernetes.io/workr"),
        ("no node matches", "node-role.kubernetes.io/"),
    ),
    (("plan", "--node", "worker-l"), ("there is no node worker-l", "worker-1")),
    (("plan", "-i", "nowhere.ini"), ("nowhere.ini",)),
    (("plan", "-i", "broken.yaml"), ("broken.yaml",)),
    (("plan", "--ssh-key", "nowhere.key"), ("nowhere.key",)),
    (("plan", "--ssh-key", "broken.yaml"), ("broken.yaml",)),
    (("plan", "--ssh-config", "nowhere"), ("nowhere", "--ssh-config")),
    (("plan", "--out", "."), ("is a directory",)),
    (("plan", "--out", "no/such/place"), ("there is no directory",)),
    (("plan", "nowhere.plan"), ("nowhere.plan",)),
    (("plan", "broken.yaml"), ("not a rollout plan",)),
    (("apply", "nowhere.plan"), ("nowhere.plan",)),
    (("apply", "broken.yaml"), ("not a rollout plan",)),
    (("apply", "."), ("cannot read the plan",)),
]


def test_on_a_cluster(start_lab: StartLab, command: Command, home: Path) -> None:
    lab = start_lab(nodes=2)
    (home / "broken.yaml").write_text("all: [", encoding="utf-8")
    for arguments, told in ON_A_CLUSTER:
        ended = command(*arguments, lab=lab)
        assert ended.code == ExitCode.ERROR, (arguments, ended)
        assert_one_error(ended.stderr, *told)
    assert untouched(lab)


@pytest.mark.parametrize(
    ("terminating", "fix"), [(False, "Create that namespace,"), (True, "after it is deleted")]
)
def test_a_lock_namespace_that_takes_nothing_new(
    start_lab: StartLab, command: Command, fix: str, *, terminating: bool
) -> None:
    """It is not there, or on its way out: what stands beside the lock cannot be allowed, nor
    deleted.
    """
    lab = start_lab("default", nodes=4)
    if terminating:
        metadata = {
            "name": "locks",
            "deletionTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": ["example.com/hold"],
        }
        lab.call(
            lambda: lab.store.create(
                NAMESPACES, {"metadata": metadata, "status": {"phase": "Terminating"}}
            )
        )
    where = ("--set", "lock.namespace=locks")
    for arguments, code in ((("apply", "--yes", "--allow", "idle"), 1), (("operate", "--once"), 6)):
        ended = command(*arguments, *where, lab=lab).ends(code)
        hint = ended.stderr.splitlines()[-1]
        assert hint.startswith("hint: ")
        assert fix in hint
        assert "lock.namespace" in hint
    assert not any(lab.scoreboard().reboots.values())
    checks = json.loads(command("doctor", "-o", "json", *where, lab=lab).stdout)["checks"]
    fixes = [check["fix"] for check in checks if "cannot be written" in check["message"]]
    assert len(fixes) == 2
    assert all(fix in each for each in fixes)
