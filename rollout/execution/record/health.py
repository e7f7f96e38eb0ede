"""What was well before a wave: measured between waves, and kept on the record for whoever goes on after a crash."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rollout.gather.cluster.workloads import Workload


@dataclass(frozen=True, slots=True)
class Health:
    """What was well before a wave: workloads that have pods on its nodes, and nodes that were Ready."""

    workloads: Mapping[str, Workload]
    ready_nodes: frozenset[str]

    @classmethod
    def of_all(cls, several: "Iterable[Health]") -> "Health":
        """Whatever was well by any of these, the first to name a workload saying how well."""
        whole = cls({}, frozenset())
        for health in several:
            whole = whole.joined(health)
        return whole

    def joined(self, later: "Health") -> "Health":
        """This one, with what was well later: whatever was well at either time."""
        return Health({**later.workloads, **self.workloads}, self.ready_nodes | later.ready_nodes)
