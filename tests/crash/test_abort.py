"""Whenever a rollout is killed, an abort from elsewhere leaves nothing of it, and the next one can begin."""

from pathlib import Path

import pytest

from rollout.lab.api.resources import CONFIGMAPS
from rollout.lab.lab import Lab
from tests.crash.conftest import Machine
from tests.crash.test_kill import BOUNDARIES, LIMIT, STRATEGIES, Trigger, command, lab, told_to_others, watching

WHERE = [boundary for boundary in BOUNDARIES if boundary != "quiet"]


@pytest.mark.sample
@pytest.mark.timeout(300)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_whenever_it_was_killed_an_abort_leaves_nothing_of_it(machine: Machine, tmp_path: Path, strategy: str) -> None:
    with lab(tmp_path / "lab") as running:
        for boundary in WHERE:
            killed_at(boundary, running, machine, strategy)
            _verb, *flags = command(running, strategy)
            number = machine.next_number()
            process = machine.start(number, ("abort", "--wait", "5s", *unlocking(flags)), running.environment)
            process.join(60)
            assert process.exitcode == 0, f"{boundary}: {machine.output(number).read_text()}"
            judge(running, boundary)


def unlocking(flags: list[str]) -> list[str]:
    """The flags that an abort takes as well."""
    return flags[flags.index("--yes") :]


def killed_at(boundary: str, running: Lab, machine: Machine, strategy: str) -> None:
    number, arguments = machine.next_number(), command(running, strategy)
    assert arguments[0] == "apply"
    with watching(running, Trigger(boundary)) as trigger:
        trigger.process = process = machine.start(number, arguments, running.environment)
        process.join(60)
    assert process.exitcode == -9, f"{boundary}: {machine.output(number).read_text()}"


def judge(running: Lab, boundary: str) -> None:
    score = running.scoreboard()
    told = f"{boundary}: {score}"
    assert (score.cordons_left, score.annotations_left) == ((), {}), told
    assert (score.taints_left, score.exclusions_left) == ((), ()), told
    assert told_to_others(running) == [], told
    assert max(score.reboots.values()) <= 1, told
    assert (score.killed, score.budgets_broken, score.rebooted_undrained) == ((), (), ()), told
    assert score.most_unavailable <= LIMIT, told
    assert running.call(lambda: running.store.get(CONFIGMAPS, "node-rollout", "kube-system")) is None
