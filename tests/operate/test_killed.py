"""SIGTERM and SIGKILL of an operating process at every boundary of a pass; then the next pass.

Each host is rebooted once, and neither a cordon nor a mark nor a taint is left. In CI a sample of the boundaries;
all of them, by each strategy, with OPERATE_BOUNDARIES=all in the environment.
"""

import json
import os
import signal
import subprocess
import sys
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from rollout.errors import ExitCode
from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.lab import Lab
from tests.apply.conftest import Scrape, Started, command
from tests.crash.conftest import Machine, machine  # noqa: F401 - a fixture
from tests.crash.test_kill import BOUNDARIES, STRATEGIES, Trigger, judge, lab, watching, witnessing
from tests.ended import Ended, end_of
from tests.operate.conftest import ONCE, RULES, assert_all_done, assert_untouched
from tests.operate.test_standing import LISTEN, answer, operating, scrape, until
from tests.state import lease_of
from tests.waiting import wait_until

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


OFTEN = ("--every", "1s", "--max-unavailable", "2", *LISTEN)


def ended(seen: Scrape) -> dict[str, float]:
    """How many passes have ended, by result."""
    return seen.values("node_rollout_passes_total", "result")


@pytest.mark.sample
def test_a_gate_command_that_never_ends_costs_its_pass(started: Started, tmp_path: Path) -> None:
    lab, hangs = started("default", 4), tmp_path / "hangs"
    hangs.touch()
    gate = ("--set", f"gates.command=sh -c 'while test -e {hangs}; do sleep 0.2; done'", "--set", "gates.timeout=3s")
    with operating(lab, tmp_path, *OFTEN, *gate) as (_, port):
        until(port, lambda seen: seen.value("node_rollout_pass_start_timestamp_seconds") > 0)
        until(port, lambda seen: ended(seen).get("blocked", 0) >= 2)
        assert_untouched(lab)
        hangs.unlink()
        until(port, lambda seen: ended(seen).get("ok", 0) >= 1)
        assert_all_done(lab)


@pytest.mark.sample
def test_a_gate_command_that_never_ends_is_ended_with_the_time_of_the_pass(started: Started, tmp_path: Path) -> None:
    lab = started("default", 4)
    gate = ("--set", "gates.command=sleep 1000", "--set", "gates.timeout=1h", "--active-deadline", "3s")
    with operating(lab, tmp_path, *OFTEN, *gate) as (_, port):
        until(port, lambda seen: sum(ended(seen).values()) >= 2)
        assert answer(port, "/healthz")[0] == 200
    assert_untouched(lab)


@pytest.mark.timeout(300)
def test_an_api_server_that_hangs_is_waited_for_in_sight_and_the_pass_goes_on(started: Started, tmp_path: Path) -> None:
    """The Lease goes unrenewed meanwhile, so that another process may take over; here none does."""
    lab = started("default", 4)
    with operating(lab, tmp_path, *OFTEN, "--set", "lock.duration=4s") as (_, port):
        wait_until(lambda: bool(lab.scoreboard().cordons_left))
        renewed = lease_of(lab)["spec"]["renewTime"]
        hangs, before = ApiFault(answer=FaultAnswer.HANG, resource="leases"), time.time()
        lab.inflict(hangs, ApiFault(answer=FaultAnswer.HANG))
        wait_until(lambda: lab.struck(hangs) >= 2)
        hanging = scrape(port)
        assert 0 < hanging.value("node_rollout_pass_start_timestamp_seconds") <= before
        assert (hanging.value("node_rollout_running"), answer(port, "/healthz")[0]) == (1, 200)
        lab.behave()
        until(port, lambda seen: ended(seen).get("ok", 0) >= 1, 240)
        assert scrape(port).value("node_rollout_running") == 0
        assert lease_of(lab)["spec"]["renewTime"] > renewed
        assert_all_done(lab)


# An API server that accepts connections and never answers: a run waits for it once, and not again at each step.


# The real program but for its limits, which are minutes: an answer is awaited for a second, an outage for twelve.
PATIENCE = 12.0


HURRIED = f"""
import sys
from functools import partial
from rollout.adapters.kube import api
from rollout.cli.stages import execute
from rollout.cli.main import run
api.connect.__kwdefaults__.update(timeouts=api.Timeouts(read=1.0))
execute.RunOptions = partial(execute.RunOptions, api_patience={PATIENCE})
sys.exit(run(sys.argv[1:]))
"""


# a pod that has just moved holds no budget up for long
AGAIN = {
    "operate": (*ONCE, "--allow", "blocked"),
    "apply": ("resume", "--yes", "--retry-failed", "--allow", "blocked", "-o", "json"),
}


def until_silent(lab: Lab, home: Path, phase: str, *arguments: str) -> tuple[Ended, float]:
    """A command while whose nodes are in this phase the API server falls silent, and how many seconds it goes on."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(home), "PYTHONPATH": str(Path.cwd()), **lab.environment}
    process = subprocess.Popen(
        [sys.executable, "-c", HURRIED, *arguments, "--drain-timeout", "6s", "--set", "lock.duration=5s"],
        env=environment,
        cwd=home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for written in process.stdout:
        line = json.loads(written)
        if line["type"] == "step" and line["phase"] == phase:
            lab.inflict(ApiFault(answer=FaultAnswer.HANG))
            break
    silent = time.monotonic()
    return end_of(process), time.monotonic() - silent


@pytest.mark.timeout(300)
@pytest.mark.parametrize("phase", ["draining", "rebooting"])
@pytest.mark.parametrize("words", ["operate --once", "apply --yes"])
def test_it_is_waited_for_once(started: Started, tmp_path: Path, words: str, phase: str) -> None:
    lab = started("default", 4)
    ended, seconds = until_silent(lab, tmp_path, phase, *words.split(), *RULES)
    assert ended.code == ExitCode.PARTIAL, ended.stderr
    assert ended.summary["failed"]
    assert seconds < 3.5 * PATIENCE
    lab.behave()
    again = end_of(command(lab, tmp_path, *AGAIN[words.split(maxsplit=1)[0]]))
    assert again.code == ExitCode.OK, again.stderr
    assert_all_done(lab)
