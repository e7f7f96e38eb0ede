"""What the operator calls the cluster, wherever a run is told of: one flag, and two older ones that are still taken."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rollout.lab.lab import Lab
from rollout.lab.scenario import Scenario
from tests.apply.test_metrics import scraped
from tests.ended import Ended, end_of, start
from tests.inbox import Inbox, received

Started = Callable[[Scenario | str, int], Lab]
ONE = ("--yes", "--node", "worker-1", "--set", "metrics.textfile=rollout.prom", "--set", "output.journal=run.jsonl")


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    with received() as kept:
        yield kept


def test_one_flag_is_the_name_everywhere(inbox: Inbox, started: Started, tmp_path: Path) -> None:
    lab = started("default", 4)
    variables = {**lab.environment, "ROLLOUT_NOTIFY": inbox.url, "ROLLOUT_CLUSTER_NAME": "berlin"}

    def run(*arguments: str) -> Ended:
        ended = end_of(start(tmp_path, variables, arguments))
        assert ended.code == 0, ended.stderr
        return ended

    ended = run("apply", *ONE)
    assert "superseded" not in ended.stderr
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


def test_the_flags_before_it_are_taken_with_a_word(inbox: Inbox, started: Started, tmp_path: Path) -> None:
    """Each names what it named before, and nothing else; neither stands in a help."""
    variables = {**started("default", 4).environment, "ROLLOUT_NOTIFY": inbox.url}
    (tmp_path / "rollout.toml").write_text('notify-cluster = "b"\n')
    ended = end_of(start(tmp_path, variables, ("apply", *ONE, "--metrics-cluster", "a")))
    assert ended.code == 0, ended.stderr
    assert scraped(tmp_path / "rollout.prom").families
    assert 'cluster="a"' in (tmp_path / "rollout.prom").read_text()
    assert {note["cluster"] for note in inbox.notes} == {"b"}
    told = [line for line in ended.stderr.splitlines() if "superseded" in line]
    assert sorted(told) == [
        "warning: --metrics-cluster is superseded by cluster.name",
        "warning: --notify-cluster is superseded by cluster.name",
    ]
    both = end_of(start(tmp_path, variables, ("apply", *ONE, "--set", "cluster.name=c", "--allow", "idle")))
    assert (both.code, inbox.notes[-1]["cluster"]) == (0, "c")
    helped = end_of(start(tmp_path, {}, ("apply", "--help-all"))).stdout
    assert ("cluster.name" in helped, "-cluster " in helped) == (True, False)
