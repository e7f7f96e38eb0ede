"""`rollout status` in its formats, and beside a rollout: the real program on a lab."""

import json
import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from rollout.cli.stages.status import _warn_besides_json
from rollout.errors import ExitCode
from rollout.lab.lab import Lab
from rollout.report.status import FollowUp
from tests.cli.conftest import TINY, Command
from tests.conftest import StartLab
from tests.report.test_tables import WAITING


@pytest.fixture(scope="module")
def sources(shared_lab: StartLab) -> Lab:
    return shared_lab("sources")


# Hosts that have no update_engine, and what they have in its place.
WITHOUT_ENGINE = {
    **dict.fromkeys(("cp-2", "worker-6", "worker-7"), "rpm-ostree"),
    **dict.fromkeys(("worker-4", "worker-5"), "reboot-required"),
}


def test_a_host_without_update_engine_is_not_known_to_need_no_reboot(
    command: Command, sources: Lab
) -> None:
    rows = {
        row["node"]: row
        for row in json.loads(command("status", "-o", "json", lab=sources).stdout)["nodes"]
    }
    unknown = {name: row["shows"] for name, row in rows.items() if not row["judged"]}
    assert unknown == {name: [source] for name, source in WITHOUT_ENGINE.items()}
    text = command("status", "-o", "wide", lab=sources).stdout
    lines = {
        line.split()[0]: line for line in text.splitlines() if line.startswith(("cp-", "worker-"))
    }
    for name, source in WITHOUT_ENGINE.items():
        assert lines[name].split()[1] == "unknown"
        assert f"it has {source}: add --set detect.sources=update-engine,{source}" in lines[name]
    assert "12 nodes: 6 behind, 5 unknown, 1 pending\n" in text
    pending = command("status", "--pending", "-o", "json", lab=sources)
    assert [row["node"] for row in json.loads(pending.stdout)["nodes"]] == ["cp-1"]
    assert "cannot tell whether a reboot is pending on 5 nodes" in pending.stderr
    # its flag, as it is printed, has them all judged
    flag = text.rpartition("Next:\n    rollout status ")[2].split()
    told = json.loads(command("status", *flag, "-o", "json", lab=sources).stdout)["nodes"]
    assert all(row["judged"] and not row["shows"] for row in told)
    assert {row["node"] for row in told if row["needs_reboot"]} >= {*WITHOUT_ENGINE} - {"worker-5"}


CORDONED = {
    "worker-1": "flatcar-linux-update.v1.flatcar-linux.net/reboot-in-progress",
    "worker-3": "weave.works/kured-reboot-in-progress",
    "worker-5": "rebootmanager/status",
}


def test_a_cordoned_node_names_the_coordinator_whose_marks_stand_there(
    command: Command, start_lab: StartLab
) -> None:
    lab = start_lab("leftovers")
    planned = json.loads(command("plan", "-o", "json", lab=lab).stdout)["excluded"]
    messages = {item["node"]: item["message"] for item in planned if item["reason"] == "cordoned"}
    for name, mark in CORDONED.items():
        assert messages[name].startswith("cordoned; ")
        assert f"kubectl annotate node {name} {mark}-" in messages[name]
    assert messages["worker-9"].startswith("cordoned manually (to reboot it anyway")


def test_pending_leaves_out_what_waits_for_nothing(command: Command, mixed: Lab) -> None:
    rows = json.loads(command("status", "-o", "json", lab=mixed).stdout)["nodes"]
    waiting = [row["node"] for row in rows if row["needs_reboot"]]
    assert [row["node"] for row in rows if not row["schedulable"]] == ["worker-7"]
    assert 0 < len(waiting) < len(rows)
    pending = command("status", "--pending", "-o", "json", lab=mixed)
    assert [row["node"] for row in json.loads(pending.stdout)["nodes"]] == waiting
    text = command("status", "--pending", lab=mixed).stdout
    assert [
        line.split()[0] for line in text.splitlines() if line.startswith(("cp-", "worker-"))
    ] == waiting
    assert text.endswith(
        "12 nodes: 6 pending, 3 paused, 1 behind, 1 downloading, 1 cordoned\nNext:\n    rollout"
        " plan\n"
    )


def test_what_is_not_known_is_not_passed_over(command: Command, mixed: Lab) -> None:
    """Whoever asks for what is pending learns that of some nodes nobody knows."""
    away = ("--ssh-port", "1") if mixed.ssh_port else ("--inventory", "/dev/null")
    said = command("status", "--pending", "-o", "json", *away, lab=mixed)
    assert json.loads(said.stdout)["nodes"] == []
    assert "cannot tell whether a reboot is pending on 12 nodes" in said.stderr
    text = command("status", "--pending", *away, lab=mixed).stdout
    assert text == f"12 nodes: 12 unreachable\nNext:\n    rollout doctor {' '.join(away)}\n"


# Saved plans as `plan FILE` shows them, and apply before it runs them; and what blocks, as apply
# refuses it.


def test_a_saved_plan_is_shown_without_its_cluster_and_before_it_runs(
    start_lab: StartLab, command: Command, home: Path
) -> None:
    lab = start_lab(TINY, nodes=2)
    made = command("plan", "--window", "sat 02:00 4h", "--force", "--out", "a.plan", lab=lab)
    shown = command("plan", "a.plan").ends(ExitCode.OK)
    assert "\n! --force" in shown.stdout
    assert "sat 02:00 4h: " in shown.stdout
    assert shown.stdout.splitlines()[-2:] == made.stdout.splitlines()[-2:]
    assert shown.stdout.endswith("Next:\n    rollout apply a.plan\n")
    assert (
        command("plan", "a.plan", "-o", "json").stdout.strip()
        == (home / "a.plan").read_text().strip()
    )
    applied = command("apply", "a.plan", "--dry-run", lab=lab)
    named, weak, *_ = applied.stdout.splitlines()
    assert re.fullmatch(r"a\.plan, made \S+: 2 nodes in 2 waves, on \S+", named)
    assert weak.startswith("! --force: ")
    assert "WAVE" not in applied.stdout


