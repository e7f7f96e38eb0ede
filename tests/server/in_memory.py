"""Replicas of a server without their wire, on the lab's API server in memory."""

import json
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from rollout.adapters.clock import SystemClock
from rollout.errors import ApiUnavailableError
from rollout.execution import lease
from rollout.execution.base import deadline
from rollout.lab.api.resources import CONFIGMAPS, LEASES, NODES, PODS
from rollout.lab.api.store import Change
from rollout.model.fleetlock import GroupRules, Groups, zincati_id
from rollout.model.gates import GatePolicy
from rollout.model.policy import Policy, Selection
from rollout.model.quantity import Count, Duration
from rollout.planning.eligibility import memory
from rollout.server import admission, slot_requests, slot_steps, state, worker
from rollout.server.protocol import AnswerKind, HostRequest
from rollout.server.service import Service, running_service
from rollout.server.state import ServerContext, ServerSettings
from tests.execution.drains import Json, add_pod, change, end_pods_at_once, owner, put
from tests.execution.fake_cluster import FakeCluster, FakeServer
from tests.waiting import wait_until

SLOTS = 2
AWAY = 3
NAMES = ("a", "b", "c", "d")
GROUP = "default"
# All that waits, waits shortly: what is tried is the order of things.
QUICK: dict[object, dict[str, object]] = {
    worker: {
        "_BUSY_SECONDS": 0.02,
        "_IDLE_SECONDS": 0.05,
        "_STOP_SECONDS": 2.0,
        "_RETRY_SECONDS": 0.1,
    },
    slot_steps: {"_PAUSE_SECONDS": 0.02, "_CHECK_SECONDS": 0.05, "_SHUTDOWN_SECONDS": 0.3},
    state: {"_SLOTS_FRESH": 0.05},
    lease: {"_PAUSE": 0.02},
    deadline: {"_PATIENCE": 2.0},
    slot_requests: {"_PAUSE_SECONDS": 0.02, "_WAIT_SECONDS": 0.3},
    admission: {"_DOCUMENTS_FRESH": 0.05},
    memory: {"_BACKOFFS": (timedelta(0),)},
}
POLICY = Policy(
    max_unavailable=Count(AWAY),
    max_failures=Count(100),
    settle_timeout=Duration(1),
    gates=GatePolicy(health_checks=1),
    include_held=True,
)


class Severed(FakeCluster):
    """The way to the cluster of a process that can be killed: from then on none of its requests
    arrives.
    """

    dead = False

    def _asked(self, *arguments: Any, **words: Any) -> Any:
        if self.dead:
            raise ApiUnavailableError("this process is dead")
        return super()._asked(*arguments, **words)


@dataclass
class Replica:
    """A server under way, and the way to kill it."""

    service: Service
    api: Severed
    ending: AbstractContextManager[Service]

    def kill(self) -> None:
        self.api.dead = True

    def end(self) -> None:
        self.ending.__exit__(None, None, None)


def machine_id(name: str) -> str:
    return f"{ord(name):032x}"


