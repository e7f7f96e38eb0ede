"""Pods that come back to a node while it is drained, however often they are evicted.

A cordon keeps out only those that mind it: whoever tolerates the taint of unschedulable nodes, or names the node
itself, is replaced right where it was. Evicting such pods for as long as the deadline lasts would interrupt their
service again and again for nothing, so after a fair try they are left to the reboot, as DaemonSets' pods are.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from rollout.model.cluster import Pod
from rollout.model.placement import CORDON

# The first to come may have been on its way when the node was cordoned.
_TRIES_OF_TOLERANT, _TRIES = 1, 3


@dataclass(slots=True)
class ReturningPods:
    """Who has come since the drain began. `first` are the pods that were there.

    `stay` takes up the UIDs of owners whose pods are left; `notice` hears of the first such pod of each.
    """

    first: Sequence[Pod]
    stay: set[str]
    notice: Callable[[Pod], None]
    arrived: dict[str, set[str]] = field(default_factory=dict)

    def without(self, pods: Iterable[Pod]) -> tuple[Pod, ...]:
        """Those of the pods, which are all that are to be evicted, that are worth it."""
        uids = frozenset(pod.uid for pod in self.first)
        return tuple(pod for pod in pods if pod.uid in uids or not self._has_come_back(pod))

    def _has_come_back(self, pod: Pod) -> bool:
        if pod.owner is None:
            return False
        owner = pod.owner.uid
        arrived = self.arrived.setdefault(owner, set())
        arrived.add(pod.uid)
        if owner not in self.stay and len(arrived) > self._worth_trying(pod, owner):
            self.stay.add(owner)
            self.notice(pod)
        return owner in self.stay and not pod.terminating

    def _worth_trying(self, pod: Pod, owner: str) -> int:
        """How many of an owner's pods that come are evicted: each that was here may be replaced a few times."""
        replicas = sum(1 for other in self.first if other.owner is not None and other.owner.uid == owner)
        return max(1, replicas) * (_TRIES_OF_TOLERANT if _tolerates_cordons(pod) else _TRIES)


def without_returning(pods: Iterable[Pod], owners: Iterable[str]) -> tuple[Pod, ...]:
    """The pods but those that one of these owners, by UID, puts back however often they are evicted."""
    uids = frozenset(owners)
    return tuple(pod for pod in pods if pod.owner is None or pod.owner.uid not in uids)


def _tolerates_cordons(pod: Pod) -> bool:
    return pod.placement.tolerates((CORDON,))
