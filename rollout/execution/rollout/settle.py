"""Between waves: the owners of the moved pods are as available as before, and no healthy node has become unhealthy."""

from collections.abc import Sequence
from dataclasses import dataclass

from rollout.execution.base.patience import PatientApi
from rollout.execution.base.reporting import Reporter
from rollout.execution.base.stop import StopRequest
from rollout.execution.record.health import Health
from rollout.gather.cluster.snapshot import read_node_pods, read_nodes
from rollout.gather.cluster.workloads import Workload, read_workload, read_workloads
from rollout.model.policy import Policy
from rollout.model.text import listed
from rollout.ports import ClusterApi

_PAUSE = 1.0
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Settler:
    """Measures health before a wave and waits for it afterwards."""

    cluster: PatientApi
    report: Reporter
    policy: Policy

    def baseline(self, nodes: Sequence[str]) -> Health:
        """Health before the wave that takes these nodes away."""
        deadline = self.cluster.deadline()
        owners = self.cluster.ask(lambda api: _owners_on(api, nodes), deadline)
        workloads = self.cluster.ask(read_workloads, deadline)
        ready = self.cluster.ask(read_nodes, deadline)
        return Health(
            {uid: workloads[uid] for uid in owners if uid in workloads},
            frozenset(node.name for node in ready if node.is_ready),
        )

    def wait(self, before: Health, index: int, expected_away: frozenset[str], stop: StopRequest) -> str:
        """Wait until all is as well as before; what is not, at the deadline, in a sentence (empty: settled)."""
        deadline = self.cluster.deadline(self.policy.settle_timeout)
        open_workloads, reported, good = dict(before.workloads), "", 0
        while True:
            missing = self.cluster.ask(
                lambda _api: self._missing(before, open_workloads, expected_away),  # noqa: B023 - called at once
                deadline,
            )
            if missing and good:
                good, open_workloads = 0, dict(before.workloads)
            elif not missing:
                good, open_workloads = good + 1, dict(before.workloads)
            if good >= self.policy.gates.health_checks or deadline.expired or stop.requested:
                return missing
            if missing and missing != reported:
                reported = missing
                self.report.settling(index, missing)
            stop.wait(_PAUSE)

    def _missing(self, before: Health, open_workloads: dict[str, Workload], expected_away: frozenset[str]) -> str:
        short = [text for was in list(open_workloads.values()) if (text := self._shortage(was, open_workloads))]
        unready = sorted((before.ready_nodes - expected_away) & self._unready_now())
        return listed(short + [f"node {name} is no longer Ready" for name in unready], _NAMED)

    def _shortage(self, was: Workload, open_workloads: dict[str, Workload]) -> str:
        """What a workload lacks; one that lacks nothing is not asked for again."""
        now = read_workload(self.cluster.api, was)
        expected = min(was.ready, now.desired) if now else 0
        if now is None or now.ready >= expected:
            del open_workloads[was.uid]
            return ""
        return f"{was.key} has {now.ready} of {expected} pods ready"

    def _unready_now(self) -> frozenset[str]:
        """A Node that is not there any more was taken out of the cluster, which is no sickness."""
        return frozenset(node.name for node in read_nodes(self.cluster.api) if not node.is_ready)


def _owners_on(api: ClusterApi, nodes: Sequence[str]) -> frozenset[str]:
    pods = (pod for node in nodes for pod in read_node_pods(api, node).pods)
    return frozenset(pod.owner.uid for pod in pods if pod.owner is not None)
