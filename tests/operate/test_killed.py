"""SIGTERM and SIGKILL of an operating process at every boundary of a pass; then the next pass.

Each host is rebooted once, and neither a cordon nor a mark nor a taint is left. In CI a sample of the boundaries;
all of them, by each strategy, with OPERATE_BOUNDARIES=all in the environment.
"""

import os
import signal
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from rollout.lab.lab import Lab
from tests.crash.conftest import Machine, machine  # noqa: F401 - a fixture
from tests.crash.test_kill import BOUNDARIES, STRATEGIES, Trigger, judge, lab, watching, witnessing

pytestmark = pytest.mark.exhaustive

LIMIT = "3"
WHERE = [boundary for boundary in BOUNDARIES if boundary != "quiet"]
SAMPLE = {signal.SIGKILL: ("record", "draining", "rebooting", "done"), signal.SIGTERM: ("cordoned", "down", "booted")}
ALL = os.environ.get("OPERATE_BOUNDARIES") == "all"
CASES = [
    (number, boundary, strategy)
    for number in (signal.SIGKILL, signal.SIGTERM)
    for boundary in (WHERE if ALL else SAMPLE[number])
    for strategy in (STRATEGIES if ALL else ("waves",))
]


class Signal(Trigger):
    """Sends any signal where the other one kills."""

    number = signal.SIGKILL

    def fire(self, seen: str) -> None:
        if seen == self.boundary and not self.fired and self.process is not None:
            self.fired = True
            assert self.process.pid is not None
            os.kill(self.process.pid, self.number)


@pytest.mark.sample
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("number", "boundary", "strategy"), CASES)
def test_whatever_ended_a_pass_the_next_one_finishes_it(
    number: signal.Signals,
    boundary: str,
    strategy: str,
    machine: Machine,  # noqa: F811 - the fixture
    tmp_path: Path,
) -> None:
    with lab(tmp_path / "lab") as running:
        witness = witnessing(running)
        trigger = Signal(boundary)
        trigger.number = number
        first = one_pass(machine, running, strategy, trigger)
        assert trigger.fired
        expected = -9 if number is signal.SIGKILL else 130
        assert first.exitcode == expected or (number, boundary) == (signal.SIGTERM, "done")
        last = one_pass(machine, running, strategy, Signal("nowhere"))
        assert last.exitcode == 0, said(machine)
        judge(running, 0, witness)


def one_pass(machine: Machine, running: Lab, strategy: str, trigger: Trigger) -> ForkServerProcess:  # noqa: F811
    rules = (
        "--max-unavailable",
        LIMIT,
        "--set",
        "waves.health-checks=1",
        "--set",
        "lock.duration=1s",
        *STRATEGIES[strategy],
    )
    with watching(running, trigger):
        arguments = ("operate", "--once", "-o", "json", *rules)
        trigger.process = process = machine.start(machine.next_number(), arguments, running.environment)
        process.join(180)
    assert process.exitcode is not None, said(machine)
    return process


def said(machine: Machine) -> str:  # noqa: F811
    return "\n".join(path.read_text() for path in sorted(machine.directory.glob("output-*")))
