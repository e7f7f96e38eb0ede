"""A cluster, somebody who works on it, and what befalls both: what every such story has."""

import os
import random
import shutil
import signal
import tempfile
import time
import traceback
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import ParamSpec

from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from rollout.lab.api.resources import NODES
from rollout.lab.hostplan import scale
from rollout.lab.lab import Lab
from rollout.lab.objects import is_ready
from rollout.lab.scenario import load_scenario
from tests.apply.test_conditions import ours_on
from tests.crash.conftest import Machine
from tests.ended import assert_well_said
from tests.stateful.conftest import profile
from tests.stateful.operators import Operators, Told, await_change, marked
from tests.stateful.trouble import DAEMONS, SICKNESSES, Trouble
from tests.stateful.witness import RUN, Witness, annotations, is_cordoned
from tests.stateful.workload_rules import WorkloadRules
from tests.stateful.workloads import Workloads, is_rolled_out

SPEED = 60
WORKERS = 6
# Nodes of the control plane.
MEMBERS_IN_ALL = 3
SEEDS = tuple(map(int, os.environ.get("STATEFUL_SEEDS", "1,2").split(",")))
# How likely somebody goes on at each step, where nobody does.
_SOON = 0.4
_PHASES = ("cordoned", "draining", "drained", "rebooting", "booted", "ready")
WORKER_NAMES = tuple(f"worker-{number}" for number in range(1, WORKERS + 1))
NODE = st.sampled_from(WORKER_NAMES)
# Not 0: the plainest example, which is drawn first, does the same thing again and again.
PACE = st.integers(min_value=0, max_value=1000).filter(bool)
P = ParamSpec("P")


def kept(act: Callable[P, None]) -> Callable[P, None]:
    """Keeps a failure, which ends the example: time is real, so that it need not come again when
    asked for.
    """

    @wraps(act)
    def done(*arguments: P.args, **named: P.kwargs) -> None:
        everything = arguments[0]
        assert isinstance(everything, Tale)
        if everything.failed:
            return
        try:
            act(*arguments, **named)
        except Exception:  # noqa: BLE001 - told at the end, whatever it is
            everything.failed = True
            everything.findings.append(traceback.format_exc())
            print(f"--- finding\n{everything.findings[-1]}", flush=True)

    return done


def noted(act: Callable[P, None]) -> Callable[P, None]:
    """Notes what is done and when."""

    @wraps(act)
    def done(*arguments: P.args, **named: P.kwargs) -> None:
        everything = arguments[0]
        assert isinstance(everything, Tale)
        everything.done[act.__name__] += 1
        everything.note(
            f"{act.__name__}({', '.join(f'{key}={value!r}' for key, value in named.items())})"
        )
        time.sleep(everything.pace.uniform(0, 0.5))
        everything.collect()
        if everything.operators.process is None and everything.pace.random() < _SOON:
            everything.go_on()
        act(*arguments, **named)

    return kept(done)


