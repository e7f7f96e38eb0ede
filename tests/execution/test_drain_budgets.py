"""Budgets while a drain waits for them: closed, opened, lagging, made, deleted; who comes first,
and what is asked.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from rollout.errors import DrainError
from rollout.execution.drain.budget_view import BudgetView
from rollout.execution.drain.drain import drain
from rollout.execution.drain.task import DrainDemand, Precedence
from rollout.lab.api.access import Denial
from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.model.cluster import Budget
from rollout.model.policy import Critical, DrainPolicy
from rollout.model.progress import PodBlocked, PodReleased
from rollout.model.quantity import Duration
from rollout.ports import ClusterApi
from tests.execution.conftest import Drain, Draining, Recorder
from tests.execution.drains import (
    NODE,
    add_budget,
    add_node,
    add_pod,
    allow,
    asked,
    fill,
    owner,
    pods_on,
    remove_pod,
    statuses,
    task_of,
)
from tests.planning.builders import budget
from tests.standalone_api import StandaloneApi
from tests.waiting import wait_until

pytestmark = [pytest.mark.in_memory, pytest.mark.usefixtures("kubelet", "node")]
RS = owner("ReplicaSet")


def blocked(recorder: Recorder) -> list[PodBlocked]:
    return [event for event in recorder.events if isinstance(event, PodBlocked)]


def test_a_closed_budget_costs_no_requests_and_opens_at_once(
    server: StandaloneApi, draining: Draining, recorder: Recorder
) -> None:
    fill(server, 5)
    add_budget(server, "web", allowed=0, needs=4, has=4)
    thread = draining(speed=5)
    wait_until(lambda: len(blocked(recorder)) >= 5)
    assert statuses(server) == []
    told = blocked(recorder)
    assert {event.pod for event in told} == {f"default/p{number}" for number in range(5)}
    first = told[0]
    assert first.budget == "default/web"
    assert first.needs == 4
    assert first.has == 4
    assert first.owner == "ReplicaSet/owner"
    assert 0 < first.seconds_left < 300
    for number in range(1, 6):
        allow(server, "web", 1)
        wait_until(lambda number=number: len(statuses(server)) == number)  # type: ignore[misc]
    thread.join()
    assert statuses(server) == [201] * 5
    assert {event.pod for event in recorder.events if isinstance(event, PodReleased)} == {
        e.pod for e in told
    }


def test_the_most_constrained_budget_comes_first(server: StandaloneApi, drained: Drain) -> None:
    for number in range(20):
        add_pod(server, NODE, f"free-{number}", owned=RS)
    add_pod(server, NODE, "wide", owned=RS)
    add_pod(server, NODE, "z-tight", owned=RS)
    add_budget(server, "wide", allowed=5)
    add_budget(server, "z-tight", allowed=1)
    slow = ApiFault(answer=FaultAnswer.SLOW, resource="pods/eviction", delay=0.2)
    server.call(lambda: server.server.faults.add(slow))
    drained()
    log = sorted(asked(server, "create", "pods/eviction"), key=lambda record: record.at)
    # Eight are under way at once.
    assert {"z-tight", "wide"} <= {record.target.name for record in log[:8]}


def test_budgets_that_may_not_be_seen_are_asked_by_evictions(
    server: StandaloneApi, drained: Drain, recorder: Recorder
) -> None:
    add_pod(server, NODE, "p", owned=RS)
    add_budget(server, "p", allowed=0)
    for verb in ("list", "watch"):
        server.call(
            lambda verb=verb: server.server.access.denials.add(Denial(verb, "poddisruptionbudgets"))  # type: ignore[misc]
        )
    with pytest.raises(
        DrainError, match="default/p: blocked by default/p, which needs 1 healthy pods and has 1"
    ):
        drained(30)
    assert 2 <= len(statuses(server)) <= 6
    assert blocked(recorder)[0].needs == 1
    assert blocked(recorder)[0].budget == "default/p"


def test_two_budgets_are_known_before_any_pod_is_touched(
    server: StandaloneApi, drained: Drain
) -> None:
    add_pod(server, NODE, "p", owned=RS)
    add_pod(server, NODE, "other", owned=RS)
    add_budget(server, "one", allowed=1, app="p")
    add_budget(server, "two", allowed=1, app="p")
    with pytest.raises(
        DrainError, match=r"no pods were evicted.*more than one budget.*default/p \(one, two\)"
    ):
        drained()
    assert statuses(server) == []


def test_a_budget_is_made_in_the_middle(
    server: StandaloneApi, draining: Draining, recorder: Recorder
) -> None:
    """It holds back whoever was not asked for yet."""
    add_pod(server, NODE, "other", owned=RS)
    add_pod(server, NODE, "p", owned=RS)
    add_budget(server, "p", allowed=0, needs=2, has=2)
    thread = draining()
    wait_until(lambda: statuses(server) == [201])
    add_budget(server, "late", allowed=0)
    allow(server, "p", 0, has=1)
    # The drain hears of budgets in their order; of pods it hears by a watch of their own, which may
    # be ahead.
    wait_until(lambda: [event.has for event in blocked(recorder)][-1:] == [1])
    add_pod(server, NODE, "late", owned=RS)
    wait_until(lambda: {event.pod for event in blocked(recorder)} == {"default/p", "default/late"})
    assert statuses(server) == [201]
    for name in ("p", "late"):
        allow(server, name, 1)
    thread.join()
    assert statuses(server) == [201] * 3


@pytest.mark.parametrize(
    ("policy", "has", "goes"),
    [("AlwaysAllow", 0, True), ("IfHealthyBudget", 1, True), ("IfHealthyBudget", 0, False)],
)
def test_unready_pods_go_as_their_budget_says(
    policy: str, has: int, server: StandaloneApi, drained: Drain, *, goes: bool
) -> None:
    add_pod(server, NODE, "p", owned=RS, ready=False)
    add_budget(
        server, "p", allowed=0, needs=1, has=has, spec={"unhealthyPodEvictionPolicy": policy}
    )
    if goes:
        drained()
        assert statuses(server) == [201]
    else:
        with pytest.raises(DrainError, match="needs 1 healthy pods and has 0"):
            drained(10)
        assert statuses(server) == []


def test_a_pod_whose_budget_can_never_open_is_asked_for_once(
    server: StandaloneApi, drained: Drain, recorder: Recorder
) -> None:
    """Operators move their pods themselves when they see that an eviction was tried: their budgets
    allow none.
    """
    fill(server, 3)
    add_budget(server, "web", allowed=0, needs=3, has=3, expected=3)
    until_asked = threading.Thread(target=lambda: move_what_is_asked_for(server, 3))
    until_asked.start()
    drained(speed=1)
    until_asked.join()
    assert pods_on(server, NODE) == set()
    assert statuses(server) == [429] * 3
    assert {event.budget for event in blocked(recorder)} <= {"default/web"}


def move_what_is_asked_for(server: StandaloneApi, number: int) -> None:
    wait_until(lambda: len(statuses(server)) == number)
    for name in pods_on(server, NODE):
        remove_pod(server, name)


# Of several drains that want one budget's permits, the node that is nearest to being empty goes
# first.


def update(drains: Precedence, **standings: tuple[int, int]) -> None:
    for node, (left, wanted) in standings.items():
        drains.update(node, DrainDemand(left, {"shop/web": wanted}))


def test_a_drain_that_has_used_up_half_of_its_time_goes_before_those_that_have_not() -> None:
    drains = Precedence()
    update(drains, near=(1, 1))
    drains.update("late", DrainDemand(5, {"shop/web": 5}, is_urgent=True))
    assert drains.defer_to("late", "shop/web", 1, 0.0) == ""
    assert drains.defer_to("near", "shop/web", 1, 0.0) == "late"


@contextmanager
def drains(
    server: StandaloneApi,
    api: ClusterApi,
    recorder: Recorder,
    nodes: Mapping[str, int],
    policy: DrainPolicy = DrainPolicy(Duration(120)),
) -> Iterator[None]:
    """Drains of these nodes, with so many pods of one application each, side by side in one
    process.
    """
    precedence = Precedence()
    for node, number in nodes.items():
        add_node(server, node)
        for each in range(number):
            labels = {"labels": {"app": "web"}}
            add_pod(server, node, f"{node}-{each}", owned=owner("ReplicaSet"), metadata=labels)
    with ExitStack() as stack:
        for node in nodes:
            task = task_of(node, api, recorder, policy, speed=4)
            thread = threading.Thread(target=drain, args=(replace(task, precedence=precedence),))
            thread.start()
            stack.callback(thread.join, 30)
        yield


def waiting(recorder: Recorder) -> set[str]:
    return {event.node for event in list(recorder.events) if isinstance(event, PodBlocked)}


def test_a_permit_goes_to_the_node_that_it_empties_soonest(
    server: StandaloneApi, api: ClusterApi, recorder: Recorder
) -> None:
    add_budget(server, "web", allowed=0, needs=8, has=8)
    with drains(server, api, recorder, {"a-far": 4, "b-near": 1, "c-mid": 2}):
        wait_until(lambda: len(waiting(recorder)) == 3)
        for number in range(1, 8):
            allow(server, "web", 1)
            wait_until(lambda number=number: len(evicted(server)) == number)  # type: ignore[misc]
    assert [name.rpartition("-")[0] for name in evicted(server)] == [
        "b-near",
        *["c-mid"] * 2,
        *["a-far"] * 4,
    ]
    told = [event.message for event in recorder.events if isinstance(event, PodBlocked)]
    assert all(
        "needs 8 healthy pods" in message or "which is drained first" in message for message in told
    )


@pytest.mark.sample
def test_what_the_first_cannot_use_is_not_lost(
    server: StandaloneApi, api: ClusterApi, recorder: Recorder
) -> None:
    """The nearest node's pod is refused again and again: the other's goes all the same."""
    add_budget(server, "web", allowed=1, needs=8, has=9)
    rule = ApiFault(
        verb="create",
        resource="pods/eviction",
        name="b-near-0",
        answer=FaultAnswer.CONFLICT,
        requests=2,
    )
    server.call(lambda: server.server.faults.add(rule))
    with drains(server, api, recorder, {"a-far": 2, "b-near": 1}):
        wait_until(lambda: "a-far-0" in evicted(server) or "a-far-1" in evicted(server))
        allow(server, "web", 9)


def test_drains_side_by_side_keep_what_is_critical_together(
    server: StandaloneApi, api: ClusterApi, recorder: Recorder
) -> None:
    """No API server keeps the rule: each eviction of one drain counts for the others, seen yet or
    not.
    """
    policy = DrainPolicy(Duration(120), critical=(Critical("default", "app=web", 2),))
    with drains(server, api, recorder, {"a": 2, "b": 2, "c": 1}, policy):
        wait_until(
            lambda: len(evicted(server)) == 3 and {"critical/default/app=web"} == budgets(recorder)
        )
        add_pod(server, "d", "late-0", owned=None, metadata={"labels": {"app": "web"}}, ready=False)
        looks = len(asked(server, "list", "pods"))
        wait_until(lambda: len(asked(server, "list", "pods")) > looks + 2)
        assert len(evicted(server)) == 3
        for number in range(2):
            add_pod(server, "d", f"new-{number}", owned=None, metadata={"labels": {"app": "web"}})
            wait_until(lambda number=number: len(evicted(server)) == 4 + number)  # type: ignore[misc]


def budgets(recorder: Recorder) -> set[str]:
    return {event.budget for event in list(recorder.events) if isinstance(event, PodBlocked)}


def evicted(server: StandaloneApi) -> list[str]:
    return [
        each.target.name for each in asked(server, "create", "pods/eviction") if each.status == 201
    ]


@dataclass
class OneBudget:
    """A view of one budget that a test changes."""

    shown: Budget
    generation: int = 0

    def items(self) -> tuple[Budget, ...]:
        return (self.shown,)

    def show(self, shown: Budget) -> None:
        self.shown = shown
        self.generation += 1


def test_a_budget_that_opens_before_a_refusal_arrives_is_asked_again_at_once() -> None:
    before = budget("web", allowed=1, resource_version="1")
    view = OneBudget(before)
    seen_budgets = BudgetView(view)  # type: ignore[arg-type]
    seen_budgets.note_sent(before, 0.0)
    after = replace(before, resource_version="2")
    view.show(after)
    seen_budgets.refresh()
    seen_budgets.note_refused(after, 1.0, None)
    assert seen_budgets.allowance(after, 10.0) == 1
    seen_budgets.note_sent(after, 10.0)
    seen_budgets.note_refused(after, 11.0, None)
    assert seen_budgets.allowance(after, 20.0) == 0
