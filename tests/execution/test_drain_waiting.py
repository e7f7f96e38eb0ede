"""Waiting for pods to go: other parties, pods that never end or that come back, and what is said at
the deadline.
"""

import re
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise

import pytest

from rollout.errors import DrainError
from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.model.progress import (
    EvictedPod,
    NodeStep,
    Notice,
    PodBlocked,
    PodReleased,
    PodsEvicted,
)
from rollout.model.quantity import Duration
from tests.execution.conftest import Drain, Recorder
from tests.execution.drains import (
    Json,
    add_budget,
    add_node,
    add_pod,
    allow,
    asked,
    later,
    once,
    owner,
    pods_on,
    remove_pod,
)
from tests.standalone_api import StandaloneApi
from tests.waiting import wait_until

pytestmark = [pytest.mark.in_memory, pytest.mark.usefixtures("kubelet")]

RS = owner("ReplicaSet")
HELD = {"finalizers": ["example.org/hold"]}
TOLERANT = (
    {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
)


def told(recorder: Recorder, kind: type[PodBlocked | PodReleased]) -> set[str]:
    """Of which pods it was."""
    return {event.pod for event in recorder.events if isinstance(event, kind)}


GOING = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30}


@pytest.mark.parametrize("metadata", [{}, GOING])
def test_what_another_party_removes_is_only_waited_for(
    metadata: Json, server: StandaloneApi, drained: Drain
) -> None:
    add_node(server, "n1")
    add_pod(server, "n1", "p", owned=RS, metadata=metadata)
    add_budget(server, "p", allowed=0)
    later(0.3, lambda: remove_pod(server, "p"))
    began = time.monotonic()
    drained(6000)
    assert time.monotonic() - began < 60
    assert asked(server, "create", "pods/eviction") == []


def test_a_finalizer_and_a_dead_kubelet_are_named_while_they_hold_and_at_the_deadline(
    server: StandaloneApi, drained: Drain, recorder: Recorder
) -> None:
    add_node(server, "n1", ready=False)
    add_pod(server, "n1", "p", owned=RS, metadata=HELD)
    with pytest.raises(
        DrainError, match=r"the Node is not Ready: kubelet stopped posting"
    ) as failed:
        drained(80, speed=50)
    assert re.search(
        r"default/p is still terminating after \w+, \w+ longer than its 30s grace period "
        r"\(finalizers: example.org/hold\)",
        failed.value.message,
    )
    assert failed.value.hint.startswith("See: kubectl get pod -n default p -o yaml; ")
    assert "finalizers (example.org/hold); until then, even --force" in failed.value.hint
    assert len(asked(server, "create", "pods/eviction")) == 1
    details = [event.detail for event in recorder.events if isinstance(event, NodeStep)]
    assert (
        details[-1]
        == "1 pod left, 1 terminating; overdue: default/p (finalizers: example.org/hold)"
    )


def test_the_failure_says_how_much_longer_a_pod_may_take_and_what_to_do(
    server: StandaloneApi, drained: Drain
) -> None:
    add_node(server, "n1")
    add_pod(server, "n1", "p", owned=RS, metadata=HELD, grace=3600)
    with pytest.raises(DrainError) as failed:
        drained(60, speed=50)
    said = re.search(
        r"after (\w+) and may take another (\w+) of its 1h grace period", failed.value.message
    )
    assert said, failed.value.message
    assert Duration.parse(said[1]) + Duration.parse(said[2]) == 3600
    assert (
        failed.value.hint
        == "Set --drain-timeout above 1h, or shorten the grace period with --grace-period"
    )
    # The rest of the grace period after the timeout of 60 s, and a margin.
    assert failed.value.needed_seconds == pytest.approx(60 + Duration.parse(said[2]) + 10, abs=2)


def test_what_somebody_else_deleted_is_measured_by_the_servers_clock(
    server: StandaloneApi, drained: Drain
) -> None:
    """The drain began long after the pod was deleted: only the API server knows when that was."""
    add_node(server, "n1")
    gone_in = datetime.now(UTC) + timedelta(seconds=5000)
    going = {"deletionTimestamp": gone_in.isoformat(), "deletionGracePeriodSeconds": 7200}
    add_pod(server, "n1", "p", owned=RS, metadata=HELD | going)
    with pytest.raises(DrainError) as failed:
        drained(20, speed=50)
    said = re.search(
        r"after (\w+) and may take another \w+ of its 2h grace period", failed.value.message
    )
    assert said, failed.value.message
    assert 2190 <= Duration.parse(said[1]) <= 2230


