"""Pods that come back to a node while it is drained, however often they are evicted.

A cordon keeps out only those that mind it: whoever tolerates the taint of unschedulable nodes, or names the node
itself, is replaced right where it was. Evicting such pods for as long as the deadline lasts would interrupt their
service again and again for nothing, so after a fair try they are left to the reboot, as DaemonSets' pods are.

A pod that minds the cordon comes back as well while the scheduler has not seen that, as after an outage of the API
server, whose end schedulers notice up to a minute late. So it is evicted ever more rarely, and left only after longer.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rollout.model.cluster import Pod
from rollout.model.placement import CORDON

# The first to come may have been on its way when the node was cordoned.
_TRIES_OF_TOLERANT, _TRIES = 1, 3
# In seconds: how late a scheduler may see a cordon, and how long pods that it puts back may run at most.
_UNSEEN, _LONGEST_REST = 120.0, 30.0


@dataclass(slots=True)
class ReturningPods:
    """Who has come since the drain began. `first` are the pods that were there; `now` gives monotonic seconds.

    `stay` takes up the UIDs of owners whose pods are left; `notice` hears of the first such pod of each. `arrived` says
    when each pod of an owner came, by UIDs.
    """

    first: Sequence[Pod]
    stay: set[str]
    notice: Callable[[Pod], None]
    now: Callable[[], float]
    arrived: dict[str, dict[str, float]] = field(default_factory=dict)

    def without(self, pods: Iterable[Pod]) -> tuple[Pod, ...]:
        """Those of the pods, which are all that are to be evicted, that are worth it."""
        uids = frozenset(pod.uid for pod in self.first)
        return tuple(pod for pod in pods if pod.uid in uids or not self._has_come_back(pod))

    def due(self, pods: Iterable[Pod]) -> tuple[Pod, ...]:
        """Those of them that may be evicted now: the more have come back, the longer the next is left alone."""
        return tuple(pod for pod in pods if pod.terminating or self._has_rested(pod))

    def _has_come_back(self, pod: Pod) -> bool:
        if pod.owner is None:
            return False
        owner = pod.owner.uid
        arrived = self.arrived.setdefault(owner, {})
        arrived.setdefault(pod.uid, self.now())
        if owner not in self.stay and self._is_hopeless(pod, owner, arrived):
            self.stay.add(owner)
            self.notice(pod)
        return owner in self.stay and not pod.terminating

    def _is_hopeless(self, pod: Pod, owner: str, arrived: Mapping[str, float]) -> bool:
        """Whether no more of an owner's pods are evicted: each that was here may be replaced a few times."""
        if _tolerates_cordons(pod):
            return len(arrived) > self._replicas(owner) * _TRIES_OF_TOLERANT
        is_long = self.now() - min(arrived.values()) >= _UNSEEN
        return is_long and len(arrived) > self._replicas(owner) * _TRIES

    def _has_rested(self, pod: Pod) -> bool:
        arrived = self.arrived.get(pod.owner.uid, {}) if pod.owner else {}
        if pod.owner is None or pod.uid not in arrived or _tolerates_cordons(pod):
            return True
        replaced = list(arrived).index(pod.uid) // self._replicas(pod.owner.uid)
        rest = min(_LONGEST_REST, 2.0**replaced) if replaced else 0.0
        return self.now() - arrived[pod.uid] >= rest

    def _replicas(self, owner: str) -> int:
        return max(1, sum(1 for other in self.first if other.owner is not None and other.owner.uid == owner))


def without_returning(pods: Iterable[Pod], owners: Iterable[str]) -> tuple[Pod, ...]:
    """Return the pods but those that one of these owners, by UID, puts back however often they are evicted."""
    uids = frozenset(owners)
    return tuple(pod for pod in pods if pod.owner is None or pod.owner.uid not in uids)


def _tolerates_cordons(pod: Pod) -> bool:
    return pod.placement.tolerates((CORDON,))
