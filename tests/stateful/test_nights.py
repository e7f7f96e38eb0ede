"""Nights in which nobody looks: pass after pass of `rollout operate`, and all that keeps it from beginning a node.

What is begun is judged at the moment of its cordon, by what the cluster shows then: who is away, whatever run left it
there, what is paused, and whose static pods are not Ready. Between two passes nobody mends what a pass has left.
"""

import signal
import time

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from tests.crash.conftest import Machine
from tests.stateful.operators import GATES, HASTE, marked
from tests.stateful.tale import NODE, SEEDS, WORKERS, Tale, kept, noted, tell
from tests.stateful.trouble import MEMBERS, SICKNESSES

_MEMBERS = 3
MEMBER = st.integers(min_value=1, max_value=_MEMBERS).map(lambda number: f"cp-{number}")
# What the hosts' needs are read from, and checks that pass nowhere.
_NEEDS = ((), ("--set", "detect.sources=update-engine,reboot-required"))
_CHECKS = ((), (), ("--set", "gates.after-reboot-annotations=example.com/well", "--set", "gates.hook-timeout=500ms"))


class Nights(Tale):
    """One cluster, its nights, and what befalls it."""

    @initialize(
        limit=st.integers(min_value=1, max_value=2),
        failures=st.sampled_from(("1", "100%")),
        left=st.sets(NODE | MEMBER, max_size=1),
        sick=st.dictionaries(NODE, st.sampled_from(sorted(SICKNESSES)), max_size=2),
        rules=st.tuples(st.sampled_from(_NEEDS), st.sampled_from(_CHECKS), st.sampled_from(GATES)),
        pace=st.integers(min_value=0, max_value=1000),
    )
    @kept
    def begin(
        self,
        limit: int,
        failures: str,
        left: set[str],
        sick: dict[str, str],
        rules: tuple[tuple[str, ...], ...],
        pace: int,
    ) -> None:
        self.note(f"begin({limit=}, {failures=}, {left=}, {sick=}, {rules=})")
        self.begin_on(WORKERS + _MEMBERS, limit, pace, (*(flag for flags in rules for flag in flags),))
        self.flags = ("--max-unavailable", str(limit), "--max-failures", failures, *self.operators.flags)
        for node in left:
            self.trouble.leave_failed(node)
        for node, sickness in sick.items():
            self.trouble.sicken(node, sickness)
        self.running.call(self.witness.begin)
        self.witness.cordons.clear()
        self.go_on()

    def go_on(self) -> None:
        if self.operators.process is None:
            self.operators.run_one("operate", "--once", *HASTE, "--set", "waves.health-checks=1", *self.flags)

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
        """Once everything is well another pass goes on; what it leaves it tells, and a person gives back."""
        self.note("the end of it")
        self.trouble.end()
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
