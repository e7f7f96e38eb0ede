"""kill -9 of the real program at every phase boundary and at random moments; somebody else goes on each time.

Meanwhile others pause nodes, kubelets fall silent, static pods crash, each for a moment; and an earlier run may have
left a failed node. What counts is what the cluster saw: every host rebooted exactly once, none left cordoned but those
that were before, no budget broken, nothing begun that might not be.
"""

import random
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from threading import Event, Thread

import pytest

from rollout.lab.api.resources import CONFIGMAPS, LEASES, NODES
from rollout.lab.api.store import Change
from rollout.lab.hostplan import scale
from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario
from rollout.lab.world.host import HostState
from tests.conftest import POOLS
from tests.crash.conftest import Machine
from tests.stateful.operators import unfinished
from tests.stateful.trouble import Trouble
from tests.stateful.witness import Witness

NODES_IN_ALL = 12


LIMIT = 3


# Of whoever begins; who goes on has the record alone.
STRATEGIES = {
    "waves": ("--strategy", "waves"),
    "rolling": ("--strategy", "rolling"),
    "pools": ("--config", str(POOLS)),
    "courtesy": (
        "--set",
        "labels.fluo=true",
        *(
            "--set",
            "drain.delay=200ms",
            "--set",
            "reboot.delay=200ms",
        ),
    ),
}


# What others are told only while a node is under way.
MAINTENANCE, TURN = "maintenance", "turn"


RUN, PHASE = "node-rollout.dev/run", "node-rollout.dev/phase"


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
    """Kills a process at the moment the cluster sees a boundary being crossed, before its answer is on its way."""

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
            before, self.phases[name] = self.phases.get(name, ""), phase
            if phase != before:
                self.fire(phase or "done")

    def followed(self, host: HostState) -> None:
        self.fire("up" if host.running else "down")


@dataclass
class Fate:
    """What has happened to a rollout so far, and where it is still to be killed: at each boundary once."""

    boundaries: tuple[str, ...]
    kills: Counter[str] = field(default_factory=Counter)
    commands: int = 0
    labs: int = 0

    def next_boundary(self, rng: random.Random) -> str:
        """Where to kill next: where it was killed least; nowhere, once it was killed often enough."""
        if self.kills.total() >= len(self.boundaries):
            return "nowhere"
        return min(self.boundaries, key=lambda boundary: (self.kills[boundary], rng.random()))


def witnessing(running: Lab) -> Witness:
    """One who sees all that happens from now on."""
    witness = Witness(running, LIMIT)
    running.call(witness.begin)
    return witness


@dataclass
class Others:
    """Who beside the rollouts does something to the cluster, and takes it back; and who watches.

    `left` are nodes that an earlier run has left failed.
    """

    running: Lab
    rng: random.Random
    witness: Witness
    trouble: Trouble
    left: set[str]

    @classmethod
    def of(cls, running: Lab, rng: random.Random) -> "Others":
        witness = witnessing(running)
        trouble = Trouble(running, witness)
        left = {f"worker-{rng.randint(1, 9)}" for _ in range(rng.randint(0, 1))}
        for node in left:
            trouble.leave_failed(node)
        witness.cordons.clear()
        return cls(running, rng, witness, trouble, left)

    @contextmanager
    def about(self) -> Iterator[None]:
        """One thing befalls the cluster meanwhile, and is over then."""
        act, over = self.rng.choice((self.pause, self.silence, self.crash)), Event()
        after, number = self.rng.uniform(0, 1.5), self.rng.randint(1, 3)

        def befall() -> None:
            if not over.wait(after):
                act(over, number)

        thread = Thread(target=befall)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def pause(self, over: Event, number: int) -> None:
        node = ("", f"cp-{number}", f"worker-{number}")[number - 1]
        self.trouble.set_pause(node, paused=True)
        over.wait(1.0)
        self.trouble.set_pause(node, paused=False)

    def silence(self, _over: Event, number: int) -> None:
        self.trouble.silence(f"worker-{number}", 120)

    def crash(self, over: Event, number: int) -> None:
        self.trouble.set_well(f"cp-{number}", "etcd", well=False)
        over.wait(1.0)
        self.trouble.set_well(f"cp-{number}", "etcd", well=True)

    @property
    def waiting(self) -> bool:
        """Whether a host has still to be rebooted."""
        return any(not times for name, times in self.running.scoreboard().reboots.items() if name not in self.left)


