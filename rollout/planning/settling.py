"""Pods on their way: who may leave a node, when it is empty, and when all that left it runs elsewhere, event by event.

A pod goes once its budgets have a permit left, which comes back as soon as its replacement is ready. A replacement
starts when its pod is evicted, or gone, on a node that has room for it by then: beside the rest of the drain and the
reboot, mostly. One that has to wait for its turn, or for a node to come back, starts later, and what follows waits.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

from rollout.model.cluster import Pod
from rollout.model.policy import DrainPolicy
from rollout.model.quantity import LONGEST
from rollout.planning.budgets import BudgetIndex, guards
from rollout.planning.estimates import Pace, is_ordered
from rollout.planning.naming import natural_key
from rollout.planning.rooms import Rooms

Action = Callable[[], None]
"""What happens at a moment."""


class Agenda:
    """What happens when, in seconds from the beginning of the rollout; of one moment in the order of its planning."""

    def __init__(self) -> None:
        self.now = 0
        self._events: list[tuple[int, int, Action]] = []
        self._numbers = count()

    def at(self, seconds: int, action: Action) -> None:
        """Do it then."""
        heappush(self._events, (max(seconds, self.now), next(self._numbers), action))

    def run(self, is_over: Callable[[], bool], until: int = LONGEST) -> None:
        """Let time pass until it is over, at most until then."""
        while not is_over() and self._events and self._events[0][0] <= until:
            self.now, _, action = heappop(self._events)
            action()

    def pass_until(self, seconds: int) -> None:
        """Let time pass until then."""
        while self._events and self._events[0][0] <= seconds:
            self.now, _, action = heappop(self._events)
            action()
        self.now = max(self.now, seconds)


@dataclass(slots=True)
class _Drain:
    """A node that is emptied: its pods that wait for a permit, by budget, and how many pods are still there.

    `taken` counts those that were ready when they were evicted, by the UID of their owner.
    """

    emptied: Action
    left: int
    waiting: dict[str, list[Pod]] = field(default_factory=dict)
    taken: Counter[str] = field(default_factory=Counter)


class _Sequence:
    """The pods of an ordered owner that are away: the lowest of them starts next, once it is gone."""

    def __init__(self) -> None:
        self._away: list[tuple[object, Pod]] = []
        self._gone = set[str]()

    def leave(self, pod: Pod) -> None:
        """It is about to end."""
        self._gone.discard(pod.uid)
        if all(away.uid != pod.uid for _, away in self._away):
            self._away = sorted([*self._away, (natural_key(pod.name), pod)], key=lambda away: away[0])  # type: ignore[arg-type,return-value]

    def gone(self, pod: Pod) -> None:
        """It has ended."""
        self._gone.add(pod.uid)

    def ready(self, pod: Pod) -> None:
        """It runs again."""
        self._away = [away for away in self._away if away[1].uid != pod.uid]

    def next_one(self) -> Pod | None:
        """Which may start now; it is the one that starts with that."""
        if not self._away or self._away[0][1].uid not in self._gone:
            return None
        pod = self._away[0][1]
        self._gone.discard(pod.uid)
        return pod


@dataclass(slots=True)
class Flow:
    """The pods of the rollout's nodes as they move. `permits` are those of each budget; `residents` are by node.

    `away` counts the pods that are not ready again, by the UID of their owner. `on_ready` hears of each that is.
    """

    agenda: Agenda
    pace: Pace
    permits: Mapping[str, int]
    rules: DrainPolicy
    index: BudgetIndex
    rooms: Rooms
    residents: dict[str, dict[str, Pod]]
    on_ready: Callable[[str], None] = lambda _owner: None
    away: Counter[str] = field(default_factory=Counter)
    _closed: set[str] = field(default_factory=set)
    _drains: dict[str, _Drain] = field(default_factory=dict)
    _used: Counter[str] = field(default_factory=Counter)
    _missing: set[str] = field(default_factory=set)
    _lives: Counter[str] = field(default_factory=Counter)
    _sequences: dict[str, _Sequence] = field(default_factory=lambda: defaultdict(_Sequence))
    _pending: dict[str, Pod] = field(default_factory=dict)

    def close(self, names: Sequence[str]) -> None:
        """These nodes have begun: they take no pods until they are back, and have no soft taint any more."""
        self.rooms.untaint(names)
        self._closed.update(names)
        self.rooms.close(self._closed)

    def open(self, name: str) -> None:
        """The node is back: what found no place may go there."""
        del self._drains[name]
        self._closed.discard(name)
        self.rooms.close(self._closed)
        self._place_pending(list(self._pending.values()))

    def ready_on(self, name: str) -> Counter[str]:
        """How many ready pods of each owner, by UID, a node has."""
        pods = self.residents.get(name, {}).values()
        return Counter(_owner(pod) for pod in pods if pod.uid not in self._missing)

    def taken(self, name: str, owner: str) -> int:
        """How many pods of an owner were ready on a node that is away, and have left it."""
        return self._drains[name].taken[owner] if name in self._drains else 0

    def drain(self, name: str, emptied: Action) -> None:
        """Empty a node from now on."""
        # As the API lists them.
        pods = sorted(self.residents.setdefault(name, {}).values(), key=lambda pod: (pod.namespace, pod.name))
        drain = self._drains[name] = _Drain(emptied, len(pods))
        if not pods:
            emptied()
        for pod in pods:
            if key := self._barrier(pod):
                drain.waiting.setdefault(key, []).append(pod)
            else:
                self._evict(pod, name)

    def give_up(self, name: str) -> None:
        """The drain's time is over: what has not been evicted stays."""
        self._drains[name].waiting.clear()

    def _barrier(self, pod: Pod) -> str:
        """The budget that has no permit left for a pod; one that is not ready has used it up already."""
        if pod.uid in self._missing:
            return ""
        keys = guards(pod, self.index)
        return next((key for key in keys if key in self.permits and self._used[key] >= max(1, self.permits[key])), "")

    def _evict(self, pod: Pod, name: str) -> None:
        uid, owner = _owner(pod), pod.owner
        if pod.uid not in self._missing:
            self._missing.add(pod.uid)
            self._used.update(guards(pod, self.index))
            self.away[uid] += 1
            self._drains[name].taken[uid] += 1
        self._lives[pod.uid] += 1
        kind = owner.kind if owner else ""
        if is_ordered(kind):
            self._sequences[uid].leave(pod)
        is_replaced = self.pace.starts_at_once(uid, kind)
        ending = self.pace.ending_of((uid,), self._grace(pod))
        self.agenda.at(self.agenda.now + ending, lambda: self._end(pod, name, is_replaced=is_replaced))
        if is_replaced:
            del self.residents[name][pod.uid]
            self.rooms.take_out(pod)
            self._place(pod)

    def _end(self, pod: Pod, name: str, *, is_replaced: bool) -> None:
        """Its last container has ended."""
        if not is_replaced:
            del self.residents[name][pod.uid]
            self.rooms.take_out(pod)
            self._replace(pod)
        self._place_pending([pod for pod in self._pending.values() if pod.placement.minds_others])
        if drain := self._drains.get(name):
            drain.left -= 1
            if not drain.left:
                drain.emptied()

    def _replace(self, pod: Pod) -> None:
        if pod.owner is None or not is_ordered(pod.owner.kind):
            self._place(pod)
            return
        self._sequences[pod.owner.uid].gone(pod)
        self._place_next(pod.owner.uid)

    def _place_next(self, owner: str) -> None:
        if (following := self._sequences[owner].next_one()) is not None:
            self._place(following)

    def _place(self, pod: Pod) -> None:
        """Start a pod on a node that takes it, or let it wait for one."""
        target = self.rooms.place(pod)
        if not target or target in self._closed:
            self._pending[pod.uid] = pod
            return
        self._pending.pop(pod.uid, None)
        self.rooms.put(pod, target)
        self.residents.setdefault(target, {})[pod.uid] = pod
        life, start = self._lives[pod.uid], self.pace.starting(self._grace(pod), (_owner(pod),))
        self.agenda.at(self.agenda.now + start, lambda: self._ready(pod, life))

    def _place_pending(self, pods: Sequence[Pod]) -> None:
        for pod in pods:
            self._place(pod)

    def _ready(self, pod: Pod, life: int) -> None:
        """A replacement is ready, unless it was evicted before."""
        if self._lives[pod.uid] != life:
            return
        uid, keys = _owner(pod), tuple(guards(pod, self.index))
        self._missing.discard(pod.uid)
        self._used.subtract(keys)
        self.away[uid] -= 1
        if uid in self._sequences:
            self._sequences[uid].ready(pod)
            self._place_next(uid)
        for key in keys:
            self._grant(key)
        self.on_ready(uid)

    def _grant(self, key: str) -> None:
        """Permits have come back: they go to the node that is nearest to being empty."""
        wanting = [(drain.left, name) for name, drain in self._drains.items() if drain.waiting.get(key)]
        while wanting and self._used[key] < max(1, self.permits.get(key, 0)):
            _, name = min(wanting)
            waiting = self._drains[name].waiting[key]
            pod = waiting.pop(0)
            if further := self._barrier(pod):
                self._drains[name].waiting.setdefault(further, []).append(pod)
            else:
                self._evict(pod, name)
            wanting = [(drain.left, name) for name, drain in self._drains.items() if drain.waiting.get(key)]

    def _grace(self, pod: Pod) -> int:
        return self.rules.grace_of(pod.grace_period)


def _owner(pod: Pod) -> str:
    return pod.owner.uid if pod.owner else pod.uid
