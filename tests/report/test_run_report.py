"""What a report makes of a journal: where time went, what was held, what failed; and of one that is torn."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollout.errors import InputError
from rollout.planning.play.pace import Past
from rollout.report.experience import past_of
from rollout.report.lines import Record
from rollout.report.runs.model import Ending, Part, RunReport
from rollout.report.runs.report import report_of
from rollout.report.runs.tables import failure_table, hold_table, part_table
from tests.report.journals import (
    LENGTH,
    Night,
    begun,
    ended,
    finished,
    held,
    plan,
    planned,
    policy,
    record,
    released,
    wave,
    way,
)


def report(*records: Record, unreadable: int = 0) -> RunReport:
    return report_of(records, origin="run.jsonl", unreadable=unreadable)


def seconds(of: RunReport) -> dict[Part, float]:
    return {part.part: part.seconds for part in of.parts}


@pytest.mark.usefixtures("utc")
def test_the_parts_are_all_of_the_time() -> None:
    told = report(*Night().records())
    assert sum(seconds(told).values()) == pytest.approx(told.seconds) == 492
    # both nodes of the first wave did the same at the same time, the second wave's did it alone
    assert seconds(told) == {
        Part.PREPARE: 14,
        Part.DRAIN: 128,
        Part.REBOOT: 240,
        Part.READY: 60,
        Part.GIVE_BACK: 10,
        Part.SETTLE: 40,
    }
    drain = next(part for part in told.parts if part.part is Part.DRAIN)
    assert (drain.median, drain.longest) == (64, 64)


@pytest.mark.usefixtures("utc")
@settings(deadline=None)
@given(st.lists(st.floats(0, 3000), min_size=1, max_size=6), st.integers(1, 40))
def test_no_time_is_lost_or_counted_twice(begins: list[float], last: int) -> None:
    """Whatever overlaps, and wherever the journal ends."""
    names = [f"worker-{place}" for place, _begin in enumerate(begins)]
    steps = [entry for name, begin in zip(names, begins, strict=True) for entry in way(name, begin)]
    ordered = sorted(steps, key=lambda entry: str(entry["at"]))[:last]
    told = report(begun(), planned(plan([names])), *ordered)
    assert sum(seconds(told).values()) == pytest.approx(told.seconds, abs=0.1)


@pytest.mark.usefixtures("utc")
def test_a_held_eviction_has_its_budget_and_its_time() -> None:
    steps = list(way("worker-1", 2))
    told = report(
        *(begun(), planned(plan([["worker-1"]])), wave(1, 1, ["worker-1"], 2), *steps[:3]),
        *(held("worker-1", "shop/ledger-0", 10, 11), held("worker-1", "shop/ledger-1", 12, 13)),
        *(held("worker-1", "shop/ledger-0", 10, 41, has=1), released("worker-1", "shop/ledger-0", 10, 60)),
        *(finished("worker-1", 100, "drain-failed"), ended(101)),
    )
    first, second = told.holds
    assert (first.seconds, first.released, first.event.budget, first.event.has) == (50, True, "shop/ledger", 1)
    assert (second.seconds, second.released) == (88, False)
    (row,) = hold_table(told).rows
    assert (row[0], row[3], row[-1]) == ("shop/ledger", "1m28s", "1")


@pytest.mark.usefixtures("utc")
def test_a_failure_keeps_what_was_seen_and_whether_it_succeeded_later() -> None:
    seen = {"ssh_error": "refused", "conditions": [], "console": "lab://2"}
    failed = finished("worker-1", 100, "not-back", **seen)
    told = report(begun(), *way("worker-1", 2, "rebooting"), failed, ended(101))
    (failure,) = told.failures
    (row,) = failure_table(told).rows
    assert row[2:4] == ("not-back in phase draining", "it went wrong; last SSH error: refused; console: lab://2")
    assert failure.ssh_error == "refused"
    assert (told.ending, told.failed) == (Ending.INCOMPLETE, 1)
    again = (begun(500, "resume"), *way("worker-1", 501), finished("worker-1", 501 + LENGTH), ended(900))
    retried = report(begun(), *way("worker-1", 2, "rebooting"), failed, ended(101), *again)
    assert "succeeded later" in failure_table(retried).rows[0][2]
    assert (retried.ending, retried.failed, retried.succeeded) == (Ending.COMPLETED, 0, 1)


@pytest.mark.usefixtures("utc")
def test_a_resumed_run_is_one_run_with_an_interruption() -> None:
    """The node goes on from where it stood; in between nobody drained it."""
    first = (begun(), planned(plan([["worker-1"]])), wave(1, 1, ["worker-1"], 2), *way("worker-1", 2, "draining"))
    heard = record("notice", 30, message="waiting for the API server")
    rest = [entry for entry in way("worker-1", 1000) if entry["phase"] not in ("pending", "cordoned")]
    told = report(*first, heard, begun(1000, "resume"), *rest, finished("worker-1", 1225), ended(1226))
    assert [item.seconds for item in told.interruptions] == [970]
    assert seconds(told)[Part.INTERRUPTED] == 970
    assert told.nodes[0].parts[Part.DRAIN] == (30 - 8) + 64
    assert [command.command for command in told.commands] == ["apply", "resume"]


@pytest.mark.usefixtures("utc")
def test_closed_windows_are_no_settling() -> None:
    rules = policy("22:00 5m", "23:00 1h")
    night = (*way("worker-1", 2), finished("worker-1", 227))
    later = (wave(2, 2, ["worker-2"], 3601), *way("worker-2", 3601), finished("worker-2", 3601 + LENGTH), ended(3830))
    waves = plan([["worker-1"], ["worker-2"]], rules=rules)
    told = report(begun(rules=rules), planned(waves), wave(1, 2, ["worker-1"], 2), *night, *later)
    assert [item.seconds for item in told.openings] == [300, 230]
    assert seconds(told)[Part.WINDOW] == 3300
    assert seconds(told)[Part.SETTLE] == pytest.approx(300 - 227 + 1 + 4)


@pytest.mark.usefixtures("utc")
@pytest.mark.parametrize("length", range(2, 25))
def test_a_journal_that_is_cut_off_is_told_as_far_as_it_goes(length: int) -> None:
    records = Night().records()[:length]
    told = report(*records, unreadable=1)
    assert told.ending is Ending.OPEN
    assert "1 line of the journal is cut off or damaged, and left out." in told.gaps
    assert told.gaps[-1].startswith("The journal has no end")
    assert part_table(told).rows


@pytest.mark.usefixtures("utc")
@pytest.mark.parametrize("records", [(), ({"type": "step"},), ({"no": "record"},), ({"type": 7},)])
def test_what_is_no_journal_is_no_report(records: tuple[Record, ...]) -> None:
    with pytest.raises(InputError, match=r"no run is recorded in run\.jsonl"):
        report(*records)


# What journals teach estimates: of this cluster, of successes, and not of what a run waited for on purpose.


ExperienceRecord = dict[str, Any]


def at(seconds: int) -> str:
    return f"2026-03-01T{12 + seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}.000Z"


def run(cluster: str = "here", gates: object = None) -> ExperienceRecord:
    who = {"format_version": "1.0", "run": "0123456789abcdef", "command": "apply", "by": "ann@laptop", "version": "1"}
    return {"type": "run", "at": at(0), **who, "cluster": {"uid": cluster}, "policy": {"gates": gates}}


def wave_experience(index: int, seconds: int) -> ExperienceRecord:
    return {"type": "wave_started", "at": at(seconds), "index": index, "waves": 3, "nodes": []}


def step(node: str, phase: str, seconds: int) -> ExperienceRecord:
    return {"type": "step", "at": at(seconds), "node": node, "phase": phase}


def finished_experience(node: str, outcome: str, seconds: int) -> ExperienceRecord:
    return {"type": "node_finished", "at": at(seconds), "node": node, "outcome": outcome, "phase": "done"}


STORY = [
    wave_experience(1, 0),
    step("w-1", "draining", 1),
    step("w-2", "draining", 1),
    step("w-1", "drained", 11),
    step("w-2", "drained", 21),
    finished_experience("w-1", "succeeded", 71),
    finished_experience("w-2", "not-back", 90),
    wave_experience(2, 95),
    step("w-3", "draining", 96),
    step("w-3", "drained", 100),
    finished_experience("w-3", "succeeded", 200),
    {"type": "summary", "at": at(207)},
]


def test_what_succeeded_teaches_drains_and_reboots_and_every_wave_that_another_follows_its_settling() -> None:
    """Behind the last one nothing waits until all is well: what passes until the summary is no settling."""
    assert past_of([[run(), *STORY]], "here") == Past((10, 4), (60, 100), (5,))


@pytest.mark.parametrize("gates", [{"soak": "30m"}, {"windows": {"windows": ["sat 02:00 4h"]}}])
def test_what_a_run_waited_for_on_purpose_is_no_settling(gates: dict[str, object]) -> None:
    assert past_of([[run(gates=gates), *STORY]], "here") == Past((10, 4), (60, 100), ())


def test_what_an_empty_node_waited_for_on_purpose_is_no_reboot() -> None:
    delayed = {**run(), "policy": {"courtesy": {"reboot_delay": "5m"}}}
    story = [step("w-1", "draining", 1), step("w-1", "drained", 11), step("w-1", "rebooting", 50)]
    assert past_of([[delayed, *story, finished_experience("w-1", "succeeded", 110)]], "here").reboots == (60,)
    assert past_of([[run(), *story, finished_experience("w-1", "succeeded", 110)]], "here").reboots == (99,)


def test_an_interrupted_run_that_was_gone_on_with_counts_what_it_saw_whole() -> None:
    resumed = {**run(), "at": at(50)}
    story = [
        run(),
        step("w-1", "draining", 1),
        resumed,
        step("w-1", "drained", 60),
        finished_experience("w-1", "succeeded", 70),
    ]
    assert past_of([story], "here") == Past()


def released_experience(node: str, seconds: int, since: int, budget: str = "shop/db") -> ExperienceRecord:
    return {"type": "released", "at": at(seconds), "node": node, "pod": "p", "budget": budget, "since": at(since)}


def emptying(node: str, seconds: int) -> ExperienceRecord:
    return {**step(node, "draining", seconds), "detail": "3 pods left, 1 terminating"}


WAITING = [
    emptying("w-1", 1),
    emptying("w-2", 1),
    released_experience("w-1", 8, since=1),
    released_experience("w-1", 15, since=1),
    step("w-1", "drained", 18),
    finished_experience("w-1", "succeeded", 60),
    released_experience("w-2", 24, since=1),
    step("w-2", "drained", 28),
    finished_experience("w-2", "succeeded", 90),
    step("w-3", "drained", 95),
]


def test_pods_that_waited_for_a_budget_teach_how_they_end_by_the_rest_of_the_drain() -> None:
    past = past_of([[run(), *WAITING]], "here")
    assert (past.drains, past.endings) == ((17, 27), (3, 4))


def test_a_webhooks_delay_is_no_budgets() -> None:
    waited = [emptying("w-1", 1), released_experience("w-1", 8, since=1)]
    by_others = released_experience("w-1", 20, since=1, budget="")
    ended = [step("w-1", "drained", 22), finished_experience("w-1", "succeeded", 60)]
    assert past_of([[run(), *waited, by_others, *ended]], "here").endings == (14,)


def test_what_pods_of_each_owner_took_to_end_is_known_by_owner() -> None:
    first = {**step("w-1", "drained", 11), "endings": {"StatefulSet/shop/db": 90.5, "ReplicaSet/shop/web": 2}}
    second = {**step("w-2", "drained", 12), "endings": {"StatefulSet/shop/db": 80}}
    garbled = {**step("w-3", "drained", 13), "endings": "quick"}
    story = [run(), first, second, garbled]
    expected = {"StatefulSet/shop/db": (90.5, 80, 70), "ReplicaSet/shop/web": (2,)}
    again = [run(), {**step("w-1", "drained", 11), "endings": {"StatefulSet/shop/db": 70}}]
    assert past_of([story, again, [run("there"), first]], "here").owners == expected


def test_what_spans_a_step_of_the_clock_teaches_nothing() -> None:
    """Set on by an hour, or a machine that slept, in one node's turn; set back by an hour in the next; a late wave."""
    on, back = 3600, -3600
    story = [
        wave_experience(1, 0),
        *(step("w-1", "draining", 1), step("w-1", "drained", 11)),
        {**finished_experience("w-1", "succeeded", 71 + on), "seconds": 71.0},
        wave_experience(2, 80 + on),
        *(step("w-2", "draining", 81 + on), step("w-2", "drained", 91 + on)),
        {**finished_experience("w-2", "succeeded", 171 + on + back), "seconds": 91.0},
        wave_experience(3, 180 + on),
        *(step("w-3", "draining", 181 + on), step("w-3", "drained", 185 + on)),
        {**finished_experience("w-3", "succeeded", 200 + on), "seconds": 19.5},
    ]
    begun = {**run(), "policy": {"settle_timeout": "5m"}}
    assert past_of([[begun, *story]], "here") == Past((4,), (15,), (9,))
