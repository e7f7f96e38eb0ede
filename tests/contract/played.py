"""Nodes without machines, played on any API server: simulated hosts that answer SSH, and their kubelets over HTTP.

With them a control plane alone, or a whole cluster, meets complete rollouts, and no machine
reboots. Everything has names and labels of its own; a taint keeps other pods off these Nodes.
"""

import asyncio
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import urllib3

from rollout.lab import credentials
from rollout.lab.api.resources import BUDGETS, PODS, Resource
from rollout.lab.clock import LabClock
from rollout.lab.fleet import Fleet
from rollout.lab.hostplan import plan_hosts
from rollout.lab.hosts.machine import HostEvent, HostTimings, Machine
from rollout.lab.hosts.ssh_server import USER
from rollout.lab.listener import bind_hosts
from rollout.lab.manifests import workload_objects
from rollout.lab.scenario import Scenario, ScenarioWorkload
from rollout.lab.simulation import LabFiles
from rollout.lab.world.host import (
    micro_time,
    new_node,
    registered_node,
    report_ready,
    start_pod,
    with_readiness,
)
from tests.contract.cluster import LABEL, Answer, Cluster, Json

SPEED = 60.0
_TICK = 0.1
_HEARTBEAT = 1.0
_REPORT = 20.0
_KUBELET_START = 0.3
_TERMINATION = 0.3
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_TAINT = {"key": LABEL, "effect": "NoSchedule"}
_TOLERATION = {"key": LABEL, "operator": "Exists", "effect": "NoSchedule"}


class Kubelet:
    """One Node's agent: told by its machine, driven by `tick`. Times are monotonic seconds."""

    def __init__(self, cluster: Cluster, machine: Machine) -> None:
        self.machine = machine
        self._cluster = cluster
        self._up_at: float | None = 0.0
        self._beat = self._reported = 0.0
        self._booted = True
        self._ending: dict[str, float] = {}
        # pods by uid; a boot starts them all again
        self._running: set[str] = set()

    def follow(self, event: HostEvent) -> None:
        """A kubelet runs from a boot until its host is off."""
        if event is HostEvent.DOWN:
            self._up_at = None
        elif event is HostEvent.UP:
            self._up_at = time.monotonic() + _KUBELET_START
            self._booted = True
            self._running.clear()

    def tick(self, pods: Sequence[Json]) -> None:
        """What a kubelet does now and then, as long as its host is up and it is not silenced."""
        now = time.monotonic()
        if self._up_at is None or now < self._up_at:
            return
        if (self._booted or now - self._reported > _REPORT) and self._report():
            self._reported = now
            self._booted = False
        if now - self._beat > _HEARTBEAT:
            self._renew()
            self._beat = now
        for pod in pods:
            self._sync(pod)

    def register(self) -> None:
        node = new_node(self.machine)
        node["spec"]["taints"] = [*node["spec"].get("taints", []), _TAINT]
        node["metadata"]["labels"] |= {LABEL: self._cluster.run}
        self._cluster.send("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", **node})

    def _report(self) -> bool:
        path = f"/api/v1/nodes/{self.machine.name}"
        found = self._cluster.get(path)
        if found.status == 404:
            self.register()
            found = self._cluster.get(path)
        seen = report_ready(
            registered_node(found.body, self.machine, self.machine.address),
            datetime.now(UTC),
            ready=True,
        )
        return self._cluster.send("PUT", f"{path}/status", seen).status == 200

    def _renew(self) -> None:
        name = self.machine.name
        spec = {
            "holderIdentity": name,
            "leaseDurationSeconds": 40,
            "renewTime": micro_time(datetime.now(UTC)),
        }
        if self._cluster.patch(f"{_LEASES}/{name}", {"spec": spec}).status == 404:
            self._cluster.send("POST", _LEASES, {"metadata": {"name": name}, "spec": spec})

    def _sync(self, pod: Json) -> None:
        where = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
        if "deletionTimestamp" in pod["metadata"]:
            if (
                time.monotonic() - self._ending.setdefault(pod["metadata"]["uid"], time.monotonic())
                < _TERMINATION
            ):
                return
            options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
            self._cluster.send("DELETE", where, options)
        elif pod["metadata"]["uid"] not in self._running:
            address = self.machine.address
            now = datetime.now(UTC)
            down = with_readiness(pod, now, ready=False)
            running = start_pod(down, now, address=address, ready=True, starting=timedelta())
            if self._cluster.send("PUT", f"{where}/status", running).status == 200:
                self._running.add(pod["metadata"]["uid"])


def _is_ready(pod: Json) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


