"""Waits until workloads and nodes are as healthy as before a wave or a node."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial

from msgspec import Struct

from rollout.execution.base.deadline import Deadline, GracefulStop, PatientApi
from rollout.execution.base.reporting import Reporter
from rollout.execution.record.record import Health
from rollout.gather.cluster.snapshot import read_node_pods, read_nodes
from rollout.gather.cluster.workloads import Workload, read_workload, read_workloads
from rollout.model.finding import Finding
from rollout.model.policy import Policy
from rollout.model.text import listed
from rollout.ports import ClusterApi
from rollout.wording import text

# A pause is this many times as long as the reading before it.
_PAUSE_PER_READING = 10.0
_SHORTEST_PAUSE = 0.2
_LONGEST_PAUSE = 1.0
_NAMED = 3


class NodeBaseline(Struct, frozen=True):
    health: Health
    # The node's ready pods, by their owner's UID.
    pods: Mapping[str, int]


class ReadinessSnapshot(Struct, frozen=True):
    """Nodes expected to be away, and pods evicted from nodes in flight, are not missed."""

    unready_nodes: frozenset[str]
    # Counts a node's ready pods by their owner's UID.
    count_ready_pods_by_owner: Callable[[str], Counter[str]]
    read_workload: Callable[[Workload], Workload | None]
    find_problem: Callable[[], Finding | None]

    def find_missing(
        self,
        baseline: NodeBaseline,
        expected_away: frozenset[str],
        in_flight: Mapping[str, NodeBaseline],
    ) -> str:
        shortages = self.find_shortages(baseline.health.workloads.values(), in_flight)
        expected_ready = baseline.health.ready_nodes - expected_away
        return self.describe_missing(shortages.values(), expected_ready)

    def find_shortages(
        self, workloads: Iterable[Workload], in_flight: Mapping[str, NodeBaseline]
    ) -> Mapping[str, str]:
        """Return clauses by the workloads' UIDs."""
        shortages = {}
        for workload in workloads:
            shortage = self._find_shortage(workload, in_flight)
            if shortage:
                shortages[workload.uid] = shortage
        return shortages

    def describe_missing(self, shortages: Iterable[str], expected_ready: frozenset[str]) -> str:
        unready = sorted(expected_ready & self.unready_nodes)
        nodes = [f"node {name} is no longer Ready" for name in unready]
        missing = listed([*shortages, *nodes], _NAMED)
        if missing:
            return missing
        problem = self.find_problem()
        return text(problem) if problem else ""

    def _find_shortage(self, before: Workload, in_flight: Mapping[str, NodeBaseline]) -> str:
        """Return `ReplicaSet shop/web has 2 of 3 pods ready`, or empty."""
        now = self.read_workload(before)
        if now is None:
            # It was deleted on purpose.
            return ""
        wanted = min(before.ready, now.desired)
        if now.ready >= wanted:
            return ""
        evicted = 0
        for node, baseline in in_flight.items():
            ready_before = baseline.pods.get(before.uid, 0)
            if ready_before:
                ready_now = self.count_ready_pods_by_owner(node)[before.uid]
                evicted += max(0, ready_before - ready_now)
        if now.ready + evicted >= wanted:
            return ""
        return (
            f"{before.kind} {before.namespace}/{before.name} has {now.ready} of {wanted} pods ready"
        )


class HealthMonitor(Struct, frozen=True):
    cluster: PatientApi
    report: Reporter
    policy: Policy
    find_problem: Callable[[], Finding | None]

    def measure_together(self, nodes: Sequence[str]) -> Health:
        measured = self.measure(nodes, in_flight={})
        return Health.of_all(baseline.health for baseline in measured.values())

    def measure(
        self, nodes: Sequence[str], in_flight: Mapping[str, NodeBaseline]
    ) -> Mapping[str, NodeBaseline]:
        """Nodes in flight, and workloads on them, count as before their start."""
        deadline = self.cluster.deadline()
        ready_pods_of_nodes = {
            node: self.cluster.ask(partial(_count_ready_pods_by_owner, node=node), deadline)
            for node in nodes
        }
        earlier = Health.of_all(baseline.health for baseline in in_flight.values())
        workloads = {**self.cluster.ask(read_workloads, deadline), **earlier.workloads}
        nodes_now = self.cluster.ask(read_nodes, deadline)
        ready_now = {node.name for node in nodes_now if node.is_ready}
        ready_nodes = frozenset(ready_now | in_flight.keys())
        measured = {}
        for node, ready_pods in ready_pods_of_nodes.items():
            on_node = {uid: workloads[uid] for uid in ready_pods if uid in workloads}
            measured[node] = NodeBaseline(Health(on_node, ready_nodes), ready_pods)
        return measured

    def read_readiness(self, deadline: Deadline | None = None) -> ReadinessSnapshot:
        until = deadline or self.cluster.deadline()
        nodes = self.cluster.ask(read_nodes, until)
        return ReadinessSnapshot(
            # Deleted Nodes were removed on purpose.
            unready_nodes=frozenset(node.name for node in nodes if not node.is_ready),
            count_ready_pods_by_owner=cache(
                lambda node: self.cluster.ask(partial(_count_ready_pods_by_owner, node=node), until)
            ),
            read_workload=lambda workload: self.cluster.ask(
                lambda api: read_workload(api, workload), until
            ),
            find_problem=cache(self.find_problem),
        )

    def wait_until_settled(
        self,
        health_before: Health,
        wave: int,
        stop: GracefulStop,
        expected_away: Callable[[], frozenset[str]],
        in_flight: Callable[[], Mapping[str, NodeBaseline]] = dict,
        prepare_next: Callable[[], None] = lambda: None,
    ) -> str:
        """Return what is still missing, or empty.

        Each check calls `expected_away` and `in_flight` again, and the last one `prepare_next`.
        """
        deadline = self.cluster.deadline(self.policy.settle_timeout)
        to_read = health_before.workloads
        healthy_checks = 0
        while True:
            began = self.cluster.clock.monotonic()
            snapshot = self.read_readiness(deadline)
            shortages = snapshot.find_shortages(to_read.values(), in_flight())
            expected_ready = health_before.ready_nodes - expected_away()
            missing = snapshot.describe_missing(shortages.values(), expected_ready)
            has_read_all = len(to_read) == len(health_before.workloads)
            was_healthy = healthy_checks > 0
            healthy_checks = 0 if missing else healthy_checks + 1
            if missing and not was_healthy:
                # Reading only workloads that lack pods spares requests.
                to_read = {uid: to_read[uid] for uid in shortages}
            else:
                to_read = health_before.workloads
            is_settled = has_read_all and healthy_checks >= self.policy.gates.health_checks
            if is_settled or deadline.expired or stop.is_due:
                return missing
            pause = _LONGEST_PAUSE
            if missing:
                self.report.settling(wave, missing)
                reading_seconds = self.cluster.clock.monotonic() - began
                fitting_pause = max(_SHORTEST_PAUSE, _PAUSE_PER_READING * reading_seconds)
                pause = min(fitting_pause, _LONGEST_PAUSE)
            elif healthy_checks == self.policy.gates.health_checks - 1:
                prepare_next()
            self.cluster.clock.wait(stop, pause)


def _count_ready_pods_by_owner(api: ClusterApi, node: str) -> Counter[str]:
    ready_by_owner: Counter[str] = Counter()
    for pod in read_node_pods(api, node):
        if pod.owner is not None:
            is_ready = pod.ready and not pod.terminating
            # The owner of a pod that is not ready is measured, too.
            ready_by_owner[pod.owner.uid] += int(is_ready)
    return ready_by_owner
