from collections.abc import Sequence

from msgspec import Struct

from rollout.model.cluster import Node, PersistentVolume, Pod
from rollout.model.placement import CORDON, NodeTerm, Toleration, are_tolerated
from rollout.model.selectors import first_in_requirement, has_labels
from rollout.model.soft_taint import AWAITING_REBOOT

_Labels = tuple[tuple[str, str], ...]


class PodDemand(Struct, frozen=True):
    """A pod's demands on its node, apart from capacity."""

    labels: _Labels
    # One term of each of these must match.
    alternatives: tuple[tuple[NodeTerm, ...], ...]
    tolerations: tuple[Toleration, ...]

    @classmethod
    def of(cls, pod: Pod, volumes: Sequence[PersistentVolume]) -> "PodDemand":
        """Return the pod's demand."""
        alternatives = [volume.node_terms for volume in volumes]
        if pod.placement.node_terms is not None:
            alternatives.insert(0, pod.placement.node_terms)
        labels = tuple(sorted(pod.node_selector.items()))
        return cls(labels, tuple(alternatives), pod.placement.tolerations)

    def admits(self, node: Node) -> bool:
        """Whether the pod may run if there is room."""
        if not node.is_ready or node.deleting:
            return False
        if node.unschedulable and not self.tolerates_cordons:
            return False
        if not has_labels(node.labels, self.labels):
            return False
        for terms in self.alternatives:
            has_match = any(term.matches(node.name, node.labels) for term in terms)
            if not has_match:
                return False
        return are_tolerated(node.taints, self.tolerations)

    @property
    def tolerates_cordons(self) -> bool:
        """Whether the pod tolerates a cordon."""
        return are_tolerated((CORDON,), self.tolerations)

    @property
    def minds_soft_taint(self) -> bool:
        """Whether the pod avoids the soft taint."""
        return not any(toleration.covers(AWAITING_REBOOT) for toleration in self.tolerations)

    @property
    def required_labels(self) -> _Labels:
        """Return alternative labels: a node needs one; empty if any node may match."""
        # All are required, so one is enough.
        if self.labels:
            return self.labels[:1]
        for terms in self.alternatives:
            labels = _labels_of_terms(terms)
            if labels:
                return labels
        return ()


def _labels_of_terms(terms: Sequence[NodeTerm]) -> _Labels:
    labels = list[tuple[str, str]]()
    for term in terms:
        requirement = first_in_requirement(term.labels)
        if requirement is None:
            return ()
        labels += [(requirement.key, value) for value in requirement.values]
    return tuple(labels)
