"""Hosts, servers, deaths, rollouts and aborts in any order.

No reboot is granted before its drain, and no more slots are held than there are. The servers are
whole but for their wire, and the cluster is the lab's API server in memory. Each grant is checked
against the cluster at that moment, and the number of held slots at every write of them.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from rollout.adapters.clock import SystemClock
from rollout.errors import RolloutError
from rollout.execution.base.deadline import PatientApi
from rollout.execution.lease import LeaseWatch
from rollout.execution.lock import LeaseLock, LockOptions
from rollout.execution.node.ssh_host import RolloutHosts
from rollout.execution.rollout.abort import abort
from rollout.server.protocol import FleetLockAnswer
from rollout.server.service import Service
from tests.execution.fake_cluster import FakeCluster
from tests.server.in_memory import NAMES, QUICK, SLOTS, Cluster, Replica, start_replica
from tests.stateful.conftest import profile


@dataclass
class Hosts:
    """Hosts that an abort cannot reach, and does not ask."""

    @contextmanager
    def attending(self, hosts: Any) -> Iterator[None]:
        yield

    def run(self, *arguments: Any, **words: Any) -> Any:
        raise NotImplementedError

    run_if = run_on_all = run


class Requests(RuleBasedStateMachine):
    """Everything that may happen, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = pytest.MonkeyPatch()
        for module, constants in QUICK.items():
            for name, value in constants.items():
                self.patches.setattr(module, name, value)
        self.cluster = Cluster()
        self.granted: set[str] = set()
        # Hosts whose daemon was restarted in a boot, and was not released since.
        self.restarted: set[str] = set()
        self.have_been_swapped = False
        self.replicas: list[Replica] = []
        self.notices: list[str] = []
        self.failures: list[BaseException] = []
        self.begin()

    def begin(self) -> None:
        number = len(self.notices) + len(self.replicas)
        self.replicas.append(start_replica(self.cluster, number, self.notices.append))

    def server(self, number: int) -> Service:
        return self.replicas[number % len(self.replicas)].service

    @rule(name=st.sampled_from(NAMES), number=st.integers(0, 1))
    def request_reboot(self, name: str, number: int) -> None:
        if name in self.restarted:
            self.report(name, number)
            return
        answer = self.server(number).pre_reboot(self.cluster.request_of(name))
        if answer.kind.status == 200:
            self.judge(name, answer)

    @rule(name=st.sampled_from(NAMES), number=st.integers(0, 1))
    def request_patiently(self, name: str, number: int) -> None:
        """Repeat the request, to all servers in turn, until it is granted or a while has passed."""
        deadline = time.monotonic() + 1.5
        while time.monotonic() < deadline and name not in self.granted:
            self.request_reboot(name, number)
            number += 1
            time.sleep(0.02)

    @rule(names=st.lists(st.sampled_from(NAMES), min_size=2, max_size=4, unique=True))
    def request_all_at_once(self, names: list[str]) -> None:
        """In threads of their own; each grant is judged while the others still send requests."""
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
            self.request_patiently(name, number)
        except BaseException as error:  # noqa: BLE001 - of a thread, told by the rule that started it
            self.failures.append(error)

    def judge(self, name: str, answer: FleetLockAnswer) -> None:
        """Check a grant against the cluster at that moment."""
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
        """A host cancels its reboot, as after a restart of its daemon: it follows no grant."""
        before = self.cluster.node(name)["status"]["nodeInfo"]["bootID"]
        was_granted = name in self.granted
        self.granted.discard(name)
        answer = self.server(number).steady_state(self.cluster.request_of(name))
        if answer.kind.status == 200 and was_granted:
            assert (
                not before.endswith("-0")
                or not self.cluster.is_cordoned(name)
                or not self.cluster.slots()
            )
        # A daemon that reports was started, and has forgotten its grant. It requests nothing until
        # it is released.
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
        self.have_been_swapped = True
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
        options = LockOptions("ann", seconds=1, force_unlock=self.cluster.lease_run())
        with_rebooting = set(self.granted)
        try:
            abort(
                RolloutHosts({}, Hosts()),
                FakeCluster(self.cluster.behind),
                clock=SystemClock(),
                observers=(),
                lock_options=options,
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
                LockOptions("ann", seconds=1, watch=seen),
                "run-1",
            ):
                for name in NAMES:
                    answer = self.server(number).pre_reboot(self.cluster.request_of(name))
                    assert answer.kind.status != 200, answer
        except RolloutError:
            return

    def teardown(self) -> None:
        """Once every host has come back and reported, nothing is left of it all; restarted ones
        have stayed up.
        """
        try:
            self.bring_all_back()
            assert self.cluster.most <= SLOTS
            assert not [notice for notice in self.notices if "internal error" in notice], (
                self.notices
            )
        finally:
            for replica in self.replicas:
                replica.end()
            self.patches.undo()

    def bring_all_back(self) -> None:
        for name in set(NAMES) - self.restarted:
            self.cluster.reboot(name)
        if self.have_been_swapped:
            # What was begun on one machine, and is another by now, is left to people. Those that
            # are back in their places may have been begun in between.
            self.somebody_aborts()
        deadline = time.monotonic() + 100
        while self.left():
            for name in NAMES:
                self.server(0).steady_state(self.cluster.request_of(name))
            assert time.monotonic() < deadline, (self.left(), self.cluster.slots(), self.notices)

    def left(self) -> list[str]:
        cordons = [name for name in NAMES if self.cluster.is_cordoned(name)]
        marked = [
            name for name in NAMES if "node-rollout.dev/run" in self.cluster.annotations(name)
        ]
        return [*cordons, *marked, *(slot["node"] for slot in self.cluster.slots())]


Requests.TestCase.settings = profile(6)
# Each example has seconds of patience, and the exhaustive tier has many more examples.
TestRequests = pytest.mark.timeout(3600)(pytest.mark.in_memory(Requests.TestCase))
