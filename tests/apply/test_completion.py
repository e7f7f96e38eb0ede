"""Jobs that a rollout lets finish: they run on a lab whose time passes 120 times as fast."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rollout.lab.api.resources import PODS
from rollout.lab.api.store import Change
from rollout.lab.copied import scenario_like
from rollout.lab.hostplan import scale
from rollout.lab.lab import Lab
from rollout.lab.scenario import Scenario, ScenarioWorkload, WorkloadKind, load_scenario
from tests.apply.conftest import Rollout, killed_at
from tests.conftest import StartLab
from tests.security.hands import at_phase, cordon
from tests.state import is_cordoned, marks_of, rebooted

SPEED = 120
TWENTY_MINUTES = 1200
WORKERS = {f"worker-{number}" for number in range(1, 7)}
TOO_LONG = 10_000_000
# The wait of 10 s is several times as long as the drain timeout.
WAITING = ("--set", "drain.wait-for-completion=job-name", "--drain-timeout", "3s")
APPLY = (
    *("apply", "--yes", "-o", "json", "--control-plane", "exclude"),
    *("--max-unavailable", "2", *WAITING),
)


def with_job(seconds: int, spec: Mapping[str, Any] | None = None) -> Scenario:
    """Workers, of which the first runs a Job for so many simulated seconds."""
    job = ScenarioWorkload(
        kind=WorkloadKind.POD,
        name="train-7-x8z2k",
        namespace="ml",
        node="worker-1",
        owner={"apiVersion": "batch/v1", "kind": "Job", "name": "train-7"},
        labels={"job-name": "train-7"},
        lab={"run-seconds": str(seconds)},
        spec=spec or {},
    )
    scenario = scale(load_scenario("default"), 9)
    return msgspec.structs.replace(scenario, workloads=(*scenario.workloads, job))


@dataclass
class Job:
    """What the cluster saw of the Job's pod: the phase it was in when someone deleted it."""

    deleted_in: list[str] = field(default_factory=list)

    def changed(self, change: Change) -> None:
        metadata = change.obj["metadata"]
        if change.resource is not PODS or metadata["name"] != "train-7-x8z2k":
            return
        is_deleted = change.gone or "deletionTimestamp" in metadata
        if is_deleted and not self.deleted_in:
            self.deleted_in.append(change.obj["status"]["phase"])


def watched(lab: Lab) -> Job:
    job = Job()
    lab.call(lambda: lab.store.subscribe(job.changed))
    return job


def lines_of(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def at(line: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(line["at"])


def test_a_job_of_20_minutes_is_not_interrupted_and_the_node_beside_does_not_wait(
    start_lab: StartLab, rollout: Rollout
) -> None:
    lab = start_lab(with_job(TWENTY_MINUTES), speed=SPEED)
    job = watched(lab)
    lines = lines_of(rollout(lab, *APPLY).ends(0).stdout)
    assert job.deleted_in == ["Succeeded"]
    assert rebooted(lab) == WORKERS
    assert lab.scoreboard().clean
    ended = {line["node"]: at(line) for line in lines if line["type"] == "node_finished"}
    steps = [line for line in lines if line.get("node") == "worker-1" and "awaited" in line]
    (pod,) = steps[-1]["awaited"]
    assert pod["job"] == "ml/train-7"
    assert steps[-1]["detail"] == "waits for 1 job to finish (ml/train-7)"
    (plan,) = [line["plan"] for line in lines if line["type"] == "plan"]
    (beside,) = {node["name"] for node in plan["waves"][0]["nodes"]} - {"worker-1"}
    assert (ended["worker-1"] - ended[beside]).total_seconds() > 5


def test_a_node_whose_job_runs_too_long_is_returned_and_the_others_go_on(
    start_lab: StartLab, rollout: Rollout
) -> None:
    lab = start_lab(with_job(TOO_LONG), speed=SPEED)
    job = watched(lab)
    timeout = ("--set", "drain.wait-for-completion-timeout=2s")
    ended = rollout(lab, *APPLY, *timeout).ends(4)
    assert not job.deleted_in
    assert not is_cordoned(lab, "worker-1")
    assert "phase" not in marks_of(lab, "worker-1")
    assert rebooted(lab) == WORKERS - {"worker-1"}
    (summary,) = [line for line in lines_of(ended.stdout) if line["type"] == "summary"]
    assert summary["skipped"] == ["worker-1"]
    assert summary["kinds"] == {"worker-1": "still-running"}
    assert "ml/train-7 did not complete within" in summary["reasons"]["worker-1"]
    assert summary["failed"] == []


def test_a_rollout_that_was_killed_while_it_waited_lets_the_job_finish(
    start_lab: StartLab, rollout: Rollout, tmp_path: Path
) -> None:
    lab = start_lab(with_job(TWENTY_MINUTES), speed=SPEED)
    job = watched(lab)
    only_first = ("--node", "worker-1")
    assert killed_at(lab, tmp_path, "draining", *APPLY, *only_first) == "worker-1"
    waits = "draining, waits for 1 job to finish (ml/train-7)"
    assert f"worker-1: {waits}" in rollout(lab, "status", "--run").ends(0).stdout
    (run,) = lines_of(rollout(lab, "status", "--run", "-o", "json").ends(0).stdout)
    assert [pod["job"] for pod in run["awaited"]["worker-1"]] == ["ml/train-7"]
    (status,) = json.loads(rollout(lab, "status", *only_first, "-o", "json").ends(0).stdout)[
        "nodes"
    ]
    assert status["under_way"].startswith(waits)
    rollout(lab, "resume", "--yes").ends(0)
    assert job.deleted_in == ["Succeeded"]
    assert rebooted(lab) == {"worker-1"}


def test_a_node_that_is_uncordoned_during_the_wait_is_drained_no_further(
    start_lab: StartLab, rollout: Rollout
) -> None:
    lab = start_lab(with_job(TOO_LONG), speed=SPEED)
    job = watched(lab)
    at_phase(lab, "draining", lambda node: cordon(lab, node, cordoned=False))
    ended = rollout(lab, *APPLY, "--node", "worker-1").ends(4)
    assert (
        "worker-1 was uncordoned outside this rollout while it was drained"
        in ended.failures["worker-1"]["message"]
    )
    assert not job.deleted_in
    assert marks_of(lab, "worker-1").keys() == {"last-result"}


@pytest.mark.exhaustive
def test_a_copy_of_the_cluster_has_the_same_jobs(
    start_lab: StartLab, rollout: Rollout, tmp_path: Path
) -> None:
    file = tmp_path / "cluster.json"
    deadline = {"activeDeadlineSeconds": TWENTY_MINUTES}
    lab = start_lab(with_job(TOO_LONG, deadline), speed=SPEED)
    limits = ("--control-plane", "exclude", "--max-unavailable", "2", *WAITING)
    planned = rollout(lab, "plan", "-o", "json", *limits, "--snapshot", str(file)).ends(0)
    copy = start_lab(scenario_like(file), speed=SPEED)
    again = rollout(copy, "plan", "-o", "json", *limits).ends(0)
    estimates = [json.loads(ended.stdout)["estimate"]["seconds"] for ended in (planned, again)]
    assert estimates[0] == pytest.approx(estimates[1], abs=10)
    job = watched(copy)
    rollout(copy, *APPLY).ends(0)
    assert job.deleted_in == ["Succeeded"]