def test_what_blocks_is_said_once_and_the_plan_ends_with_it(
    start_lab: StartLab, command: Command
) -> None:
    lab = start_lab("budget-never", nodes=6)
    plan = command("plan", "--out", "a.plan", lab=lab)
    blocked = plan.stdout.splitlines()[-1]
    # On as many lines as the terminal needs.
    blocker = " ".join(plan.stdout.split()).partition("✘ ")[2].removesuffix(f" {blocked}")
    assert (
        blocked == "Blocked: apply will not start. To leave these 2 nodes out, use --skip blocked."
    )
    assert blocker.startswith(
        "worker-2, worker-3 PDB shop/ledger maxUnavailable 0 never allows an eviction"
    )
    shown = command("plan", "a.plan")
    assert shown.stdout.splitlines()[-1] == blocked
    assert shown.code == ExitCode.BLOCKED
    assert plan.code == ExitCode.BLOCKED
    allowed = command("plan", "--allow", "blocked", lab=lab)
    assert allowed.code == ExitCode.OK
    assert allowed.stdout.splitlines()[-1] == "    rollout apply --allow blocked"
    refused = command("apply", "--yes", lab=lab).ends(ExitCode.BLOCKED)
    error = " ".join(refused.stderr.split()).partition("rollout: error: ")[2]
    assert error.startswith(f"not started: 2 nodes have blockers {blocker} hint: ")


def test_rows_are_judged_by_the_settings_of_a_plan(command: Command, mixed: Lab) -> None:
    rules = ("--set", "waves.control-plane=exclude", "--set", "nodes.allow=cordoned", "-o", "json")
    rows = json.loads(command("status", *rules, lab=mixed).stdout)["nodes"]
    plan = json.loads(command("plan", *rules, lab=mixed).stdout)
    excluded = {item["node"]: item["reason"] for item in plan["excluded"]}
    assert {row["node"]: row["reason"] for row in rows if row["reason"]} == excluded
    assert "excluded" in excluded.values()


def test_pools_outside_their_windows_are_named(command: Command, mixed: Lab, home: Path) -> None:
    """Whenever this is run: the window is in two days."""
    day = f"{datetime.now(UTC) + timedelta(days=2):%a}".lower()
    pool = '[[pool]]\nname = "{}"\nselector = "node-role.kubernetes.io/{}="\n'
    window = f"window = '{day} 02:00 1h'\n"
    (home / "pools.toml").write_text(
        pool.format("edge", "worker") + window + pool.format("rest", "control-plane")
    )
    told = " ".join(command("status", "--config", "pools.toml", lab=mixed).stdout.split())
    assert (
        "No node of the pool edge can be rebooted now: outside the maintenance window; the next window opens"
        in told
    )
    assert "pool rest is" not in told


def test_a_host_that_does_not_get_its_updates_says_why(
    command: Command, start_lab: StartLab, home: Path
) -> None:
    """One lags behind, one is masked, one has failed, and the checks of two fail."""
    lab = start_lab("behind", nodes=9)
    text = command("status", lab=lab).ends(ExitCode.OK).stdout
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in text.splitlines() if line}
    assert rows["worker-1"] == "up to date 4152.2.0"
    assert rows["worker-2"] == "behind 4081.2.0 the newest version in the cluster is 4152.2.0"
    assert (
        rows["worker-3"]
        == "behind 4081.2.0 the newest version in the cluster is 4152.2.0; last checked 9 days ago"
    )
    assert rows["worker-4"] == "behind 4081.2.0 update-engine is masked"
    assert rows["worker-5"] == "not checking 4152.2.0 last checked 9 days ago"
    assert rows["worker-6"] == "not checking 4152.2.0 update-engine has failed"
    assert text.endswith("Next:\n    rollout doctor\n")
    told = json.loads(command("status", "-o", "json", lab=lab).stdout)["nodes"]
    assert [row["node"] for row in told if row["behind"]] == ["worker-2", "worker-3", "worker-4"]
    ages = {row["node"]: row["last_checked"] for row in told}
    nine_days_ago = datetime.now(UTC) - timedelta(days=9)
    assert abs(datetime.fromisoformat(ages["worker-3"]) - nine_days_ago) < timedelta(hours=12)
    assert ages["worker-4"] == ""
    patient = command("status", "--set", "detect.max-check-age=240h", lab=lab).stdout
    assert "last checked" not in patient
    doctor = command("doctor", lab=lab).ends(ExitCode.ERROR).stdout
    assert "unmask update-engine" in doctor
    assert "worker-2: its version is older than 4152.2.0" in doctor
    assert "journalctl -u update-engine" in doctor
    file = home / "rollout.prom"
    command("apply", "--yes", "--set", f"metrics.textfile={file}", lab=lab)
    metrics = file.read_text()
    assert re.search(r"^node_rollout_hosts_behind{.*} 3\.0$", metrics, re.MULTILINE)
    last_check = 'node_rollout_host_last_check_timestamp_seconds{cluster=".*",node="worker-4"} 0.0'
    assert re.search(last_check, metrics)


def test_json_of_many_nodes_compares_no_node_with_every_other() -> None:
    rows = [replace(WAITING, node=f"worker-{number}") for number in range(4000)]
    began = time.process_time()
    _warn_besides_json(rows, rows, FollowUp())
    # Comparing each with each takes 8 s.
    assert time.process_time() - began < 1
