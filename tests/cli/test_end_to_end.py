"""The commands as an operator meets them: real processes, a real wire, the lab behind it."""

import json
import re
import signal
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rollout.errors import ExitCode
from tests.cli.conftest import TINY, Command
from tests.conftest import StartLab
from tests.ended import answered, end_of, start
from tests.state import untouched


def test_a_plan_is_shown_saved_and_told_by_the_exit_code(
    start_lab: StartLab, command: Command, home: Path
) -> None:
    lab = start_lab(TINY, nodes=4)
    shown = command("plan", "--out", "my.plan", "--detailed-exitcode", "-o", "json", lab=lab).ends(
        ExitCode.CHANGES
    )
    saved = home / "my.plan"
    assert saved.read_text(encoding="utf-8") == shown.stdout
    assert stat.S_IMODE(saved.stat().st_mode) == 0o644
    written = {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()}
    assert written == {"my.plan"}
    plan = json.loads(shown.stdout)
    assert plan["format_version"] == "1.0"
    assert plan["summary"]["nodes"] == 4
    text = command("plan", "--exclude", "worker-[12]", "-o", "wide", lab=lab).ends(ExitCode.OK)
    left_out = [
        line.split() for line in text.stdout.splitlines() if line.endswith("left out by --exclude")
    ]
    assert [words[:4] for words in left_out] == [["·", "worker-1,", "worker-2", "excluded:"]]
    assert text.stdout.endswith("Next:\n    rollout apply --exclude 'worker-[12]'\n")
    assert untouched(lab)


def test_nothing_to_do_is_no_error_and_no_change(start_lab: StartLab, command: Command) -> None:
    lab = start_lab("idle", nodes=3)
    command("plan", "--detailed-exitcode", lab=lab).ends(ExitCode.OK)
    applied = command("apply", "--yes", "-o", "json", lab=lab).ends(ExitCode.OK)
    assert [line["type"] for line in applied.lines] == ["version", "plan", "summary"]
    assert untouched(lab)


def test_a_saved_plan_runs_once_and_is_stale_afterwards(
    start_lab: StartLab, command: Command
) -> None:
    lab = start_lab(TINY, nodes=3)
    command("plan", "--max-unavailable", "2", "--out", "my.plan", lab=lab)
    refused = command("apply", "my.plan", "--max-unavailable", "1", lab=lab).ends(ExitCode.USAGE)
    assert "--max-unavailable cannot be used with a saved plan" in refused.stderr
    shown = command("plan", "my.plan", "--out", "other.plan", "--explain", "worker-1", lab=lab)
    assert "--out, --explain cannot be used with a saved plan" in shown.ends(ExitCode.USAGE).stderr
    first = command("apply", "my.plan", "-o", "json", lab=lab).ends(ExitCode.OK)
    assert sorted(first.lines[-1]["succeeded"]) == sorted(lab.machines)
    types = [line["type"] for line in first.lines if line["type"] != "notice"]
    assert types[:3] == ["version", "plan", "wave_started"]
    assert types.count("node_finished") == 3
    assert list(dict.fromkeys(phase for phase, _ in first.steps("worker-1"))) == [
        *("pending", "cordoned", "draining", "drained", "rebooting", "booted", "ready", "done")
    ]
    second = command("apply", "my.plan", lab=lab).ends(ExitCode.STALE)
    assert "the host has rebooted since the plan was made" in second.stderr
    scores = lab.scoreboard()
    assert scores.clean
    assert set(scores.reboots.values()) == {1}


def test_a_dry_run_asks_the_server_and_changes_nothing(
    start_lab: StartLab, command: Command
) -> None:
    lab = start_lab(nodes=5)
    ended = command("apply", "--dry-run", lab=lab).ends(ExitCode.OK)
    assert "Dry run: nothing was changed" in ended.stdout
    lines = command("apply", "--dry-run", "-o", "json", lab=lab).lines
    assert {line["node"] for line in lines if line["type"] == "dry_run"} == set(lab.machines)
    assert sum(line["evictions"] for line in lines if line["type"] == "dry_run") > 0
    assert lines[-1]["type"] == "summary"
    assert untouched(lab)


@pytest.mark.parametrize(
    "arguments", [("apply",), ("apply", "-o", "json")], ids=["no terminal", "json"]
)
def test_consent_cannot_be_asked_for(arguments: tuple[str, ...], command: Command) -> None:
    ended = command(*arguments).ends(ExitCode.DECLINED)
    assert "--yes" in ended.stderr
    assert ended.stdout == ""


@pytest.mark.parametrize(
    "answer", ["no", "y", "", "YES", "\x04"], ids=["no", "y", "empty", "YES", "end"]
)
def test_only_yes_is_consent(answer: str, start_lab: StartLab, home: Path) -> None:
    lab = start_lab(TINY, nodes=2)
    ended = answered(home, lab.environment, ["apply"], answer).ends(ExitCode.DECLINED)
    assert ended.stdout.startswith("2 nodes in ")
    assert "This drains and reboots 2 nodes, one at a time, in about " in ended.stderr
    assert re.search(
        r"Reboot 2 nodes in \S+ \(https?://\S+\)\? Type yes to continue: ", ended.stderr
    )
    assert "rollout: not confirmed: nothing was changed\n" in ended.stderr
    assert "error" not in ended.stderr
    assert untouched(lab)


def test_the_question_says_that_the_window_is_closed_and_when_it_opens(
    start_lab: StartLab, home: Path
) -> None:
    lab = start_lab(TINY, nodes=2)
    begin = datetime.now(UTC) + timedelta(hours=3)
    window = f"{begin:%H:%M} 1h UTC"
    ended = answered(home, lab.environment, ["apply", "--window", window], "no").ends(
        ExitCode.DECLINED
    )
    said = " ".join(ended.stderr.split())
    assert (
        "No node can be rebooted now: outside the maintenance window; the next window opens "
        in said
    )
    assert f"{begin:%H:%M}" in said


def test_a_wave_that_is_declined_before_any_other_is_no_failure(
    start_lab: StartLab, home: Path
) -> None:
    lab = start_lab(TINY, nodes=2)
    ended = answered(home, lab.environment, ["apply", "--yes", "--interactive"], "y").ends(
        ExitCode.DECLINED
    )
    assert "Type yes to start this wave, or all to start it and every later wave:" in ended.stderr
    assert untouched(lab)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_finishes_what_is_in_flight(
    number: int, start_lab: StartLab, home: Path
) -> None:
    lab = start_lab(TINY, nodes=3)
    process = start(home, lab.environment, ["apply", "--yes", "-o", "json"])
    assert process.stdout is not None
    while '"draining"' not in (line := process.stdout.readline()):
        assert line, process.communicate()
    process.send_signal(number)
    ended = end_of(process).ends(ExitCode.INTERRUPTED)
    assert "Stopping: finishing the nodes in flight" in ended.stderr
    assert ended.summary["succeeded"] == ["worker-1"]
    assert ended.summary["not_started"] == ["worker-2", "worker-3"]
    scores = lab.scoreboard()
    assert scores.clean
    assert scores.reboots == {"worker-1": 1, "worker-2": 0, "worker-3": 0}


def test_a_reader_that_has_seen_enough_is_no_error_of_ours(start_lab: StartLab, home: Path) -> None:
    lab = start_lab(TINY, nodes=2)
    process = start(home, lab.environment, ["status"])
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(100) == ExitCode.ERROR
