"""A rollout told from what the cluster shows: marks, results, Events. No wire: looks are values."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from rollout.execution.drain.blocked import Reason
from rollout.execution.events.blocked import Hold, hold_told
from rollout.execution.events.phases import failure_told
from rollout.execution.rollout.account import Account, Look
from rollout.gather.cluster.node_events import NodeEvent
from rollout.model import marks
from rollout.model.cluster import Node, ReadyState, Resources
from rollout.model.progress import (
    NodeFinished,
    NodeStep,
    Outcome,
    Phase,
    PlanReady,
    PodBlocked,
    PodReleased,
    StepEvent,
    WaveStarted,
)
from tests.report.builders import AT, plan

RUN = "0123456789abcdef"
HELD = "Pod shop/cart-0 is held back by shop/cart, which needs 2 healthy pods and has 2"
OVER = HELD.replace("is held", "is no longer held")


def node(name: str, annotations: Mapping[str, str] | None = None, *, cordoned: bool = False) -> Node:
    return Node(
        name=name,
        uid=f"uid-{name}",
        resource_version="1",
        labels={},
        annotations=annotations or {},
        unschedulable=cordoned,
        ready=ReadyState.TRUE,
        ready_message="",
        taints=(),
        addresses=(),
        boot_id="b",
        machine_id="m",
        os_image="",
        kubelet_version="",
        allocatable=Resources(),
        deleting=False,
    )


def at_work(name: str, phase: str, run: str = RUN) -> Node:
    return node(name, {marks.RUN: run, marks.PHASE: phase, marks.BOOT_ID_BEFORE: "b"}, cordoned=True)


def ended(name: str, outcome: str, at: str = "2026-03-04T05:06:07Z", run: str = RUN) -> Node:
    written = f'{{"outcome":"{outcome}","at":"{at}","version":"4081.2.1","run":"{run}","took":"4m"}}'
    return node(name, {marks.LAST_RESULT: written})


def failed(name: str, outcome: str) -> Node:
    return node(name, {**ended(name, outcome).annotations, **at_work(name, "failed").annotations}, cordoned=True)


def told(name: str, reason: str, message: str, at: datetime = AT, uid: str = "") -> NodeEvent:
    return NodeEvent(uid or f"{name}/{reason}", RUN, name, reason, message, at)


class Told:
    """An account of the plan with three nodes in two waves, and what it tells of each look."""

    def __init__(self) -> None:
        self.events: list[StepEvent] = []
        self.account = Account(RUN, replace(plan(), plan_id=RUN), self.events.append)
        self.last = Look({}, (), AT)

    def look(
        self, *nodes: Node, events: tuple[NodeEvent, ...] = (), later: float = 0, last: bool = False
    ) -> list[StepEvent]:
        before = len(self.events)
        names = {name: node(name) for name in ("node-1", "node-2", "node-3")}
        self.last = Look({**names, **{one.name: one for one in nodes}}, events, AT + timedelta(seconds=later))
        self.account.look(self.last, last=last)
        return self.events[before:]


@pytest.fixture
def account() -> Told:
    return Told()


def test_each_thing_is_told_once(account: Told) -> None:
    account.account.begin(AT)
    assert [type(event) for event in account.events] == [PlanReady]
    first = account.look(at_work("node-1", "draining"))
    assert [type(event) for event in first] == [WaveStarted, NodeStep]
    assert account.look(at_work("node-1", "draining")) == []
    (step,) = account.look(at_work("node-1", "rebooting"))
    assert isinstance(step, NodeStep)
    assert step.phase is Phase.REBOOTING
    (end,) = account.look(ended("node-1", "succeeded"))
    assert isinstance(end, NodeFinished)
    assert (end.result.outcome, end.result.seconds, end.result.version) == (Outcome.SUCCEEDED, 240, "4081.2.1")
    assert account.look(ended("node-1", "succeeded")) == []


def test_what_is_another_runs_is_not_told(account: Told) -> None:
    another = "f" * 16
    assert account.look(ended("node-1", "succeeded", run=another), at_work("node-2", "draining", run=another)) == []


def test_a_phase_is_as_old_as_its_event(account: Told) -> None:
    events = (told("node-1", "Draining", "Evicting 5 pods", AT - timedelta(seconds=40)),)
    wave, step = account.look(at_work("node-1", "draining"), events=events)
    assert wave.at == step.at == AT - timedelta(seconds=40)


def test_a_failure_waits_for_the_event_that_explains_it(account: Told) -> None:
    gone = failed("node-1", "not-back")
    assert [type(event) for event in account.look(gone)] == [WaveStarted]
    why = "not-back in phase rebooting after 15m: no answer; it is left cordoned (rollout 0123456789abcdef)"
    (end,) = account.look(gone, events=(told("node-1", "RolloutFailed", why),))
    assert isinstance(end, NodeFinished)
    assert (end.result.phase, end.result.message, end.result.left_cordoned) == (Phase.REBOOTING, "no answer", True)


def test_a_failure_that_no_event_explains_is_told_all_the_same(account: Told) -> None:
    """Events may be forbidden to its process, or to whoever looks."""
    gone = failed("node-1", "not-back")
    account.look(gone)
    assert account.look(gone, later=4) == []
    (end,) = account.look(gone, later=6)
    assert isinstance(end, NodeFinished)
    assert end.result.outcome is Outcome.NOT_BACK
    assert [type(event) for event in Told().look(gone, last=True)] == [WaveStarted, NodeFinished]


def test_an_event_of_a_failure_before_explains_nothing(account: Told) -> None:
    old = told("node-1", "RolloutFailed", "drain-failed in phase draining after 1m: old", AT - timedelta(hours=1))
    assert [type(event) for event in account.look(ended("node-1", "drain-failed"), events=(old,))] == [WaveStarted]


def test_a_node_that_is_tried_again_ends_again(account: Told) -> None:
    account.look(ended("node-1", "drain-failed"), last=True)
    account.look(at_work("node-1", "draining"))
    (end,) = account.look(ended("node-1", "succeeded", at="2026-03-04T06:06:07Z"))
    assert isinstance(end, NodeFinished)
    assert [result.outcome for result in account.account.result(account.last).finished] == [Outcome.SUCCEEDED]


def test_holds_come_change_and_go(account: Told) -> None:
    draining = at_work("node-1", "draining")
    hold = told("node-1", "DrainBlocked", HELD, AT - timedelta(seconds=20), uid="e1")
    begun = told("node-1", "Draining", "Evicting 5 pods", AT - timedelta(seconds=30))
    *_, blocked = account.look(draining, events=(hold, begun))
    assert isinstance(blocked, PodBlocked)
    assert (blocked.pod, blocked.budget, blocked.needs, blocked.has) == ("shop/cart-0", "shop/cart", 2, 2)
    assert blocked.seconds_left == 600 - 30
    assert account.look(draining, events=(hold, begun)) == []
    over = replace(hold, message=OVER)
    (released,) = account.look(draining, events=(over, begun))
    assert isinstance(released, PodReleased)
    account.look(draining, events=(hold, begun))
    assert [type(event) for event in account.look(at_work("node-1", "drained"), events=(hold,))] == [
        PodReleased,
        NodeStep,
    ]


def test_the_result_has_each_planned_node_once(account: Told) -> None:
    account.look(ended("node-1", "succeeded"), ended("node-2", "aborted"), last=True)
    result = account.account.result(account.last)
    assert [node.node for node in result.succeeded] == ["node-1"]
    assert [(left.node, left.message) for left in result.not_started] == [
        ("node-2", "given back by rollout abort"),
        ("node-3", "its turn did not come"),
    ]


def test_a_node_that_was_skipped_is_known_by_its_event(account: Told) -> None:
    skipped = told("node-1", "Skipped", f"Not touched: it was cordoned (rollout {RUN})")
    (end,) = account.look(events=(skipped,))
    assert isinstance(end, NodeFinished)
    assert (end.result.outcome, end.result.message) == (Outcome.SKIPPED, "it was cordoned")


def test_times_to_come_are_now(account: Told) -> None:
    """The clock of whoever wrote them may be fast."""
    events = (told("node-1", "Draining", "Evicting", AT.astimezone(UTC) + timedelta(hours=2)),)
    *_, step = account.look(at_work("node-1", "draining"), events=events)
    assert step.at == AT


@pytest.mark.parametrize(
    ("reason", "hold"),
    [
        (
            Reason("shop/cart", "needs 2 healthy pods and has 2", (2, 2)),
            Hold("shop/cart-0", "shop/cart", "needs 2 healthy pods and has 2", 2, 2),
        ),
        (
            Reason("", "needs 2 healthy pods and has 1", (2, 1)),
            Hold("shop/cart-0", "", "needs 2 healthy pods and has 1", 2, 1),
        ),
        (Reason("a/b, a/c", "more than one budget"), Hold("shop/cart-0", "a/b, a/c", "more than one budget")),
        (Reason("", "a webhook: says no"), Hold("shop/cart-0", "", "a webhook: says no")),
    ],
)
def test_a_hold_is_read_as_it_was_written(reason: Reason, hold: Hold) -> None:
    assert hold_told(f"Pod shop/cart-0 is held back by {reason}") == hold


def test_what_is_no_hold_is_none() -> None:
    assert hold_told(OVER) is None
    assert hold_told("") is None


@pytest.mark.parametrize(
    ("message", "failure"),
    [
        ("not-ready in phase booted after 10m: it is: not Ready (rollout 0f)", (Phase.BOOTED, "it is: not Ready")),
        ("not-ready in phase booted after 1m: cut o", (Phase.BOOTED, "cut o")),
        ("not-ready in phase dancing after 1m: x", (Phase.FAILED, "not-ready in phase dancing after 1m: x")),
        ("whatever", (Phase.FAILED, "whatever")),
    ],
)
def test_a_failure_is_read_as_it_was_written(message: str, failure: tuple[Phase, str]) -> None:
    assert failure_told(message) == failure
