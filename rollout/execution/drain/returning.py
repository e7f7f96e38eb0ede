"""Pods that come back to a node while it is drained.

A pod that tolerates the cordon, or names the node itself, is replaced on the same node. Evicting it
until the deadline would interrupt its service for nothing, so after a fair try it is left to the
reboot.

Other pods come back too while the scheduler has not seen the cordon, for example for a minute after
an outage of the API server. They are evicted ever more rarely, and are left only after longer.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rollout.execution.drain.task import NodeTask
from rollout.model.cluster import OwnerRef, Pod
from rollout.model.placement import CORDON

# How often each pod that was on the node may be replaced there. The first replacement may have been
# on its way when the node was cordoned.
_TRIES_OF_TOLERANT = 1
_TRIES = 3
# How late a scheduler may see a cordon, in seconds.
_CORDON_UNSEEN = 120.0
# For how long a replacement is left alone at most, in seconds.
_LONGEST_REST = 30.0


@dataclass(slots=True)
class ReturningPods:
    """The pods that have arrived since the drain began.

    first: the UIDs of the pods that were on the node when the drain began.
    replicas: how many of them each owner had, by the owner's UID.
    arrived: when each later pod arrived, by the UIDs of owner and pod, in monotonic seconds.
    """

    task: NodeTask
    first: frozenset[str]
    replicas: Counter[str]
    arrived: dict[str, dict[str, float]] = field(default_factory=dict)

    @classmethod
    def since(cls, task: NodeTask, pods: Sequence[Pod]) -> "ReturningPods":
        uids = frozenset(pod.uid for pod in pods)
        replicas = Counter(pod.owner.uid for pod in pods if pod.owner is not None)
        return cls(task, uids, replicas)

    def note_arrivals(self, pods: Iterable[Pod]) -> None:
        for pod in pods:
            if pod.owner is None or pod.uid in self.first:
                continue
            arrived = self.arrived.setdefault(pod.owner.uid, {})
            arrived.setdefault(pod.uid, self.task.now)
            if pod.owner.uid not in self.task.returning and self._is_hopeless(pod, pod.owner):
                self.task.returning.add(pod.owner.uid)
                self.task.report.notice(
                    f"{self.task.name}: {pod.key} is left to the reboot: pods of"
                    f" {pod.owner.kind}/{pod.owner.name} keep coming back to this node"
                )

    def worth_evicting(self, pods: Iterable[Pod]) -> tuple[Pod, ...]:
        return tuple(pod for pod in pods if not self._is_left(pod))

    def due(self, pods: Iterable[Pod]) -> tuple[Pod, ...]:
        """Return the pods that may be evicted now.

        The more pods of an owner have come back, the longer the next is left alone.
        """
        return tuple(pod for pod in pods if pod.terminating or self._has_rested(pod))

    def _is_left(self, pod: Pod) -> bool:
        if pod.owner is None or pod.uid in self.first or pod.terminating:
            return False
        return pod.owner.uid in self.task.returning

    def _is_hopeless(self, pod: Pod, owner: OwnerRef) -> bool:
        arrived = self.arrived[owner.uid]
        if _tolerates_cordon(pod):
            return len(arrived) > self._replicas(owner) * _TRIES_OF_TOLERANT
        has_seen_cordon = self.task.now - min(arrived.values()) >= _CORDON_UNSEEN
        return has_seen_cordon and len(arrived) > self._replicas(owner) * _TRIES

    def _has_rested(self, pod: Pod) -> bool:
        arrived: Mapping[str, float] = self.arrived.get(pod.owner.uid, {}) if pod.owner else {}
        if pod.owner is None or pod.uid not in arrived or _tolerates_cordon(pod):
            return True
        rounds = list(arrived).index(pod.uid) // self._replicas(pod.owner)
        rest = min(_LONGEST_REST, 2.0**rounds) if rounds else 0.0
        return self.task.now - arrived[pod.uid] >= rest

    def _replicas(self, owner: OwnerRef) -> int:
        return max(1, self.replicas[owner.uid])


def without_returning(pods: Iterable[Pod], owners: Iterable[str]) -> tuple[Pod, ...]:
    uids = frozenset(owners)
    return tuple(pod for pod in pods if pod.owner is None or pod.owner.uid not in uids)


def _tolerates_cordon(pod: Pod) -> bool:
    return pod.placement.tolerates((CORDON,))