class Tale(RuleBasedStateMachine):
    """One cluster, whoever works on it, and what befalls them."""

    machine: Machine
    findings: list[str]
    done: Counter[str]
    operators: Operators
    trouble: Trouble
    witness: Witness
    workload_rules: WorkloadRules

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.began = time.monotonic()
        self.story: list[str] = []
        self.lab: Lab | None = None
        self.failed = False

    def begin_on(
        self, nodes: int, limit: int, pace: int, flags: tuple[str, ...], workloads: Workloads
    ) -> None:
        """A cluster, somebody who works on it with these flags, and whoever watches."""
        self.done["examples"] += 1
        self.pace = random.Random(pace)  # noqa: S311 - repeatable on purpose
        self.nodes = nodes
        cluster = workloads.added_to(load_scenario("default"))
        self.lab = Lab(scale(cluster, nodes), directory=self.directory, speed=SPEED)
        workloads.set_strategy(self.lab)
        self.witness = Witness(self.lab, limit)
        self.workload_rules = WorkloadRules.of(self.witness, workloads)
        self.trouble = Trouble(self.lab, self.witness)
        self.operators = Operators(self.lab, self.machine, limit, (*workloads.flags, *flags))

    def watch(self) -> None:
        """Judge what happens from now on."""

        def begin() -> None:
            self.witness.begin()
            self.workload_rules.begin()

        self.running.call(begin)

    @abstractmethod
    def go_on(self) -> None:
        """Somebody goes on, where nobody does."""

    @abstractmethod
    def finish(self) -> None:
        """The end of it."""

    def note(self, what: str) -> None:
        self.story.append(f"{time.monotonic() - self.began:6.2f} {what}")

    # Time.

    @rule(phase=st.sampled_from(_PHASES))
    @noted
    def a_phase_is_reached(self, phase: str) -> None:
        await_change(self.running, phase, 1.0)

    @rule(phase=st.sampled_from(_PHASES))
    @noted
    def it_is_killed_in_a_phase(self, phase: str) -> None:
        await_change(self.running, phase, 1.0)
        self.operators.send(signal.SIGKILL)

    @rule(seconds=st.floats(min_value=0.05, max_value=0.8))
    @noted
    def time_passes(self, seconds: float) -> None:
        time.sleep(seconds)

    @rule(node=NODE, sickness=st.sampled_from(sorted(SICKNESSES)))
    @noted
    def host_falls_sick(self, node: str, sickness: str) -> None:
        self.trouble.sicken(node, sickness)

    @rule(node=NODE)
    @noted
    def host_is_mended(self, node: str) -> None:
        self.trouble.heal(node)

    @rule(seconds=st.sampled_from((60, 400, 4000)))
    @noted
    def somebody_starts_a_job(self, seconds: int) -> None:
        self.trouble.start_job(seconds)

    # What keeps nodes from being begun.

    @rule(node=NODE)
    @noted
    def somebody_cordons(self, node: str) -> None:
        self.trouble.set_cordon(node, cordoned=True)

    @rule(node=NODE)
    @noted
    def somebody_uncordons(self, node: str) -> None:
        self.trouble.set_cordon(node, cordoned=False)

    @rule(node=NODE | st.just(""), paused=st.booleans())
    @noted
    def somebody_pauses(self, node: str, paused: bool) -> None:  # noqa: FBT001 - drawn by name
        self.trouble.set_pause(node, paused=paused)

    @rule(node=NODE, begins=st.booleans())
    @noted
    def somebody_maintains_a_node(self, node: str, begins: bool) -> None:  # noqa: FBT001 - the same
        self.trouble.set_maintenance(node, begins=begins)

    @rule(node=NODE, seconds=st.sampled_from((20, 90)))
    @noted
    def a_node_is_not_ready(self, node: str, seconds: int) -> None:
        self.trouble.silence(node, seconds)

    @rule(node=NODE, name=st.sampled_from(DAEMONS), well=st.booleans())
    @noted
    def pods_crash_that_stay(self, node: str, name: str, well: bool) -> None:  # noqa: FBT001 - the same
        self.trouble.set_well(node, name, well=well)

    # What has to hold.

    @property
    def running(self) -> Lab:
        assert self.lab is not None
        return self.lab

    @invariant()
    @kept
    def nothing_is_harmed(self) -> None:
        if self.lab is None:
            return
        broken = self.running.call(self.witness.verdicts)
        broken += [
            f"budget {budget.name} was broken"
            for budget in self.running.scoreboard().budgets_broken
            if not self.witness.is_excused(budget)
        ]
        assert not broken, self.told(broken)

    def collect(self) -> None:
        """Judge a command that has ended."""
        told = self.operators.ended()
        if told is not None:
            self.judge(told)

    def judge(self, told: Told) -> None:
        self.note(
            f"{self.operators.command} ended with {told.code}:"
            f" {told.text[-300:] if told.code not in {0, -9} else ''}"
        )
        assert_well_said(self.told(told.text))
        assert "internal error" not in told.text, self.told(told.text)
        self.done[f"{self.operators.command}: {told.code}"] += 1
        self.done.update(f"a node: {end['outcome']}" for end in told.ends.values())
        if (
            told.code == 1 and told.text
        ):  # a signal to a process that is not the program yet leaves none
            assert self.trouble.network, self.told(told.text)
        # A signal ends at once what has not begun to act.
        codes = {0, 1, 4, 6, 130, -9} | (set() if told.planned else {-15, -2})
        assert told.code in codes, self.told(told.text)

    def told(self, what: object) -> str:
        lines = [f"{node}: {dict(marks)}" for node, marks in marked(self.running).items()]
        return "\n".join([str(what), *self.story, *lines])

    def teardown(self) -> None:
        if self.lab is None:
            return
        try:
            kept(type(self).finish)(self)
        finally:
            self.operators.kill()
            self.lab.stop()
            shutil.rmtree(self.directory, ignore_errors=True)

    def conclude(self) -> None:
        """Wait for the command that runs, if one does."""
        if self.operators.process is not None:
            told = self.operators.ended(90)
            assert told is not None, self.told("it does not end")
            self.judge(told)
            self.nothing_is_harmed()
        # Whatever starts from here on meets a network that is well.
        self.trouble.network = False

    def judge_end(self) -> None:
        """Nothing of ours is left, and all of the others'."""
        if self.conditions_left():
            # As of a rollout that lost the API server at its very end: an abort finds them.
            self.operators.run_one("abort", "--wait", "2s")
            self.conclude()
        assert self.conditions_left() == [], self.told("conditions left")
        nodes = self.running.call(lambda: list(self.running.store.items(NODES)))
        assert [node["metadata"]["name"] for node in nodes if RUN in annotations(node)] == [], (
            self.told("marks left")
        )
        cordoned = {node["metadata"]["name"] for node in nodes if is_cordoned(node)}
        assert cordoned == self.witness.cordons, self.told(
            f"{cordoned} are cordoned, not {self.witness.cordons}"
        )
        score = self.running.scoreboard()
        assert (score.taints_left, score.exclusions_left) == ((), ()), self.told(
            "a taint or a label is left"
        )
        if not cordoned.issuperset(WORKER_NAMES):
            self.wait_until(lambda: is_rolled_out(self.running))
        self.nothing_is_harmed()

    def conditions_left(self) -> list[str]:
        nodes = self.running.call(lambda: list(self.running.store.items(NODES)))
        return [node["metadata"]["name"] for node in nodes if ours_on(node)]

    def all_ready(self) -> bool:
        nodes = self.running.call(lambda: list(self.running.store.items(NODES)))
        return len(nodes) == self.nodes and all(map(is_ready, nodes))

    def wait_until(self, reached: Callable[[], bool]) -> None:
        end = time.monotonic() + 120
        while not reached():
            assert time.monotonic() < end, self.told("the cluster does not get well")
            time.sleep(0.05)


def tell(tale: type[Tale], seed: int, machine: Machine, few: int) -> None:
    """Many of these, by the examples that this seed draws; or few, where no profile asks for more."""
    examples = profile(few)
    print(f"seed {seed}, {examples.max_examples} examples")
    findings = list[str]()
    done = Counter[str]()
    prepared = type("Prepared", (tale,), {"machine": machine, "findings": findings, "done": done})
    began = time.monotonic()
    run_state_machine_as_test(seeded(seed)(prepared), settings=examples)
    print(f"seed {seed}: {time.monotonic() - began:.0f} s, {dict(done)}", flush=True)
    assert len(findings) == 0, findings[0]
    assert done["examples"] >= examples.max_examples
