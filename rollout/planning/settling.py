"""Pods on their way: when each node is empty, and when all that left it runs elsewhere, played pod by pod.

A pod goes once its budget has a permit left, which comes back as soon as its replacement is ready. A replacement starts
when its pod is evicted, or gone, beside the rest of the drain and the reboot: mostly it is ready long before the node.
One that starts slowly, waits for its turn, or has no place before the node is back, is not: what follows waits.
"""

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from rollout.model.cluster import Pod
from rollout.model.policy import DrainPolicy
from rollout.planning.budgets import BudgetIndex, guards
from rollout.planning.estimates import Pace, is_ordered
from rollout.planning.naming import natural_key
from rollout.planning.rates import Rates


@dataclass(frozen=True, slots=True)
class Departure:
    """The pods that leave a node when its turn has come; `homeless` are those, by UID, that start once it is back."""

    pods: Sequence[Pod] = ()
    homeless: frozenset[str] = frozenset()


NO_DEPARTURE = Departure()


@dataclass(frozen=True, slots=True)
class Emptied:
    """When a node is empty, and when all that left it is ready but what starts when it is back.

    `late` is that: its budget, its owner where that brings pods back in order, both empty otherwise, and how long it
    takes to start, in seconds. `starts` is when the others begin to start, by UID.
    """

    empty: int
    ready: int
    late: tuple[tuple[str, str, int], ...] = ()
    starts: Mapping[str, int] = field(default_factory=dict[str, int])

    def at_home(self, back: int) -> set[str]:
        """The UIDs of those that have no new node yet when one is back: an empty one without a taint draws them."""
        return {uid for uid, begin in self.starts.items() if begin >= back}


@dataclass(slots=True)
class Flow:
    """Drains as they are played, in the order in which they begin; all times are seconds from the same moment.

    `_permits` are when those of each budget come back, `_last` when the last pod of an ordered owner, by UID, is ready.
    """

    pace: Pace
    rates: Rates
    rules: DrainPolicy
    index: BudgetIndex
    _permits: dict[str, list[int]] = field(default_factory=dict)
    _last: dict[str, int] = field(default_factory=dict)

    def drain(self, departure: Departure, begin: int, most: int) -> Emptied:
        """Empty a node from then on; a drain takes so many seconds `most`."""
        empty, ready, late, starts, blocked = begin, begin, list[tuple[str, str, int]](), dict[str, int](), set[str]()
        pods = self._in_order(departure)
        homeless = _last_of(pods, departure.homeless)
        for pod in pods:
            key, grace = next(guards(pod, self.index), ""), self.rules.grace_of(pod.grace_period)
            uid, kind = (pod.owner.uid, pod.owner.kind) if pod.owner else ("", "")
            evicted, ending = self._permit(key, begin, begin + most), self.pace.ending_of((uid,), grace)
            empty = max(empty, evicted + ending)
            start = self.pace.starting(grace, (uid,))
            if pod.uid in homeless or uid in blocked:
                blocked |= {uid} if is_ordered(kind) else set()
                late.append((key, uid if is_ordered(kind) else "", start))
                continue
            begins = evicted if self.pace.starts_at_once(uid, kind) else evicted + ending
            started = self._start(key, uid if is_ordered(kind) else "", begins, start)
            starts[pod.uid], ready = started - start, max(ready, started)
        return Emptied(min(empty, begin + most), ready, tuple(late), starts)

    def back(self, emptied: Emptied, at: int) -> int:
        """The node is back then: what had no place starts. When all that left it is ready."""
        return max([emptied.ready, *(self._start(key, uid, at, start) for key, uid, start in emptied.late)])

    def _in_order(self, departure: Departure) -> Sequence[Pod]:
        """As controllers bring them back: an ordered one no pod before those of lower numbers."""
        if not departure.homeless:
            return departure.pods
        return sorted(departure.pods, key=lambda pod: natural_key(pod.name))

    def _permit(self, key: str, begin: int, most: int) -> int:
        """When the next pod of a budget may go: at the drain's end where none comes back before the node does."""
        rate = self.rates.by_key.get(key)
        if rate is None:
            return begin
        permits = self._permits.setdefault(key, [0] * max(1, rate.permits))
        return max(begin, heappop(permits)) if permits else most

    def _start(self, key: str, ordered: str, begins: int, start: int) -> int:
        """When a pod is ready that may start then: of an ordered owner after the one before."""
        ready = max(begins, self._last.get(ordered, 0) if ordered else 0) + start
        if ordered:
            self._last[ordered] = ready
        if key in self._permits:
            heappush(self._permits[key], ready)
        return ready


def _last_of(pods: Sequence[Pod], homeless: Container[str]) -> set[str]:
    """As many of each owner as find no place, the last of them: the first take what room there is."""
    owners = {pod.uid: pod.owner.uid if pod.owner else pod.uid for pod in pods}
    left = Counter(owners[pod.uid] for pod in pods if pod.uid in homeless)
    last = set[str]()
    for pod in reversed(pods):
        if left[owners[pod.uid]]:
            left[owners[pod.uid]] -= 1
            last.add(pod.uid)
    return last
