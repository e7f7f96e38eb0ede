"""Saved plans as `plan FILE` shows them, and apply before it runs them; and what blocks, as apply refuses it."""

import re
from pathlib import Path

from rollout.errors import ExitCode
from tests.cli.conftest import Command
from tests.conftest import StartLab

TINY = str(Path(__file__).with_name("tiny.yaml"))


def test_a_saved_plan_is_shown_without_its_cluster_and_before_it_runs(
    start_lab: StartLab, command: Command, home: Path
) -> None:
    lab = start_lab(TINY, nodes=2)
    made = command("plan", "--window", "sat 02:00 4h", "--force", "--out", "a.plan", lab=lab)
    shown = command("plan", "a.plan")
    assert shown.code == ExitCode.OK
    assert "\n! --force" in shown.stdout
    assert "sat 02:00 4h: " in shown.stdout
    assert shown.stdout.splitlines()[-2:] == made.stdout.splitlines()[-2:]
    assert shown.stdout.endswith("Next:\n    rollout apply a.plan\n")
    assert command("plan", "a.plan", "-o", "json").stdout.strip() == (home / "a.plan").read_text().strip()
    applied = command("apply", "a.plan", "--dry-run", lab=lab)
    named, weak, *_ = applied.stdout.splitlines()
    assert re.fullmatch(r"a\.plan, made \S+: 2 nodes in 2 waves, of \S+", named)
    assert weak.startswith("! --force: ")
    assert "WAVE" not in applied.stdout


def test_what_is_no_plan_is_not_shown(command: Command, home: Path) -> None:
    (home / "a.plan").write_text("{}")
    assert command("plan", "a.plan").code == ExitCode.ERROR
    assert command("plan", "nowhere.plan").code == ExitCode.ERROR
    refused = command("plan", "a.plan", "--max-unavailable", "3", "--node", "worker-1")
    assert (refused.code, "--node, --max-unavailable cannot" in refused.stderr) == (ExitCode.USAGE, True)


def test_what_blocks_is_said_once_and_the_plan_ends_with_it(start_lab: StartLab, command: Command) -> None:
    lab = start_lab("budget-never", nodes=6)
    plan = command("plan", "--out", "a.plan", lab=lab)
    *_, blocker, wrapped, blocked = plan.stdout.splitlines()
    assert blocked == "Blocked: apply will not start. --skip blocked leaves 2 nodes out."
    assert blocker.startswith("✘ worker-2, worker-3  budget shop/ledger  maxUnavailable 0 of 2 pods never allows an")
    shown = command("plan", "a.plan")
    assert (shown.stdout.splitlines()[-1], shown.code, plan.code) == (blocked, ExitCode.BLOCKED, ExitCode.BLOCKED)
    allowed = command("plan", "--allow", "blocked", lab=lab)
    assert (allowed.code, allowed.stdout.splitlines()[-1]) == (ExitCode.OK, "    rollout apply --allow blocked")
    refused = command("apply", "--yes", lab=lab)
    assert refused.code == ExitCode.BLOCKED
    error, sentence, hint = refused.stderr.splitlines()[-3:]
    assert error == "rollout: error: not started: blocked on 2 nodes"
    assert sentence.strip() == f"{blocker} {wrapped.strip()}".removeprefix("✘ ")
    assert hint.startswith("hint: ")
