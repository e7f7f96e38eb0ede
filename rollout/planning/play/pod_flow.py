"""Pods on their way: who may leave a node, when it is empty, and when all that left it runs elsewhere, event by event.

A pod goes once its budgets have a permit left, which comes back as soon as its replacement is ready. A replacement
starts when its pod is evicted, or gone, on a node that has room for it by then: beside the rest of the drain and the
reboot, mostly. One that has to wait for its turn, or for a node to come back, starts later, and what follows waits.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count
from math import inf

from rollout.model.cluster import Pod
from rollout.model.policy import DrainPolicy
from rollout.model.text import natural_key
from rollout.planning.drain.budgets import BudgetIndex, guards
from rollout.planning.drain.scheduler import Scheduler
from rollout.planning.play.pace import ORDERED, REPLACED_AT_ONCE, Pace

Action = Callable[[], None]
"""What happens at a moment."""


class EventQueue:
    """What happens when, in seconds from the beginning of the rollout; of one moment in the order of its planning."""

    def __init__(self) -> None:
        self.now = 0
        self._events: list[tuple[int, int, Action]] = []
        self._numbers = count()

    def at(self, seconds: int, action: Action) -> None:
        """Do it then."""
        heappush(self._events, (max(seconds, self.now), next(self._numbers), action))

    def run(self, is_over: Callable[[], bool], until: float = inf) -> None:
        """Let time pass until it is over, at most until then."""
        while not is_over() and self._events and self._events[0][0] <= until:
            self.now, _, action = heappop(self._events)
            action()

    def pass_until(self, seconds: int) -> None:
        """Let time pass until then."""
        self.run(lambda: False, until=seconds)
        self.now = max(self.now, seconds)


@dataclass(frozen=True, slots=True)
class _Traits:
    """What a pod is for its way: its owner's UID, the budgets that guard it, and how long it takes to end and to start.

    `in_order`: its owner starts one pod after another. `at_once`: it is replaced while it still ends.
    """

    owner: str
    keys: tuple[str, ...]
    ending: int
    start: int
    in_order: bool
    at_once: bool


@dataclass(slots=True)
class _Drain:
    """A node that is emptied: how many pods are still there.

    `taken` counts those that were ready when they were evicted, by the UID of their owner.
    """

    emptied: Action
    left: int
    taken: Counter[str] = field(default_factory=Counter)


class _Sequence:
    """The pods of an ordered owner that are away: the lowest of them starts next, once it is gone."""

    def __init__(self) -> None:
        self._away = dict[str, Pod]()
        self._gone = set[str]()

    def leave(self, pod: Pod) -> None:
        """Note that it is about to end."""
        self._gone.discard(pod.uid)
        self._away[pod.uid] = pod

    def gone(self, pod: Pod) -> None:
        """Note that it has ended."""
        self._gone.add(pod.uid)

    def ready(self, pod: Pod) -> None:
        """Note that it runs again."""
        self._away.pop(pod.uid, None)

    def next_one(self) -> Pod | None:
        """Which may start now; it is the one that starts with that."""
        lowest = min(self._away.values(), key=lambda pod: natural_key(pod.name), default=None)
        if lowest is None or lowest.uid not in self._gone:
            return None
        self._gone.discard(lowest.uid)
        return lowest


@dataclass(slots=True)
class PodFlow:
    """The pods of the rollout's nodes as they move. `permits` are those of each budget; `residents` are by node.

    `away` counts the pods that are not ready again, by the UID of their owner. `on_ready` hears of each that is.
    """

    events: EventQueue
    pace: Pace
    permits: Mapping[str, int]
    rules: DrainPolicy
    index: BudgetIndex
    scheduler: Scheduler
    residents: dict[str, dict[str, Pod]]
    on_ready: Callable[[str], None] = lambda _owner: None
    away: Counter[str] = field(default_factory=Counter)
    closed: set[str] = field(default_factory=set)
    _drains: dict[str, _Drain] = field(default_factory=dict)
    _used: Counter[str] = field(default_factory=Counter)
    _wanting: dict[str, dict[str, deque[Pod]]] = field(default_factory=dict)
    _missing: set[str] = field(default_factory=set)
    _lives: Counter[str] = field(default_factory=Counter)
    _sequences: dict[str, _Sequence] = field(default_factory=lambda: defaultdict(_Sequence))
    _pending: dict[str, Pod] = field(default_factory=dict)
    _minding: dict[str, Pod] = field(default_factory=dict)
    _known: dict[str, _Traits] = field(default_factory=dict)
    _alike: dict[tuple[object, ...], _Traits] = field(default_factory=dict)

    def close(self, names: Sequence[str]) -> None:
        """Begin these nodes: they take no pods until they are back, and have no soft taint any more."""
        self.scheduler.untaint(names)
        self.closed.update(names)
        self.scheduler.close(self.closed)

    def open(self, name: str) -> None:
        """Take a node back: what found no place may go there."""
        del self._drains[name]
        self.closed.discard(name)
        self.scheduler.close(self.closed)
        self._place_pending(list(self._pending.values()))

    @property
    def missing(self) -> int:
        """How many pods are not ready again."""
        return len(self._missing)

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
        self._drains[name] = _Drain(emptied, len(pods))
        if not pods:
            emptied()
        for pod in pods:
            traits = self._traits(pod)
            if key := self._barrier(pod, traits):
                self._want(key, name, pod)
            else:
                self._evict(pod, traits, name)

    def give_up(self, name: str) -> None:
        """End a drain whose time is over: what has not been evicted stays."""
        for wanting in self._wanting.values():
            wanting.pop(name, None)

    def _barrier(self, pod: Pod, traits: _Traits) -> str:
        """Return the budget that has no permit left for a pod; one that is not ready has used it up already."""
        if pod.uid in self._missing:
            return ""
        for key in traits.keys:
            if key in self.permits and self._used[key] >= max(1, self.permits[key]):
                return key
        return ""

    def _evict(self, pod: Pod, traits: _Traits, name: str) -> None:
        if pod.uid not in self._missing:
            self._missing.add(pod.uid)
            for key in traits.keys:
                self._used[key] += 1
            self.away[traits.owner] += 1
            self._drains[name].taken[traits.owner] += 1
        self._lives[pod.uid] += 1
        if traits.in_order:
            self._sequences[traits.owner].leave(pod)
        self.events.at(self.events.now + traits.ending, partial(self._end, pod, traits, name))
        if traits.at_once:
            self._leave(pod, name)
            self._place(pod, traits)

    def _leave(self, pod: Pod, name: str) -> None:
        del self.residents[name][pod.uid]
        self.scheduler.take_out(pod)

    def _end(self, pod: Pod, traits: _Traits, name: str) -> None:
        """Its last container has ended."""
        if not traits.at_once:
            self._leave(pod, name)
            self._replace(pod, traits)
        if self._minding:
            self._place_pending(list(self._minding.values()))
        if drain := self._drains.get(name):
            drain.left -= 1
            if not drain.left:
                drain.emptied()

    def _replace(self, pod: Pod, traits: _Traits) -> None:
        if not traits.in_order:
            self._place(pod, traits)
            return
        self._sequences[traits.owner].gone(pod)
        self._place_next(traits.owner)

    def _place_next(self, owner: str) -> None:
        if (following := self._sequences[owner].next_one()) is not None:
            self._place(following, self._traits(following))

    def _place(self, pod: Pod, traits: _Traits) -> None:
        """Start a pod on a node that takes it, or let it wait for one."""
        target = self.scheduler.place(pod)
        if not target or target in self.closed:
            self._pending[pod.uid] = pod
            if pod.placement.minds_others:
                self._minding[pod.uid] = pod
            return
        self._pending.pop(pod.uid, None)
        self._minding.pop(pod.uid, None)
        self.scheduler.put(pod, target)
        self.residents.setdefault(target, {})[pod.uid] = pod
        self.events.at(self.events.now + traits.start, partial(self._ready, pod, traits, self._lives[pod.uid]))

    def _place_pending(self, pods: Sequence[Pod]) -> None:
        for pod in pods:
            self._place(pod, self._traits(pod))

    def _ready(self, pod: Pod, traits: _Traits, life: int) -> None:
        """Note that a replacement is ready, unless it was evicted before."""
        if self._lives[pod.uid] != life:
            return
        self._missing.discard(pod.uid)
        self.away[traits.owner] -= 1
        if traits.in_order:
            self._sequences[traits.owner].ready(pod)
            self._place_next(traits.owner)
        for key in traits.keys:
            self._used[key] -= 1
        for key in traits.keys:
            self._grant(key)
        self.on_ready(traits.owner)

    def _grant(self, key: str) -> None:
        """Permits have come back: they go to the node that is nearest to being empty."""
        while (wanting := self._wanting.get(key)) and self._used[key] < max(1, self.permits.get(key, 0)):
            _, name = min((self._drains[name].left, name) for name in wanting)
            pod = wanting[name].popleft()
            if not wanting[name]:
                del wanting[name]
            traits = self._traits(pod)
            if further := self._barrier(pod, traits):
                self._want(further, name, pod)
            else:
                self._evict(pod, traits, name)

    def _want(self, key: str, name: str, pod: Pod) -> None:
        self._wanting.setdefault(key, {}).setdefault(name, deque()).append(pod)

    def _traits(self, pod: Pod) -> _Traits:
        traits = self._known.get(pod.uid)
        if traits is None:
            traits = self._known[pod.uid] = self._traits_of(pod)
        return traits

    def _traits_of(self, pod: Pod) -> _Traits:
        keys, uid, kind = tuple(guards(pod, self.index)), _owner(pod), pod.owner.kind if pod.owner else ""
        alike = uid, keys, pod.grace_period
        if alike not in self._alike:
            pace, grace = self.pace, self.rules.grace_of(pod.grace_period)
            ending, start = pace.ending_of((uid,), grace), pace.starting((uid,))
            self._alike[alike] = _Traits(uid, keys, ending, start, kind == ORDERED, kind in REPLACED_AT_ONCE)
        return self._alike[alike]


def _owner(pod: Pod) -> str:
    return pod.owner.uid if pod.owner else pod.uid
