"""What a report makes of a journal: where time went, what was held, what failed; and of one that is torn."""

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollout.errors import InputError
from rollout.report.lines import Record
from rollout.report.runs.chart import MOST_ROWS, Scale, timeline
from rollout.report.runs.model import Ending, Part, RunReport, Stretch
from rollout.report.runs.report import report_of
from rollout.report.runs.tables import facts, hold_table, part_table
from tests.report.journals import (
    LENGTH,
    NIGHT,
    Night,
    begun,
    ended,
    finished,
    fleet,
    held,
    plan,
    planned,
    policy,
    record,
    released,
    wave,
    way,
)

pytestmark = pytest.mark.usefixtures("utc")


def report(*records: Record, unreadable: int = 0) -> RunReport:
    return report_of(records, origin="run.jsonl", unreadable=unreadable)


def seconds(of: RunReport) -> dict[Part, float]:
    return {part.part: part.seconds for part in of.parts}


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


@settings(deadline=None)
@given(st.lists(st.floats(0, 3000), min_size=1, max_size=6), st.integers(1, 40))
def test_no_time_is_lost_or_counted_twice(begins: list[float], last: int) -> None:
    """Whatever overlaps, and wherever the journal ends."""
    names = [f"worker-{place}" for place, _begin in enumerate(begins)]
    steps = [entry for name, begin in zip(names, begins, strict=True) for entry in way(name, begin)]
    ordered = sorted(steps, key=lambda entry: str(entry["at"]))[:last]
    told = report(begun(), planned(plan([names])), *ordered)
    assert sum(seconds(told).values()) == pytest.approx(told.seconds, abs=0.1)


def test_a_held_eviction_has_its_budget_and_its_time() -> None:
    steps = list(way("worker-1", 2))
    told = report(
        *(begun(), planned(plan([["worker-1"]])), wave(1, 1, ["worker-1"], 2), *steps[:3]),
        *(held("worker-1", "shop/ledger-0", 10, 11), held("worker-1", "shop/ledger-1", 12, 13)),
        *(held("worker-1", "shop/ledger-0", 10, 41, has=1), released("worker-1", "shop/ledger-0", 10, 60)),
        *(finished("worker-1", 100, "drain-failed"), ended(101)),
    )
    first, second = told.holds
    assert (first.seconds, first.released, first.budget, first.has) == (50, True, "shop/ledger", 1)
    assert (second.seconds, second.released) == (88, False)
    (row,) = hold_table(told).rows
    assert (row[0], row[3], row[-1]) == ("shop/ledger", "1m28s", "1")


def test_a_failure_keeps_what_was_seen_and_whether_it_succeeded_later() -> None:
    seen = {"ssh_error": "refused", "conditions": [], "console": "lab://2"}
    failed = finished("worker-1", 100, "not-back", **seen)
    told = report(begun(), *way("worker-1", 2, "rebooting"), failed, ended(101))
    (failure,) = told.failures
    assert (failure.seen, failure.recovered) == (("last SSH error: refused", "console: lab://2"), False)
    assert (told.ending, told.failed) == (Ending.INCOMPLETE, 1)
    again = (begun(500, "resume"), *way("worker-1", 501), finished("worker-1", 501 + LENGTH), ended(900))
    retried = report(begun(), *way("worker-1", 2, "rebooting"), failed, ended(101), *again)
    assert retried.failures[0].recovered
    assert (retried.ending, retried.failed, retried.succeeded) == (Ending.COMPLETED, 0, 1)


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


def test_closed_windows_are_no_settling() -> None:
    rules = policy("22:00 5m", "23:00 1h")
    night = (*way("worker-1", 2), finished("worker-1", 227))
    later = (wave(2, 2, ["worker-2"], 3601), *way("worker-2", 3601), finished("worker-2", 3601 + LENGTH), ended(3830))
    waves = plan([["worker-1"], ["worker-2"]], rules=rules)
    told = report(begun(rules=rules), planned(waves), wave(1, 2, ["worker-1"], 2), *night, *later)
    assert [item.seconds for item in told.openings] == [300, 230]
    assert seconds(told)[Part.WINDOW] == 3300
    assert seconds(told)[Part.SETTLE] == pytest.approx(300 - 227 + 1 + 4)


def test_windows_that_nobody_can_read_shade_nothing() -> None:
    document = {"gates": {"windows": {"windows": ["every full moon"]}}}
    assert report({**begun(), "policy": document}, *way("worker-1", 2)).openings == ()
    assert report({**begun(), "policy": {"gates": 7}}, *way("worker-1", 2)).openings == ()


def test_versions_are_counted() -> None:
    told = dict(facts(report(*Night(failed=frozenset({"worker-2"})).records())))
    assert told["Versions"] == "3975.2.0 → 4081.2.1 (2), 3975.2.0 stays (1)"


@pytest.mark.parametrize("length", range(2, 25))
def test_a_journal_that_is_cut_off_is_told_as_far_as_it_goes(length: int) -> None:
    records = Night().records()[:length]
    told = report(*records, unreadable=1)
    assert told.ending is Ending.OPEN
    assert "1 line of the journal is cut off or damaged, and left out." in told.gaps
    assert told.gaps[-1].startswith("The journal has no end")
    assert part_table(told).rows


