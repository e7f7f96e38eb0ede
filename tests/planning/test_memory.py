"""The memory of earlier rollouts, changed and judged."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rollout.errors import BlockedError
from rollout.model.finding import HeldVersion, UncountedVersion
from rollout.model.memory import (
    LATEST_VERSIONS,
    MOST_NODES,
    MOST_NODES_OF_VERSION,
    MOST_VERSIONS,
    NO_MEMORY,
    Memory,
    Pause,
    VersionFailures,
)
from rollout.model.plan import ExclusionReason
from rollout.model.progress import Outcome, Phase
from rollout.model.quantity import Duration
from rollout.model.timestamps import whole_second
from rollout.planning.eligibility.evidence import EvidenceRules, ProvenVersions
from rollout.planning.eligibility.judgement import (
    EligibilityInputs,
    why_maybe_held,
    why_not_startable,
)
from rollout.planning.eligibility.memory import (
    EndedNode,
    NodeEnd,
    backoff_after,
    backoff_end,
    why_backing_off,
    why_held,
    with_hold,
    with_node_end,
    without_failures,
)
from rollout.wording import cause_of
from tests.planning.builders import NOW

BAD = "4152.2.0"
HOUR = timedelta(hours=1)


def end(
    node: str,
    run: str = "run-1",
    outcome: Outcome = Outcome.ROLLED_BACK,
    phase: Phase = Phase.READY,
    *,
    version: str = BAD,
    limit: int = 2,
    despite_hold: bool = False,
    is_update_cleared: bool = False,
) -> EndedNode:
    node_end = NodeEnd(outcome, phase, is_update_cleared=is_update_cleared)
    return EndedNode(node, version, node_end, run, limit, despite_hold)


def after(*ends: EndedNode, memory: Memory = NO_MEMORY) -> Memory:
    for number, ended in enumerate(ends):
        memory = with_node_end(memory, ended, NOW + timedelta(minutes=number))
    return memory


@given(
    st.lists(st.sampled_from((Outcome.DRAIN_FAILED, Outcome.SUCCEEDED)), max_size=8),
    st.integers(0, 100_000),
)
def test_a_node_backs_off_as_long_as_its_failures_in_a_row_say(
    outcomes: list[Outcome], seconds: int
) -> None:
    memory = NO_MEMORY
    failures = 0
    last = NOW
    for number, outcome in enumerate(outcomes):
        last = NOW + timedelta(days=number)
        memory = with_node_end(memory, end("w-1", f"run-{number}", outcome), last)
        failures = 0 if outcome is Outcome.SUCCEEDED else failures + 1
    now = last + timedelta(seconds=seconds)
    is_backing_off = seconds < backoff_after(failures).total_seconds()
    assert bool(backoff_end(memory, "w-1", now)) is is_backing_off
    found = why_not_startable("w-1", BAD, EligibilityInputs(now, memory, unattended=True))
    assert (found is not None and found.kind is ExclusionReason.FAILED_RECENTLY) is is_backing_off
    assert why_not_startable("w-1", BAD, EligibilityInputs(now, memory)) is None


def test_a_version_is_held_once_it_failed_on_as_many_nodes_as_may_over_all_rollouts() -> None:
    one = after(end("w-1"), end("w-1", "run-2"))
    assert why_held(one, BAD) is None
    assert why_held(one, BAD, 1)
    two = after(end("w-2", "run-3"), memory=one)
    held = why_held(two, BAD)
    assert isinstance(held, HeldVersion)
    assert held.nodes == ("w-1", "w-2")
    found = why_not_startable("w-9", BAD, EligibilityInputs(NOW, two))
    assert found is not None
    assert found.kind is ExclusionReason.VERSION_HELD
    assert why_not_startable("w-9", "4152.2.1", EligibilityInputs(NOW, two)) is None
    assert why_not_startable("w-9", BAD, EligibilityInputs(NOW, two, include_held=True)) is None
    assert (
        why_not_startable("w-9", BAD, EligibilityInputs(NOW, two, retried=frozenset({"w-9"})))
        is None
    )


@pytest.mark.parametrize(
    "despite_hold",
    [{"include_held": True}, {"retried": frozenset({"w-1"})}],
    ids=["allowed", "retried"],
)
def test_a_node_that_starts_despite_a_hold_still_needs_evidence(
    despite_hold: dict[str, Any],
) -> None:
    unproven = ProvenVersions(EvidenceRules("staging", nodes=1, hours=0, max_age=Duration(0)))
    found = why_not_startable("w-1", BAD, EligibilityInputs(NOW, proven=unproven, **despite_hold))
    assert found is not None
    assert found.kind is ExclusionReason.UNPROVEN


def test_a_node_that_starts_despite_a_hold_still_backs_off_unless_it_is_retried() -> None:
    inputs = EligibilityInputs(NOW, after(end("w-1")), include_held=True, unattended=True)
    found = why_not_startable("w-1", BAD, inputs)
    assert found is not None
    assert found.kind is ExclusionReason.FAILED_RECENTLY
    assert why_not_startable("w-1", BAD, replace(inputs, retried=frozenset({"w-1"}))) is None


@pytest.mark.parametrize(
    ("outcome", "phase", "is_blamed"),
    [
        (Outcome.ROLLED_BACK, Phase.READY, True),
        (Outcome.NOT_BACK, Phase.REBOOTING, True),
        (Outcome.NOT_READY, Phase.BOOTED, True),
        (Outcome.CHECK_FAILED, Phase.READY, True),
        (Outcome.CHECK_FAILED, Phase.CORDONED, False),
        (Outcome.DRAIN_FAILED, Phase.DRAINING, False),
        (Outcome.REBOOT_REFUSED, Phase.DRAINED, False),
        (Outcome.NOT_REBOOTED, Phase.REBOOTING, False),
    ],
)
def test_only_what_the_update_may_have_done_is_held_against_it(
    outcome: Outcome, phase: Phase, *, is_blamed: bool
) -> None:
    memory = with_node_end(NO_MEMORY, end("w-1", outcome=outcome, phase=phase), NOW)
    assert (BAD in memory.versions) is is_blamed
    assert memory.nodes["w-1"].version == (BAD if is_blamed else "")


def test_a_failure_that_clears_the_update_counts_against_the_node_alone() -> None:
    memory = with_node_end(NO_MEMORY, end("w-1", is_update_cleared=True), NOW)
    assert BAD not in memory.versions
    assert memory.nodes["w-1"].version == ""
    assert memory.nodes["w-1"].failures == 1


@pytest.mark.parametrize(
    "outcome", [Outcome.SKIPPED, Outcome.ABORTED, Outcome.FENCED, Outcome.STRANDED]
)
def test_what_was_not_tried_is_not_remembered(outcome: Outcome) -> None:
    assert with_node_end(NO_MEMORY, end("w-1", outcome=outcome), NOW) is NO_MEMORY


def test_a_success_ends_a_hold_only_where_the_node_was_taken_in_spite_of_it() -> None:
    """One that was in flight beside the failures says nothing that they did not."""
    held = after(end("w-1"), end("w-2"))
    beside = after(end("w-3", outcome=Outcome.SUCCEEDED), memory=held)
    assert why_held(beside, BAD)
    by_hand = after(end("w-3", outcome=Outcome.SUCCEEDED, despite_hold=True), memory=held)
    assert not why_held(by_hand, BAD)
    of_theirs = after(
        *(end(name, outcome=Outcome.SUCCEEDED) for name in ("w-1", "w-2")), memory=held
    )
    still_held = why_held(of_theirs, BAD)
    assert isinstance(still_held, HeldVersion)
    assert not still_held.nodes


def test_a_host_that_stages_another_version_each_time_backs_off_longer_each_time() -> None:
    memory = NO_MEMORY
    now = NOW
    for number, rest in enumerate((1, 4, 24, 24)):
        memory = with_node_end(memory, end("w-1", f"run-{number}", version=f"4152.2.{number}"), now)
        found = why_not_startable(
            "w-1", "4999.0.0", EligibilityInputs(now, memory, unattended=True)
        )
        assert found is not None
        assert found.kind is ExclusionReason.FAILED_RECENTLY
        now += rest * HOUR
        assert backoff_end(memory, "w-1", now) == ""


def test_a_failure_of_a_wrong_clock_holds_nothing_for_long() -> None:
    memory = with_node_end(NO_MEMORY, end("w-1"), NOW + timedelta(days=400))
    assert backoff_end(memory, "w-1", NOW) == ""


def test_releases() -> None:
    memory = replace(after(end("w-1"), end("w-2")), pause=Pause("ada"))
    only_paused = replace(NO_MEMORY, pause=Pause("ada"))
    assert without_failures(memory, versions=[BAD], nodes=(), everything=False) == only_paused
    assert set(without_failures(memory, versions=(), nodes=["w-1"], everything=False).nodes) == {
        "w-2"
    }
    assert without_failures(memory, versions=(), nodes=(), everything=True) == only_paused


def test_a_version_that_a_person_holds_stays_held_until_it_is_released() -> None:
    held = with_hold(after(end("w-1")), BAD, by="ada", now=NOW)
    assert why_held(held, BAD) == HeldVersion(BAD, ("w-1",), whole_second(NOW), "ada")
    assert with_hold(held, BAD, by="eve", now=NOW + HOUR) == held
    failed = after(end("w-2"), end("w-3"), memory=held)
    assert failed.versions[BAD].nodes == ("w-1", "w-2", "w-3")
    succeeded = [
        end(name, outcome=Outcome.SUCCEEDED, phase=Phase.DONE, despite_hold=True)
        for name in ("w-1", "w-2", "w-3")
    ]
    memory = after(*succeeded, memory=failed)
    assert why_held(memory, BAD)
    assert without_failures(memory, versions=[BAD], nodes=(), everything=False) == NO_MEMORY


def test_no_version_is_held_that_could_not_be_remembered() -> None:
    memory = NO_MEMORY
    for number in range(MOST_VERSIONS - LATEST_VERSIONS):
        memory = with_hold(memory, f"1.0.{number}", by="ada", now=NOW)
    with pytest.raises(BlockedError, match="cannot be held: 90 other versions are"):
        with_hold(memory, BAD, by="ada", now=NOW)
    assert with_hold(memory, "1.0.0", by="ada", now=NOW) == memory


def test_a_pause_of_all_goes_before_everything_and_ends_by_itself() -> None:
    memory = replace(NO_MEMORY, pause=Pause("ada", until=(NOW + HOUR).isoformat()))
    found = why_not_startable("w-1", BAD, EligibilityInputs(NOW, memory, include_held=True))
    assert found is not None
    assert found.kind is ExclusionReason.PAUSED
    assert why_not_startable("w-1", BAD, EligibilityInputs(NOW + HOUR, memory)) is None


@pytest.mark.parametrize("version", ["", "4152.2.0; reboot", "$(reboot)", "-rf", "a\nb", "9" * 129])
def test_what_is_no_version_is_not_held_nor_part_of_a_command(version: str) -> None:
    memory = with_node_end(NO_MEMORY, end("w-1", version=version), NOW)
    assert memory.versions == {}
    assert memory.nodes["w-1"].version == ""


@pytest.mark.parametrize(
    ("running", "is_held"),
    [
        ("4081.2.0", True),
        ("4152.2.0", False),
        ("4152.2.1", False),
        ("4230.0.0", False),
        ("38.20230609.3.0", True),
        ("Ubuntu 24.04", True),
        ("", True),
    ],
)
def test_a_version_that_nobody_tells_of_may_be_a_held_one_that_is_later(
    running: str, *, is_held: bool
) -> None:
    memory = Memory(
        {}, {"4152.2.0": VersionFailures(("a",), "2026-11-20T01:00:00Z", "2026-11-20T01:00:00Z")}
    )
    assert bool(why_maybe_held(running, EligibilityInputs(None, memory))) is is_held
    assert why_maybe_held(running, EligibilityInputs(None, memory, include_held=True)) is None


def test_no_newer_version_pushes_a_held_one_out() -> None:
    memory = after(end("w-1", version=BAD, limit=1), end("w-2", version="4152.9.9", limit=2))
    for number in range(2 * MOST_VERSIONS):
        memory = with_node_end(
            memory,
            end("w-1", f"run-{number}", version=f"5000.0.{number}", limit=1),
            NOW + number * HOUR,
        )
        assert len(memory.versions) <= MOST_VERSIONS
    assert why_held(memory, BAD)
    assert "4152.9.9" not in memory.versions, "one that is not held gives way"
    # what could not be remembered any more is not tried on others either
    assert f"5000.0.{2 * MOST_VERSIONS - 1}" not in memory.versions
    assert isinstance(why_held(memory, "6000.0.0"), UncountedVersion)
    freed = without_failures(memory, versions=[BAD], nodes=(), everything=False)
    assert why_held(freed, "6000.0.0") is None
    assert why_held(freed, BAD) is None
    assert why_held(with_node_end(freed, end("w-3", version="6000.0.0", limit=1), NOW), "6000.0.0")


def test_the_same_end_told_twice_counts_once() -> None:
    once = with_node_end(NO_MEMORY, end("w-1"), NOW)
    assert with_node_end(once, end("w-1"), NOW + HOUR) == once
    assert with_node_end(once, end("w-1", "run-2"), NOW + HOUR).nodes["w-1"].failures == 2


def test_it_stays_small() -> None:
    memory = NO_MEMORY
    for number in range(MOST_NODES + 5):
        memory = with_node_end(
            memory, end(f"w-{number}", version=f"{number}"), NOW + timedelta(seconds=number)
        )
    assert len(memory.nodes) == MOST_NODES
    assert len(memory.versions) == LATEST_VERSIONS
    assert "w-4" not in memory.nodes
    for number in range(MOST_NODES_OF_VERSION + 5):
        memory = with_node_end(
            memory, end(f"v-{number}", limit=10_000), NOW + timedelta(hours=number)
        )
    assert len(memory.versions[BAD].nodes) == MOST_NODES_OF_VERSION
    assert why_held(memory, BAD, 10_000)


def test_a_node_that_fails_with_another_version_in_the_same_run_holds_that_version_too() -> None:
    """As when two versions take turns as the staged one, and the node is retried."""
    other = "4152.3.0"
    memory = after(end("w-1", limit=1), end("w-1", version=other, limit=1))
    assert why_held(memory, BAD)
    assert why_held(memory, other)
    assert memory.nodes["w-1"].failures == 2
    assert after(end("w-1", version=other, limit=1), memory=memory) == memory


def test_a_version_that_is_released_and_fails_again_is_held_again() -> None:
    failed = after(end("w-1", limit=1))
    released = without_failures(failed, versions=[BAD], nodes=[], everything=False)
    assert why_held(released, BAD) is None
    assert why_held(after(end("w-1", limit=1), memory=released), BAD)


def test_a_node_whose_pods_did_not_complete_backs_off_though_it_did_not_fail() -> None:
    returned = NodeEnd(Outcome.SKIPPED, Phase.DRAINING, pods_still_ran=True)
    memory = after(EndedNode("w-1", BAD, returned, "run-1", 2))
    backoff = why_backing_off(memory, "w-1", NOW + timedelta(minutes=30))
    assert backoff is not None
    assert "its pods had not completed" in cause_of(backoff)
    assert why_backing_off(memory, "w-1", NOW + HOUR) is None
