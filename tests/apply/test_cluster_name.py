"""What the operator calls the cluster, wherever a run is told of: one flag, and two older ones that are still taken."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rollout.lab.lab import Lab
from rollout.lab.scenario import Scenario
from tests.apply.test_metrics import scraped
from tests.ended import Ended, invoked
from tests.inbox import Inbox, received

Started = Callable[[Scenario | str, int], Lab]
ONE = ("--yes", "--node", "worker-1", "--set", "metrics.textfile=rollout.prom", "--set", "output.journal=run.jsonl")


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    with received() as kept:
        yield kept


def test_one_flag_is_the_name_everywhere(inbox: Inbox, started: Started, tmp_path: Path) -> None:
    lab = started("default", 4)
    variables = {**lab.environment, "ROLLOUT_NOTIFY": inbox.url}

    def run(*arguments: str) -> Ended:
        ended = invoked(tmp_path, variables, arguments)
        assert ended.code == 0, ended.stderr
        return ended

    run("apply", *ONE, "--set", "cluster.name=berlin")
    samples = [sample for family in scraped(tmp_path / "rollout.prom").families.values() for sample in family.samples]
    assert {sample.labels["cluster"] for sample in samples} == {"berlin"}
    assert {note["cluster"] for note in inbox.notes} == {"berlin"}
    server = next(note["server"] for note in inbox.notes)
    assert f"berlin ({server.removeprefix('https://')})" in run("report", "run.jsonl").stdout
    report = json.loads(run("report", "run.jsonl", "--format", "json").stdout)
    assert (report["cluster_name"], report["cluster"]) == ("berlin", server)
    assert "berlin" in run("history", "--journal", "run.jsonl").stdout
    shown = run("history", "--journal", "run.jsonl", report["run"])
    assert f"Run {report['run']} on berlin ({server})" in shown.stdout
