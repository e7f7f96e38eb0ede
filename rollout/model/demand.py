"""What a pod asks of the node itself that it may run on: labels, taints, and what its volumes attach to."""

from collections.abc import Sequence
from dataclasses import dataclass

from rollout.model.cluster import Node, PersistentVolume, Pod
from rollout.model.placement import CORDON, NodeTerm, Toleration, are_tolerated
from rollout.model.selectors import first_naming_values, has_labels
from rollout.model.soft_taint import AWAITING_REBOOT

_Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class PodDemand:
    """Equal for pods that ask the same. Of each of `alternatives`, one term must hold."""

    labels: _Labels
    alternatives: tuple[tuple[NodeTerm, ...], ...]
    tolerations: tuple[Toleration, ...]

    @classmethod
    def of(cls, pod: Pod, volumes: Sequence[PersistentVolume]) -> "PodDemand":
        """Return what this pod, with these volumes, asks."""
        own = pod.placement.node_terms
        terms = tuple(volume.node_terms for volume in volumes)
        labels = tuple(sorted(pod.node_selector.items()))
        return cls(labels, terms if own is None else (own, *terms), pod.placement.tolerations)

    def admits(self, node: Node) -> bool:
        """Whether such a pod may be given to the node, room or not."""
        return (
            (node.is_ready and not node.deleting)
            and (not node.unschedulable or self.tolerates_cordons)
            and has_labels(node.labels, self.labels)
            and all(
                any(term.holds(node.name, node.labels) for term in terms)
                for terms in self.alternatives
            )
            and (not node.taints or are_tolerated(node.taints, self.tolerations))
        )

    @property
    def tolerates_cordons(self) -> bool:
        """Whether a cordon is nothing to such a pod: it may come back to the very node that it was evicted from."""
        return are_tolerated((CORDON,), self.tolerations)

    @property
    def minds_soft_taint(self) -> bool:
        """Whether a scheduler prefers for such a pod nodes that do not wait for their reboot."""
        return not any(toleration.covers(AWAITING_REBOOT) for toleration in self.tolerations)

    @property
    def named_labels(self) -> _Labels:
        """Labels of which a node must have at least one; none where it cannot be said so simply."""
        if self.labels:
            return self.labels[:1]
        return next(
            (labels for terms in self.alternatives if (labels := _labels_of_terms(terms))), ()
        )


def _labels_of_terms(terms: Sequence[NodeTerm]) -> _Labels:
    sure = [first_naming_values(term.labels) for term in terms]
    return (
        tuple((named.key, value) for named in sure if named for value in named.values)
        if all(sure)
        else ()
    )
