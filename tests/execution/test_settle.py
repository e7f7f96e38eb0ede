"""Settling: so many good looks in a row."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from rollout.adapters.clock import SystemClock
from rollout.execution.base.deadline import Deadline
from rollout.execution.base.patience import PatientApi
from rollout.execution.base.reporting import OutageNotice, Reporter
from rollout.execution.base.stop import StopRequest
from rollout.execution.record.stored import Health
from rollout.execution.rollout.settle import Look, Settler
from rollout.lab.api.resources import NODES, REPLICASETS, Resource
from rollout.model.gates import GatePolicy
from rollout.model.policy import Policy
from rollout.model.progress import StepEvent, WaveSettling
from rollout.model.quantity import Duration
from rollout.ports import ClusterApi
from tests.execution.conftest import Recorder
from tests.execution.drains import add_node, add_pod, change, owner, put
from tests.standalone_api import StandaloneApi


class Silent:
    def notify(self, event: StepEvent) -> None:
        pass


class Looks(Settler):
    """Counts the looks, and finds the given ones bad."""

    bad: frozenset[int] = frozenset()
    looks = 0

    def look(self, deadline: Deadline | None = None) -> Look:
        Looks.looks += 1
        unready = {"n-1"} if Looks.looks in Looks.bad else set()
        return Look(frozenset(unready), lambda _node: Counter(), lambda was: was)


@pytest.mark.parametrize(("checks", "bad", "looks"), [(1, (), 1), (2, (), 2), (3, (), 3), (3, (1, 3), 6)])
def test_good_looks_have_to_follow_one_another(checks: int, bad: tuple[int, ...], looks: int) -> None:
    clock = SystemClock()
    report = Reporter(Silent(), clock)
    policy = Policy(settle_timeout=Duration(30), gates=replace(GatePolicy(), health_checks=checks))
    Looks.looks, Looks.bad = 0, frozenset(bad)
    settler = Looks(PatientApi(None, clock), report, policy)  # type: ignore[arg-type]
    assert settler.wait(Health({}, frozenset({"n-1"})), 1, frozenset(), StopRequest()) == ""
    assert Looks.looks == looks


# What a settled cluster is measured by: what was well before, and nothing that was not.


def settler(api: ClusterApi, clock: SystemClock, recorder: Recorder) -> Settler:
    report = Reporter(recorder, clock)
    policy = Policy(settle_timeout=Duration(0.2), gates=GatePolicy(health_checks=1))
    return Settler(PatientApi(api, clock, OutageNotice(report), 5.0), report, policy)


def add_replicas(server: StandaloneApi, name: str, *, desired: int, ready: int) -> None:
    """A ReplicaSet with a pod on the node n1."""
    labels = {"matchLabels": {"app": name}}
    spec = {"replicas": desired, "selector": labels, "template": {"metadata": {"labels": {"app": name}}}}
    made = put(server, REPLICASETS, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})
    change(server, REPLICASETS, name, "default", status={"replicas": desired, "readyReplicas": ready})
    owned = {**owner("ReplicaSet", name), "uid": made["metadata"]["uid"]}
    add_pod(server, "n1", f"{name}-1", owned=owned)


Meanwhile = Callable[[StandaloneApi], None]


def ready_pods(number: int, desired: int = 3) -> Meanwhile:
    return lambda server: change(
        server, REPLICASETS, "web", "default", spec={"replicas": desired}, status={"readyReplicas": number}
    )


def readiness(node: str, *, ready: bool) -> Meanwhile:
    return lambda server: change(server, NODES, node, status={"conditions": [{"type": "Ready", "status": str(ready)}]})


def gone(resource: Resource, name: str, namespace: str = "") -> Meanwhile:
    def remove(server: StandaloneApi) -> None:
        server.call(lambda: server.store.remove(resource, name, namespace))

    return remove


@pytest.mark.in_memory
@pytest.mark.parametrize(
    ("before", "meanwhile", "missing"),
    [
        (3, ready_pods(3), ""),
        (3, ready_pods(2), "replicaset/default/web has 2 of 3 pods ready"),
        (3, ready_pods(0), "replicaset/default/web has 0 of 3 pods ready"),
        (1, ready_pods(1), ""),
        (1, ready_pods(0), "replicaset/default/web has 0 of 1 pods ready"),
        (0, ready_pods(0), ""),
        (3, ready_pods(2, desired=2), ""),
        (3, ready_pods(0, desired=0), ""),
        (3, gone(REPLICASETS, "web", "default"), ""),
        (3, readiness("n2", ready=False), "node n2 is no longer Ready"),
        (3, readiness("n3", ready=False), ""),
        (3, readiness("n4", ready=False), ""),
        (3, gone(NODES, "n2"), ""),
    ],
)
def test_only_what_was_well_before_is_waited_for(
    before: int, meanwhile: Meanwhile, missing: str, server: StandaloneApi, api: ClusterApi, recorder: Recorder
) -> None:
    """n3 was not Ready before; n4 is one of those that failed, and expected to be away."""
    for name in ("n1", "n2", "n4"):
        add_node(server, name)
    add_node(server, "n3", ready=False)
    add_replicas(server, "web", desired=3, ready=before)
    measure = settler(api, SystemClock(), recorder)
    health = measure.baseline(["n1"])
    meanwhile(server)
    assert measure.wait(health, 1, frozenset({"n4"}), StopRequest()) == missing
    told = [event.waiting_for for event in recorder.events if isinstance(event, WaveSettling)]
    assert told == ([missing] if missing else [])
