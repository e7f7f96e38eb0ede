"""What a report makes of a journal: where time went, what was held, what failed; and of one that is torn."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollout.errors import InputError
from rollout.report.lines import Record
from rollout.report.runs.chart import MOST_ROWS, timeline
from rollout.report.runs.model import Ending, Part, RunReport
from rollout.report.runs.report import report_of
from rollout.report.runs.tables import hold_table, part_table
from tests.report.journals import (
    LENGTH,
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


@pytest.mark.parametrize("records", [(), ({"type": "step"},), ({"no": "record"},), ({"type": 7},)])
def test_what_is_no_journal_is_no_report(records: tuple[Record, ...]) -> None:
    with pytest.raises(InputError, match=r"no run is recorded in run\.jsonl"):
        report(*records)


@pytest.mark.parametrize("together", [1, 10, 1000])
def test_many_nodes_are_grouped(together: int) -> None:
    """Waves are the groups, unless they are too many or too large."""
    told = report(*fleet(1000, together).records())
    rows = [len(chart.sections[0].rows) for chart in timeline(told)]
    assert len(rows) <= MOST_ROWS
    assert (sum(rows), max(rows) <= 100) == (1000, True)