class Played:
    """Nodes that are played, and what runs on them. `environment` are the variables for `rollout`."""

    def __init__(self, cluster: Cluster, scenario: Scenario, directory: Path) -> None:
        self.cluster = cluster
        self.files = LabFiles(directory)
        self.plans = plan_hosts(_own(scenario, cluster.run))
        self._workloads = [_workload(each, cluster.run) for each in scenario.workloads]
        self._loop = asyncio.new_event_loop()
        self._ended = threading.Event()
        self.kubelets: dict[str, Kubelet] = {}

    @property
    def environment(self) -> dict[str, str]:
        return {**self.files.variables(None), "KUBECONFIG": str(self.cluster.kubeconfig)}

    @property
    def reboots(self) -> dict[str, int]:
        return {name: kubelet.machine.reboots for name, kubelet in self.kubelets.items()}

    def reboot(self, name: str) -> None:
        """As somebody at its console does."""
        self._loop.call_soon_threadsafe(self.kubelets[name].machine.reboot)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Hosts that answer, Nodes that are Ready, and workloads that run."""
        fleet = self._begin()
        threads = [threading.Thread(target=each) for each in (self._loop.run_forever, self._play)]
        for thread in threads:
            thread.start()
        try:
            asyncio.run_coroutine_threadsafe(fleet.start(), self._loop).result(30)
            self._apply_workloads()
            yield
        finally:
            self._remove_workloads()
            self._ended.set()
            threads[1].join()
            asyncio.run_coroutine_threadsafe(fleet.close(), self._loop).result(30)
            self._loop.call_soon_threadsafe(self._loop.stop)
            threads[0].join()
            self._loop.close()
            self.cluster.clean_up()

    def _begin(self) -> Fleet:
        key = credentials.new_client_key()
        fleet = Fleet(
            self.plans,
            bind_hosts(len(self.plans)),
            clock=LabClock(SPEED),
            # Of its own: two labs of one seed have hosts of the same machine IDs.
            rng=random.Random(self.cluster.run),  # noqa: S311 - no secrets are drawn
            timings=HostTimings(),
            authorized=key,
        )
        credentials.write_client_key(self.files.key, key)
        credentials.write_known_hosts(self.files.known_hosts, fleet.inventory)
        credentials.write_inventory(
            self.files.inventory, fleet.inventory, user=USER, key=self.files.key
        )
        for plan in self.plans:
            kubelet = self.kubelets[plan.name] = Kubelet(self.cluster, fleet.machines[plan.name])
            kubelet.machine.observers.append(kubelet.follow)
            kubelet.register()
            self.cluster.remember(f"/api/v1/nodes/{plan.name}")
            self.cluster.remember(f"{_LEASES}/{plan.name}")
        return fleet

    def _play(self) -> None:
        while not self._ended.wait(_TICK):
            with suppress(urllib3.exceptions.HTTPError, OSError, KeyError):
                for name, kubelet in self.kubelets.items():
                    found = self.cluster.get("/api/v1/pods", fieldSelector=f"spec.nodeName={name}")
                    if found.status == 200:
                        kubelet.tick(found.body["items"])

    def _apply_workloads(self) -> None:
        """Apply what the scenario has, and wait until all of it runs."""
        for namespace in self.namespaces:
            self.cluster.namespace(namespace)
        uids = {
            name: self.cluster.get(f"/api/v1/nodes/{name}").body["metadata"]["uid"]
            for name in self.kubelets
        }
        for workload in self._workloads:
            for kind, obj in workload_objects(workload, self.plans, uids):
                self.cluster.make(self._collection(kind, workload.namespace), _tolerant(kind, obj))
        self.cluster.until(
            self.pods,
            lambda answer: bool(answer.body["items"]) and all(map(_is_ready, answer.body["items"])),
        )

    def _remove_workloads(self) -> None:
        """While there are kubelets still: nobody else lets pods go."""
        for namespace in self.namespaces:
            self.cluster.send("DELETE", f"/api/v1/namespaces/{namespace}")
        self.cluster.until(self.pods, lambda answer: not answer.body["items"])

    @property
    def namespaces(self) -> list[str]:
        return sorted({workload.namespace for workload in self._workloads})

    def pods(self) -> Answer:
        return self.cluster.get("/api/v1/pods", labelSelector=f"{LABEL}={self.cluster.run}")

    def _collection(self, kind: Resource, namespace: str) -> str:
        version = self.cluster.policy if kind is BUDGETS else kind.api_version
        return f"/apis/{version}/namespaces/{namespace}/{kind.plural}".replace(
            "/apis/v1/", "/api/v1/"
        )


def _own(scenario: Scenario, run: str) -> Scenario:
    groups = tuple(
        msgspec.structs.replace(
            group, prefix=f"{group.prefix}-{run}", labels={**group.labels, LABEL: run}
        )
        for group in scenario.nodes
    )
    return msgspec.structs.replace(scenario, nodes=groups)


def _workload(workload: ScenarioWorkload, run: str) -> ScenarioWorkload:
    return msgspec.structs.replace(
        workload,
        namespace=f"contract-{run}-{workload.namespace}",
        labels={**workload.labels, LABEL: run},
        node_selector={**workload.node_selector, LABEL: run},
    )


def _tolerant(kind: Resource, obj: Json) -> Json:
    pod = obj if kind is PODS else obj["spec"].get("template")
    if pod is not None:
        pod["spec"]["tolerations"] = [*pod["spec"].get("tolerations", []), _TOLERATION]
    return obj