@dataclass
class Cluster:
    """Four nodes with pods, and what is seen of the slots."""

    behind: FakeServer = field(default_factory=FakeServer)
    most: int = 0
    # nodes whose slots have had a report of their hosts
    reported: set[str] = field(default_factory=set)
    pods: int = 0
    boots: int = 0
    turn: threading.Lock = field(default_factory=threading.Lock)
    # by the Node that it reports as, whose machine a host is
    machines: dict[str, str] = field(default_factory=lambda: {name: name for name in (*NAMES, "z")})

    def __post_init__(self) -> None:
        end_pods_at_once(self.behind)
        put(self.behind, NODES, {"metadata": {"name": "z"}, "status": self.status("z", "z-0")})
        for name in NAMES:
            put(
                self.behind,
                NODES,
                {"metadata": {"name": name}, "status": self.status(name, f"{name}-0")},
            )
            self.add_pod(name)
        self.behind.call(lambda: self.behind.store.subscribe(self._watch))

    def request_of(self, name: str) -> HostRequest:
        """A request of the host that reports as this Node now."""
        return HostRequest(zincati_id(machine_id(self.machines[name])), GROUP)

    def status(self, name: str, boot_id: str) -> Json:
        info = {
            "bootID": boot_id,
            "machineID": machine_id(self.machines[name]),
            "osImage": "Flatcar 1.2.3",
            "kubeletVersion": "v1",
        }
        return {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": info}

    def _watch(self, change: Change) -> None:
        if (
            change.resource is CONFIGMAPS
            and change.obj["metadata"]["name"] == "node-rollout-fleetlock"
        ):
            held = json.loads(change.obj["data"]["slots.json"])["held"]
            self.reported |= {slot["node"] for slot in held if slot["returned"]}
            self.most = max(self.most, sum(slot["state"] != "absent" for slot in held))

    def slots(self) -> list[dict[str, Any]]:
        body = self.behind.call(
            lambda: self.behind.store.get(CONFIGMAPS, "node-rollout-fleetlock", "kube-system")
        )
        return list(json.loads(body["data"]["slots.json"])["held"]) if body else []

    def node(self, name: str) -> Json:
        node: Json | None = self.behind.call(lambda: self.behind.store.get(NODES, name))
        assert node is not None
        return node

    def annotations(self, name: str) -> dict[str, str]:
        return self.node(name)["metadata"].get("annotations") or {}

    def is_cordoned(self, name: str) -> bool:
        return bool((self.node(name).get("spec") or {}).get("unschedulable"))

    def evictable(self, name: str) -> list[str]:
        pods = self.behind.call(lambda: self.behind.store.pods_on(name))
        return [pod["metadata"]["name"] for pod in pods]

    def lease_run(self) -> str:
        lease = self.behind.call(
            lambda: self.behind.store.get(LEASES, "node-rollout", "kube-system")
        )
        if lease is None or not lease["spec"].get("holderIdentity"):
            return ""
        return str(lease["metadata"]["annotations"]["node-rollout.dev/run"])

    def add_pod(self, name: str) -> None:
        self.pods += 1
        add_pod(self.behind, name, f"pod-{self.pods}", owned=owner("ReplicaSet"))

    def reboot(self, name: str) -> None:
        self.boots += 1
        boot_id = f"{name}-{self.boots}"

        def change() -> None:
            node = self.behind.store.get(NODES, name)
            assert node is not None
            for pod in self.behind.store.pods_on(name):
                self.behind.store.remove(
                    PODS, pod["metadata"]["name"], pod["metadata"]["namespace"]
                )
            self.behind.store.put(NODES, {**node, "status": self.status(name, boot_id)})

        self.behind.call(change)

    def annotate(self, name: str, annotations: Mapping[str, str]) -> None:
        def write() -> None:
            node = self.behind.store.get(NODES, name)
            assert node is not None
            metadata = node["metadata"]
            marks = {**metadata.get("annotations", {}), **annotations}
            self.behind.store.put(NODES, {**node, "metadata": {**metadata, "annotations": marks}})

        self.behind.call(write)

    def go_down(self, name: str) -> None:
        """The kubelet reports no more."""
        conditions = [{"type": "Ready", "status": "Unknown"}]
        change(self.behind, NODES, name, status={"conditions": conditions})

    def create_again(self, name: str) -> None:
        """The Node is deleted, and its kubelet, which runs on, registers again."""

        def change() -> None:
            node = self.behind.store.get(NODES, name)
            assert node is not None
            self.behind.store.remove(NODES, name)
            self.behind.store.create(
                NODES, {"metadata": {"name": name}, "spec": {}, "status": node["status"]}
            )

        self.behind.call(change)

    def swap(self, one: str, other: str) -> None:
        """Two hosts report as each other's Node, each in the boot in which it is."""
        machines = self.machines
        first, second = (self.node(one), self.node(other))
        machine_of_one = machines[one]
        machines[one] = machines[other]
        machines[other] = machine_of_one

        def change() -> None:
            for node, taken in ((first, second), (second, first)):
                stored = self.behind.store.get(NODES, node["metadata"]["name"])
                assert stored is not None
                self.behind.store.put(NODES, {**stored, "status": taken["status"]})

        self.behind.call(change)


def context_of(api: Severed, number: int, notice: Callable[[str], None]) -> ServerContext:
    rules = ServerSettings(
        groups=Groups(GroupRules(Count(SLOTS))),
        selection=Selection(),
        policy=POLICY,
        namespace="kube-system",
        holder=f"fleetlock-server/{number}/{id(api)}",
        lease_seconds=1,
        slot_timeout=Duration(600),
    )
    return ServerContext(
        rules,
        api,
        SystemClock(),
        notice,
        lambda _plan: nullcontext(()),
        lambda _request, _kind: None,
    )


def start_replica(cluster: Cluster, number: int, notice: Callable[[str], None]) -> Replica:
    """Start a server of the cluster; `number` tells replicas apart."""
    api = Severed(cluster.behind)
    ending = running_service(context_of(api, number, notice))
    service = ending.__enter__()
    wait_until(lambda: not service.why_not_ready())
    return Replica(service, api, ending)


def request_reboot(replica: Replica, cluster: Cluster, name: str) -> AnswerKind:
    return replica.service.pre_reboot(cluster.request_of(name)).kind


def await_answer(replica: Replica, cluster: Cluster, name: str, kind: AnswerKind) -> None:
    wait_until(lambda: request_reboot(replica, cluster, name) is kind)


def await_return(replica: Replica, cluster: Cluster, name: str) -> None:
    """Report until the node is returned."""
    report = cluster.request_of(name)
    wait_until(lambda: replica.service.steady_state(report).kind is AnswerKind.RELEASED)
