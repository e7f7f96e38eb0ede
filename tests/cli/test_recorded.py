"""Whose runs `history` and `report` take, as a user has them: no cluster is there, its kubeconfig tells which it is."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from rollout.errors import ExitCode
from rollout.lab.lab import Lab
from tests.cli.conftest import Command
from tests.conftest import StartLab
from tests.report.journals import Night, as_lines

PROD, TEST, AGAIN = "a" * 16, "b" * 16, "c" * 16
KUBECONFIG = """
contexts:
- {name: prod, context: {cluster: prod}}
- {name: test, context: {cluster: test}}
- {name: new, context: {cluster: new}}
current-context: prod
clusters:
- {name: prod, cluster: {server: 'https://Prod.example:6443/', certificate-authority: gone.crt}}
- {name: test, cluster: {server: 'https://test.example:6443'}}
- {name: new, cluster: {server: 'https://new.example:6443'}}
"""


def keep(home: Path, run: str, cluster: Mapping[str, str], minutes: float) -> Path:
    """A journal that was written so many minutes after the others."""
    folder = home / ".local" / "state" / "rollout" / "runs"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{run}.jsonl"
    records = ({**entry, "run": run, "cluster": cluster} if "run" in entry else entry for entry in Night().records())
    path.write_bytes(as_lines(records))
    os.utime(path, (1e9 + 60 * minutes,) * 2)
    return path


@pytest.fixture
def kept(home: Path) -> Path:
    """A run on each of two clusters, the later one on `test`; `prod` is the context's."""
    (home / ".kube").mkdir()
    (home / ".kube" / "config").write_text(KUBECONFIG)
    keep(home, PROD, {"uid": "prod", "server": "https://prod.example:6443"}, 0)
    keep(home, TEST, {"uid": "test", "server": "https://test.example:6443"}, 1)
    return home


def reported(command: Command, *arguments: str) -> str:
    return str(json.loads(command("report", "-o", "json", *arguments).stdout)["run"])


@pytest.mark.usefixtures("kept")
def test_the_last_run_is_that_of_the_contexts_cluster(command: Command) -> None:
    ended = command("report")
    assert f"- Run: `{PROD}`\n" in ended.stdout
    assert ended.stderr == f"The last run on https://Prod.example:6443 (context prod): {PROD}.\n"
    assert reported(command, "--context", "test") == TEST
    assert reported(command, "--all-clusters") == TEST
    assert f"The last run on https://test.example:6443: {TEST}." in command("report", "--all-clusters").stderr


def test_without_a_kubeconfig_any_cluster_counts_and_that_is_said(command: Command, kept: Path) -> None:
    (kept / ".kube" / "config").unlink()
    ended = command("report")
    assert f"- Run: `{TEST}`\n" in ended.stdout
    assert "No cluster is at hand (there is no kubeconfig" in ended.stderr
    assert f"The last run on https://test.example:6443: {TEST}." in ended.stderr
    ended = command("history")
    assert PROD in ended.stdout
    assert TEST in ended.stdout
    assert "No cluster is at hand" in ended.stderr


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("name", ["history", "report"])
def test_a_context_that_is_not_there_is_an_error(name: str, command: Command) -> None:
    ended = command(name, "--context", "nosuch")
    assert (ended.code, ended.stdout) == (ExitCode.ERROR, "")
    assert "has no context 'nosuch'" in ended.stderr


def test_real_runs_on_two_clusters(start_lab: StartLab, command: Command) -> None:
    """Each is told by what its own run has written down; neither API server is asked for it."""
    labs: list[Lab] = [start_lab(nodes=4, speed=30), start_lab(nodes=4, speed=30)]
    plans = [command("apply", "--yes", "--node", "worker-1", "-o", "json", lab=lab).plan["plan_id"] for lab in labs]
    for lab, run in zip(labs, plans, strict=True):
        lab.call(lab.requests.clear)
        told = command("report", "--format", "json", lab=lab)
        assert json.loads(told.stdout)["run"] == run
        assert f": {run}." in told.stderr
        rows = command("history", lab=lab)
        assert [row.split()[0] for row in rows.stdout.splitlines()[1:]] == [run]
        assert "left out: 1 run on other clusters" in rows.stderr
        assert lab.call(lambda lab=lab: len(lab.requests)) == 0  # type: ignore[misc]
