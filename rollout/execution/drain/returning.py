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

# How often each pod may be replaced; the first may precede the cordon.
_TRIES_OF_TOLERANT = 1
_TRIES = 3
# A scheduler has seen the cordon after this many seconds.
_CORDON_UNSEEN = 120.0
_LONGEST_REST = 30.0


@dataclass(slots=True)
class ReturningPods:
    """The pods that have arrived since the drain began.

    Such a pod rests before it is evicted. An owner whose pods keep coming back is hopeless.
    """

    task: NodeTask
    # UIDs.
    first_pods: frozenset[str]
    # By the owner's UID.
    first_replicas: Counter[str]
    # Monotonic seconds, by the owner's and the pod's UID.
    arrivals: dict[str, dict[str, float]] = field(default_factory=dict)

    @classmethod
    def at_start(cls, task: NodeTask, pods: Sequence[Pod]) -> "ReturningPods":
        uids = frozenset(pod.uid for pod in pods)
        replicas = Counter(pod.owner.uid for pod in pods if pod.owner is not None)
        return cls(task, uids, replicas)

    def note_arrivals(self, pods: Iterable[Pod]) -> None:
        for pod in pods:
            if pod.owner is None or pod.uid in self.first_pods:
                continue
            arrivals = self.arrivals.setdefault(pod.owner.uid, {})
            arrivals.setdefault(pod.uid, self.task.now)
            is_given_up = pod.owner.uid in self.task.returning_owners
            if not is_given_up and self._is_hopeless(pod, pod.owner):
                self.task.returning_owners.add(pod.owner.uid)
                self.task.report.notice(
                    f"{self.task.name}: {pod.key} is not evicted again, and the reboot stops it:"
                    f" pods of {pod.owner.kind}/{pod.owner.name} keep coming back to this node"
                )

    def without_hopeless(self, pods: Iterable[Pod]) -> tuple[Pod, ...]:
        return tuple(pod for pod in pods if not self._is_left_to_reboot(pod))

    def without_resting(self, pods: Iterable[Pod]) -> tuple[Pod, ...]:
        return tuple(pod for pod in pods if pod.terminating or self._has_rested(pod))

    def _is_left_to_reboot(self, pod: Pod) -> bool:
        if pod.owner is None or pod.uid in self.first_pods or pod.terminating:
            return False
        return pod.owner.uid in self.task.returning_owners

    def _is_hopeless(self, pod: Pod, owner: OwnerRef) -> bool:
        arrivals = self.arrivals[owner.uid]
        replacements_of_each = len(arrivals) / self._replicas(owner)
        if tolerates_cordon(pod):
            return replacements_of_each > _TRIES_OF_TOLERANT
        seconds_since_first = self.task.now - min(arrivals.values())
        if seconds_since_first < _CORDON_UNSEEN:
            return False
        return replacements_of_each > _TRIES

    def _has_rested(self, pod: Pod) -> bool:
        """The pause doubles with each replacement."""
        if pod.owner is None or tolerates_cordon(pod):
            return True
        arrivals: Mapping[str, float] = self.arrivals.get(pod.owner.uid, {})
        if pod.uid not in arrivals:
            return True
        # How often all of the owner's pods were replaced before this one came.
        earlier_arrivals = list(arrivals).index(pod.uid)
        rounds = earlier_arrivals // self._replicas(pod.owner)
        if rounds == 0:
            return True
        rest_seconds = min(_LONGEST_REST, 2.0**rounds)
        return self.task.now - arrivals[pod.uid] >= rest_seconds

    def _replicas(self, owner: OwnerRef) -> int:
        return max(1, self.first_replicas[owner.uid])


def without_pods_of(owner_uids: Iterable[str], pods: Iterable[Pod]) -> tuple[Pod, ...]:
    excluded = frozenset(owner_uids)
    return tuple(pod for pod in pods if pod.owner is None or pod.owner.uid not in excluded)


def tolerates_cordon(pod: Pod) -> bool:
    return pod.placement.tolerates((CORDON,))
