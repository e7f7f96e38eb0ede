"""kill -9 of the real program at every phase boundary and at random moments; somebody else goes on each time.

What counts is what the cluster saw: every host rebooted exactly once, none left cordoned, no budget
broken, nothing begun that might not be. `tests/stateful` has all that may befall the cluster
meanwhile.
"""

import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from rollout.lab.api.resources import CONFIGMAPS, LEASES, NODES
from rollout.lab.api.store import Change
from rollout.lab.hostplan import scale
from rollout.lab.hosts.machine import HostEvent
from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario
from tests.conftest import POOLS
from tests.crash.conftest import Machine
from tests.stateful.operators import unfinished
from tests.stateful.witness import Witness

NODES_IN_ALL = 12


LIMIT = 3


# Of whoever begins; who goes on has the record alone.
STRATEGIES = {
    "waves": ("--strategy", "waves"),
    "rolling": ("--strategy", "rolling"),
    "pools": ("--config", str(POOLS)),
    "courtesy": (
        *("--set", "labels.fluo=true", "--set", "drain.delay=200ms", "--set", "reboot.delay=200ms"),
    ),
}
RUN = "node-rollout.dev/run"
PHASE = "node-rollout.dev/phase"


# Boundaries that the cluster sees; after `quiet` comes a random moment.
BOUNDARIES = (
    "record",
    "pending",
    "cordoned",
    "draining",
    "drained",
    "rebooting",
    "down",
    "up",
    "booted",
    "ready",
    "done",
    "quiet",
)


# A third of them a test, each with as many seeds.
PARTS = [BOUNDARIES[first::3] for first in range(3)]


SEEDS = range(18)


@dataclass
class Trigger:
    """Kills a process at the moment the cluster sees a boundary being crossed, before its answer is
    on its way.
    """

    boundary: str
    process: ForkServerProcess | None = None
    fired: bool = False
    phases: dict[str, str] = field(default_factory=dict)

    def fire(self, seen: str) -> None:
        if seen == self.boundary and not self.fired and self.process is not None:
            self.fired = True
            self.process.kill()

    def changed(self, change: Change) -> None:
        if change.resource is CONFIGMAPS and change.obj["metadata"]["name"] == "node-rollout":
            self.fire("record")
        if change.resource is NODES:
            name = change.obj["metadata"]["name"]
            phase = change.obj["metadata"].get("annotations", {}).get(PHASE, "")
            before = self.phases.get(name, "")
            self.phases[name] = phase
            if phase != before:
                self.fire(phase or "done")

    def followed(self, event: HostEvent) -> None:
        self.fire(event)


@dataclass
class Fate:
    """What has happened to a rollout so far, and where it is still to be killed: at each boundary
    once.
    """

    boundaries: tuple[str, ...]
    kills: Counter[str] = field(default_factory=Counter)
    commands: int = 0
    labs: int = 0

    def next_boundary(self, rng: random.Random) -> str:
        """Where to kill next: where it was killed least; nowhere, once it was killed often enough."""
        if self.kills.total() >= len(self.boundaries):
            return "nowhere"
        return min(self.boundaries, key=lambda boundary: (self.kills[boundary], rng.random()))


@pytest.mark.sample
@pytest.mark.parametrize(("boundaries", "seed"), [(part, seed) for part in PARTS for seed in SEEDS])
def test_whenever_it_is_killed_somebody_else_finishes_it(
    boundaries: tuple[str, ...], seed: int, machine: Machine, tmp_path: Path
) -> None:
    rng = random.Random(seed)  # noqa: S311 - repeatable on purpose
    fate = Fate(boundaries)
    started = time.monotonic()
    while fate.kills.total() < len(boundaries):
        fate.labs += 1
        with lab(tmp_path / f"lab-{fate.labs}") as running:
            witness = Witness(running, LIMIT)
            running.call(witness.begin)
            until_done(running, machine, rng, fate, rng.choice(tuple(STRATEGIES)))
            judge(running, seed, witness)
    seconds = time.monotonic() - started
    assert set(fate.kills) == set(boundaries)
    print(
        f"seed {seed}: {fate.kills.total()} kills in {seconds:.0f} s on {fate.labs} labs:"
        f" {dict(fate.kills)}"
    )


@contextmanager
def lab(directory: Path) -> Iterator[Lab]:
    with Lab(
        scale(load_scenario("default"), NODES_IN_ALL), directory=directory, speed=120
    ) as running:
        yield running


