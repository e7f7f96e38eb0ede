"""Anything may happen at any time, in any order; what has to hold whatever happens is judged by a bystander.

Every example is a cluster, a rollout on it, and a sequence of misfortunes: the API server away,
overloaded or losing its answers, hosts that are slow, dead, unreachable or rebooted by somebody
else, people who cordon, uncordon, evict and delete beside the rollout, and the program killed,
stopped, fenced, and gone on with from another machine.
"""

import signal
import time

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from rollout.lab.api.resources import NODES
from rollout.model import marks
from tests.crash.conftest import Machine
from tests.stateful.operators import (
    ALLOW_CORDONED,
    CORDONS,
    GATES,
    HASTE,
    STOPS,
    STRATEGIES,
    TAINTS,
    Told,
    marked,
    stands,
    unfinished,
)
from tests.stateful.tale import MEMBERS_IN_ALL, NODE, PACE, SEEDS, WORKERS, Tale, kept, noted, tell
from tests.stateful.trouble import MEMBERS, SICKNESSES, STORMS
from tests.stateful.witness import is_cordoned
from tests.stateful.workloads import WORKLOADS, Workloads

POD = st.integers(min_value=0, max_value=30)


class Misfortunes(Tale):
    """One cluster, one rollout, and what befalls them."""

    @initialize(
        room=st.integers(min_value=1, max_value=2),
        sick=st.dictionaries(NODE, st.sampled_from(sorted(SICKNESSES)), max_size=2),
        cordoned=st.dictionaries(NODE, st.sampled_from(("long ago", "meanwhile")), max_size=2),
        left=st.sets(NODE, max_size=1),
        rules=st.tuples(*map(st.sampled_from, (GATES, CORDONS, TAINTS, STOPS, STRATEGIES))),
        workloads=WORKLOADS,
        pace=PACE,
    )
    @kept
    def begin(
        self,
        room: int,
        sick: dict[str, str],
        cordoned: dict[str, str],
        left: set[str],
        rules: tuple[tuple[str, ...], ...],
        workloads: Workloads,
        pace: int,
    ) -> None:
        self.note(f"begin({room=}, {sick=}, {cordoned=}, {left=}, {rules=}, {workloads=})")
        flags = tuple(flag for flags in rules for flag in flags)
        self.left = left - cordoned.keys()
        self.begin_on(WORKERS + MEMBERS_IN_ALL, room + len(self.left), pace, flags, workloads)
        self.witness.counts_cordons = ALLOW_CORDONED not in rules
        for node, when in cordoned.items():
            if when == "long ago":
                self.trouble.cordon_for_good(node)
        for node in self.left:
            self.trouble.leave_failed(node)
        for node, sickness in sick.items():
            self.trouble.sicken(node, sickness)
        self.watch()
        self.witness.cordons -= self.left
        self.go_on()
        self.wait_until(lambda: stands(self.running) or not self.operators.running)
        for node, when in cordoned.items():
            if when == "meanwhile":
                self.trouble.set_cordon(node, cordoned=True)

    def go_on(self) -> None:
        self.operators.start()

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

    @rule(node=NODE, seconds=st.sampled_from((10, 90, 600)))
    @noted
    def host_loses_power(self, node: str, seconds: int) -> None:
        self.trouble.cut_power(node, seconds)

    @rule(node=NODE)
    @noted
    def somebody_reboots(self, node: str) -> None:
        self.trouble.reboot(node)

    # Other people.

    @rule(node=NODE, registered_after=st.sampled_from((2, 60)))
    @noted
    def somebody_deletes_a_node(self, node: str, registered_after: int) -> None:
        self.trouble.delete_node(node)
        self.trouble.restart_kubelet_soon(node, registered_after)

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

    @rule(
        how=st.sampled_from((signal.SIGKILL, signal.SIGTERM, signal.SIGINT)),
        times=st.integers(1, 2),
    )
    @noted
    def it_is_interrupted(self, how: signal.Signals, times: int) -> None:
        for _ in range(times):
            self.operators.send(how)
            time.sleep(0.2)

    @rule(flags=st.sampled_from(((), ("--retry-failed",))))
    @noted
    def somebody_goes_on(self, flags: tuple[str, ...]) -> None:
        self.witness.retries += bool(flags)
        self.operators.start(resuming=flags)

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

    def judge(self, told: Told) -> None:
        super().judge(told)
        if told.summary is not None and told.code != -9:
            self.judge_summary(told, told.summary)

    def judge_summary(self, told: Told, summary: dict[str, list[str]]) -> None:
        """Each planned node in one list, and in the one where the cluster has it."""
        failed = [entry["node"] for entry in told.summary["failed"]] if told.summary else []
        lists = [*summary["succeeded"], *failed, *summary["skipped"], *summary["not_started"]]
        # Whoever goes on without a begun node's host plans nothing for it, and says so.
        stranded = {name for name, end in told.ends.items() if end["outcome"] == "stranded"}
        assert sorted(lists) == sorted(told.planned | stranded), self.told(
            [lists, sorted(told.planned), stranded]
        )
        standing = marked(self.running).keys()
        fenced = {name for name, end in told.ends.items() if end["outcome"] == "fenced"}
        left = {name for name, end in told.ends.items() if end["left_cordoned"]} | fenced
        # Whoever is stopped before he takes a begun node on says that, and leaves it as it was.
        left |= told.taken_on & set(summary["not_started"])
        left |= told.failed_before & {*summary["not_started"], *summary["skipped"]}
        unknown = standing & told.planned - left - self.witness.meddled
        assert not unknown or fenced, self.told(
            f"{unknown} still carry marks, which nobody was told; told of {left}"
        )
        for name in summary["succeeded"]:
            self.judge_success(name)

    def judge_success(self, name: str) -> None:
        score = self.running.scoreboard()
        assert score.versions[name].now != score.versions[name].before, self.told(
            f"{name} runs what it ran"
        )
        assert self.witness.boots[name] >= 1, self.told(f"{name} has not booted")
        node = self.running.call(lambda: self.running.store.get(NODES, name))
        if node is not None and name not in self.witness.cordons:
            assert not is_cordoned(node), self.told(f"{name} is left cordoned")

    # The end.

    def finish(self) -> None:
        """Once the misfortunes are over somebody goes on until nothing is left, and undoes what
        cannot be.
        """
        self.note("the end of it")
        self.trouble.end()
        if self.witness.counts_cordons:
            self.trouble.lift_cordons()
        self.wait_until(self.all_ready)
        self.conclude()
        for _ in range(3):
            if not unfinished(self.running):
                break
            # A pod may have moved to a node that it blocks.
            self.operators.start(resuming=("--skip", "blocked"))
            self.conclude()
        # Beside a failed node, of this run or an earlier one, there may be no room for the pods of
        # the others.
        has_failed = any(
            written.get(marks.PHASE) == "failed" for written in marked(self.running).values()
        )
        is_lost = self.trouble.record_is_garbled or bool(self.left) or has_failed
        assert is_lost or not unfinished(self.running), self.told("it cannot be gone on with")
        if marked(self.running) or is_lost:
            # What may be rebooting has had all the time it needs: every machine is well.
            self.operators.run_one("abort", "--wait", "2s")
            self.conclude()
        assert not unfinished(self.running), self.told("it cannot be undone")
        self.judge_end()


