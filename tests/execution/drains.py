"""Nodes with pods of every shape on an API server over the real wire, and drains of them: ours, and
kubectl's.
"""

import asyncio
import subprocess
import sysconfig
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rollout.adapters.clock import SystemClock
from rollout.execution.base.deadline import PatientApi
from rollout.execution.base.reporting import OutageNotice, Reporter
from rollout.execution.drain.task import NodeTask
from rollout.lab.api.lifecycle import with_defaults
from rollout.lab.api.requests import RequestRecord
from rollout.lab.api.resources import BUDGETS, DAEMONSETS, NODES, PODS, Resource
from rollout.lab.api.store import Change
from rollout.model.plan import PlannedNode
from rollout.model.policy import DrainPolicy, Policy
from rollout.ports import ClusterApi, Observer
from tests.execution.fake_cluster import FakeServer
from tests.standalone_api import StandaloneApi
from tests.waiting import wait_until

Json = dict[str, Any]
KUBECTL = str(Path(sysconfig.get_path("scripts")) / "kubectl")
NODE = "n1"


def unfenced() -> None:
    """Nothing stands in the way."""


class FasterClock(SystemClock):
    """Time that passes `speed` times as fast."""

    def __init__(self, speed: float) -> None:
        super().__init__(speedup=speed)
        self._speed, self._began = speed, super().monotonic()

    def monotonic(self) -> float:
        return (super().monotonic() - self._began) * self._speed


def task_of(
    node: str, api: ClusterApi, observer: Observer, drain: DrainPolicy, *, speed: float = 1.0
) -> NodeTask:
    """A node's drain, whose time passes `speed` times as fast: its patience and its deadline, not
    its connections'.
    """
    clock = FasterClock(speed)
    planned = PlannedNode(node, "b", f"uid-{node}", "1", "2", 0, 0)
    report = Reporter((observer,), clock)
    cluster = PatientApi(api, clock, OutageNotice(report))
    return NodeTask(planned, "run-1", cluster, unfenced, report, policy=Policy(drain=drain))


def remove_pod(server: StandaloneApi, name: str) -> None:
    """Somebody else has ended it."""
    server.call(lambda: server.store.remove(PODS, name, "default"))


def later(seconds: float, action: Callable[[], object]) -> threading.Timer:
    """Do it in real seconds, beside the test."""
    timer = threading.Timer(seconds, action)
    timer.start()
    return timer


def once(happened: Callable[[], bool], action: Callable[[], object]) -> threading.Thread:
    """Do it beside the test, when that has happened."""

    def wait_and_act() -> None:
        wait_until(happened)
        action()

    thread = threading.Thread(target=wait_and_act)
    thread.start()
    return thread


def end_pods_at_once(server: StandaloneApi, after: float = 0.02) -> None:
    """The least of a kubelet: a pod that is told to go is gone a moment later, unless a finalizer
    holds it.
    """

    def observe(change: Change) -> None:
        metadata = change.obj["metadata"]
        going = (
            change.resource is PODS
            and metadata.get("deletionTimestamp")
            and not metadata.get("finalizers")
        )
        if going and change.previous and not change.gone:
            later = (
                server.later
                if isinstance(server, FakeServer)
                else asyncio.get_running_loop().call_later
            )
            later(after, remove, metadata["name"], metadata["namespace"])

    def remove(name: str, namespace: str) -> None:
        if server.store.get(PODS, name, namespace) is not None:
            server.store.remove(PODS, name, namespace)

    server.call(lambda: server.store.subscribe(observe))


def put(server: StandaloneApi, resource: Resource, obj: Json) -> Json:
    created: Json = server.call(lambda: server.store.create(resource, with_defaults(resource, obj)))
    return created


def stored(server: StandaloneApi, resource: Resource, name: str, namespace: str = "") -> Json:
    """An object that is there."""
    found: Json | None = server.call(lambda: server.store.get(resource, name, namespace))
    assert found is not None
    return found


def change(
    server: StandaloneApi, resource: Resource, name: str, namespace: str = "", **parts: Json
) -> None:
    """Write these fields of its parts, as a controller does."""

    def write() -> None:
        found = server.store.get(resource, name, namespace)
        assert found is not None
        server.store.put(
            resource,
            {**found, **{part: {**found.get(part, {}), **new} for part, new in parts.items()}},
        )

    server.call(write)