def test_a_run_under_way_has_a_node_in_its_phase() -> None:
    told = report(*Night().records()[:12])
    assert {node.outcome for node in told.nodes} == {""}
    assert "rebooting" in {node.phases[-1].phase for node in told.nodes if node.phases}


def test_a_journal_without_its_first_line_still_has_its_plan() -> None:
    told = report(*Night().without("run"))
    assert (told.run, told.cluster, len(told.nodes)) == ("0123456789abcdef", "https://prod.example:6443", 3)
    assert "The journal does not say who began the run: its first line is missing." in told.gaps


def test_another_version_is_told_as_far_as_it_is_understood() -> None:
    newer = {"type": "node_charged", "at": "2026-03-04T22:00:05Z", "node": "worker-1"}
    odd = {"type": "step", "at": "yesterday", "node": 3}
    records = Night().records()
    told = report({**records[0], "format_version": "2.0", "moon": "full"}, *records[1:], newer, odd)
    assert (told.succeeded, told.ending) == (3, Ending.COMPLETED)
    assert told.gaps == (
        "The journal has the format 2.0; this program knows 1.0, and shows that much.",
        "2 records of the journal could not be understood, and left out.",
    )


@pytest.mark.parametrize("records", [(), ({"type": "step"},), ({"no": "record"},), ({"type": 7},)])
def test_what_is_no_journal_is_no_report(records: tuple[Record, ...]) -> None:
    with pytest.raises(InputError, match=r"no run is recorded in run\.jsonl"):
        report(*records)


def test_times_that_cannot_be_are_left_out() -> None:
    """A damaged clock, or somebody's hand: a page of a thousand years helps nobody."""
    odd = [
        {**record("notice", 5, message="x"), "at": moment}
        for moment in ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z")
    ]
    told = report(*Night().records(), *odd)
    assert told.seconds == 492
    assert told.gaps == ("2 records of the journal could not be understood, and left out.",)


def test_few_nodes_have_a_row_each_by_wave() -> None:
    drawn = timeline(report(*Night(failed=frozenset({"worker-3"})).records()))
    (chart,) = drawn
    assert [section.title for section in chart.sections] == ["Wave 1 of 2", "Wave 2 of 2"]
    rows = [row for section in chart.sections for row in section.rows]
    assert [row.remark for row in rows] == ["", "", "drain-failed"]
    assert [bar.kind for bar in rows[0].bars] == ["prepare", "drain", "reboot", "ready", "give-back"]
    assert rows[2].mark == pytest.approx(100 * (247 + LENGTH) / 492, abs=0.1)


@pytest.mark.parametrize("together", [1, 10, 1000])
def test_many_nodes_are_grouped(together: int) -> None:
    """Waves are the groups, unless they are too many or too large."""
    told = report(*fleet(1000, together).records())
    rows = [len(chart.sections[0].rows) for chart in timeline(told)]
    assert len(rows) <= MOST_ROWS
    assert (sum(rows), max(rows) <= 100) == (1000, True)


def test_small_waves_are_drawn_together() -> None:
    """Each under its name: nobody unfolds thirty charts of three nodes."""
    names = [f"worker-{place}" for place in range(81)]
    drawn = timeline(report(*Night(tuple(tuple(names[first : first + 3]) for first in range(0, 81, 3))).records()))
    assert [chart.title for chart in drawn] == [
        "Wave 1 of 27 to Wave 16 of 27, 48 nodes",
        "Wave 17 of 27 to Wave 27 of 27, 33 nodes",
    ]
    sections = [section for chart in drawn for section in chart.sections]
    assert [section.title for section in sections] == [f"Wave {number} of 27" for number in range(1, 28)]
    assert [row.label for section in sections for row in section.rows] == names


def test_a_long_pause_is_drawn_short() -> None:
    """A night, a day of waiting, and another night."""
    day = Stretch(NIGHT, NIGHT + timedelta(days=1))
    pause = Stretch(NIGHT + timedelta(hours=1), NIGHT + timedelta(hours=23))
    scale = Scale(day, [pause])
    assert scale.at(day.begin) == 0
    assert scale.at(pause.begin) == pytest.approx(48.5)
    assert scale.at(pause.end) == pytest.approx(51.5)
    assert scale.at(day.end) == pytest.approx(100)
    assert all(tick.x <= 48.5 or tick.x >= 51.5 for tick in scale.ticks())
    assert len(scale.ticks()) >= 2


def test_what_is_one_pause_is_drawn_as_it_is() -> None:
    hour = Stretch(NIGHT, NIGHT + timedelta(hours=1))
    assert Scale(hour, [hour]).cuts == ()
    assert report(begun(), planned(plan([["worker-1"]]), 3600)).seconds == 3600


@pytest.mark.parametrize("length", [0, 0.4, 3, 59, 61, 3600, 40_000, 90_000, 5_000_000])
def test_an_axis_has_a_few_round_times(length: float) -> None:
    labels = [tick.label for tick in Scale(Stretch(NIGHT, NIGHT + timedelta(seconds=length))).ticks()]
    assert len(labels) <= 10
    assert len(labels) >= (1 if length > 3 else 0)
    assert len(set(labels)) == len(labels)