def test_an_accepted_eviction_that_deletes_nothing_is_told_as_such(
    server: StandaloneApi, drained: Drain, recorder: Recorder
) -> None:
    """Something between rollout and the API server answers, and passes nothing on."""
    add_node(server, "n1")
    add_pod(server, "n1", "p", owned=RS)
    success = '{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}'
    rule = ApiFault(answer=FaultAnswer.WRONG_KIND, resource="pods/eviction", body=success)
    server.call(lambda: server.server.faults.add(rule))
    with pytest.raises(DrainError) as failed:
        drained(80, speed=50)
    said = re.search(
        r"default/p was not deleted, although its eviction was accepted (\w+) ago",
        failed.value.message,
    )
    assert said, failed.value.message
    # since the first of several evictions
    assert Duration.parse(said[1]) > 60
    assert "terminating" not in failed.value.message
    assert failed.value.hint.endswith(
        "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations"
    )
    details = [event.detail for event in recorder.events if isinstance(event, NodeStep)]
    assert details[-1] == "1 pod left, 0 terminating; evicted but not deleted: default/p"


def evicted(recorder: Recorder) -> list[EvictedPod]:
    return [
        pod for event in recorder.events if isinstance(event, PodsEvicted) for pod in event.pods
    ]


def test_every_evicted_pod_is_told_with_its_owner_and_how_long_it_took(
    server: StandaloneApi, drained: Drain, recorder: Recorder
) -> None:
    add_node(server, "n1")
    for name in ("a", "b"):
        add_pod(server, "n1", name, owned=RS)
    drained()
    told_of = sorted(evicted(recorder), key=lambda pod: pod.pod)
    assert [pod.pod for pod in told_of] == ["default/a", "default/b"]
    assert {pod.owner.partition("/")[0] for pod in told_of} == {"ReplicaSet"}
    assert all(pod.seconds is not None for pod in told_of)


def test_a_pod_that_is_not_gone_when_the_drain_fails_is_told_as_evicted_too(
    server: StandaloneApi, drained: Drain, recorder: Recorder
) -> None:
    add_node(server, "n1")
    add_pod(server, "n1", "gone", owned=RS)
    add_pod(server, "n1", "stuck", owned=RS, metadata=HELD)
    with pytest.raises(DrainError):
        drained(20)
    assert {(pod.pod, pod.seconds is None) for pod in evicted(recorder)} == {
        ("default/gone", False),
        ("default/stuck", True),
    }


def test_a_pod_that_somebody_else_removes_was_not_evicted(
    server: StandaloneApi, drained: Drain, recorder: Recorder
) -> None:
    add_node(server, "n1")
    add_pod(server, "n1", "p", owned=RS, metadata=GOING)
    later(0.3, lambda: remove_pod(server, "p"))
    drained(6000)
    assert evicted(recorder) == []


def test_many_pods_are_told_in_few_events(
    server: StandaloneApi, drained: Drain, recorder: Recorder
) -> None:
    add_node(server, "n1")
    for number in range(60):
        add_pod(server, "n1", f"p{number}", owned=RS)
    drained(speed=1)
    assert len(evicted(recorder)) == 60
    assert sum(isinstance(event, PodsEvicted) for event in recorder.events) <= 10


def test_a_pod_that_must_not_go_comes_in_the_middle(
    server: StandaloneApi, drained: Drain, recorder: Recorder
) -> None:
    add_node(server, "n1")
    add_pod(server, "n1", "p", owned=RS)
    add_budget(server, "p", allowed=0)
    come = once(
        lambda: bool(told(recorder, PodBlocked)), lambda: add_pod(server, "n1", "naked", owned=None)
    )
    with pytest.raises(DrainError, match="some new pods must not be evicted: default/naked"):
        drained(400)
    come.join()


