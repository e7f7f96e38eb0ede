"""Anything may happen at any time, in any order; what has to hold whatever happens is judged by a bystander.

Every example is a cluster, a rollout on it, and a sequence of misfortunes: the API server away, overloaded or losing
its answers, hosts that are slow, dead, unreachable or rebooted by somebody else, people who cordon, uncordon, evict and
delete beside the rollout, and the program killed, stopped, fenced, and gone on with from another machine.
"""

import os
import random
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import ParamSpec

import pytest
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from rollout.lab.api.resources import CONFIGMAPS, NODES
from rollout.lab.hostplan import scale
from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario
from rollout.lab.world.objects import is_ready
from tests.conftest import POOLS
from tests.crash.conftest import Machine
from tests.ended import assert_well_said
from tests.stateful.conftest import profile
from tests.stateful.operators import Operators, Told, await_change, marked, stands
from tests.stateful.trouble import SICKNESSES, STORMS, Trouble
from tests.stateful.witness import RUN, Witness, annotations, is_cordoned

SPEED = 60
WORKERS = 4
SEEDS = tuple(map(int, os.environ.get("STATEFUL_SEEDS", "1,2").split(",")))
# How likely somebody goes on at each step, where nobody does.
_SOON = 0.4
PHASES = ("cordoned", "draining", "drained", "rebooting", "booted", "ready")
NODE = st.integers(min_value=1, max_value=WORKERS).map(lambda number: f"worker-{number}")
POD = st.integers(min_value=0, max_value=30)
P = ParamSpec("P")


def kept(act: Callable[P, None]) -> Callable[P, None]:
    """Keeps a failure, which ends the example: time is real, so that it need not come again when asked for."""

    @wraps(act)
    def done(*arguments: P.args, **named: P.kwargs) -> None:
        everything = arguments[0]
        assert isinstance(everything, Misfortunes)
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
        assert isinstance(everything, Misfortunes)
        everything.done[act.__name__] += 1
        everything.note(f"{act.__name__}({', '.join(f'{key}={value!r}' for key, value in named.items())})")
        time.sleep(everything.pace.uniform(0, 0.5))
        everything.collect()
        if everything.operators.process is None and everything.pace.random() < _SOON:
            everything.operators.start()
        act(*arguments, **named)

    return kept(done)


