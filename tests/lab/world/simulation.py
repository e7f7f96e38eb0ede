"""A small cluster whose time stands still until a test moves it."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from typing_extensions import override

from rollout.lab.api.lifecycle import begin_deletion
from rollout.lab.api.resources import (
    BUDGETS,
    DAEMONSETS,
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    PODS,
    STATEFULSETS,
    Resource,
)
from rollout.lab.api.store import Json, ObjectStore, timestamp
from rollout.lab.clock import LabClock
from rollout.lab.hosts.machine import HostSettings, Machine
from rollout.lab.objects import is_daemon, is_ready, with_condition, with_spec
from rollout.lab.scoreboard import ScoreKeeper
from rollout.lab.world.agenda import Agenda
from rollout.lab.world.host import Timings
from rollout.lab.world.world import World

NAMESPACE = "apps"
NEW_IMAGE = "Flatcar Container Linux by Kinvolk 4152.2.0 (Oklo)"


class ManualClock(LabClock):
    """It stands still until it is moved; real and simulated seconds are the same."""

    def __init__(self) -> None:
        super().__init__()
        self.elapsed = 0.0

    @override
    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.elapsed)

    @override
    def monotonic(self) -> float:
        return self.elapsed


def advance(agenda: Agenda, clock: ManualClock, seconds: float) -> None:
    """Move the clock on, doing everything on its way at its time."""
    until = clock.elapsed + seconds
    agenda._run_all_ready()
    while agenda._timers and agenda._timers[0].due <= until:
        clock.elapsed = max(clock.elapsed, agenda._timers[0].due)
        agenda._run_timer()
        agenda._run_all_ready()
    clock.elapsed = max(clock.elapsed, until)


def machine(
    number: int, clock: LabClock, name: str = "", settings: HostSettings | None = None
) -> Machine:
    """A host that a test switches off and on."""
    address = f"127.0.1.{number}"
    return Machine(
        name or f"n{number}",
        address,
        settings or HostSettings(),
        clock=clock,
        rng=Random(number),  # noqa: S311
    )


class Simulation:
    """The parts of a simulated cluster, and the acts of its clients."""

    def __init__(self, nodes: int = 0, *, settings: HostSettings | None = None) -> None:
        self.clock = ManualClock()
        self.store = ObjectStore(now=self.clock.now)
        self.world = World(self.store, self.clock, timings=Timings())
        self.hosts: dict[str, Machine] = {}
        self.store.create(
            NAMESPACES, {"metadata": {"name": NAMESPACE}, "status": {"phase": "Active"}}
        )
        for index in range(1, nodes + 1):
            self.add_node(f"n{index}", settings)
        self.begin()

    def begin(self) -> None:
        """Settle, and count from here on."""
        self.world.fast_forward()
        self.keeper = ScoreKeeper(self.world)

    def add_node(self, name: str, settings: HostSettings | None = None) -> None:
        host = self.hosts[name] = machine(len(self.hosts) + 1, self.clock, name, settings)
        self.world.kubelets.add(host)

    def advance(self, seconds: float) -> None:
        self.world._begin()
        advance(self.world.agenda, self.clock, seconds)

    def seconds_until(
        self, holds: Callable[[], bool], *, limit: float = 600, step: float = 0.5
    ) -> float:
        """How long it takes until something holds."""
        began = self.clock.monotonic()
        while not holds():
            assert self.clock.monotonic() - began < limit, "it never happened"
            self.advance(step)
        return self.clock.monotonic() - began

    def create(self, resource: Resource, name: str, spec: Json, **metadata: Any) -> Json:
        namespace = {"namespace": NAMESPACE} if resource.namespaced else {}
        whole = {"name": name, "generation": 1, **namespace, **metadata}
        return self.store.create(resource, {"metadata": whole, "spec": spec})

    def deployment(self, name: str, replicas: int, **pod: Any) -> Json:
        return self.create(DEPLOYMENTS, name, workload(name, replicas=replicas, **pod))

    def stateful_set(self, name: str, replicas: int, **pod: Any) -> Json:
        return self.create(STATEFULSETS, name, workload(name, replicas=replicas, **pod))

    def daemon_set(self, name: str, **pod: Any) -> Json:
        return self.create(DAEMONSETS, name, workload(name, **pod))

    def budget(self, name: str, /, **limit: int | str) -> Json:
        return self.create(BUDGETS, name, {"selector": {"matchLabels": {"app": name}}, **limit})

    def pod(self, name: str, *, node: str = "", **metadata: Any) -> Json:
        """A pod of nobody."""
        spec: Json = {
            "containers": [{"name": "main", "image": "i"}],
            "terminationGracePeriodSeconds": 30,
        }
        return self.create(PODS, name, {**spec, "nodeName": node} if node else spec, **metadata)

    def get(self, resource: Resource, name: str) -> Json:
        found = self.store.get(resource, name, NAMESPACE if resource.namespaced else "")
        assert found is not None, f"no {name}"
        return found

    def has(self, resource: Resource, name: str) -> bool:
        return self.store.get(resource, name, NAMESPACE if resource.namespaced else "") is not None

    def node(self, name: str) -> Json:
        return self.get(NODES, name)

    def pods(self, app: str = "", node: str = "") -> list[Json]:
        return [
            pod
            for pod in self.store.items(PODS)
            if (not app or pod["metadata"].get("labels", {}).get("app") == app)
            and (not node or pod["spec"].get("nodeName") == node)
        ]

    def ready_pods(self, app: str) -> list[Json]:
        return [pod for pod in self.pods(app) if is_ready(pod)]

    def cordon(self, name: str, *, wanted: bool = True) -> None:
        self.store.put(NODES, with_spec(self.node(name), unschedulable=wanted))
        self.advance(0)

    def delete(self, resource: Resource, name: str, grace_seconds: int | None = None) -> None:
        begin_deletion(self.store, resource, self.get(resource, name), grace_seconds=grace_seconds)
        self.advance(0)

    def evict(self, name: str) -> None:
        """What the API does once an eviction is granted."""
        target = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
        marked = self.store.put(
            PODS, with_condition(self.get(PODS, name), target, self.clock.now())
        )
        begin_deletion(self.store, PODS, marked)
        self.advance(0)

    def grant(self, budget: str, pod: str) -> None:
        """What the API writes into a budget when it grants an eviction."""
        current = self.get(BUDGETS, budget)
        status = current["status"]
        allowed = status["disruptionsAllowed"] - 1
        disrupted = {pod: timestamp(self.clock.now())}
        fresh = {**status, "disruptionsAllowed": allowed, "disruptedPods": disrupted}
        self.store.put(BUDGETS, {**current, "status": fresh})

    def drain(self, name: str) -> None:
        """Evict all that is not a DaemonSet's, one after another, as a budget of one asks for."""
        for pod in self.pods(node=name):
            if not is_daemon(pod):
                self.evict(pod["metadata"]["name"])
                self.advance(8)

    def switch_off(self, name: str) -> None:
        self.hosts[name].cut_power()
        self.advance(0)

    def switch_on(self, name: str) -> None:
        self.hosts[name].power_on()
        self.advance(0)

    def is_ready(self, name: str) -> bool:
        return is_ready(self.node(name))


def workload(
    app: str,
    *,
    replicas: int | None = None,
    cpu: str = "",
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> Json:
    """The spec of a workload of small pods."""
    requests = {"requests": {"cpu": cpu}} if cpu else {}
    template: Json = {
        "metadata": {
            "labels": {"app": app},
            **({"annotations": annotations} if annotations else {}),
        },
        "spec": {"containers": [{"name": "main", "image": "i", "resources": requests}], **spec},
    }
    counted = {} if replicas is None else {"replicas": replicas}
    return {**counted, "selector": {"matchLabels": {"app": app}}, "template": template}


def names(objects: list[Json]) -> list[str]:
    """The names of objects, sorted."""
    return sorted(each["metadata"]["name"] for each in objects)