def until_done(
    running: Lab, machine: Machine, rng: random.Random, fate: Fate, strategy: str
) -> None:
    """Kill one command after another, until one lives to its end."""
    exitcode = -9
    while exitcode == -9:
        fate.commands += 1
        number = fate.commands
        boundary = fate.next_boundary(rng)
        arguments = command(running, strategy)
        with watching(running, Trigger(boundary)) as trigger:
            process = machine.start(number, arguments, running.environment)
            trigger.process = process
            if boundary == "quiet":
                process.join(rng.uniform(0.05, 2.5))
                process.kill()
            process.join(180)
        said = machine.output(number).read_text() if machine.output(number).exists() else ""
        assert process.exitcode in {0, -9}, f"{arguments}\n{said}"
        exitcode = process.exitcode
        if exitcode == -9:
            fate.kills[boundary] += 1


def command(running: Lab, strategy: str) -> tuple[str, ...]:
    """What the next operator types: there is a run, or there is none yet."""
    lease = running.call(lambda: running.store.get(LEASES, "node-rollout", "kube-system"))
    unlock = annotations(lease).get(RUN, "") if lease else ""
    flags = ("--yes", "--set", "lock.duration=30s", "-o", "json")
    if unfinished(running):
        return ("resume", *flags, *(("--force-unlock", unlock) if unlock else ()))
    if unlock:
        # of one that had begun nothing: there is nothing to go on with
        running.call(lambda: running.store.remove(LEASES, "node-rollout", "kube-system"))
    return (
        *("apply", "--max-unavailable", str(LIMIT), "--set", "waves.health-checks=1"),
        *STRATEGIES[strategy],
        *flags,
    )


def annotations(obj: dict[str, dict[str, dict[str, str]]]) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


@contextmanager
def watching(running: Lab, trigger: Trigger) -> Iterator[Trigger]:
    def begin() -> None:
        for host in running.machines.values():
            host.observers.append(trigger.followed)
        running.store.subscribe(trigger.changed)

    def end() -> None:
        for host in running.machines.values():
            host.observers.remove(trigger.followed)
        running.store.unsubscribe(trigger.changed)

    running.call(begin)
    try:
        yield trigger
    finally:
        running.call(end)


def judge(running: Lab, seed: int, witness: Witness) -> None:
    told = f"seed {seed}: {running.scoreboard()}"
    assert set(running.scoreboard().reboots.values()) == {1}, told
    assert_nothing_left(running, told)
    assert running.call(witness.verdicts) == [], told
    assert not unfinished(running), told


def assert_nothing_left(running: Lab, told: str) -> None:
    score = running.scoreboard()
    assert (score.cordons_left, score.annotations_left) == ((), {}), told
    assert (score.taints_left, score.exclusions_left) == ((), ()), told
    assert (score.killed, score.budgets_broken, score.rebooted_undrained) == ((), (), ()), told
    assert (
        running.call(lambda: running.store.get(CONFIGMAPS, "node-rollout", "kube-system")) is None
    ), told


# Whenever a rollout is killed, an abort from elsewhere leaves nothing of it, and the next one can
# begin.


WHERE = [boundary for boundary in BOUNDARIES if boundary != "quiet"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_whenever_it_was_killed_an_abort_leaves_nothing_of_it(
    machine: Machine, tmp_path: Path, strategy: str
) -> None:
    with lab(tmp_path / "lab") as running:
        for boundary in WHERE:
            killed_at(boundary, running, machine, strategy)
            _verb, *flags = command(running, strategy)
            number = machine.next_number()
            process = machine.start(
                number, ("abort", "--wait", "5s", *unlocking(flags)), running.environment
            )
            process.join(60)
            assert process.exitcode == 0, f"{boundary}: {machine.output(number).read_text()}"
            judge_abort(running, boundary)


def unlocking(flags: list[str]) -> list[str]:
    """The flags that an abort takes as well."""
    return flags[flags.index("--yes") :]


def killed_at(boundary: str, running: Lab, machine: Machine, strategy: str) -> None:
    number = machine.next_number()
    arguments = command(running, strategy)
    assert arguments[0] == "apply"
    with watching(running, Trigger(boundary)) as trigger:
        trigger.process = process = machine.start(number, arguments, running.environment)
        process.join(60)
    assert process.exitcode == -9, f"{boundary}: {machine.output(number).read_text()}"


def judge_abort(running: Lab, boundary: str) -> None:
    score = running.scoreboard()
    told = f"{boundary}: {score}"
    assert_nothing_left(running, told)
    assert max(score.reboots.values()) <= 1, told
    assert score.most_unavailable <= LIMIT, told