class Misfortunes(RuleBasedStateMachine):
    """One cluster, one rollout, and what befalls them."""

    machine: Machine
    findings: list[str]
    done: Counter[str]

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.began = time.monotonic()
        self.story: list[str] = []
        self.lab: Lab | None = None
        self.failed = False

    def note(self, what: str) -> None:
        self.story.append(f"{time.monotonic() - self.began:6.2f} {what}")

    @initialize(
        limit=st.integers(min_value=1, max_value=2),
        sick=st.dictionaries(NODE, st.sampled_from(sorted(SICKNESSES)), max_size=2),
        cordoned=st.sets(NODE, max_size=1),
        stop=st.sampled_from(("finish", "revert")),
        strategy=st.sampled_from(("waves", "rolling", "pools")),
        pace=st.integers(min_value=0, max_value=1000),
    )
    @kept
    def begin(self, limit: int, sick: dict[str, str], cordoned: set[str], stop: str, strategy: str, pace: int) -> None:
        self.done["examples"] += 1
        self.pace = random.Random(pace)  # noqa: S311 - repeatable on purpose
        self.note(f"begin({limit=}, {sick=}, {cordoned=}, {stop=}, {strategy=})")
        self.lab = lab = Lab.start(scale(load_scenario("default"), WORKERS + 1), directory=self.directory, speed=SPEED)
        self.witness = Witness(lab, limit)
        self.trouble = Trouble(lab, self.witness)
        rules = ("--config", str(POOLS)) if strategy == "pools" else ("--strategy", strategy)
        flags = ("--stop", stop, *rules)
        self.operators = Operators(lab, self.machine, limit, flags)
        for node in cordoned:
            self.trouble.set_cordon(node, cordoned=True)
        for node, sickness in sick.items():
            self.trouble.sicken(node, sickness)
        lab.call(self.witness.begin)
        self.operators.start()
        self.wait_until(lambda: stands(lab) or not self.operators.running)

    # Time.

    @rule(phase=st.sampled_from(PHASES))
    @noted
    def a_phase_is_reached(self, phase: str) -> None:
        await_change(self.running, phase, 1.0)

    @rule(seconds=st.floats(min_value=0.05, max_value=0.8))
    @noted
    def time_passes(self, seconds: float) -> None:
        time.sleep(seconds)

    # The network.

    @rule(seconds=st.sampled_from((5, 40, 120)))
    @noted
    def api_is_away(self, seconds: int) -> None:
        self.trouble.outage(seconds)

    @rule(
        answer=st.sampled_from(STORMS),
        seconds=st.sampled_from((20, 60)),
        probability=st.sampled_from((0.2, 0.5, 1.0)),
    )
    @noted
    def api_misbehaves(self, answer: str, seconds: int, probability: float) -> None:
        self.trouble.storm(answer, seconds, probability)

    # Machines.

    @rule(node=NODE, sickness=st.sampled_from(sorted(SICKNESSES)))
    @noted
    def host_falls_sick(self, node: str, sickness: str) -> None:
        self.trouble.sicken(node, sickness)

    @rule(node=NODE)
    @noted
    def host_is_mended(self, node: str) -> None:
        self.trouble.heal(node)

    @rule(node=NODE, seconds=st.sampled_from((10, 90, 600)))
    @noted
    def host_loses_power(self, node: str, seconds: int) -> None:
        self.trouble.cut_power(node, seconds)

    @rule(node=NODE)
    @noted
    def somebody_reboots(self, node: str) -> None:
        self.trouble.reboot(node)

    # Other people.

    @rule(node=NODE)
    @noted
    def somebody_cordons(self, node: str) -> None:
        self.trouble.set_cordon(node, cordoned=True)

    @rule(node=NODE)
    @noted
    def somebody_uncordons(self, node: str) -> None:
        self.trouble.set_cordon(node, cordoned=False)

    @rule(node=NODE, registered_after=st.sampled_from((2, 60)))
    @noted
    def somebody_deletes_a_node(self, node: str, registered_after: int) -> None:
        self.trouble.delete_node(node)
        self.trouble.report_soon(node, registered_after)

    @rule(numbers=st.lists(POD, min_size=1, max_size=4))
    @noted
    def somebody_evicts(self, numbers: list[int]) -> None:
        for number in numbers:
            self.trouble.evict(number)

    @rule(numbers=st.lists(POD, min_size=1, max_size=4))
    @noted
    def somebody_deletes_pods(self, numbers: list[int]) -> None:
        for number in numbers:
            self.trouble.delete_pod(number)

    @rule(node=NODE)
    @noted
    def somebody_refills(self, node: str) -> None:
        self.trouble.refill(node)

    @rule(one=NODE, other=NODE)
    @noted
    def addresses_are_swapped(self, one: str, other: str) -> None:
        self.trouble.swap_addresses(one, other)

    @rule()
    @noted
    def the_record_is_garbled(self) -> None:
        self.trouble.garble_record()

    @rule()
    @noted
    def somebody_takes_the_lock(self) -> None:
        self.trouble.steal_lease()

    # The operators.

    @rule(how=st.sampled_from((signal.SIGKILL, signal.SIGTERM, signal.SIGINT)), times=st.integers(1, 2))
    @noted
    def it_is_interrupted(self, how: signal.Signals, times: int) -> None:
        for _ in range(times):
            self.operators.send(how)
            time.sleep(0.2)

    @rule(flags=st.sampled_from(((), ("--retry-failed",))))
    @noted
    def somebody_goes_on(self, flags: tuple[str, ...]) -> None:
        self.witness.retries += bool(flags)
        self.operators.start(resuming=("--finish-begun",) if self.trouble.record_is_garbled else flags)

    @rule(node=NODE)
    @noted
    def somebody_goes_on_without_a_host(self, node: str) -> None:
        if self.operators.process is None and stands(self.running):
            self.operators.start(resuming=("-i", str(self.trouble.inventory_without(node))))

    @rule()
    @noted
    def somebody_undoes_it(self) -> None:
        if self.operators.process is None:
            self.operators.run_one("abort", "--wait", "2s")

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
        budgets = [each.name for each in self.running.scoreboard().budgets_broken]
        broken += [f"budget {name} was broken" for name in budgets if name not in self.witness.excused_budgets]
        assert not broken, self.told(broken)

    def collect(self) -> None:
        """Judge a command that has ended."""
        told = self.operators.ended()
        if told is not None:
            self.judge(told)

    def judge(self, told: Told) -> None:
        self.note(
            f"{self.operators.command} ended with {told.code}: {told.text[-300:] if told.code not in {0, -9} else ''}"
        )
        assert_well_said(self.told(told.text))
        assert "internal error" not in told.text, self.told(told.text)
        self.done[f"{self.operators.command}: {told.code}"] += 1
        self.done.update(f"a node: {end['outcome']}" for end in told.ends.values())
        if told.code == 1 and told.text:  # a signal to a process that is not the program yet leaves none
            assert self.trouble.network, self.told(told.text)
        # A signal ends at once what has not begun to act.
        codes = {0, 1, 4, 6, 130, -9} | (set() if told.planned else {-15, -2})
        assert told.code in codes, self.told(told.text)
        if told.summary is not None and told.code != -9:
            self.judge_summary(told, told.summary)

    def judge_summary(self, told: Told, summary: dict[str, list[str]]) -> None:
        """Each planned node in one list, and in the one where the cluster has it."""
        failed = [entry["node"] for entry in told.summary["failed"]] if told.summary else []
        lists = [*summary["succeeded"], *failed, *summary["skipped"], *summary["not_started"]]
        # Whoever goes on without a begun node's host plans nothing for it, and says so.
        stranded = {name for name, end in told.ends.items() if end["outcome"] == "stranded"}
        assert sorted(lists) == sorted(told.planned | stranded), self.told([lists, sorted(told.planned), stranded])
        standing = marked(self.running).keys()
        fenced = {name for name, end in told.ends.items() if end["outcome"] == "fenced"}
        left = {name for name, end in told.ends.items() if end["left_cordoned"]} | fenced
        # Whoever is stopped before he takes a begun node on says that, and leaves it as it was.
        left |= told.taken_on & set(summary["not_started"])
        unknown = standing & told.planned - left - self.witness.meddled
        assert not unknown or fenced, self.told(f"{unknown} still carry marks, which nobody was told; told of {left}")
        for name in summary["succeeded"]:
            self.judge_success(name)

    def judge_success(self, name: str) -> None:
        score = self.running.scoreboard()
        assert score.versions[name].now != score.versions[name].before, self.told(f"{name} runs what it ran")
        assert self.witness.boots[name] >= 1, self.told(f"{name} has not booted")
        node = self.running.call(lambda: self.running.store.get(NODES, name))
        if node is not None and name not in self.witness.cordons:
            assert not is_cordoned(node), self.told(f"{name} is left cordoned")

    def told(self, what: object) -> str:
        lines = [f"{node}: {dict(marks)}" for node, marks in marked(self.running).items()]
        return "\n".join([str(what), *self.story, *lines])

    # The end.

    def teardown(self) -> None:
        if self.lab is None:
            return
        try:
            kept(Misfortunes.finish)(self)
        finally:
            self.operators.kill()
            self.lab.stop()
            shutil.rmtree(self.directory, ignore_errors=True)

    def finish(self) -> None:
        """Once the misfortunes are over somebody goes on until nothing is left, and undoes what cannot be."""
        self.note("the end of it")
        self.trouble.end()
        self.wait_until(self.all_ready)
        self.conclude()
        for _ in range(3):
            if not self.unfinished():
                break
            self.operators.start()
            self.conclude()
        is_lost = self.trouble.record_is_garbled
        assert is_lost or not self.unfinished(), self.told("it cannot be gone on with")
        if marked(self.running) or is_lost:
            # What may be rebooting has had all the time it needs: every machine is well.
            self.operators.run_one("abort", "--wait", "2s")
            self.conclude()
        assert not self.unfinished(), self.told("it cannot be undone")
        self.judge_end()

    def conclude(self) -> None:
        """Wait for the command that runs, if one does."""
        if self.operators.process is not None:
            told = self.operators.ended(90)
            assert told is not None, self.told("it does not end")
            self.judge(told)
            self.nothing_is_harmed()
        # Whatever starts from here on meets a network that is well.
        self.trouble.network = False

    def unfinished(self) -> bool:
        record = self.running.call(lambda: self.running.store.get(CONFIGMAPS, "node-rollout", "kube-system"))
        under_way = record is not None and annotations(record).get("node-rollout.dev/ended") != "true"
        phases = {marks.get("node-rollout.dev/phase") for marks in marked(self.running).values()}
        return under_way or bool(phases - {"failed"})

    def judge_end(self) -> None:
        """Nothing of ours is left, and all of the others'."""
        nodes = self.running.call(lambda: list(self.running.store.items(NODES)))
        assert [node["metadata"]["name"] for node in nodes if RUN in annotations(node)] == [], self.told("marks left")
        cordoned = {node["metadata"]["name"] for node in nodes if is_cordoned(node)}
        assert cordoned == self.witness.cordons, self.told(f"{cordoned} are cordoned, not {self.witness.cordons}")
        score = self.running.scoreboard()
        assert (score.taints_left, score.exclusions_left) == ((), ()), self.told("a taint or a label is left")
        self.nothing_is_harmed()

    def all_ready(self) -> bool:
        nodes = self.running.call(lambda: list(self.running.store.items(NODES)))
        return len(nodes) == WORKERS + 1 and all(map(is_ready, nodes))

    def wait_until(self, reached: Callable[[], bool]) -> None:
        end = time.monotonic() + 120
        while not reached():
            assert time.monotonic() < end, self.told("the cluster does not get well")
            time.sleep(0.05)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_befalls_it_nothing_is_harmed_and_somebody_can_finish_it(seed: int, machine: Machine) -> None:
    print(f"seed {seed}, {profile().max_examples} examples")
    findings, done = list[str](), Counter[str]()
    prepared = type("Prepared", (Misfortunes,), {"machine": machine, "findings": findings, "done": done})
    began = time.monotonic()
    run_state_machine_as_test(seeded(seed)(prepared), settings=profile())
    print(f"seed {seed}: {time.monotonic() - began:.0f} s, {dict(done)}", flush=True)
    assert len(findings) == 0, findings[0]
    assert done["examples"] >= profile().max_examples
