"""Simulate pods' evictions and replacements, event by event.

A permit comes back when the evicted pod's replacement is ready. A controller opens a budget by
giving the pod's role, and so the budget, to another pod of the owner.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heappop, heappush
from itertools import count
from math import inf

from rollout.model.cluster import Pod
from rollout.model.policy import DrainPolicy
from rollout.model.text import grouped, natural_key
from rollout.planning.drain.budgets import BudgetIndex, guarding_budgets
from rollout.planning.drain.scheduler import Scheduler
from rollout.planning.play.pace import ORDERED, REPLACED_AT_ONCE, Pace

Action = Callable[[], None]


class EventQueue:
    def __init__(self) -> None:
        self.now = 0
        self._events: list[tuple[int, int, Action]] = []
        self._numbers = count()

    def at(self, seconds: int, action: Action) -> None:
        heappush(self._events, (max(seconds, self.now), next(self._numbers), action))

    def run(self, is_over: Callable[[], bool], until: float = inf) -> None:
        while not is_over() and self._events and self._events[0][0] <= until:
            self.now, _, action = heappop(self._events)
            action()

    def pass_until(self, seconds: int) -> None:
        self.run(lambda: False, until=seconds)
        self.now = max(self.now, seconds)


@dataclass(frozen=True, slots=True)
class _Traits:
    """How a pod moves; times are in seconds.

    `owner` is its owner's UID, or its own. `keys` are its budgets. `in_order`: its owner starts one
    pod after another. `at_once`: it is replaced while it still terminates.
    """

    owner: str
    keys: tuple[str, ...]
    ending: int
    start: int
    in_order: bool
    at_once: bool


@dataclass(slots=True)
class _DrainState:
    """A node's drain: `emptied` is called when its last pod is gone.

    `evicted_ready` counts pods that were ready when evicted, by owner UID.
    """

    emptied: Action
    pods_left: int
    evicted_ready: Counter[str] = field(default_factory=Counter)
    has_timed_out: bool = False


class _StatefulSetOrder:
    """The pods of a StatefulSet that are away; the lowest starts next."""

    def __init__(self) -> None:
        self._away = dict[str, Pod]()
        self._may_start = set[str]()

    def leave(self, pod: Pod) -> None:
        self._may_start.discard(pod.uid)
        self._away[pod.uid] = pod

    def gone(self, pod: Pod) -> None:
        self._may_start.add(pod.uid)

    def ready(self, pod: Pod) -> None:
        self._away.pop(pod.uid, None)

    def take_next(self) -> Pod | None:
        lowest = min(self._away.values(), key=lambda pod: natural_key(pod.name), default=None)
        if lowest is None or lowest.uid not in self._may_start:
            return None
        self._may_start.discard(lowest.uid)
        return lowest


@dataclass(slots=True)
class PodFlow:
    """The pods of the rollout's nodes as they move.

    `permits` is how many pods of each budget may be away. `handovers` is how many seconds another
    controller takes to open a budget. `residents` are the pods that leave, by node and UID.
    `surging` pods (UIDs) end once their replacement is ready, after so many starts in a row.
    `on_ready` gets an owner's UID. `away` is by owner UID. `_waiting_pods` wait for a permit, by
    budget and node. `_evictions` is by pod UID: a replacement that is evicted again is never ready.
    `_pending` pods lack room, `_pending_by_others` maybe because of affinity or spread.
    """

    events: EventQueue
    pace: Pace
    permits: Mapping[str, int]
    handovers: Mapping[str, int]
    rules: DrainPolicy
    index: BudgetIndex
    scheduler: Scheduler
    residents: dict[str, dict[str, Pod]]
    surging: Mapping[str, int]
    on_ready: Callable[[str], None] = lambda _owner: None
    away: Counter[str] = field(default_factory=Counter)
    closed: set[str] = field(default_factory=set)
    _drains: dict[str, _DrainState] = field(default_factory=dict)
    _used: Counter[str] = field(default_factory=Counter)
    _waiting_pods: dict[str, dict[str, deque[Pod]]] = field(default_factory=dict)
    _unready: set[str] = field(default_factory=set)
    _evictions: Counter[str] = field(default_factory=Counter)
    _statefulsets: dict[str, _StatefulSetOrder] = field(
        default_factory=lambda: defaultdict(_StatefulSetOrder)
    )
    _pending: dict[str, Pod] = field(default_factory=dict)
    _pending_by_others: dict[str, Pod] = field(default_factory=dict)
    _traits_by_pod: dict[str, _Traits] = field(default_factory=dict)
    _traits_cache: dict[tuple[object, ...], _Traits] = field(default_factory=dict)
    _siblings: dict[str, Sequence[Pod]] = field(default_factory=dict)

    def close(self, names: Sequence[str]) -> None:
        self.scheduler.untaint(names)
        self.closed.update(names)
        self.scheduler.close(self.closed)

    def open(self, name: str) -> None:
        del self._drains[name]
        self.closed.discard(name)
        self.scheduler.close(self.closed)
        self._place_pending(list(self._pending.values()))

    @property
    def unready_count(self) -> int:
        return len(self._unready)

    def ready_on(self, name: str) -> Counter[str]:
        pods = self.residents.get(name, {}).values()
        return Counter(_owner(pod) for pod in pods if pod.uid not in self._unready)

    def evicted_ready(self, name: str, owner: str) -> int:
        return self._drains[name].evicted_ready[owner] if name in self._drains else 0

    def drain(self, name: str, emptied: Action) -> None:
        residents = self.residents.setdefault(name, {})
        # The API lists pods in this order.
        pods = sorted(residents.values(), key=lambda pod: (pod.namespace, pod.name))
        self._drains[name] = _DrainState(emptied, len(pods))
        if not pods:
            emptied()
        for pod in pods:
            handover = self._handover_seconds(pod)
            starts = self.surging.get(pod.uid, 0)
            if starts:
                ready_at = self.events.now + starts * self._traits(pod).start
                self.events.at(ready_at, partial(self._end_surging, pod, name))
            elif handover:
                opens_at = self.events.now + handover
                self.events.at(opens_at, partial(self._evict_after_handover, pod, name))
            else:
                self._evict_or_wait(pod, name)

    def give_up(self, name: str) -> None:
        self._drains[name].has_timed_out = True
        for pods_by_node in self._waiting_pods.values():
            pods_by_node.pop(name, None)

    def _end_surging(self, pod: Pod, name: str) -> None:
        """End a pod whose replacement is ready; without room for one, the drain waits."""
        drain = self._drains.get(name)
        if drain is None or drain.has_timed_out:
            return
        self._remove(pod, name)
        target = self.scheduler.place(pod)
        has_room = bool(target) and target not in self.closed
        self._put(pod, target if has_room else name)
        if has_room:
            traits = self._traits(pod)
            self.events.at(self.events.now + traits.ending, partial(self._end, pod, traits, name))

    def _handover_seconds(self, pod: Pod) -> int:
        if pod.uid in self._unready:
            return 0
        return max((self.handovers.get(key, 0) for key in self._traits(pod).keys), default=0)

    def _evict_after_handover(self, pod: Pod, name: str) -> None:
        """Evict the pod, which has exchanged budgets with another pod of its owner."""
        drain = self._drains.get(name)
        if drain is None or drain.has_timed_out:
            return
        own = self._traits(pod)
        successor = self._successor(own.owner)
        if successor is None:
            # The successor is on a node outside of the rollout.
            keys = tuple(key for key in own.keys if key not in self.handovers)
        else:
            successor_traits = self._traits(successor)
            keys = successor_traits.keys
            self._traits_by_pod[successor.uid] = replace(successor_traits, keys=own.keys)
        self._traits_by_pod[pod.uid] = replace(own, keys=keys)
        self._evict_or_wait(pod, name)

    def _successor(self, owner: str) -> Pod | None:
        if not self._siblings:
            pods = [pod for residents in self.residents.values() for pod in residents.values()]
            self._siblings.update(grouped((_owner(pod), pod) for pod in pods))
        for pod in sorted(self._siblings[owner], key=lambda pod: natural_key(pod.name)):
            is_ready = pod.uid not in self._unready
            is_on_open_node = self.scheduler.node_of(pod) not in self.closed
            has_role = self._handover_seconds(pod) > 0
            if is_ready and is_on_open_node and not has_role:
                return pod
        return None

    def _evict_or_wait(self, pod: Pod, name: str) -> None:
        traits = self._traits(pod)
        budget = self._used_up_budget(pod, traits)
        if budget:
            self._waiting_pods.setdefault(budget, {}).setdefault(name, deque()).append(pod)
        else:
            self._evict(pod, traits, name)

    def _used_up_budget(self, pod: Pod, traits: _Traits) -> str:
        # A pod that is not ready already has its permits.
        if pod.uid in self._unready:
            return ""
        for key in traits.keys:
            if key in self.permits and not self._has_permit(key):
                return key
        return ""

    def _has_permit(self, key: str) -> bool:
        # A budget that allows no eviction now is assumed to allow one pod at a time later.
        return self._used[key] < max(1, self.permits.get(key, 0))

    def _evict(self, pod: Pod, traits: _Traits, name: str) -> None:
        if pod.uid not in self._unready:
            self._unready.add(pod.uid)
            for key in traits.keys:
                self._used[key] += 1
            self.away[traits.owner] += 1
            self._drains[name].evicted_ready[traits.owner] += 1
        self._evictions[pod.uid] += 1
        if traits.in_order:
            self._statefulsets[traits.owner].leave(pod)
        self.events.at(self.events.now + traits.ending, partial(self._end, pod, traits, name))
        if traits.at_once:
            self._remove(pod, name)
            self._place(pod, traits)

    def _put(self, pod: Pod, name: str) -> None:
        self.scheduler.put(pod, name)
        self.residents.setdefault(name, {})[pod.uid] = pod

    def _remove(self, pod: Pod, name: str) -> None:
        del self.residents[name][pod.uid]
        self.scheduler.take_out(pod)

    def _end(self, pod: Pod, traits: _Traits, name: str) -> None:
        if not traits.at_once:
            self._remove(pod, name)
            self._replace(pod, traits)
        if self._pending_by_others:
            self._place_pending(list(self._pending_by_others.values()))
        drain = self._drains.get(name)
        if drain is not None:
            drain.pods_left -= 1
            if not drain.pods_left:
                drain.emptied()

    def _replace(self, pod: Pod, traits: _Traits) -> None:
        if not traits.in_order:
            self._place(pod, traits)
            return
        self._statefulsets[traits.owner].gone(pod)
        self._place_next(traits.owner)

    def _place_next(self, owner: str) -> None:
        pod = self._statefulsets[owner].take_next()
        if pod is not None:
            self._place(pod, self._traits(pod))

    def _place(self, pod: Pod, traits: _Traits) -> None:
        target = self.scheduler.place(pod)
        if not target or target in self.closed:
            self._pending[pod.uid] = pod
            if pod.placement.minds_others:
                self._pending_by_others[pod.uid] = pod
            return
        self._pending.pop(pod.uid, None)
        self._pending_by_others.pop(pod.uid, None)
        self._put(pod, target)
        ready = partial(self._ready, pod, traits, self._evictions[pod.uid])
        self.events.at(self.events.now + traits.start, ready)

    def _place_pending(self, pods: Sequence[Pod]) -> None:
        for pod in pods:
            self._place(pod, self._traits(pod))

    def _ready(self, pod: Pod, traits: _Traits, eviction: int) -> None:
        was_evicted_again = self._evictions[pod.uid] != eviction
        if was_evicted_again:
            return
        self._unready.discard(pod.uid)
        self.away[traits.owner] -= 1
        if traits.in_order:
            self._statefulsets[traits.owner].ready(pod)
            self._place_next(traits.owner)
        for key in traits.keys:
            self._used[key] -= 1
        for key in traits.keys:
            self._grant(key)
        self.on_ready(traits.owner)

    def _grant(self, key: str) -> None:
        """Evict waiting pods, of the node with the fewest pods left first."""
        pods_by_node = self._waiting_pods.get(key)
        while pods_by_node and self._has_permit(key):
            _, name = min((self._drains[name].pods_left, name) for name in pods_by_node)
            pod = pods_by_node[name].popleft()
            if not pods_by_node[name]:
                del pods_by_node[name]
            self._evict_or_wait(pod, name)

    def _traits(self, pod: Pod) -> _Traits:
        if pod.uid not in self._traits_by_pod:
            self._traits_by_pod[pod.uid] = self._traits_of(pod)
        return self._traits_by_pod[pod.uid]

    def _traits_of(self, pod: Pod) -> _Traits:
        keys = tuple(guarding_budgets(pod, self.index))
        uid = _owner(pod)
        cache_key = (uid, keys, pod.grace_period)
        if cache_key not in self._traits_cache:
            kind = pod.owner.kind if pod.owner else ""
            self._traits_cache[cache_key] = _Traits(
                owner=uid,
                keys=keys,
                ending=self.pace.ending_of((uid,), self.rules.grace_of(pod.grace_period)),
                start=self.pace.starting((uid,)),
                in_order=kind == ORDERED,
                at_once=kind in REPLACED_AT_ONCE,
            )
        return self._traits_cache[cache_key]


def _owner(pod: Pod) -> str:
    return pod.owner.uid if pod.owner else pod.uid
