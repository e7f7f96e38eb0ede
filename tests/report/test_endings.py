"""The last lines of a run: figures first, then a few names, then the next step."""

from itertools import dropwhile

import pytest
from msgspec.structs import replace

from rollout.execution.lease import LockSnapshot
from rollout.execution.record.record import StoredRecord
from rollout.execution.record.unfinished import MarkedNode, Unfinished
from rollout.execution.rollout.ledger import Inheritance, Ledger
from rollout.model.finding import NodeMarkedByOther, StopRequested
from rollout.model.plan import Exclusion, ExclusionReason
from rollout.model.progress import (
    NodeDiagnosis,
    NodeResult,
    NotDone,
    NotStarted,
    Outcome,
    Phase,
    RunFinished,
    RunResult,
)
from rollout.report.lines import SummaryLine, event_line
from rollout.report.sentences import result_counts
from rollout.report.summary import next_step, rehearsal_ending, summary_text
from rollout.report.unfinished import abort_preview, resume_preview
from tests.report.builders import AT, planned

DONE = NodeResult("node-1", Outcome.SUCCEEDED, Phase.DONE, 30.0, version="4081.2.1")


AWAY = Exclusion("node-7", ExclusionReason.UNREACHABLE, "the connection was refused\x1b[2J")


ROLLED_BACK = NodeResult("node-1", Outcome.ROLLED_BACK, Phase.FAILED, 30.0, "the old version")


STUCK = NodeResult("node-1", Outcome.DRAIN_FAILED, Phase.DRAINING, 30.0, "1 pod left")


MARKED_BY_OTHER = NodeResult(
    "node-1", Outcome.FENCED, Phase.DRAINING, 3.0, finding=NodeMarkedByOther("node-1", "run-2")
)


PAUSED = Exclusion("node-8", ExclusionReason.PAUSED, "paused by an annotation")


HELD = Exclusion(
    "node-6",
    ExclusionReason.VERSION_HELD,
    "version 4.2 is held: it failed on 1 node (node-5), most recently now",
    version="4.2",
)


IDLE = Exclusion("node-9", ExclusionReason.NO_UPDATE, "nothing is staged")


REST = NotStarted("node-2", "stopped")


def lines_of(result: RunResult, width: int | None = 100) -> list[str]:
    return summary_text(result, took=1450, width=width).splitlines()


def test_a_node_that_was_begun_and_given_up_is_not_called_not_started() -> None:
    skipped = (
        NotStarted("node-2", "its Node was deleted", ExclusionReason.DELETING, Phase.DRAINING),
    )
    text = "\n".join(lines_of(RunResult((), skipped=skipped)))
    assert "node-2  its Node was deleted" in text
    assert "not started" not in text


def stopped_in_drain(*, left_cordoned: bool = False) -> RunResult:
    message = "not rebooted: stopped on request"
    aborted = NodeResult("node-2", Outcome.ABORTED, Phase.DRAINING, 30.0, message)
    ledger = Ledger()
    ledger.add(DONE)
    ledger.add(replace(aborted, left_cordoned=left_cordoned))
    ledger.add_not_started([planned("node-3")], StopRequested())
    return RunResult(tuple(ledger.finished), not_started=tuple(ledger.not_started))


@pytest.mark.parametrize(("left_cordoned", "end"), [(False, "returned"), (True, "left cordoned")])
def test_a_node_that_a_stop_ends_in_mid_drain_is_not_called_not_started(
    end: str, *, left_cordoned: bool
) -> None:
    result = stopped_in_drain(left_cordoned=left_cordoned)
    assert lines_of(result)[1:] == [
        f"· node-2  {end} in phase draining: not rebooted: stopped on request",
        "· node-3  not started: stopped on request",
        "Next:",
        "    rollout resume",
    ]
    assert result_counts(result) == "1 node succeeded, 1 was aborted, 1 was not started"


def test_the_json_summary_tells_an_aborted_node_by_its_kind() -> None:
    summary = event_line(RunFinished(AT, stopped_in_drain()))
    assert isinstance(summary, SummaryLine)
    assert summary.not_started == ["node-2", "node-3"]
    assert summary.kinds == {"node-2": "aborted", "node-3": "stopped"}


def test_the_retry_of_a_drain_has_the_timeout_that_its_pods_need() -> None:
    short = replace(STUCK, node="node-2", needed_drain_seconds=40)
    long = replace(STUCK, node="node-3", needed_drain_seconds=3610)
    lines = lines_of(RunResult((STUCK, short, long)))
    assert "    rollout resume --retry-failed --drain-timeout 1h10s" in lines


def test_a_paused_node_of_a_saved_plan_is_skipped_and_not_counted() -> None:
    paused = NotStarted("node-2", "paused by ops", ExclusionReason.PAUSED)
    assert lines_of(RunResult((DONE,), skipped=(paused,))) == [
        "1 of 1 node done in 24m10s, on 4081.2.1; left out: 1 paused.",
        "· node-2  skipped: paused by ops",
    ]