def add_node(server: StandaloneApi, name: str, *, ready: bool = True) -> None:
    status = {
        "conditions": [
            {"type": "Ready", "status": str(ready), "message": "kubelet stopped posting"}
        ]
    }
    put(server, NODES, {"metadata": {"name": name, "uid": f"uid-{name}"}, "status": status})


def add_daemon_set(server: StandaloneApi, name: str) -> None:
    spec = {
        "selector": {"matchLabels": {"ds": name}},
        "template": {"metadata": {"labels": {"ds": name}}},
    }
    put(server, DAEMONSETS, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})


def owner(kind: str, name: str = "owner", api_version: str = "apps/v1") -> Json:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": name,
        "uid": f"u-{name}",
        "controller": True,
    }


def add_pod(
    server: StandaloneApi,
    node: str,
    name: str,
    *,
    owned: Json | None,
    phase: str = "Running",
    ready: bool = True,
    volumes: Sequence[Json] = (),
    metadata: Json | None = None,
    tolerations: Sequence[Json] = (),
    grace: int = 30,
) -> Json:
    meta: Json = {"name": name, "namespace": "default", "labels": {"app": name}, **(metadata or {})}
    if owned is not None:
        meta["ownerReferences"] = [owned]
    status = {"phase": phase, "conditions": [{"type": "Ready", "status": str(ready)}]}
    spec: Json = {
        "nodeName": node,
        "containers": [{"name": "c", "image": "i"}],
        "volumes": list(volumes),
    }
    spec["tolerations"] = list(tolerations)
    spec["terminationGracePeriodSeconds"] = grace
    return put(server, PODS, {"metadata": meta, "spec": spec, "status": status})


def fill(server: StandaloneApi, number: int, kind: str = "ReplicaSet") -> None:
    """Pods of one application on the node: `p0`, `p1` and so on."""
    for each in range(number):
        add_pod(server, NODE, f"p{each}", owned=owner(kind), metadata={"labels": {"app": "web"}})


def add_budget(
    server: StandaloneApi,
    name: str,
    *,
    allowed: int,
    needs: int = 1,
    has: int = 1,
    expected: int | None = None,
    app: str = "",
    spec: Json | None = None,
) -> None:
    """A budget as its controller has counted; by default it expects one pod more than it needs."""
    status = {
        "observedGeneration": 1,
        "desiredHealthy": needs,
        "currentHealthy": has,
        "disruptionsAllowed": allowed,
        "expectedPods": needs + 1 if expected is None else expected,
        "conditions": [],
    }
    demand = {
        "minAvailable": needs,
        "selector": {"matchLabels": {"app": app or name}},
        **(spec or {}),
    }
    metadata = {"name": name, "namespace": "default", "generation": 1}
    put(server, BUDGETS, {"metadata": metadata, "spec": demand, "status": status})


def allow(server: StandaloneApi, budget: str, allowed: int, *, has: int | None = None) -> None:
    """The budget's controller has counted anew."""
    figures = {"disruptionsAllowed": allowed, "observedGeneration": 1}
    figures |= {} if has is None else {"currentHealthy": has}
    change(server, BUDGETS, budget, "default", status=figures)


def pods_on(server: StandaloneApi, node: str) -> set[str]:
    found = server.call(lambda: list(server.store.items(PODS)))
    return {pod["metadata"]["name"] for pod in found if pod["spec"].get("nodeName") == node}


def ago(seconds: int) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def asked(server: StandaloneApi, verb: str, plural: str, name: str = "") -> list[RequestRecord]:
    return server.call(lambda: server.server.requests.asked(verb, plural, name))


def statuses(server: StandaloneApi, name: str = "") -> list[int]:
    """How the evictions were answered, in their order."""
    return [record.status for record in asked(server, "create", "pods/eviction", name)]


def requests(server: StandaloneApi) -> int:
    return server.call(lambda: len(server.server.requests))


def kubectl(server: StandaloneApi, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"KUBECONFIG": str(server.kubeconfig), "HOME": str(home), "PATH": ""}
    return subprocess.run(
        [KUBECTL, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
