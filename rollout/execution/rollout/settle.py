"""Between waves: the owners of the moved pods are as available as before, and no healthy node has become unhealthy."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

from rollout.execution.base.deadline import Deadline, PatientApi, StopRequest
from rollout.execution.base.reporting import Reporter
from rollout.execution.record.record import Health
from rollout.gather.cluster.snapshot import read_node_pods, read_nodes
from rollout.gather.cluster.workloads import Workload, read_workload, read_workloads
from rollout.model.policy import Policy
from rollout.model.text import listed
from rollout.ports import ClusterApi

_PAUSE = 1.0
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Before:
    """What was well before a node began. `pods` counts those of its pods that were ready, by the UID of their owner."""

    health: Health
    pods: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ReadinessSnapshot:
    """The cluster at one moment: the nodes that are not Ready; ready pods on a node, by owner; a workload."""

    unready: frozenset[str]
    ready_on: Callable[[str], Counter[str]]
    current: Callable[[Workload], Workload | None]

    def missing(
        self, before: Before, expected_away: frozenset[str], in_flight: Mapping[str, Before]
    ) -> str:
        """Return what is worse than before a node that has ended; what others in flight have taken does not count.

        Empty where it has settled.
        """
        short = self.short(before.health.workloads.values(), in_flight)
        return self.in_words(short.values(), before.health.ready_nodes - expected_away)

    def short(
        self, workloads: Iterable[Workload], in_flight: Mapping[str, Before]
    ) -> Mapping[str, str]:
        """Return what those of these lack that are not as ready as they were, by their UIDs."""
        lacks = ((was.uid, self._shortage(was, in_flight)) for was in workloads)
        return {uid: text for uid, text in lacks if text}

    def in_words(self, short: Iterable[str], expected_ready: frozenset[str]) -> str:
        """Put in words that these are short, and which nodes of those that have to be Ready are not."""
        gone = sorted(expected_ready & self.unready)
        return listed([*short, *(f"node {name} is no longer Ready" for name in gone)], _NAMED)

    def _shortage(self, was: Workload, in_flight: Mapping[str, Before]) -> str:
        now = self.current(was)
        wanted = min(was.ready, now.desired) if now else 0
        if now is None or now.ready >= wanted:
            return ""
        sharing = {
            node: before.pods[was.uid]
            for node, before in in_flight.items()
            if before.pods.get(was.uid)
        }
        taken = sum(
            count - min(count, self.ready_on(node)[was.uid]) for node, count in sharing.items()
        )
        return (
            ""
            if now.ready + taken >= wanted
            else f"{was.key} has {now.ready} of {wanted} pods ready"
        )


@dataclass(frozen=True, slots=True)
class Settler:
    """Measures health before a wave, or a node, and waits for it afterwards."""

    cluster: PatientApi
    report: Reporter
    policy: Policy

    def baseline(self, nodes: Sequence[str]) -> Health:
        """Health before the wave that takes these nodes away."""
        return Health.of_all(before.health for before in self.measured(nodes, {}).values())

    def measured(
        self, nodes: Sequence[str], in_flight: Mapping[str, Before]
    ) -> Mapping[str, Before]:
        """Return what is well before each of these nodes begins.

        A workload that has pods on others in flight was as ready as before those: what they took
        comes back.
        """
        deadline = self.cluster.deadline()
        pods = {node: self.cluster.ask(partial(_ready_on, node=node), deadline) for node in nodes}
        earlier = Health.of_all(before.health for before in in_flight.values())
        workloads = {**self.cluster.ask(read_workloads, deadline), **earlier.workloads}
        ready = frozenset(
            node.name for node in self.cluster.ask(read_nodes, deadline) if node.is_ready
        )
        return {
            node: Before(
                Health(
                    {uid: workloads[uid] for uid in owned if uid in workloads},
                    ready | in_flight.keys(),
                ),
                owned,
            )
            for node, owned in pods.items()
        }

    def look(self, deadline: Deadline | None = None) -> ReadinessSnapshot:
        """How the cluster stands now, for all who ask it together."""
        until = deadline or self.cluster.deadline()
        # a Node that is not there any more was taken out of the cluster, which is no sickness
        unready = frozenset(
            node.name for node in self.cluster.ask(read_nodes, until) if not node.is_ready
        )
        return ReadinessSnapshot(
            unready,
            cache(lambda node: self.cluster.ask(partial(_ready_on, node=node), until)),
            lambda was: self.cluster.ask(lambda api: read_workload(api, was), until),
        )

    def wait(
        self, before: Health, index: int, expected_away: frozenset[str], stop: StopRequest
    ) -> str:
        """Wait until all is as well as before; what is not, at the deadline, in a sentence (empty: settled).

        What has settled is asked for again only once all has.
        """
        deadline = self.cluster.deadline(self.policy.settle_timeout)
        asked = before.workloads
        good = 0
        while True:
            look = self.look(deadline)
            short = look.short(asked.values(), {})
            missing = look.in_words(short.values(), before.ready_nodes - expected_away)
            is_relapse = bool(missing and good)
            good = 0 if missing else good + 1
            asked = before.workloads if is_relapse or good else {uid: asked[uid] for uid in short}
            if good >= self.policy.gates.health_checks or deadline.expired or stop.requested:
                return missing
            if missing:
                self.report.settling(index, missing)
            self.cluster.clock.wait(stop, _PAUSE)


def _ready_on(api: ClusterApi, node: str) -> Counter[str]:
    """How many ready pods of each owner that has pods on a node, by its UID, are there and stay."""
    ready: Counter[str] = Counter()
    for pod in read_node_pods(api, node):
        if pod.owner is not None:
            ready[pod.owner.uid] += pod.ready and not pod.terminating
    return ready
