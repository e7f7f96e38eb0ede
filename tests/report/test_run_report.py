"""What a report makes of a journal: where time went, what was held, what failed; and of one that is
torn.
"""

import pytest

from rollout.errors import InputError
from rollout.planning.play.pace import PastDurations
from rollout.report.history import timeline_text
from rollout.report.lines import Record
from rollout.report.runs.model import Ending, Part, RunReport
from rollout.report.runs.report import read_past, report_of
from rollout.report.runs.tables import facts, failure_table, headline, hold_table
from tests.report.journals import (
    LENGTH,
    Night,
    at,
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

pytestmark = pytest.mark.usefixtures("utc")


def report(*records: Record, unreadable: int = 0) -> RunReport:
    return report_of(records, origin="run.jsonl", damaged_lines=unreadable)


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
    assert drain.median == 64
    assert drain.longest == 64


def test_a_held_eviction_has_its_budget_and_its_time() -> None:
    steps = list(way("worker-1", 2))
    told = report(
        *(begun(), planned(plan([["worker-1"]])), wave(1, 1, ["worker-1"], 2), *steps[:3]),
        *(held("worker-1", "shop/ledger-0", 10, 11), held("worker-1", "shop/ledger-1", 12, 13)),
        held("worker-1", "shop/ledger-0", 10, 41, has=1),
        released("worker-1", "shop/ledger-0", 10, 60),
        *(finished("worker-1", 100, "drain-failed"), ended(101)),
    )
    first, second = told.holds
    assert first.seconds == 50
    assert first.released
    assert first.event.budget == "shop/ledger"
    assert first.event.has == 1
    assert second.seconds == 88
    assert not second.released
    (row,) = hold_table(told).rows
    assert row[0] == "PDB shop/ledger"
    assert row[3] == "1m28s"
    assert row[-1] == "1"


def with_a_skipped_node() -> RunReport:
    lists = {"succeeded": ["worker-1"], "skipped": ["worker-2"], "left_out": {"paused": 1}}
    return report(
        begun(),
        planned(plan([["worker-1", "worker-2"]])),
        wave(1, 1, ["worker-1", "worker-2"], 2),
        *way("worker-1", 2),
        finished("worker-2", 3, "skipped", phase="pending", message="paused by ops"),
        finished("worker-1", 2 + LENGTH),
        ended(3 + LENGTH, **lists, reasons={"worker-2": "paused by ops"}),
    )


def test_a_skipped_node_is_no_failure() -> None:
    told = with_a_skipped_node()
    assert told.ending == Ending.COMPLETED
    assert told.skipped == {"worker-2": "paused by ops"}
    assert told.not_started == {}
    assert failure_table(told).rows == []


def test_a_skipped_node_is_not_counted() -> None:
    assert headline(with_a_skipped_node()).startswith("completed: 1 node done in ")


def with_an_aborted_node() -> tuple[Record, ...]:
    """A stop returns worker-1 in mid-drain, and worker-2 is not started."""
    why = "not rebooted: stopped on request"
    summary = {
        "not_started": ["worker-1", "worker-2"],
        "reasons": {"worker-1": why, "worker-2": "stopped on request"},
        "kinds": {"worker-1": "aborted", "worker-2": "stopped"},
    }
    return (
        begun(),
        planned(plan([["worker-1"], ["worker-2"]])),
        wave(1, 2, ["worker-1"], 2),
        *way("worker-1", 2, "draining"),
        finished("worker-1", 60, "aborted", message=why),
        ended(61, **summary),
    )


def test_a_node_that_was_returned_in_mid_drain_is_aborted() -> None:
    told = report(*with_an_aborted_node())
    assert headline(told) == (
        "incomplete: of 2 planned nodes, 0 succeeded, 1 was aborted, 1 was not started"
    )
    assert [(row[0], row[2], row[3]) for row in failure_table(told).rows] == [
        ("worker-1", "aborted", "not rebooted: stopped on request"),
        ("worker-2", "not started", "stopped on request"),
    ]


def test_a_node_that_the_resumed_part_does_not_start_is_no_longer_aborted() -> None:
    reasons = {"worker-1": "too many have failed"}
    resumed = (begun(), ended(90, not_started=["worker-1"], reasons=reasons))
    told = report(*with_an_aborted_node(), *resumed)
    assert headline(told).endswith("1 was not started")
    assert told.aborted == []


def test_the_timeline_tells_the_aborted_node_from_the_one_that_was_not_started() -> None:
    records = with_an_aborted_node()
    told = timeline_text(report(*records), records, details=False)
    assert "ended: 0 succeeded, 1 was aborted, 1 was not started\n" in told
    assert "worker-1 was aborted: not rebooted: stopped on request\n" in told
    assert told.endswith("worker-2 was not started: stopped on request")


def test_the_pods_that_were_not_evicted_are_accounted_for() -> None:
    pods = [
        {"pod": f"shop/cart-{number}", "owner": "", "evicted_at": at(10), "seconds": 1.0}
        for number in range(3)
    ]
    told = report(
        *(begun(), planned(plan([["worker-1"], ["worker-2"]])), wave(1, 2, ["worker-1"], 2)),
        *way("worker-1", 2),
        record("evicted", 12, node="worker-1", pods=pods),
        finished("worker-1", 2 + LENGTH),
        ended(3 + LENGTH, evictions=3),
    )
    gone = "2 gone before the drain reached them"
    untouched = "5 on nodes that were not drained"
    assert (
        dict(facts(told))["Pods"] == f"10 pods had to be evicted: 3 evictions; {untouched}; {gone}"
    )


def test_a_failure_keeps_what_was_seen_and_whether_it_succeeded_later() -> None:
    seen = {"ssh_error": "refused", "conditions": [], "console": "lab://2"}
    failed = finished("worker-1", 100, "not-back", **seen)
    told = report(begun(), *way("worker-1", 2, "rebooting"), failed, ended(101))
    (failure,) = told.failures
    (row,) = failure_table(told).rows
    assert row[2:4] == (
        "not-back in phase draining",
        "it went wrong; last SSH error: refused; console: lab://2",
    )
    assert failure.ssh_error == "refused"
    assert told.ending == Ending.INCOMPLETE
    assert told.failed == 1
    again = (
        begun(500, "resume"),
        *way("worker-1", 501),
        finished("worker-1", 501 + LENGTH),
        ended(900),
    )
    retried = report(begun(), *way("worker-1", 2, "rebooting"), failed, ended(101), *again)
    assert "succeeded later" in failure_table(retried).rows[0][2]
    assert retried.ending == Ending.COMPLETED
    assert retried.failed == 0
    assert retried.succeeded == 1


def test_a_resumed_run_is_one_run_with_an_interruption() -> None:
    """The node goes on from where it stood; in between nobody drained it."""
    first = (
        begun(),
        planned(plan([["worker-1"]])),
        wave(1, 1, ["worker-1"], 2),
        *way("worker-1", 2, "draining"),
    )
    heard = record("notice", 30, message="waiting for the API server")
    rest = [
        entry for entry in way("worker-1", 1000) if entry["phase"] not in ("pending", "cordoned")
    ]
    told = report(
        *first, heard, begun(1000, "resume"), *rest, finished("worker-1", 1225), ended(1226)
    )
    assert [item.seconds for item in told.interruptions] == [970]
    assert seconds(told)[Part.INTERRUPTED] == 970
    assert told.nodes[0].parts[Part.DRAIN] == (30 - 8) + 64
    assert [command.command for command in told.commands] == ["apply", "resume"]


def test_closed_windows_are_no_settling() -> None:
    rules = policy("22:00 5m", "23:00 1h")
    night = (*way("worker-1", 2), finished("worker-1", 227))
    later = (
        wave(2, 2, ["worker-2"], 3601),
        *way("worker-2", 3601),
        finished("worker-2", 3601 + LENGTH),
        ended(3830),
    )
    waves = plan([["worker-1"], ["worker-2"]], rules=rules)
    told = report(begun(rules=rules), planned(waves), wave(1, 2, ["worker-1"], 2), *night, *later)
    assert [item.seconds for item in told.openings] == [300, 230]
    assert seconds(told)[Part.WINDOW] == 3300
    assert seconds(told)[Part.SETTLE] == pytest.approx(300 - 227 + 1 + 4)


@pytest.mark.parametrize("records", [(), ({"type": "step"},), ({"no": "record"},), ({"type": 7},)])
def test_what_is_no_journal_is_no_report(records: tuple[Record, ...]) -> None:
    with pytest.raises(InputError, match=r"no run is recorded in run\.jsonl"):
        report(*records)


# What journals teach estimates: of this cluster, of successes, and not of what a run waited for on
# purpose.


def step(node: str, phase: str, seconds: float, **more: object) -> Record:
    return record("step", seconds, node=node, phase=phase, **more)


def learnt(*records: Record, **rules: object) -> PastDurations:
    """What a run by these rules teaches."""
    return read_past([[begun(policy=rules), *records]], "uid")


STORY = [
    wave(1, 3, ["w-1", "w-2"], 0),
    step("w-1", "draining", 1),
    step("w-2", "draining", 1),
    step("w-1", "drained", 11),
    step("w-2", "drained", 21),
    finished("w-1", 71),
    finished("w-2", 90, "not-back"),
    wave(2, 3, ["w-3"], 95),
    step("w-3", "draining", 96),
    step("w-3", "drained", 100),
    finished("w-3", 200),
    ended(207),
]


def test_what_succeeded_teaches_drains_and_reboots_and_every_wave_that_another_follows_its_settling() -> (
    None
):
    """Behind the last one nothing waits until all is well: what passes until the summary is no
    settling.
    """
    assert learnt(*STORY) == PastDurations((10, 4), (60, 100), (5,))


@pytest.mark.parametrize("gates", [{"soak": "30m"}, {"windows": {"windows": ["sat 02:00 4h"]}}])
def test_what_a_run_waited_for_on_purpose_is_no_settling(gates: dict[str, object]) -> None:
    assert learnt(*STORY, gates=gates) == PastDurations((10, 4), (60, 100), ())


def test_what_an_empty_node_waited_for_on_purpose_is_no_reboot() -> None:
    story = [step("w-1", "draining", 1), step("w-1", "drained", 11), step("w-1", "rebooting", 50)]
    story.append(finished("w-1", 110))
    assert learnt(*story, courtesy={"reboot_delay": "5m"}).reboots == (60,)
    assert learnt(*story).reboots == (99,)


def test_an_interrupted_run_that_was_gone_on_with_counts_what_it_saw_whole() -> None:
    story = [
        step("w-1", "draining", 1),
        begun(50, "resume"),
        step("w-1", "drained", 60),
        finished("w-1", 70),
    ]
    assert learnt(*story) == PastDurations()


def emptying(node: str, seconds: float) -> Record:
    return step(node, "draining", seconds, detail="3 pods left, 1 terminating")


WAITING = [
    emptying("w-1", 1),
    emptying("w-2", 1),
    released("w-1", "p", 1, 8),
    released("w-1", "p", 1, 15),
    step("w-1", "drained", 18),
    finished("w-1", 60),
    released("w-2", "p", 1, 24),
    step("w-2", "drained", 28),
    finished("w-2", 90),
    step("w-3", "drained", 95),
]


def test_pods_that_waited_for_a_budget_teach_how_they_end_by_the_rest_of_the_drain() -> None:
    past = learnt(*WAITING)
    assert past.drains == (17, 27)
    assert past.endings == (3, 4)


def test_a_webhooks_delay_is_no_budgets() -> None:
    waited = [emptying("w-1", 1), released("w-1", "p", 1, 8)]
    by_others = {**released("w-1", "p", 1, 20), "budget": ""}
    assert learnt(*waited, by_others, step("w-1", "drained", 22), finished("w-1", 60)).endings == (
        14,
    )


def test_what_pods_of_each_owner_took_to_end_is_known_by_owner() -> None:
    first = step(
        "w-1", "drained", 11, endings={"StatefulSet/shop/db": 90.5, "ReplicaSet/shop/web": 2}
    )
    second = step("w-2", "drained", 12, endings={"StatefulSet/shop/db": 80})
    garbled = step("w-3", "drained", 13, endings="quick")
    again = step("w-1", "drained", 11, endings={"StatefulSet/shop/db": 70})
    elsewhere = begun(cluster={"uid": "there"})
    runs = [[begun(), first, second, garbled], [begun(), again], [elsewhere, first]]
    expected = {"StatefulSet/shop/db": [90.5, 80, 70], "ReplicaSet/shop/web": [2]}
    assert read_past(runs, "uid").endings_by_owner == expected


def test_what_spans_a_step_of_the_clock_teaches_nothing() -> None:
    """Set on by an hour, or a machine that slept, in one node's turn; set back by an hour in the
    next; a late wave.
    """
    on = 3600
    back = -3600
    story = [
        wave(1, 3, ["w-1"], 0),
        *(step("w-1", "draining", 1), step("w-1", "drained", 11)),
        {**finished("w-1", 71 + on), "seconds": 71.0},
        wave(2, 3, ["w-2"], 80 + on),
        *(step("w-2", "draining", 81 + on), step("w-2", "drained", 91 + on)),
        {**finished("w-2", 171 + on + back), "seconds": 91.0},
        wave(3, 3, ["w-3"], 180 + on),
        *(step("w-3", "draining", 181 + on), step("w-3", "drained", 185 + on)),
        {**finished("w-3", 200 + on), "seconds": 19.5},
    ]
    assert learnt(*story, settle_timeout="5m") == PastDurations((4,), (15,), (9,))
