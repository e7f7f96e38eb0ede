"""Pods that come back to a node while it is drained, however often they are evicted.

A cordon keeps out only those that mind it: whoever tolerates the taint of unschedulable nodes, or names the node
itself, is replaced right where it was. Evicting such pods for as long as the deadline lasts would interrupt their
service again and again for nothing, so after a fair try they are left to the reboot, as DaemonSets' pods are.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from rollout.model.cluster import Pod
from rollout.model.placement import Taint

_UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
# The first to come may have been on its way when the node was cordoned.
_TRIES_OF_TOLERANT, _TRIES = 1, 3


@dataclass(slots=True)
class _Arrivals:
    """An owner's pods, by UID, that have come since the drain began; `times` counts those that came together once."""

    uids: set[str] = field(default_factory=set)
    times: int = 0


@dataclass(slots=True)
class Returning:
    """Who has come since the drain began. `first` are the UIDs of the pods that were there.

    `stay` takes up the UIDs of owners whose pods are left; `told` hears of the first such pod of each.
    """

    first: frozenset[str]
    stay: set[str]
    told: Callable[[Pod], None]
    arrivals: dict[str, _Arrivals] = field(default_factory=dict)

    def without(self, pods: Sequence[Pod]) -> tuple[Pod, ...]:
        """Those of the pods, which are all that are to be evicted, that are worth it."""
        alive = {pod.uid for pod in pods if not pod.terminating}
        return tuple(pod for pod in pods if not self._has_come_back(pod, alive))

    def _has_come_back(self, pod: Pod, alive: set[str]) -> bool:
        if pod.owner is None or pod.uid in self.first:
            return False
        arrivals = self.arrivals.setdefault(pod.owner.uid, _Arrivals())
        if pod.uid not in arrivals.uids:
            arrivals.times += not arrivals.uids & alive
            arrivals.uids.add(pod.uid)
        tries = _TRIES_OF_TOLERANT if _tolerates_cordons(pod) else _TRIES
        if arrivals.times > tries and pod.owner.uid not in self.stay:
            self.stay.add(pod.owner.uid)
            self.told(pod)
        return pod.owner.uid in self.stay and not pod.terminating


def not_left_to_the_reboot(pods: Iterable[Pod], owners: Iterable[str]) -> tuple[Pod, ...]:
    """The pods but those that one of these owners, by UID, puts back however often they are evicted."""
    known = frozenset(owners)
    return tuple(pod for pod in pods if pod.owner is None or pod.owner.uid not in known)


def _tolerates_cordons(pod: Pod) -> bool:
    return any(toleration.covers(_UNSCHEDULABLE) for toleration in pod.placement.tolerations)