@pytest.mark.sample
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_befalls_it_nothing_is_harmed_and_somebody_can_finish_it(
    seed: int, machine: Machine
) -> None:
    tell(Misfortunes, seed, machine, few=1)


# Nights in which nobody looks: pass after pass of `rollout operate`, and all that keeps it from
# beginning a node.


MEMBER = st.integers(min_value=1, max_value=MEMBERS_IN_ALL).map(lambda number: f"cp-{number}")


# What the hosts' needs are read from, and checks that pass nowhere.
_NEEDS = ((), ("--set", "detect.sources=update-engine,reboot-required"))


_CHECKS = (
    (),
    (),
    (
        *("--set", "gates.after-reboot-annotations=example.com/well"),
        *("--set", "gates.hook-timeout=500ms"),
    ),
)


class Nights(Tale):
    """One cluster, its nights, and what befalls it."""

    @initialize(
        room=st.integers(min_value=1, max_value=2),
        failures=st.sampled_from(("1", "100%")),
        left=st.sets(NODE | MEMBER, max_size=1),
        sick=st.dictionaries(NODE, st.sampled_from(sorted(SICKNESSES)), max_size=2),
        rules=st.tuples(*map(st.sampled_from, (_NEEDS, _CHECKS, GATES, TAINTS))),
        workloads=WORKLOADS,
        pace=PACE,
    )
    @kept
    def begin(
        self,
        room: int,
        failures: str,
        left: set[str],
        sick: dict[str, str],
        rules: tuple[tuple[str, ...], ...],
        workloads: Workloads,
        pace: int,
    ) -> None:
        self.note(f"begin({room=}, {failures=}, {left=}, {sick=}, {rules=}, {workloads=})")
        flags = tuple(flag for flags in rules for flag in flags)
        limit = room + len(left)
        self.begin_on(WORKERS + MEMBERS_IN_ALL, limit, pace, flags, workloads)
        self.witness.counts_cordons = True
        self.flags = (
            *("--max-unavailable", str(limit), "--max-failures", failures),
            *self.operators.flags,
        )
        for node in left:
            self.trouble.leave_failed(node)
        for node, sickness in sick.items():
            self.trouble.sicken(node, sickness)
        self.watch()
        self.witness.cordons.clear()
        self.go_on()

    def go_on(self) -> None:
        if self.operators.process is None:
            self.operators.run_one(
                "operate", "--once", *HASTE, "--set", "waves.health-checks=1", *self.flags
            )

    @rule(times=st.integers(min_value=1, max_value=4))
    @noted
    def passes_end(self, times: int) -> None:
        for _ in range(times):
            self.go_on()
            end = time.monotonic() + 8
            while self.operators.running and time.monotonic() < end:
                time.sleep(0.05)
            self.collect()

    @rule(how=st.sampled_from((signal.SIGKILL, signal.SIGTERM)))
    @noted
    def it_is_interrupted(self, how: signal.Signals) -> None:
        self.operators.send(how)

    @rule(node=NODE)
    @noted
    def something_asks_for_reboots(self, node: str) -> None:
        self.trouble.need_reboots(node)

    @rule(node=MEMBER, name=st.sampled_from(MEMBERS), well=st.booleans())
    @noted
    def members_crash(self, node: str, name: str, well: bool) -> None:  # noqa: FBT001 - drawn by name
        self.trouble.set_well(node, name, well=well)

    def finish(self) -> None:
        """Once everything is well another pass goes on; what it leaves it tells, and a person gives
        back.
        """
        self.note("the end of it")
        self.trouble.end()
        # A pass that they block leaves an earlier one as it is.
        self.trouble.lift_cordons()
        self.wait_until(self.all_ready)
        self.conclude()
        self.go_on()
        self.conclude()
        said = "".join(told.text for told in self.operators.told)
        silent = [name for name in marked(self.running) if name not in said]
        assert not silent, self.told(f"nobody was told of {silent}")
        if marked(self.running):
            self.operators.run_one("abort", "--wait", "2s")
            self.conclude()
        self.judge_end()


@pytest.mark.sample
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", SEEDS)
def test_night_after_night_no_more_is_away_than_may_be_and_nothing_repeats_for_ever(
    seed: int, machine: Machine
) -> None:
    tell(Nights, seed, machine, few=1)
