"""Which events of a run are worth a notification, and in which words."""

from datetime import timedelta

import pytest
from msgspec.structs import replace
from msgspec.structs import replace as replace_struct

from rollout.errors import BlockedError, InterruptedRunError
from rollout.model.notification import Level, Note, RolloutState, render_note
from rollout.model.plan import ExclusionReason
from rollout.model.progress import (
    NodeFinished,
    NodeRescued,
    NodeResult,
    NotDone,
    NotStarted,
    Outcome,
    Phase,
    PodBlocked,
    RunFinished,
    RunResult,
    StepEvent,
    WaveStarted,
)
from rollout.report.notifications import NoteMaker
from tests.report.builders import AT, plan


def ended(name: str, outcome: Outcome = Outcome.SUCCEEDED) -> NodeFinished:
    message = "" if outcome is Outcome.SUCCEEDED else "it went wrong"
    return NodeFinished.of(AT, NodeResult(name, outcome, Phase.DONE, 9.0, message))


def wave(index: int, *nodes: str, in_flight: int | None = None) -> WaveStarted:
    return WaveStarted(AT, index, 2, nodes, "full wave", in_flight)


def blocked(pod: str, seconds: float, *budgets: str, node: str = "node-1") -> PodBlocked:
    return PodBlocked(
        AT,
        node,
        pod,
        ", ".join(budgets),
        AT - timedelta(seconds=seconds),
        "not now",
        100.0,
        2,
        2,
        "ReplicaSet/cart",
        budgets=budgets,
    )


def notes(*events: StepEvent, held_after: float = 600.0, stopped: bool = False) -> list[Note]:
    note_maker = NoteMaker(plan(), "prod", held_after)
    return [note for event in events for note in note_maker.notes_of(event, stopped=stopped)]


@pytest.mark.parametrize("outcome", [Outcome.SKIPPED, Outcome.ABORTED])
def test_a_node_that_was_not_touched_or_given_back_on_request_has_not_failed(
    outcome: Outcome,
) -> None:
    (note,) = notes(wave(1, "node-1"), ended("node-1", outcome))
    assert note.title == "wave 1 of 2: 1 node finished"
    assert note.level == Level.INFO


def test_what_one_webhook_denies_on_a_node_is_one_notification() -> None:
    held = [
        replace_struct(blocked(pod, 700), webhook="guard.example.com")
        for pod in ("shop/a", "shop/b")
    ]
    (note,) = notes(*held)
    assert "has been blocked by admission webhook guard.example.com" in note.title


@pytest.mark.parametrize(
    ("budgets", "command"),
    [
        (["shop/cart"], "kubectl describe pdb -n shop cart"),
        (["shop/cart", "shop/all"], "kubectl describe pod -n shop cart-1"),
        ([], "kubectl describe pod -n shop cart-1"),
    ],
)
def test_a_hold_names_the_command_that_shows_its_reason(budgets: list[str], command: str) -> None:
    (note,) = notes(blocked("shop/cart-1", 600, *budgets))
    assert note.next == command


@pytest.mark.parametrize(
    ("problem", "title", "body"),
    [
        (
            "",
            "node-1 did not come back: reboot.rescue succeeded",
            "reboot.rescue succeeded: power is on.",
        ),
        (
            "it exited with 3",
            "node-1 did not come back: reboot.rescue failed",
            "it exited with 3: power is on.",
        ),
    ],
)
def test_a_rescue_is_told_with_its_result(problem: str, title: str, body: str) -> None:
    (note,) = notes(NodeRescued(AT, "node-1", problem, ("power is on",)))
    assert (note.event, note.level, note.node) == ("rescued", Level.WARNING, "node-1")
    assert note.title == title
    assert note.body.splitlines() == [body, "rollout waits for the host again."]


FAILED = NodeResult("node-1", Outcome.NOT_BACK, Phase.REBOOTING, 9.0, "no response")
GOOD = NodeResult("node-2", Outcome.SUCCEEDED, Phase.DONE, 9.0)
LEFT = NotStarted("node-3", "stopped on request")


@pytest.mark.parametrize(
    ("result", "stopped", "state", "level", "next_command"),
    [
        (RunResult((GOOD,)), False, RolloutState.COMPLETED, Level.SUCCESS, ""),
        # asked for when all was done already
        (RunResult((GOOD,)), True, RolloutState.COMPLETED, Level.SUCCESS, ""),
        (
            RunResult((FAILED,)),
            False,
            RolloutState.FAILED,
            Level.FAILURE,
            "After fixing node-1: rollout resume --retry-failed",
        ),
        (
            RunResult((FAILED,), not_started=(LEFT,)),
            True,
            RolloutState.FAILED,
            Level.FAILURE,
            "After fixing node-1: rollout resume --retry-failed",
        ),
        (
            RunResult((GOOD,), not_started=(LEFT,)),
            True,
            RolloutState.INTERRUPTED,
            Level.WARNING,
            "rollout resume",
        ),
        (
            RunResult((GOOD,), not_started=(LEFT,)),
            False,
            RolloutState.FAILED,
            Level.FAILURE,
            "rollout resume",
        ),
        (
            RunResult((), failed_before=(NotDone("node-1", ExclusionReason.UNREACHABLE, "gone"),)),
            False,
            RolloutState.FAILED,
            Level.FAILURE,
            "After fixing node-1: rollout resume --retry-failed",
        ),
    ],
)
def test_how_it_ended(
    result: RunResult,
    stopped: bool,  # noqa: FBT001 - as pytest hands it over
    state: RolloutState,
    level: Level,
    next_command: str,
) -> None:
    (note,) = notes(RunFinished(AT, result), stopped=stopped)
    assert note.state == state
    assert note.level == level
    assert note.next == next_command


def test_a_run_that_an_error_ends_has_an_end_all_the_same_and_only_one() -> None:
    note_maker = NoteMaker(plan(), "prod", 600.0)
    (note,) = note_maker.notes_of_error(BlockedError("locked by another"), AT)
    assert note.state == RolloutState.FAILED
    assert note.body == "locked by another."
    assert list(note_maker.notes_of_error(BlockedError("again"), AT)) == []
    (stopped,) = NoteMaker(plan(), "prod", 600.0).notes_of_error(InterruptedRunError("stopped"), AT)
    assert stopped.state == RolloutState.INTERRUPTED
    over = NoteMaker(plan(), "prod", 600.0)
    assert len(list(over.notes_of(RunFinished(AT, RunResult(()))))) == 1
    assert list(over.notes_of_error(OSError("later"), AT)) == []


def test_text_of_others_is_made_safe_in_bodies() -> None:
    failed = NodeFinished.of(AT, replace(FAILED, message="\x1b[2Jgone\nfor good"))
    (note,) = notes(failed)
    assert "\x1b" not in render_note(note).body
