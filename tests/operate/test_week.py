"""A week of two standing processes, with a window each night, an update each day, and a leader that is killed.

The processes and the lab are real, and its hosts fast. Only the wall clock that windows are held against is set by the
test: the nights are where they have something to do, and the days are short.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from rollout.adapters.clock import SystemClock
from rollout.lab.api.resources import CONFIGMAPS, LEASES
from rollout.lab.hosts.engine import UpdateEngine
from rollout.lab.lab import Lab
from tests.conftest import StartLab
from tests.crash.conftest import Machine, machine, run_program  # noqa: F401 - a fixture
from tests.crash.test_kill import Trigger, watching

pytestmark = pytest.mark.exhaustive

NODES = 4
LEASE_SECONDS = 3
WINDOW = "22:00 4h"
RULES = (
    *("operate", "--every", "1s", "--window", WINDOW, "--max-unavailable", "2", "--set", "waves.health-checks=1"),
    *("--set", f"lock.duration={LEASE_SECONDS}s"),
)
# Where the leader of each night dies; on the night without one its window closes instead.
NIGHTS = ("record", "cordoned", "drained", "rebooting", "", "booted", "done")
MONDAY = datetime(2026, 3, 2, tzinfo=UTC)


@dataclass
class Calendar:
    """The wall clock of the processes, in a file that all of them read: seconds by which it is ahead."""

    file: Path

    def set(self, night: int, hour: int) -> None:
        ahead = MONDAY + timedelta(days=night, hours=hour) - datetime.now(UTC)
        beside = self.file.with_suffix(".new")
        beside.write_text(str(ahead.total_seconds()))
        beside.replace(self.file)


def run_by_calendar(arguments: Sequence[str], environment: dict[str, str], output: str, calendar: str) -> None:
    """In the child: the program, by the wall clock of the test."""

    def now(_clock: SystemClock) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=float(Path(calendar).read_text()))

    SystemClock.now = now  # type: ignore[method-assign,assignment]
    run_program(arguments, environment, output)


@dataclass
class Replicas:
    """Two standing processes; one that dies is replaced."""

    lab: Lab
    machine: Machine
    calendar: Calendar
    running: list[ForkServerProcess] = field(default_factory=list)

    def fill_up(self) -> None:
        self.running = [process for process in self.running if process.is_alive()]
        while len(self.running) < 2:
            number = self.machine.next_number()
            home = self.machine.directory / f"home-{number}"
            home.mkdir()
            variables = {"PATH": os.environ["PATH"], "HOME": str(home), **self.lab.environment}
            output, calendar = str(self.machine.output(number)), str(self.calendar.file)
            process = self.machine.context.Process(target=run_by_calendar, args=(RULES, variables, output, calendar))
            process.start()
            self.running.append(process)

    def kill_leader(self) -> None:
        """In the lab's loop."""
        lease = self.lab.store.get(LEASES, "node-rollout", "kube-system")
        assert lease is not None
        os.kill(int(lease["spec"]["holderIdentity"].rpartition("/")[2]), signal.SIGKILL)

    def outside(self) -> int:
        """How often any of them has said that its window is closed."""
        return self.said.count("outside the maintenance window")

    @property
    def said(self) -> str:
        return "\n=====\n".join(path.read_text() for path in sorted(self.machine.directory.glob("output-*")))


class Assassin(Trigger):
    """Kills whoever leads, once, at a boundary."""

    def __init__(self, boundary: str, kill: Callable[[], None]) -> None:
        super().__init__(boundary)
        self.kill = kill

    def fire(self, seen: str) -> None:
        if seen == self.boundary and not self.fired:
            self.fired = True
            self.kill()


@pytest.fixture
def replicas(start_lab: StartLab, machine: Machine, tmp_path: Path) -> Iterator[Replicas]:  # noqa: F811 - the fixture
    lab = start_lab("default", nodes=NODES, speed=120)
    calendar = Calendar(tmp_path / "calendar")
    calendar.set(0, 12)
    both = Replicas(lab, machine, calendar)
    yield both
    for process in both.running:
        process.kill()
        process.join()


def stage(lab: Lab, night: int) -> None:
    """An update is staged on every host."""
    for host in lab.machines.values():
        host.engine = UpdateEngine.with_staged(f"5000.{night}.0", checked=int(time.time()))


@pytest.mark.timeout(400)
def test_a_week_of_nights(replicas: Replicas) -> None:
    lab, calendar = replicas.lab, replicas.calendar
    for night, boundary in enumerate(NIGHTS):
        replicas.fill_up()
        calendar.set(night, 12)
        lab.call(lambda: stage(lab, night))  # noqa: B023 - called at once
        before = replicas.outside()
        await_true(replicas, lambda: replicas.outside() >= before + 4)  # noqa: B023 - the same
        assert_each_rebooted(lab, night)
        with watching(lab, Assassin(boundary, replicas.kill_leader)) as assassin:
            calendar.set(night, 23)
            if not boundary:
                await_true(replicas, lambda: bool(lab.scoreboard().cordons_left))
                calendar.set(night + 1, 3)
                before = replicas.outside()
                await_true(replicas, lambda: replicas.outside() >= before + 4)  # noqa: B023 - the same
                assert set(lab.scoreboard().reboots.values()) == {night, night + 1}
                calendar.set(night + 1, 22)
            await_true(replicas, lambda: is_done(lab, night + 1))  # noqa: B023 - the same
        assert assassin.fired is bool(boundary)
        assert_each_rebooted(lab, night + 1)
    for process in (alive := [process for process in replicas.running if process.is_alive()]):
        process.terminate()
        process.join(30)
    assert [process.exitcode for process in alive] == [0] * len(alive)
    score = lab.scoreboard()
    assert (score.killed, score.budgets_broken, score.rebooted_undrained) == ((), (), ())
    assert score.most_unavailable <= 2


def is_done(lab: Lab, reboots: int) -> bool:
    """Every host has come through so many, and nothing is left of a rollout."""
    record = lab.call(lambda: lab.store.get(CONFIGMAPS, "node-rollout", "kube-system"))
    return record is None and set(lab.scoreboard().reboots.values()) == {reboots}


def assert_each_rebooted(lab: Lab, times: int) -> None:
    score = lab.scoreboard()
    assert set(score.reboots.values()) == {times}, score
    assert (score.cordons_left, score.annotations_left) == ((), {}), score
    assert (score.taints_left, score.exclusions_left) == ((), ()), score


def await_true(replicas: Replicas, reached: Callable[[], bool], seconds: float = 45) -> None:
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end, "\n=====\n".join(text[-1500:] for text in replicas.said.split("\n=====\n"))
        time.sleep(0.05)