def test_a_run_that_owes_nothing_is_one_line() -> None:
    others = tuple(replace(DONE, node=f"node-{number}") for number in range(2, 13))
    assert lines_of(RunResult((DONE, *others))) == ["12 of 12 nodes done in 24m10s, on 4081.2.1."]
    assert lines_of(RunResult((DONE,), excluded=(PAUSED, IDLE))) == [
        "1 of 1 node done in 24m10s, on 4081.2.1; left out: 1 no-update, 1 paused."
    ]


def test_each_node_that_is_not_done_has_its_cause_and_its_fix_and_last_stands_what_to_do() -> None:
    rolled_back = replace(
        ROLLED_BACK, node="worker-2", fixes=("journalctl -u update-engine on the host",)
    )
    seen = NodeDiagnosis("refused", console="openstack console log show 1b2c")
    away = NodeResult(
        "node-3",
        Outcome.NOT_BACK,
        Phase.REBOOTING,
        9.0,
        "no \x1banswer",
        left_cordoned=True,
        diagnosis=seen,
        fixes=("its console",),
    )
    waiting = NotStarted("node-4", "1 node failed")
    assert lines_of(
        RunResult((DONE, rolled_back, away), not_started=(waiting,), excluded=(AWAY,))
    ) == [
        "1 of 5 nodes done in 24m10s, on 4081.2.1.",
        "✘ worker-2  the old version   → journalctl -u update-engine on the host",
        "✘ node-3    no \\x1banswer; it stays cordoned",
        "    → its console",
        "    openstack console log show 1b2c",
        "! node-7    unreachable: the connection was refused\\x1b[2J",
        "· node-4    not started: 1 node failed",
        "Next:",
        "    rollout doctor",
        "After fixing worker-2, node-3:",
        "    rollout resume --retry-failed",
        "To continue without worker-2, node-3:",
        "    rollout resume",
    ]


@pytest.mark.parametrize("unattended", [False, True])
def test_beside_its_rows_an_end_has_at_most_nine_lines(*, unattended: bool) -> None:
    """Where everything has gone wrong at once, on a narrow terminal."""
    failed = tuple(
        replace(ROLLED_BACK, node=f"node-{number}", message="old") for number in range(30)
    )
    rest = ((NotStarted("node-91", "stopped"),), (AWAY, HELD, PAUSED))
    result = RunResult(failed, (), *rest, held=("4.1",), newly_held=("4.1",), left_over=("n",))
    told = summary_text(result, took=1450, width=60, unattended=unattended).splitlines()
    first, *_, last = (number for number, line in enumerate(told) if line[0] in "✘!·")
    after = [*dropwhile(lambda line: line.startswith("    "), told[last + 1 :])]
    assert first + len(after) <= 9


def test_nodes_that_are_left_out_for_one_cause_are_named_together() -> None:
    held = tuple(replace(HELD, node=f"node-{number}") for number in range(7))
    assert lines_of(RunResult((), excluded=(AWAY, replace(AWAY, node="node-8"), *held)), None)[
        1:3
    ] == [
        "! node-7, node-8  unreachable: the connection was refused\\x1b[2J",
        f"! node-0, node-1, node-2, node-3, node-4 and 2 more  version-held: {HELD.message}",
    ]


@pytest.mark.parametrize(
    ("result", "step"),
    [
        (RunResult((DONE,)), ""),
        (RunResult((DONE,), not_started=(REST,)), "rollout resume"),
        (
            RunResult(
                (DONE,), failed_before=(NotDone("node-2", Outcome.DRAIN_FAILED, "failed before"),)
            ),
            "After fixing node-2: rollout resume --retry-failed",
        ),
        (
            RunResult((replace(STUCK, hint="Delete all but one of the budgets."),)),
            "After fixing node-1: rollout resume --retry-failed",
        ),
        (RunResult((ROLLED_BACK,)), "After fixing node-1: rollout resume --retry-failed"),
        (
            RunResult((DONE, ROLLED_BACK), newly_held=("4.1",)),
            "Version 4.1 is held. After fixing node-1: rollout resume --retry-failed",
        ),
        (
            RunResult((DONE,), not_started=(REST,), excluded=(AWAY,)),
            "See: rollout doctor; after fixing the cause: rollout resume",
        ),
        (
            RunResult(
                (NodeResult("node-1", Outcome.FENCED, Phase.DRAINING, 3.0, "the lock was lost"),)
            ),
            "See: rollout status --run; then: rollout resume",
        ),
        (
            RunResult((MARKED_BY_OTHER,), not_started=(REST,)),
            "See: rollout status --run; after the other rollout has ended: rollout resume",
        ),
        (
            RunResult((MARKED_BY_OTHER, replace(MARKED_BY_OTHER, finding=None))),
            "See: rollout status --run; then: rollout resume",
        ),
        (
            RunResult((DONE,), not_started=(REST,), held=("4.1",)),
            (
                "See: rollout status; after fixing the cause: rollout release 4.1; then: rollout"
                " resume"
            ),
        ),
        (
            RunResult((DONE,), excluded=(HELD, AWAY)),
            "See: rollout doctor; after fixing the cause: rollout release 4.2; then: rollout apply",
        ),
        (
            RunResult((), excluded=(HELD,), left_over=("node-6",)),
            (
                "See: rollout status; after fixing the cause: rollout release 4.2; then: rollout"
                " resume"
            ),
        ),
        (
            RunResult((DONE,), excluded=(AWAY,), left_over=("node-2",)),
            "See: rollout doctor; after fixing the cause: rollout resume",
        ),
        (
            RunResult((DONE,), excluded=(PAUSED,), left_over=("node-3",)),
            (
                "The rollout has ended. 1 node could not be rebooted now. To try again later: rollout apply"
            ),
        ),
    ],
)
def test_every_ending_names_the_next_step(result: RunResult, step: str) -> None:
    assert next_step(result, unattended=False) == step


