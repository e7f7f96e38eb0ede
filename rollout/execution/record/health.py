"""What was well before a wave: measured between waves, and kept on the record for whoever goes on after a crash."""

from collections.abc import Mapping
from dataclasses import dataclass

from rollout.gather.cluster.workloads import Workload


@dataclass(frozen=True, slots=True)
class Health:
    """What was well before a wave: workloads that have pods on its nodes, and nodes that were Ready."""

    workloads: Mapping[str, Workload]
    ready_nodes: frozenset[str]

    def joined(self, later: "Health") -> "Health":
        """This one, with what was well later: whatever was well at either time."""
        return Health({**later.workloads, **self.workloads}, self.ready_nodes | later.ready_nodes)
