"""Between waves: wait until workloads and nodes are as healthy as before the wave."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

from rollout.execution.base.deadline import Deadline, PatientApi, StopRequest
from rollout.execution.base.reporting import Reporter
from rollout.execution.record.record import Health
from rollout.gather.cluster.snapshot import read_node_pods, read_nodes
from rollout.gather.cluster.workloads import Workload, read_workload, read_workloads
from rollout.model.finding import Finding
from rollout.model.policy import Policy
from rollout.model.text import listed
from rollout.ports import ClusterApi
from rollout.wording import text

_PAUSE = 1.0
# A pause is so many times as long as the reading before it.
_PAUSE_PER_READING = 10.0
_SHORTEST_PAUSE = 0.2
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Before:
    """Health before a node was started. `pods` counts its ready pods by their owner's UID."""

    health: Health
    pods: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ReadinessSnapshot:
    """The cluster at one moment.

    `ready_on` counts the ready pods of a node by their owner's UID. `current` reads a workload
    again. `unhealthy` checks gates.healthy.
    """

    unready: frozenset[str]
    ready_on: Callable[[str], Counter[str]]
    current: Callable[[Workload], Workload | None]
    unhealthy: Callable[[], Finding | None]

    def missing(
        self, before: Before, expected_away: frozenset[str], in_flight: Mapping[str, Before]
    ) -> str:
        """Return what is missing since `before`, not counting the pods of nodes in flight."""
        lacking = self.shortages(before.health.workloads.values(), in_flight)
        return self.missing_text(lacking.values(), before.health.ready_nodes - expected_away)

    def shortages(
        self, workloads: Iterable[Workload], in_flight: Mapping[str, Before]
    ) -> Mapping[str, str]:
        lacking = {}
        for workload in workloads:
            shortage = self._shortage(workload, in_flight)
            if shortage:
                lacking[workload.uid] = shortage
        return lacking

    def missing_text(self, lacking: Iterable[str], expected_ready: frozenset[str]) -> str:
        unready = sorted(expected_ready & self.unready)
        nodes = [f"node {name} is no longer Ready" for name in unready]
        missing = listed([*lacking, *nodes], _NAMED)
        if missing:
            return missing
        unhealthy = self.unhealthy()
        return text(unhealthy) if unhealthy else ""

    def _shortage(self, earlier: Workload, in_flight: Mapping[str, Before]) -> str:
        now = self.current(earlier)
        if now is None:
            return ""
        wanted = min(earlier.ready, now.desired)
        if now.ready >= wanted:
            return ""
        evicted = 0
        for node, before in in_flight.items():
            count = before.pods.get(earlier.uid, 0)
            if count:
                evicted += max(0, count - self.ready_on(node)[earlier.uid])
        if now.ready + evicted >= wanted:
            return ""
        return f"{earlier.key} has {now.ready} of {wanted} pods ready"


@dataclass(frozen=True, slots=True)
class Settler:
    cluster: PatientApi
    report: Reporter
    policy: Policy
    unhealthy: Callable[[], Finding | None]

    def measure_together(self, nodes: Sequence[str]) -> Health:
        return Health.of_all(before.health for before in self.measure(nodes, {}).values())

    def measure(
        self, nodes: Sequence[str], in_flight: Mapping[str, Before]
    ) -> Mapping[str, Before]:
        """Return the health before each of these nodes starts.

        Pods on nodes in flight count, because they come back.
        """
        deadline = self.cluster.deadline()
        pods = {node: self.cluster.ask(partial(_ready_on, node=node), deadline) for node in nodes}
        earlier = Health.of_all(before.health for before in in_flight.values())
        workloads = {**self.cluster.ask(read_workloads, deadline), **earlier.workloads}
        nodes_now = self.cluster.ask(read_nodes, deadline)
        ready = frozenset(node.name for node in nodes_now if node.is_ready) | in_flight.keys()
        measured = {}
        for node, counts in pods.items():
            owners = {uid: workloads[uid] for uid in counts if uid in workloads}
            measured[node] = Before(Health(owners, ready), counts)
        return measured

    def read_readiness(self, deadline: Deadline | None = None) -> ReadinessSnapshot:
        until = deadline or self.cluster.deadline()
        # A deleted Node was removed on purpose and is not unhealthy.
        nodes = self.cluster.ask(read_nodes, until)
        return ReadinessSnapshot(
            unready=frozenset(node.name for node in nodes if not node.is_ready),
            ready_on=cache(lambda node: self.cluster.ask(partial(_ready_on, node=node), until)),
            current=lambda workload: self.cluster.ask(
                lambda api: read_workload(api, workload), until
            ),
            unhealthy=cache(self.unhealthy),
        )

    def wait_until_settled(
        self, before: Health, index: int, expected_away: frozenset[str], stop: StopRequest
    ) -> str:
        """Return what is missing at the deadline, empty if nothing is.

        To spare requests, settled workloads are read again only once all have settled.
        """
        deadline = self.cluster.deadline(self.policy.settle_timeout)
        workloads = before.workloads
        healthy_checks = 0
        while True:
            began = self.cluster.clock.monotonic()
            snapshot = self.read_readiness(deadline)
            lacking = snapshot.shortages(workloads.values(), {})
            missing = snapshot.missing_text(lacking.values(), before.ready_nodes - expected_away)
            is_relapse = bool(missing and healthy_checks)
            healthy_checks = 0 if missing else healthy_checks + 1
            unsettled = {uid: workloads[uid] for uid in lacking}
            workloads = before.workloads if healthy_checks or is_relapse else unsettled
            if healthy_checks >= self.policy.gates.health_checks or deadline.expired or stop.is_due:
                return missing
            pause = _PAUSE
            if missing:
                self.report.settling(index, missing)
                reading = self.cluster.clock.monotonic() - began
                pause = min(_PAUSE, max(_SHORTEST_PAUSE, _PAUSE_PER_READING * reading))
            self.cluster.clock.wait(stop, pause)


def _ready_on(api: ClusterApi, node: str) -> Counter[str]:
    ready: Counter[str] = Counter()
    for pod in read_node_pods(api, node):
        if pod.owner is not None:
            ready[pod.owner.uid] += pod.ready and not pod.terminating
    return ready
