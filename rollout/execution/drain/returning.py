"""Pods that come back to a node while it is drained.

Pods that tolerate the cordon are soon left to the reboot. Others come back until the scheduler sees
the cordon: they are evicted ever more rarely, and left much later.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rollout.execution.drain.task import NodeTask
from rollout.model.cluster import OwnerRef, Pod
from rollout.model.placement import CORDON

# How often each pod may be replaced on the node; the first may precede the cordon.
_TRIES_OF_TOLERANT = 1
_TRIES = 3
# Seconds after which a scheduler has seen the cordon.
_CORDON_UNSEEN = 120.0
# How long a replacement is left alone at most.
_LONGEST_REST = 30.0


@dataclass(slots=True)
class ReturningPods:
    """The pods that have arrived since the drain began."""

    task: NodeTask
    # UIDs of the pods that were there before.
    first_pods: frozenset[str]
    # How many of these each owner had, by its UID.
    replicas: Counter[str]
    # Later pods in monotonic seconds, by owner's and pod's UID.
    arrived: dict[str, dict[str, float]] = field(default_factory=dict)

    @classmethod
    def at_start(cls, task: NodeTask, pods: Sequence[Pod]) -> "ReturningPods":
        uids = frozenset(pod.uid for pod in pods)
        replicas = Counter(pod.owner.uid for pod in pods if pod.owner is not None)
        return cls(task, uids, replicas)

    def note_arrivals(self, pods: Iterable[Pod]) -> None:
        """Note new pods, and give up owners whose pods keep coming back."""
        for pod in pods:
            if pod.owner is None or pod.uid in self.first_pods:
                continue
            arrived = self.arrived.setdefault(pod.owner.uid, {})
            arrived.setdefault(pod.uid, self.task.now)
            if pod.owner.uid not in self.task.returning_owners and self._is_hopeless(
                pod, pod.owner
            ):
                self.task.returning_owners.add(pod.owner.uid)
                self.task.report.notice(
                    f"{self.task.name}: {pod.key} is not evicted again, and the reboot stops it:"
                    f" pods of {pod.owner.kind}/{pod.owner.name} keep coming back to this node"
                )

    def worth_evicting(self, pods: Iterable[Pod]) -> tuple[Pod, ...]:
        return tuple(pod for pod in pods if not self._is_left_to_reboot(pod))

    def due_for_eviction(self, pods: Iterable[Pod]) -> tuple[Pod, ...]:
        """Leave out replacements that have not waited long enough yet."""
        return tuple(pod for pod in pods if pod.terminating or self._has_rested(pod))

    def _is_left_to_reboot(self, pod: Pod) -> bool:
        if pod.owner is None or pod.uid in self.first_pods or pod.terminating:
            return False
        return pod.owner.uid in self.task.returning_owners

    def _is_hopeless(self, pod: Pod, owner: OwnerRef) -> bool:
        arrived = self.arrived[owner.uid]
        if tolerates_cordon(pod):
            return len(arrived) > self._replicas(owner) * _TRIES_OF_TOLERANT
        has_seen_cordon = self.task.now - min(arrived.values()) >= _CORDON_UNSEEN
        return has_seen_cordon and len(arrived) > self._replicas(owner) * _TRIES

    def _has_rested(self, pod: Pod) -> bool:
        if pod.owner is None or tolerates_cordon(pod):
            return True
        arrived: Mapping[str, float] = self.arrived.get(pod.owner.uid, {})
        if pod.uid not in arrived:
            return True
        # How often all of its pods have been replaced before.
        rounds = list(arrived).index(pod.uid) // self._replicas(pod.owner)
        rest_seconds = min(_LONGEST_REST, 2.0**rounds) if rounds else 0.0
        return self.task.now - arrived[pod.uid] >= rest_seconds

    def _replicas(self, owner: OwnerRef) -> int:
        # An owner may have had no pod here.
        return max(1, self.replicas[owner.uid])


def without_pods_of(owner_uids: Iterable[str], pods: Iterable[Pod]) -> tuple[Pod, ...]:
    excluded = frozenset(owner_uids)
    return tuple(pod for pod in pods if pod.owner is None or pod.owner.uid not in excluded)


def tolerates_cordon(pod: Pod) -> bool:
    return pod.placement.tolerates((CORDON,))