@pytest.mark.parametrize(
    ("result", "step"),
    [
        (RunResult((DONE,), not_started=(REST,)), "The next pass reboots the remaining nodes."),
        (
            RunResult((ROLLED_BACK,), not_started=(NotStarted("node-2", "1 failed"),)),
            (
                "See: rollout status --run; the next pass reboots the remaining nodes, except"
                " those with held versions."
            ),
        ),
        (RunResult((), excluded=(HELD,)), "After fixing the cause: rollout release 4.2"),
        (
            RunResult((), excluded=(HELD, AWAY)),
            "See: rollout doctor; after fixing the cause: rollout release 4.2",
        ),
    ],
)
def test_nobody_is_told_that_a_pass_takes_what_it_will_not(result: RunResult, step: str) -> None:
    assert next_step(result, unattended=True) == step


def test_a_rehearsal_ends_with_what_the_run_would_leave() -> None:
    assert rehearsal_ending(RunResult(()), width=None) == ""
    assert rehearsal_ending(RunResult((), excluded=(AWAY, PAUSED)), width=None).splitlines() == [
        "Requested nodes: 1 cannot be rebooted (1 unreachable); left out: 1 paused.",
        "! node-7  unreachable: the connection was refused\\x1b[2J",
        "Next:",
        "    rollout doctor",
    ]


def test_two_hundred_nodes_fit_a_screen_failures_first() -> None:
    names = [f"worker-{number}" for number in range(1, 201)]
    done = tuple(
        NodeResult(name, Outcome.SUCCEEDED, Phase.DONE, 40, version="4081.2.1")
        for name in names[:96]
    )
    failed = tuple(
        replace(STUCK, node=name, hint="Delete one of the budgets.") for name in names[96:130]
    )
    rest = tuple(NotStarted(name, "1 node failed") for name in names[130:])
    result = RunResult((*done, *failed), (), rest)
    lines = lines_of(result, 80)
    assert lines[:2] == [
        "96 of 200 nodes done in 24m10s, on 4081.2.1.",
        "✘ worker-97       1 pod left   → Delete one of the budgets.",
    ]
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 80
    assert lines[-6:] == [
        "✘ 16 other nodes  failed too   → rollout history",
        "· worker-131, worker-132, worker-133 and 67 more  not started: 1 node failed",
        "After fixing worker-97, worker-98 and 32 more:",
        "    rollout resume --retry-failed",
        "To continue without worker-97, worker-98 and 32 more:",
        "    rollout resume",
    ]
    assert "worker-200" in lines_of(result, None)[-5]


def test_going_on_without_a_failed_node_releases_its_version_first() -> None:
    result = RunResult((DONE, ROLLED_BACK), not_started=(REST,), held=("4.1",), newly_held=("4.1",))
    assert lines_of(result)[-6:] == [
        "After fixing node-1:",
        "    rollout release 4.1",
        "    rollout resume --retry-failed",
        "To continue without node-1:",
        "    rollout release 4.1",
        "    rollout resume",
    ]


# What resume and abort say that they are about to do, in a small fleet and in a large one.


NOBODY = LockSnapshot()


def left_by(*counts: int) -> Unfinished:
    """So many nodes in each of two phases."""
    phases = (Phase.DRAINING, Phase.REBOOTING)
    begun = tuple(
        MarkedNode(planned(f"{phase}-{number}"), phase, "this", is_cordoned_now=False)
        for phase, count in zip(phases, counts, strict=True)
        for number in range(count)
    )
    return Unfinished(StoredRecord("this", "", "", ended=False, plan=None), begun)


@pytest.mark.parametrize(("count", "lines"), [(1, 1), (5, 5), (6, 1), (600, 1)])
def test_many_nodes_of_which_the_same_is_said_have_one_line(count: int, lines: int) -> None:
    unfinished = left_by(1, count)
    for text in (
        abort_preview(unfinished, NOBODY, ready_timeout=120),
        resume_preview(unfinished, NOBODY, (), Inheritance(), retry=False),
    ):
        assert sum("rebooting-" in line for line in text.splitlines()) == lines
        assert sum("draining-0: " in line for line in text.splitlines()) == 1
        assert (f"  {count} nodes, rebooting-0, rebooting-1, " in text) is (count > 5)
        assert ("and 595 more: rebooting" in text) is (count == 600)