def test_a_stateful_pod_that_lives_elsewhere_by_now_is_never_chased(
    server: StandaloneApi, drained: Drain, recorder: Recorder
) -> None:
    """Held back here, then moved by somebody: its namesake on another node bears the same name and
    the same budget.
    """
    stateful = owner("StatefulSet")
    add_node(server, "n1")
    add_node(server, "n2")
    add_pod(server, "n1", "db-0", owned=stateful)
    add_pod(server, "n1", "db-1", owned=stateful, metadata={"labels": {"app": "db-0"}})
    add_budget(server, "db-0", allowed=0, needs=2, has=2)
    thread = threading.Thread(target=drained, args=(400,))
    thread.start()
    wait_until(lambda: told(recorder, PodBlocked) == {"default/db-0", "default/db-1"})
    remove_pod(server, "db-0")
    add_pod(server, "n2", "db-0", owned=stateful)
    # Of budgets the drain hears by a watch of their own, which may be ahead of that of pods.
    wait_until(lambda: told(recorder, PodReleased) == {"default/db-0"})
    allow(server, "db-0", 2)
    thread.join()
    assert [record.target.name for record in asked(server, "create", "pods/eviction")] == ["db-1"]
    assert pods_on(server, "n2") == {"db-0"}


def come_back(
    server: StandaloneApi,
    node: str,
    times: int,
    tolerations: tuple[Json, ...],
    only_while: Callable[[], bool] = lambda: True,
) -> threading.Thread:
    """A controller that puts its pod back on the node: `again-1` when `again-0` is gone, and so on."""

    def replace() -> None:
        for number in range(times):
            name = f"again-{number}"
            wait_until(lambda name=name: name not in pods_on(server, node) or not only_while())  # type: ignore[misc]
            if not only_while():
                return
            add_pod(server, node, f"again-{number + 1}", owned=RS, tolerations=tolerations)

    thread = threading.Thread(target=replace)
    thread.start()
    return thread


def test_a_pod_that_comes_back_again_and_again_is_left_to_the_reboot(
    server: StandaloneApi, drained: Drain, recorder: Recorder
) -> None:
    """For as long as there was hope: once where it tolerates cordons."""
    add_node(server, "n1")
    add_pod(server, "n1", "again-0", owned=RS, tolerations=TOLERANT)
    hold_drain(server)
    replaced = come_back(server, "n1", 2, TOLERANT)
    later(0.1, lambda: end_when_alone(server, "again-2"))
    context = drained(400)
    replaced.join()
    assert pods_on(server, "n1") == {"again-2"}
    names = [record.target.name for record in asked(server, "create", "pods/eviction")]
    assert names == ["again-0", "again-1"]
    told = [event.message for event in recorder.events if isinstance(event, Notice)]
    assert [
        message for message in told if "default/again-2 is not evicted again" in message
    ] == told
    assert len(told) == 1
    assert context.returning_owners == {"u-owner"}


def hold_drain(server: StandaloneApi) -> None:
    """For as long as a pod of another owner may not go."""
    add_pod(server, "n1", "other", owned=owner("ReplicaSet", "other"))
    add_budget(server, "other", allowed=0)


def end_when_alone(server: StandaloneApi, left: str) -> None:
    wait_until(lambda: pods_on(server, "n1") == {left, "other"})
    time.sleep(0.3)
    remove_pod(server, "other")


def end_after(replaced: threading.Thread, server: StandaloneApi, *, left: int = 0) -> None:
    """Once no pod comes back any more, and so many are left beside the one that holds the drain."""
    replaced.join()
    wait_until(lambda: len(pods_on(server, "n1")) == left + 1)
    remove_pod(server, "other")


def test_pods_that_a_blind_scheduler_puts_back_are_evicted_until_it_sees_the_cordon(
    server: StandaloneApi, drained: Drain, recorder: Recorder
) -> None:
    """As after an outage of the API server; the more have come back, the longer the next is left
    alone.
    """
    add_node(server, "n1")
    add_pod(server, "n1", "again-0", owned=RS)
    hold_drain(server)
    replaced = come_back(server, "n1", 5, ())
    later(0.0, partial(end_after, replaced, server))
    context = drained(400)
    assert pods_on(server, "n1") == set()
    evictions = [
        record
        for record in asked(server, "create", "pods/eviction")
        if record.target.name != "other"
    ]
    assert [record.target.name for record in evictions] == [
        f"again-{number}" for number in range(6)
    ]
    # twenty times as fast: 2, 4, 8 and 16 seconds
    pauses = [after.at - before.at for before, after in pairwise(evictions)]
    assert all(pause >= rest / 20 for pause, rest in zip(pauses[1:], (2, 4, 8, 16), strict=True))
    assert not [event for event in recorder.events if isinstance(event, Notice)]
    assert context.returning_owners == set()
