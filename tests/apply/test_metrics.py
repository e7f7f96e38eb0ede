"""Metrics of real rollouts, as Prometheus would have them: in a file, and at a Pushgateway; however
those behave.
"""

import json
import time
from pathlib import Path

import pytest

from tests.apply.conftest import Rollout, Scrape, Started, complaints
from tests.ended import invoked
from tests.waiting import Inbox

PASSWORD = "correct-horse-battery"


def scraped(file: Path) -> Scrape:
    return Scrape(file.read_text(encoding="utf-8"))


def test_a_run_leaves_its_metrics_in_a_file_and_its_clusters_name_everywhere(
    inbox: Inbox, started: Started, tmp_path: Path
) -> None:
    lab = started("default", 5)
    file = tmp_path / "rollout.prom"
    began = time.time()
    variables = {**lab.environment, "ROLLOUT_NOTIFY": inbox.url}

    def run(*arguments: str) -> str:
        ended = invoked(tmp_path, variables, arguments).ends(0)
        return ended.stdout

    places = ("--set", f"metrics.textfile={file}", "--set", "output.journal=run.jsonl")
    run("apply", "--yes", *places, "--set", "cluster.name=berlin")
    scrape = scraped(file)
    assert complaints(scrape) == ""
    assert scrape.values("node_rollout_nodes", "phase") == {"done": 5}
    assert scrape.values("node_rollout_finished_nodes", "outcome") == {"succeeded": 5}
    (required,) = [
        family for name, family in scrape.families.items() if name == "node_rollout_reboot_required"
    ]
    nodes = dict.fromkeys(("cp-1", "worker-1", "worker-2", "worker-3", "worker-4"), 0)
    assert {sample.labels["node"]: sample.value for sample in required.samples} == nodes
    assert scrape.value("node_rollout_wave") == 5
    assert scrape.value("node_rollout_waves") == 5
    assert scrape.value("node_rollout_drain_duration_seconds_count") == 5
    assert scrape.value("node_rollout_reboot_duration_seconds_count") == 5
    assert 0 < scrape.value("node_rollout_reboot_duration_seconds_sum") < 100
    assert scrape.value("node_rollout_running") == 0
    assert scrape.values("node_rollout_last_pass_result", "result") == {"ok": 1}
    assert began < scrape.value("node_rollout_last_success_timestamp_seconds") < time.time()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".rollout-")] == []

    samples = [sample for family in scrape.families.values() for sample in family.samples]
    assert {sample.labels["cluster"] for sample in samples} == {"berlin"}
    assert {note["cluster"] for note in inbox.notes} == {"berlin"}
    (server,) = {note["server"] for note in inbox.notes}
    named = f"berlin ({server.removeprefix('https://')})"
    report = json.loads(run("report", "run.jsonl", "-o", "json"))
    assert report["cluster_name"] == "berlin"
    assert report["cluster"] == server
    assert named in run("report", "run.jsonl")
    assert "berlin" in run("history", "-o", "wide", "--set", "output.journal=run.jsonl")
    assert named in run("history", "--set", "output.journal=run.jsonl", report["run"])


def test_what_failed_is_told_and_when_it_last_went_well_stays(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    file = tmp_path / "rollout.prom"
    file.write_text('node_rollout_last_success_timestamp_seconds{cluster="berlin"} 1.5e+09\n')
    lab = started("rollback", 4)
    rollout(
        lab, "apply", "--yes", "--set", f"metrics.textfile={file}", "--set", "cluster.name=berlin"
    ).ends(4)
    scrape = scraped(file)
    assert scrape.values("node_rollout_finished_nodes", "outcome")["rolled-back"] == 1
    assert sum(scrape.values("node_rollout_node_failures_total", "phase").values()) == 1
    assert scrape.values("node_rollout_last_pass_result", "result") == {"partial": 1}
    assert scrape.value("node_rollout_last_success_timestamp_seconds") == 1.5e9
    assert scrape.values("node_rollout_version_held", "version") == {"4152.2.0": 1}


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("textfile=rollout.txt", "it does not end in .prom"),
        (f"pushgateway=ftp://ops:{PASSWORD}@gateway", "is not the address of a Pushgateway"),
        (
            f"pushgateway=http://ops:{PASSWORD}@gateway:9091/metrics/job/x",
            "not the address of a Push",
        ),
        (
            f"pushgateway=http://ops:a {PASSWORD}@gateway:9091",
            "'gateway:9091' is not the address of a Push",
        ),
        (f"pushgateway=ops:{PASSWORD}@gateway:9091", "'gateway:9091' is not the address of a Push"),
    ],
)
def test_a_place_that_is_none_is_refused(place: str, why: str, tmp_path: Path) -> None:
    ended = invoked(
        tmp_path, {"KUBECONFIG": "/nonexistent"}, ("apply", "--yes", "--set", f"metrics.{place}")
    )
    assert (ended.code, why in ended.stderr, "--set" in ended.stderr) == (64, True, True), (
        ended.stderr
    )
    assert PASSWORD not in ended.stderr


# A run tells how many pods had to move, and how many evictions that took, as the cluster has seen
# it.


QUICK = ("--settle-timeout", "20s", "--set", "waves.health-checks=1")


def test_the_summary_and_the_history_count_what_the_cluster_has_seen(
    started: Started, rollout: Rollout
) -> None:
    lab = started("typical", 4)
    ended = rollout(lab, "apply", "--yes", "-o", "json", *QUICK).ends(0)
    summary = ended.summary
    scores = lab.scoreboard()
    # whatever leaves the first node goes to one that waits
    assert scores.moved_twice > 0
    assert summary["evictions"] == scores.evictions
    assert (
        summary["pods_to_move"]
        == ended.plan["summary"]["pods_to_move"]
        == scores.evictions - scores.moved_twice
    )
    # what each owner's pods took to end: the next plan's estimates go by it
    endings = {line["node"]: line["endings"] for line in ended.lines if "endings" in line}
    assert endings.keys() == {
        node["name"] for wave in ended.plan["waves"] for node in wave["nodes"]
    }
    owners = {owner for told in endings.values() for owner in told}
    assert {owner.partition("/")[0] for owner in owners} == {"ReplicaSet", "StatefulSet"}
    assert all(0 <= seconds < 600 for told in endings.values() for seconds in told.values())
    told = rollout(lab, "history", ended.plan["plan_id"])
    sentence = f"{summary['pods_to_move']} pods had to be evicted: {scores.evictions} evictions"
    assert sentence in told.stdout, told.stdout
