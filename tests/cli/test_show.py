"""Saved plans as `plan FILE` shows them, and apply before it runs them; and what blocks, as apply refuses it."""

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
    assert "full wave: at most 1 at once" in shown.stdout
    assert "! weaker  --force" in shown.stdout
    assert "sat 02:00 4h: " in shown.stdout
    assert shown.stdout.splitlines()[-2:] == made.stdout.splitlines()[-2:]
    assert "rollout apply a.plan" in shown.stderr
    assert command("plan", "a.plan", "-o", "json").stdout.strip() == (home / "a.plan").read_text().strip()
    applied = command("apply", "a.plan", "--dry-run", lab=lab)
    assert "full wave: at most 1 at once" in applied.stdout
    assert "Rules:" in applied.stdout


def test_what_is_no_plan_is_not_shown(command: Command, home: Path) -> None:
    (home / "a.plan").write_text("{}")
    assert command("plan", "a.plan").code == ExitCode.ERROR
    assert command("plan", "nowhere.plan").code == ExitCode.ERROR
    refused = command("plan", "a.plan", "--max-unavailable", "3", "--node", "worker-1")
    assert (refused.code, "--node, --max-unavailable cannot" in refused.stderr) == (ExitCode.USAGE, True)


def test_what_blocks_is_said_once_and_the_plan_ends_with_it(start_lab: StartLab, command: Command) -> None:
    lab = start_lab("budget-never", nodes=6)
    plan = command("plan", "--out", "a.plan", lab=lab)
    assert plan.stdout.splitlines()[-1] == "BLOCKED: apply refuses, 2 nodes, see above"
    assert "Apply refuses it while it is blocked" in plan.stderr
    assert command("plan", "a.plan").stdout.splitlines()[-1] == plan.stdout.splitlines()[-1]
    refused = command("apply", "--yes", lab=lab)
    assert refused.code == ExitCode.BLOCKED
    error, sentence, hint = refused.stderr.splitlines()[-3:]
    assert error == "rollout: error: not started: blocked on 2 nodes"
    assert sentence.startswith("  budget-never: worker-2, worker-3, pdb/shop/ledger")
    assert "maxUnavailable 0 of 2 pods never allows an eviction" in sentence
    assert hint.startswith("hint: ")
