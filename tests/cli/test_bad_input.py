"""What is wrong with the input is one line and a hint, the right exit code, and no change."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rollout.errors import ExitCode
from rollout.lab.api.resources import NAMESPACES
from rollout.lab.lab import Lab
from tests.cli.conftest import Command
from tests.conftest import StartLab

USAGE = [
    (("plan", "--drain-timeout", "10x"), "--drain-timeout", "not a duration"),
    (("apply", "--yes", "--set", "lock.duration=999999999h"), "lock.duration", "is too long"),
    (("plan", "--grace-period", "99999999999999999999"), "--grace-period", ""),
    (("plan", "--max-unavailable", "0"), "--max-unavailable", "no node"),
    (("plan", "--max-unavailable", "300%"), "--max-unavailable", "not a count"),
    (("plan", "--ssh-port", "65536"), "--ssh-port", ""),
    (("plan", "-l", "a=b=c"), "not a label selector", ""),
    (("plan", "--max-unavailble", "3"), "No such option", "--max-unavailable"),
    (("plan", "--soak", "3m"), "waves.soak has no flag: write --set waves.soak=VALUE.", "rollout plan --help"),
    (("apply", "--lock-duration", "3m"), "--set lock.duration=VALUE", ""),
    (("paln",), "No such command", "plan"),
    (("status", "extra"), "extra", ""),
    (("status", "-c", "nowhere.toml"), "cannot read nowhere.toml", ""),
    (("apply", "a", "b"), "b", ""),
    (("--yes", "apply"), "Flags stand after the command", "rollout --help"),
    (("-o", "json", "status"), "Flags stand after the command", "rollout --help"),
    (("status", "worker-1"), "Nodes are chosen with --node NAME", "rollout status --help"),
    (("plan", "--canary", "10%"), "'10%' is not a whole number", "--canary"),
    (("plan", "--grace-period", "30s"), "'30s' is not a whole number", "--grace-period"),
    (("status", "-l", "role==worker,"), "is not a label selector: it ends too early", "--selector"),
]


@pytest.mark.parametrize(("arguments", "told", "also"), USAGE, ids=lambda value: str(value)[:40])
def test_usage(arguments: tuple[str, ...], told: str, also: str, command: Command, home: Path) -> None:
    (home / "config").write_text("", encoding="utf-8")
    ended = command(*arguments, variables={"KUBECONFIG": str(home / "config")})
    assert ended.code == ExitCode.USAGE
    assert_one_error(ended.stderr, told, also)


def assert_one_error(stderr: str, *told: str) -> None:
    lines = stderr.splitlines()
    assert lines[0].startswith("rollout: error: "), stderr
    assert len(lines) <= 2, stderr
    assert all(line.startswith("hint: ") for line in lines[1:]), stderr
    assert all(word in stderr for word in told), stderr


KUBECONFIGS = [
    ("missing", None, "there is no kubeconfig"),
    ("empty", "", "kubeconfig"),
    ("broken", "{", "kubeconfig"),
    ("a list", "[1, 2]", "kubeconfig"),
]


@pytest.mark.parametrize(("name", "text", "told"), KUBECONFIGS, ids=lambda value: str(value)[:20])
def test_kubeconfig(name: str, text: str | None, told: str, command: Command, home: Path) -> None:
    path = home / "config"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    ended = command("status", "--kubeconfig", str(path))
    assert ended.code == ExitCode.ERROR
    assert_one_error(ended.stderr, told)


def test_a_server_that_is_not_there(command: Command, home: Path) -> None:
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    content = {
        "clusters": [cluster],
        "contexts": [context],
        "users": [{"name": "u", "user": {}}],
        "current-context": "x",
    }
    (home / "config").write_text(json.dumps(content), encoding="utf-8")
    ended = command("plan", "--kubeconfig", "config")
    assert ended.code == ExitCode.ERROR
    assert_one_error(ended.stderr, "127.0.0.1:9")
    verbose = command("plan", "--kubeconfig", "config", "-v")
    assert "caused by: " in verbose.stderr


@pytest.mark.parametrize(("text", "told"), [(None, "cannot read the journal"), ("all: [", "no run is recorded in")])
def test_a_file_that_is_no_journal(text: str | None, told: str, command: Command, home: Path) -> None:
    if text is not None:
        (home / "run.jsonl").write_text(text, encoding="utf-8")
    ended = command("history", "--set", "output.journal=run.jsonl")
    assert ended.code == ExitCode.ERROR
    assert_one_error(ended.stderr, told, "run.jsonl")


ON_A_CLUSTER: list[tuple[tuple[str, ...], ExitCode, tuple[str, ...]]] = [
    (("status", "--context", "nowhere"), ExitCode.ERROR, ("nowhere",)),
    (("status", "-l", "pool=none"), ExitCode.ERROR, ("no node matches",)),
    (("plan", "-l", "node-role.kubernetes.io/workr"), ExitCode.ERROR, ("no node matches", "node-role.kubernetes.io/")),
    (("plan", "--node", "worker-l"), ExitCode.ERROR, ("there is no node worker-l", "worker-1")),
    (("plan", "-i", "nowhere.ini"), ExitCode.ERROR, ("nowhere.ini",)),
    (("plan", "-i", "broken.yaml"), ExitCode.ERROR, ("broken.yaml",)),
    (("plan", "--ssh-key", "nowhere.key"), ExitCode.ERROR, ("nowhere.key",)),
    (("plan", "--ssh-key", "broken.yaml"), ExitCode.ERROR, ("broken.yaml",)),
    (("plan", "--ssh-config", "nowhere"), ExitCode.ERROR, ("nowhere", "--ssh-config")),
    (("plan", "--out", "."), ExitCode.ERROR, ("is a directory",)),
    (("plan", "--out", "no/such/place"), ExitCode.ERROR, ("there is no directory",)),
    (("apply", "nowhere.plan"), ExitCode.ERROR, ("nowhere.plan",)),
    (("apply", "broken.yaml"), ExitCode.ERROR, ("not a rollout plan",)),
    (("apply", "."), ExitCode.ERROR, ("cannot read the plan",)),
]


def test_on_a_cluster(start_lab: StartLab, command: Command, home: Path) -> None:
    lab = start_lab(nodes=2)
    (home / "broken.yaml").write_text("all: [", encoding="utf-8")
    for arguments, code, told in ON_A_CLUSTER:
        ended = command(*arguments, lab=lab)
        assert ended.code == code, (arguments, ended)
        assert_one_error(ended.stderr, *told)
    assert nothing_changed(lab)


def test_silent_hosts_are_not_taken_for_hosts_without_an_update(start_lab: StartLab, command: Command) -> None:
    lab = start_lab(nodes=4)
    for asked in ("--yes", "--dry-run"):
        ended = command("apply", asked, "--ssh-port", "1", lab=lab)
        assert ended.code == ExitCode.PARTIAL
        assert "  unreachable: " in ended.stdout
        assert "Next:\n    rollout doctor --ssh-port 1\n" in ended.stdout
    assert nothing_changed(lab)


def edited(change: Callable[[dict[str, object]], object]) -> Callable[[str], str]:
    def edit(text: str) -> str:
        content = json.loads(text)
        change(content)
        return json.dumps(content)

    return edit


PLANS: list[tuple[str, Callable[[str], str], str]] = [
    ("truncated", lambda text: text[: len(text) // 2], "is not a"),
    ("edited", edited(lambda plan: plan.update(created_at="2020-01-01T00:00:00Z")), "edited"),
    ("newer", edited(lambda plan: plan.update(format_version="2.0")), "plan format 2.0"),
    ("without a field", edited(lambda plan: plan.pop("waves")), "not a complete plan"),
    ("something else", lambda _text: '{"kind": "List"}', "not a rollout plan"),
]


def test_a_plan_that_is_not_as_it_was_saved(start_lab: StartLab, command: Command, home: Path) -> None:
    lab = start_lab(nodes=4)
    assert command("plan", "--out", "good.plan", lab=lab).code == ExitCode.OK
    good = (home / "good.plan").read_text(encoding="utf-8")
    for name, spoil, told in PLANS:
        (home / "bad.plan").write_text(spoil(good), encoding="utf-8")
        ended = command("apply", "bad.plan", lab=lab)
        assert ended.code == ExitCode.ERROR, name
        assert_one_error(ended.stderr, told)
    assert nothing_changed(lab)


def test_a_plan_of_another_cluster(start_lab: StartLab, command: Command) -> None:
    one, other = start_lab(nodes=2), start_lab(nodes=2)
    command("plan", "--out", "one.plan", lab=one)
    ended = command("apply", "one.plan", lab=other)
    assert ended.code == ExitCode.STALE
    assert_one_error(ended.stderr, "another cluster")
    assert nothing_changed(other)


def nothing_changed(lab: Lab) -> bool:
    scores = lab.scoreboard()
    return scores.clean and not any(scores.reboots.values()) and not scores.evictions


@pytest.mark.parametrize(("terminating", "fix"), [(False, "Create that namespace,"), (True, "once it is gone")])
def test_a_lock_namespace_that_takes_nothing_new(
    start_lab: StartLab, command: Command, fix: str, *, terminating: bool
) -> None:
    """It is not there, or on its way out: what stands beside the lock cannot be allowed, nor deleted."""
    lab = start_lab("default", nodes=4)
    if terminating:
        metadata = {"name": "locks", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/hold"]}
        lab.call(lambda: lab.store.create(NAMESPACES, {"metadata": metadata, "status": {"phase": "Terminating"}}))
    where = ("--set", "lock.namespace=locks")
    for arguments, code in ((("apply", "--yes", "--allow", "idle"), 1), (("operate", "--once"), 6)):
        ended = command(*arguments, *where, lab=lab)
        assert ended.code == code, ended.stderr
        hint = ended.stderr.splitlines()[-1]
        assert hint.startswith("hint: ")
        assert fix in hint
        assert "lock.namespace" in hint
    assert not any(lab.scoreboard().reboots.values())
    checks = json.loads(command("doctor", "-o", "json", *where, lab=lab).stdout)["checks"]
    fixes = [check["fix"] for check in checks if "cannot be written" in check["message"]]
    assert len(fixes) == 2
    assert all(fix in each for each in fixes)