@pytest.mark.sample(len(PARTS))
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
            others = Others.of(running, rng)
            until_done(others, machine, rng, fate, rng.choice(tuple(STRATEGIES)))
            judge(running, seed, others.witness, others.left)
    seconds = time.monotonic() - started
    assert set(fate.kills) == set(boundaries)
    print(f"seed {seed}: {fate.kills.total()} kills in {seconds:.0f} s on {fate.labs} labs: {dict(fate.kills)}")


@contextmanager
def lab(directory: Path) -> Iterator[Lab]:
    with Lab.start(scale(load_scenario("default"), NODES_IN_ALL), directory=directory, speed=120) as running:
        yield running


def until_done(others: Others, machine: Machine, rng: random.Random, fate: Fate, strategy: str) -> None:
    """Kill one command after another; those that live to their end are begun again while a node waits."""
    running = others.running
    while True:
        fate.commands += 1
        number = fate.commands
        boundary = fate.next_boundary(rng)
        arguments = command(running, strategy)
        with watching(running, Trigger(boundary)) as trigger, others.about():
            process = machine.start(number, arguments, running.environment)
            trigger.process = process
            if boundary == "quiet":
                process.join(rng.uniform(0.05, 2.5))
                process.kill()
            process.join(180)
        said = machine.output(number).read_text() if machine.output(number).exists() else ""
        assert process.exitcode is not None, said
        if process.exitcode == -9:
            fate.kills[boundary] += 1
            continue
        # 6: what befell the cluster at that moment kept it from beginning.
        assert process.exitcode in {0, 4, 6}, f"{arguments}\n{said}"
        if not others.waiting:
            return


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
    return ("apply", "--max-unavailable", str(LIMIT), "--set", "waves.health-checks=1", *STRATEGIES[strategy], *flags)


def annotations(obj: dict[str, dict[str, dict[str, str]]]) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def told_to_others(running: Lab) -> list[str]:
    """The nodes of which others are told that they are under way."""

    def is_told(node: dict[str, dict[str, dict[str, str]]]) -> bool:
        labels = node["metadata"].get("labels") or {}
        return labels.get(MAINTENANCE) == "true" or TURN in labels

    return running.call(lambda: [node["metadata"]["name"] for node in running.store.items(NODES) if is_told(node)])


@contextmanager
def watching(running: Lab, trigger: Trigger) -> Iterator[Trigger]:
    def begin() -> None:
        running.world.host_observers.append(trigger.followed)
        running.store.subscribe(trigger.changed)

    def end() -> None:
        running.world.host_observers.remove(trigger.followed)
        running.store.unsubscribe(trigger.changed)

    running.call(begin)
    try:
        yield trigger
    finally:
        running.call(end)


def judge(running: Lab, seed: int, witness: Witness, left: Collection[str] = ()) -> None:
    score = running.scoreboard()
    told = f"seed {seed}: {score}"
    assert {name: times for name, times in score.reboots.items() if times != 1} == dict.fromkeys(left, 0), told
    assert (*score.cordons_left, *score.annotations_left) == (*left, *left), told
    assert (score.taints_left, score.exclusions_left) == ((), ()), told
    assert told_to_others(running) == [], told
    assert score.killed == (), told
    assert score.budgets_broken == (), told
    assert score.rebooted_undrained == (), told
    assert running.call(witness.verdicts) == [], told
    assert not unfinished(running), told
    # Beside a failed node the record stays.
    assert left or running.call(lambda: running.store.get(CONFIGMAPS, "node-rollout", "kube-system")) is None


# Whenever a rollout is killed, an abort from elsewhere leaves nothing of it, and the next one can begin.


WHERE = [boundary for boundary in BOUNDARIES if boundary != "quiet"]


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
            judge_abort(running, boundary)


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


def judge_abort(running: Lab, boundary: str) -> None:
    score = running.scoreboard()
    told = f"{boundary}: {score}"
    assert (score.cordons_left, score.annotations_left) == ((), {}), told
    assert (score.taints_left, score.exclusions_left) == ((), ()), told
    assert told_to_others(running) == [], told
    assert max(score.reboots.values()) <= 1, told
    assert (score.killed, score.budgets_broken, score.rebooted_undrained) == ((), (), ()), told
    assert score.most_unavailable <= LIMIT, told
    assert running.call(lambda: running.store.get(CONFIGMAPS, "node-rollout", "kube-system")) is None
