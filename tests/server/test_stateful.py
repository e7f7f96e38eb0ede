"""Hosts, servers, deaths, rollouts and aborts in any order: never a grant before the drain, never more than the slots.

The servers are whole but for their wire; the cluster is the lab's API server in memory. What a yes
is worth is judged at the moment that it is given, by looking at the cluster itself; how many slots
are held, at every write of them.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from rollout.adapters.clock import SystemClock
from rollout.errors import ApiUnavailableError, RolloutError
from rollout.execution import lease
from rollout.execution.base import deadline
from rollout.execution.base.deadline import PatientApi
from rollout.execution.lease import LeaseWatch
from rollout.execution.lock import LeaseLock, LockRequest
from rollout.execution.rollout.abort import abort
from rollout.execution.rollout.hosts import RolloutHosts
from rollout.lab.api.resources import CONFIGMAPS, LEASES, NODES, PODS
from rollout.lab.api.store import Change
from rollout.model.fleetlock import GroupRules, Groups, zincati_id
from rollout.model.gates import GatePolicy
from rollout.model.policy import Policy, Selection
from rollout.model.quantity import Count, Duration
from rollout.server import admission, holders, state, steps, worker
from rollout.server.protocol import Ask, FleetLockAnswer
from rollout.server.service import Service, under_way
from rollout.server.state import ServerContext, ServerSettings
from tests.execution.drains import Json, add_pod, end_pods_at_once, owner, put
from tests.execution.fake_cluster import FakeCluster, FakeServer
from tests.stateful.conftest import profile
from tests.waiting import wait_until

SLOTS = 2
AWAY = 3
NAMES = ("a", "b", "c", "d")
GROUP = "default"
# All that waits, waits shortly: what is tried is the order of things.
QUICK: dict[object, dict[str, float]] = {
    worker: {"_TICK": 0.02, "_IDLE": 0.05, "_STOP_SECONDS": 2.0, "_RETRY_SECONDS": 0.1},
    steps: {"_PAUSE": 0.02, "_LOOK_EVERY": 0.05, "_SAFE_SECONDS": 0.3},
    state: {"_FRESH": 0.05},
    lease: {"_PAUSE": 0.02},
    deadline: {"_PATIENCE": 2.0},
    holders: {"_PAUSE": 0.02, "_WAIT": 0.3},
    admission: {"_FRESH": 0.05},
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

    server: Service
    api: Severed
    ending: AbstractContextManager[Service]

    def kill(self) -> None:
        self.api.dead = True

    def end(self) -> None:
        self.ending.__exit__(None, None, None)


@dataclass
class Hosts:
    """Hosts that an abort cannot reach, and does not ask."""

    @contextmanager
    def attending(self, hosts: Any) -> Iterator[None]:
        yield

    def run(self, *arguments: Any, **words: Any) -> Any:
        raise NotImplementedError

    run_if = run_on_all = run


def machine_id(name: str) -> str:
    return f"{ord(name):032x}"


@dataclass
class Cluster:
    """Four nodes with pods, and what is seen of the slots."""

    behind: FakeServer = field(default_factory=FakeServer)
    most: int = 0
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
        machines[one] = machines[other]
        machines[other] = machines[one]

        def change() -> None:
            for node, taken in ((first, second), (second, first)):
                stored = self.behind.store.get(NODES, node["metadata"]["name"])
                assert stored is not None
                self.behind.store.put(NODES, {**stored, "status": taken["status"]})

        self.behind.call(change)


class Asking(RuleBasedStateMachine):
    """Everything that may happen, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = pytest.MonkeyPatch()
        for module, constants in QUICK.items():
            for name, value in constants.items():
                self.patches.setattr(module, name, value)
        self.cluster = Cluster()
        self.granted: set[str] = set()
        # hosts whose daemon was restarted in a boot, and has not been told yes since
        self.restarted: set[str] = set()
        self.replicas: list[Replica] = []
        self.notices: list[str] = []
        self.failures: list[BaseException] = []
        self.begin()

    def begin(self) -> None:
        api = Severed(self.cluster.behind)
        number = len(self.notices) + len(self.replicas)
        rules = ServerSettings(
            groups=Groups(GroupRules(Count(SLOTS))),
            selection=Selection(),
            policy=POLICY,
            namespace="kube-system",
            holder=f"fleetlock-server/{number}/{id(api)}",
            lease_seconds=1,
            slot_timeout=Duration(600),
        )
        world = ServerContext(
            rules,
            api,
            SystemClock(),
            self.notices.append,
            lambda _plan: nullcontext(()),
            lambda _request, _kind: None,
        )
        ending = under_way(world)
        server = ending.__enter__()
        wait_until(lambda: not server.why_not_ready())
        self.replicas.append(Replica(server, api, ending))

    def asked(self, name: str, number: int) -> Ask:
        """By the host that reports as this Node now."""
        return Ask(zincati_id(machine_id(self.cluster.machines[name])), GROUP)

    def server(self, number: int) -> Service:
        return self.replicas[number % len(self.replicas)].server

    @rule(name=st.sampled_from(NAMES), number=st.integers(0, 1))
    def ask(self, name: str, number: int) -> None:
        if name in self.restarted:
            self.report(name, number)
            return
        answer = self.server(number).pre_reboot(self.asked(name, number))
        if answer.kind.status == 200:
            self.judge(name, answer)

    @rule(name=st.sampled_from(NAMES), number=st.integers(0, 1))
    def ask_patiently(self, name: str, number: int) -> None:
        """Again and again, by turns of all servers: until it is granted, or a while has passed."""
        deadline = time.monotonic() + 1.5
        while time.monotonic() < deadline and name not in self.granted:
            self.ask(name, number)
            number += 1
            time.sleep(0.02)

    @rule(names=st.lists(st.sampled_from(NAMES), min_size=2, max_size=4, unique=True))
    def ask_all_at_once(self, names: list[str]) -> None:
        """In threads of their own; a yes among them is judged while the others are still asking."""
        threads = [
            threading.Thread(target=self.keep, args=(name, number))
            for number, name in enumerate(names)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        failures = self.failures
        self.failures = []
        assert not failures, failures

    def keep(self, name: str, number: int) -> None:
        try:
            self.ask_patiently(name, number)
        except BaseException as error:  # noqa: BLE001 - of a thread, told by the rule that started it
            self.failures.append(error)

    def judge(self, name: str, answer: FleetLockAnswer) -> None:
        """A yes, held against the cluster as it stands at that moment."""
        assert self.cluster.is_cordoned(name), answer
        assert self.cluster.evictable(name) == [], answer
        slot = next(slot for slot in self.cluster.slots() if slot["node"] == name)
        assert self.cluster.annotations(name)["node-rollout.dev/run"] == slot["run"]
        assert self.cluster.annotations(name)["node-rollout.dev/phase"] == "rebooting"
        assert self.cluster.lease_run().startswith("fleetlock-")
        self.granted.add(name)
        assert len(self.granted) <= SLOTS

    @rule(name=st.sampled_from(NAMES), number=st.integers(0, 1))
    def report(self, name: str, number: int) -> None:
        """A host that was granted has given its reboot up, as after a restart of its daemon: it
        follows no grant.
        """
        before = self.cluster.node(name)["status"]["nodeInfo"]["bootID"]
        was_granted = name in self.granted
        self.granted.discard(name)
        answer = self.server(number).steady_state(self.asked(name, number))
        if answer.kind.status == 200 and was_granted:
            assert (
                not before.endswith("-0")
                or not self.cluster.is_cordoned(name)
                or not self.cluster.slots()
            )
        # whoever reports has been started, and has forgotten what it was granted; it asks for
        # nothing before a yes
        self.granted.discard(name)
        if answer.kind.status == 200:
            self.restarted.discard(name)
        else:
            self.restarted.add(name)

    @rule(index=st.integers(0, SLOTS - 1))
    def reboot_granted(self, index: int) -> None:
        """No precondition: what draws is not to know what threads have come to."""
        if granted := sorted(self.granted):
            name = granted[index % len(granted)]
            self.reboot_without_asking(name)

    @rule(name=st.sampled_from(NAMES))
    def reboot_without_asking(self, name: str) -> None:
        self.cluster.reboot(name)
        self.granted.discard(name)
        self.restarted.discard(name)

    @rule(name=st.sampled_from(NAMES))
    def a_node_is_created_again(self, name: str) -> None:
        self.cluster.create_again(name)
        self.granted.discard(name)

    @rule(names=st.lists(st.sampled_from(NAMES), min_size=2, max_size=2, unique=True))
    def hosts_are_swapped(self, names: list[str]) -> None:
        """What one of them was granted is not to be followed under the other's name."""
        self.cluster.swap(*names)
        self.granted -= set(names)

    @rule(name=st.sampled_from(NAMES))
    def a_pod_arrives(self, name: str) -> None:
        self.cluster.add_pod(name)

    @rule(seconds=st.sampled_from([0.05, 0.2, 0.5]))
    def time_passes(self, seconds: float) -> None:
        time.sleep(seconds)

    @rule()
    def a_server_starts(self) -> None:
        if len(self.replicas) < 2:
            self.begin()

    @rule(number=st.integers(0, 1))
    def a_server_is_killed(self, number: int) -> None:
        replica = self.replicas.pop(number % len(self.replicas))
        replica.kill()
        replica.end()
        if not self.replicas:
            self.begin()

    @rule(number=st.integers(0, 1))
    def a_server_ends(self, number: int) -> None:
        self.replicas.pop(number % len(self.replicas)).end()
        if not self.replicas:
            self.begin()

    @rule()
    def somebody_aborts(self) -> None:
        """By force: whoever holds the lock is passed over."""
        lock = LockRequest("ann", seconds=1, force_unlock=self.cluster.lease_run())
        with_rebooting = set(self.granted)
        try:
            abort(
                RolloutHosts({}, Hosts()),
                FakeCluster(self.cluster.behind),
                clock=SystemClock(),
                observers=(),
                lock=lock,
                wait=0,
            )
        except RolloutError:
            return
        # by a person's decision hosts that were granted may reboot at any time
        self.granted -= with_rebooting

    @rule(number=st.integers(0, 1))
    def a_rollout_runs(self, number: int) -> None:
        """A person's rollout holds the lock, where it gets it: nobody is granted anything
        meanwhile.
        """
        try:
            behind = FakeCluster(self.cluster.behind)
            seen = LeaseWatch(SystemClock())
            with LeaseLock(
                PatientApi(behind, SystemClock(), seconds=2),
                LockRequest("ann", seconds=1, watch=seen),
                "run-1",
            ):
                for name in NAMES:
                    answer = self.server(number).pre_reboot(self.asked(name, number))
                    assert answer.kind.status != 200, answer
        except RolloutError:
            return

    def teardown(self) -> None:
        """Once every host has come back and reported, nothing is left of it all; restarted ones
        have stayed up.
        """
        try:
            self.settle()
            assert self.cluster.most <= SLOTS
            assert not [notice for notice in self.notices if "internal error" in notice], (
                self.notices
            )
        finally:
            for replica in self.replicas:
                replica.end()
            self.patches.undo()

    def settle(self) -> None:
        for name in set(NAMES) - self.restarted:
            self.cluster.reboot(name)
        if any(name != machine for name, machine in self.cluster.machines.items()):
            # what was begun on one machine, and is another by now, is left to people
            self.somebody_aborts()
        deadline = time.monotonic() + 100
        while self.left():
            for name in NAMES:
                self.server(0).steady_state(self.asked(name, 0))
            assert time.monotonic() < deadline, (self.left(), self.cluster.slots(), self.notices)

    def left(self) -> list[str]:
        cordons = [name for name in NAMES if self.cluster.is_cordoned(name)]
        marked = [
            name for name in NAMES if "node-rollout.dev/run" in self.cluster.annotations(name)
        ]
        return [*cordons, *marked, *(slot["node"] for slot in self.cluster.slots())]


Asking.TestCase.settings = profile(6)
TestAsking = pytest.mark.in_memory(Asking.TestCase)
