"""Every command that a screen names next, run as it stands: none leads in a circle, and each way
has an end.
"""

import os
import re
import shlex
import subprocess
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario
from rollout.lab.scenarios import scenario_names
from tests.conftest import StartLab
from tests.ended import Ended, invoked
from tests.scenario_runs import run_words

# Patience of a machine that is in a hurry.
PATIENCE = {
    "ROLLOUT_DRAIN_TIMEOUT": "40s",
    "ROLLOUT_REBOOT_TIMEOUT": "4s",
    "ROLLOUT_READY_TIMEOUT": "60s",
    "ROLLOUT_SETTLE_TIMEOUT": "60s",
}
NEXT = "Next:"
KUBECTL = str(Path(sysconfig.get_path("scripts")) / "kubectl")
# What goes on although nothing was repaired.
WITHOUT = ("To continue without", "To end the rollout without")
VARYING = re.compile(r"\d+(?:\.\d+)?|[0-9a-f]{16}")
MOST_STEPS = 12
# Those that led in circles, or beside an unfinished record, or nowhere.
SAMPLE = ("leftovers", "never-returns", "idle")
# As many nodes as show the trouble.
SIZES = {"large": 12, "typical-large": 12, "never-returns": 5, "idle": 5}


@dataclass(frozen=True)
class Step:
    """A command on a line of its own, and the line that leads to it."""

    lead: str
    command: str


def steps_in(text: str) -> list[Step]:
    """Return the commands that stand below a lead, in their order."""
    steps = list[Step]()
    lead = ""
    for line in text.splitlines():
        if line.startswith("    rollout ") and lead:
            steps.append(Step(lead, line.strip()))
        elif line.startswith("    kubectl ") and lead:
            continue
        else:
            lead = line if line.endswith(":") and not line.startswith(" ") else ""
    return steps


def typed(lab: Lab, home: Path, command: str) -> Ended:
    """Run a command as an operator would who agrees to it, and looks once where it would watch."""
    words = shlex.split(command)[1:]
    agreeing: tuple[str, ...] = ("--yes",) if words[0] in ("apply", "resume", "abort") else ()
    if words[0] == "abort":
        agreeing = (*agreeing, "--wait", "1s")
    return invoked(
        home,
        {**lab.environment, **PATIENCE},
        [word for word in words if word != "--watch"] + [*agreeing],
    )


def follow(lab: Lab, home: Path, first: str) -> list[tuple[str, Ended]]:
    """Follow the last unconditional step of each screen, or the one that needs no repair; fail in a
    circle.
    """
    seen = set[tuple[str, str]]()
    done = list[tuple[str, Ended]]()
    commands = [first]
    while commands:
        for command in commands:
            ended = typed(lab, home, command)
            screen = (command, VARYING.sub("#", ended.stdout + ended.stderr))
            assert screen not in seen, f"{command} leads back to itself:\n{ended.stdout}"
            assert len(done) < MOST_STEPS, [command for command, _ in done]
            seen.add(screen)
            done.append((command, ended))
        commands = next_of(steps_in(done[-1][1].stdout))
    return done


def next_of(steps: Sequence[Step]) -> list[str]:
    """Return all commands below the lead that needs no repair, else the last unconditional one."""
    if without := [step.command for step in steps if step.lead.startswith(WITHOUT)]:
        return without
    return [step.command for step in steps if step.lead == NEXT][-1:]


def assert_ends_well(lab: Lab, home: Path, first: str) -> None:
    """Either nothing is left to do, or the last screen says who has to act, and how."""
    screens = follow(lab, home, first)
    _, last = screens[-1]
    says_how = (
        bool(steps_in(last.stdout))
        or "hint: " in last.stderr
        or " fix: " in last.stdout
        or "→ " in last.stdout
    )
    assert last.code == 0 or says_how, last.stdout + last.stderr
    score = lab.scoreboard()
    said = "".join(ended.stdout + ended.stderr for _, ended in screens)
    left = {*score.cordons_left, *score.taints_left, *score.annotations_left}
    assert [name for name in left if name not in said] == []
    assert score.budgets_broken == ()


def first_of(name: str) -> str:
    return shlex.join(("rollout", *run_words(load_scenario(name))))


@pytest.mark.parametrize("name", SAMPLE)
def test_the_next_steps_have_an_end(name: str, start_lab: StartLab, tmp_path: Path) -> None:
    assert_ends_well(start_lab(name, nodes=SIZES.get(name)), tmp_path, first_of(name))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name",
    [name for name in scenario_names() if name not in (*SAMPLE, "reboot-ignored")],
)
def test_the_next_steps_of_every_scenario_have_an_end(
    name: str, start_lab: StartLab, tmp_path: Path
) -> None:
    assert_ends_well(start_lab(name, nodes=SIZES.get(name)), tmp_path, first_of(name))


def test_doctor_beside_an_unfinished_rollout_leads_to_it_and_the_next_steps_have_an_end(
    start_lab: StartLab, tmp_path: Path
) -> None:
    lab = start_lab("reboot-ignored", nodes=5)
    typed(lab, tmp_path, "rollout apply").ends(4)
    steps = steps_in(typed(lab, tmp_path, "rollout doctor --node worker-2").stdout)
    commands = [(step.lead, step.command) for step in steps]
    assert commands[0] == ("After fixing worker-2:", "rollout resume --retry-failed")
    assert commands[1:] == [("To continue without worker-2:", "rollout resume")]
    replaced = typed(lab, tmp_path, "rollout apply --node cp-1").ends(0)
    assert "ended unfinished: 1 node failed" in replaced.stderr
    assert "This rollout replaces it" in replaced.stderr
    assert_ends_well(lab, tmp_path, first_of("reboot-ignored"))


def forced(lab: Lab, screen: str) -> None:
    """Do what the screen names as the last resort, as it stands there."""
    line = next(line for line in screen.splitlines() if line.endswith(" --force"))
    words = shlex.split(line[line.index("kubectl ") :])
    subprocess.run(
        [KUBECTL, *words[1:]],
        env={**os.environ, **lab.environment},
        check=True,
        capture_output=True,
    )


@pytest.mark.exhaustive
def test_the_last_resort_against_a_pod_that_does_not_end_lets_the_rollout_end(
    start_lab: StartLab, tmp_path: Path
) -> None:
    lab = start_lab("drain-hangs", nodes=6)
    first = typed(lab, tmp_path, "rollout apply").ends(4)
    assert "journalctl -u kubelet" in " ".join(first.stdout.split())
    forced(lab, first.stdout)
    (again,) = (step for step in steps_in(first.stdout) if step.lead.startswith("After fixing "))
    assert again.command == "rollout resume --retry-failed"
    typed(lab, tmp_path, again.command).ends(0)
    assert lab.scoreboard().cordons_left == ()
