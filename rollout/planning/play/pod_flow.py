"""Simulate pods' evictions and replacements, event by event.

A permit comes back when the evicted pod's replacement is ready. A controller opens a budget by
giving the pod's role and budget to another pod of the owner.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from rollout.model.cluster import Pod
from rollout.model.deployment import Deployment
from rollout.model.policy import DrainPolicy
from rollout.model.text import grouped, natural_key
from rollout.planning.drain.budgets import BudgetIndex, guarding_budgets
from rollout.planning.drain.scheduler import Scheduler
from rollout.planning.play.pace import HANDOVER_SECONDS, ORDERED, REPLACED_AT_ONCE, Pace
from rollout.planning.play.rolling_update import PlayedUpdate

Action = Callable[[], None]
_NO_NODE = ""


class EventQueue:
    """Actions in order of time, in seconds since the rollout's start."""

    def __init__(self) -> None:
        self.now = 0
        self._events: list[tuple[int, int, Action]] = []
        # Actions of the same second keep their order.
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


class _Traits(Struct, frozen=True):
    # The pod's own UID if it has no owner.
    owner_uid: str
    budgets: tuple[str, ...]
    ending_seconds: int
    starting_seconds: int
    # Its owner starts pods one by one.
    is_ordered: bool
    # Its replacement starts while the pod still terminates.
    is_replaced_at_once: bool


# Owner's UID, budgets' keys, grace period.
_TraitsKey = tuple[str, tuple[str, ...], int]


@dataclass(slots=True)
class _DrainState:
    on_empty: Action
    pods_left: int
    # How many evicted pods were ready, by owner.
    evicted_ready: Counter[str] = field(default_factory=Counter)
    has_timed_out: bool = False


class _StatefulSetOrder:
    """A StatefulSet's pods that are away; the lowest ordinal starts next."""

    def __init__(self) -> None:
        self._away = dict[str, Pod]()
        # UIDs of gone pods that have not been started again.
        self._may_start = set[str]()

    def note_evicted(self, pod: Pod) -> None:
        self._may_start.discard(pod.uid)
        self._away[pod.uid] = pod

    def note_gone(self, pod: Pod) -> None:
        self._may_start.add(pod.uid)

    def note_ready(self, pod: Pod) -> None:
        self._away.pop(pod.uid, None)

    def take_next(self) -> Pod | None:
        lowest = min(self._away.values(), key=lambda pod: natural_key(pod.name), default=None)
        if lowest is None or lowest.uid not in self._may_start:
            return None
        self._may_start.discard(lowest.uid)
        return lowest


@dataclass(slots=True)
class PodFlow:
    """The pods of the rollout's nodes as drains move them."""

    events: EventQueue
    pace: Pace
    # Pods of each budget that may be away.
    permits: Mapping[str, int]
    # Seconds from the cordon until a controller opens each budget.
    handovers: Mapping[str, int]
    rules: DrainPolicy
    index: BudgetIndex
    scheduler: Scheduler
    # The pods that leave with a drain, by node and UID.
    residents: dict[str, dict[str, Pod]]
    # Deployments whose restart moves or has started a pod, by the pod's UID.
    surging: dict[str, Deployment]
    # Their running pods, by Deployment (`namespace/name`).
    replicas: Mapping[str, Sequence[Pod]]
    on_ready: Callable[[str], None] = lambda _owner_uid: None
    away_by_owner: Counter[str] = field(default_factory=Counter)
    cordoned: set[str] = field(default_factory=set)
    _drains: dict[str, _DrainState] = field(default_factory=dict)
    _used_permits: Counter[str] = field(default_factory=Counter)
    # By budget and node.
    _waiting_pods: dict[str, dict[str, deque[Pod]]] = field(default_factory=dict)
    # UIDs of pods that were evicted and are not ready again.
    _away: set[str] = field(default_factory=set)
    _eviction_counts: Counter[str] = field(default_factory=Counter)
    _statefulsets: dict[str, _StatefulSetOrder] = field(
        default_factory=lambda: defaultdict(_StatefulSetOrder)
    )
    # Pods without room, by UID; and among them, those that affinity or spread may hold.
    _pending: dict[str, Pod] = field(default_factory=dict)
    _pending_by_others: dict[str, Pod] = field(default_factory=dict)
    _traits_by_pod: dict[str, _Traits] = field(default_factory=dict)
    _traits_cache: dict[_TraitsKey, _Traits] = field(default_factory=dict)
    _pods_by_owner: dict[str, Sequence[Pod]] = field(default_factory=dict)
    # By Deployment.
    _updates: dict[str, PlayedUpdate] = field(default_factory=dict)
    # UIDs of pods that a rolling update ends.
    _ending: set[str] = field(default_factory=set)

    def cordon(self, nodes: Sequence[str]) -> None:
        self.scheduler.untaint(nodes)
        self.cordoned.update(nodes)
        self.scheduler.set_cordoned(self.cordoned)

    def uncordon(self, node: str) -> None:
        del self._drains[node]
        self.cordoned.discard(node)
        self.scheduler.set_cordoned(self.cordoned)
        self._place_pending(list(self._pending.values()))

    @property
    def away_count(self) -> int:
        return len(self._away)

    def ready_pods_by_owner(self, node: str) -> Counter[str]:
        pods = self.residents.get(node, {}).values()
        return Counter(_owner_uid(pod) for pod in pods if pod.uid not in self._away)

    def count_evicted_ready(self, node: str, owner_uid: str) -> int:
        return self._drains[node].evicted_ready[owner_uid] if node in self._drains else 0

    def drain(self, node: str, on_empty: Action) -> None:
        residents = self.residents.setdefault(node, {})
        # Surging pods first, then as the API lists them.
        pods = sorted(
            residents.values(),
            key=lambda pod: (pod.uid not in self.surging, pod.namespace, pod.name),
        )
        self._drains[node] = _DrainState(on_empty, len(pods))
        if not pods:
            on_empty()
        for pod in pods:
            handover = self._handover_seconds(pod)
            if pod.uid in self._ending:
                # A rolling update ends it without an eviction.
                continue
            if pod.uid in self.surging:
                self._restart(pod)
            elif handover:
                opens_at = self.events.now + handover
                self.events.at(opens_at, partial(self._evict_after_handover, pod, node))
            else:
                self._evict_or_wait(pod, node)

    def give_up_drain(self, node: str) -> None:
        self._drains[node].has_timed_out = True
        for pods_by_node in self._waiting_pods.values():
            pods_by_node.pop(node, None)

    def _restart(self, pod: Pod) -> None:
        deployment = self.surging[pod.uid]
        key = deployment.key
        if key not in self._updates:
            self._updates[key] = PlayedUpdate(
                deployment.progress.desired, deployment.surge, self.replicas[key]
            )
        update = self._updates[key]
        update.replace(pod)
        self._continue_update(update)

    def _continue_update(self, update: PlayedUpdate) -> None:
        """Start and end pods until the rolling update has to wait."""
        may_start_more = True
        while may_start_more:
            for pod, model in update.start_pods():
                self._start_new(pod, model, update.replica_set)
            ending = update.end_pods(self.events.now, self.scheduler.node_of)
            for pod in ending:
                self._end_old(pod)
            may_start_more = bool(ending)

    def _start_new(self, pod: Pod, model: Pod, replica_set: str) -> None:
        self.scheduler.add_pod(pod, model, replica_set)
        self.surging[pod.uid] = self.surging[model.uid]
        traits = self._traits_by_pod[pod.uid] = self._traits(model)
        self._place(pod, traits)

    def _end_old(self, pod: Pod) -> None:
        node = self.scheduler.node_of(pod)
        if not node:
            # It still waits for room, so it is gone at once.
            self._pending.pop(pod.uid, None)
            self._pending_by_others.pop(pod.uid, None)
            return
        self._ending.add(pod.uid)
        traits = self._traits(pod)
        gone_at = self.events.now + traits.ending_seconds
        # Drains count only the pods that they move.
        drained_node = node if pod.uid in self.residents.get(node, {}) else _NO_NODE
        self.events.at(gone_at, partial(self._note_gone, pod, traits, drained_node))

    def _handover_seconds(self, pod: Pod) -> int:
        if pod.uid in self._away:
            return 0
        budgets = self._traits(pod).budgets
        return max((self.handovers.get(budget, 0) for budget in budgets), default=0)

    def _evict_after_handover(self, pod: Pod, node: str) -> None:
        """Evict the pod after it exchanged budgets with another of its owner."""
        drain = self._drains.get(node)
        if drain is None or drain.has_timed_out:
            return
        own = self._traits(pod)
        standbys = self._standbys(own.owner_uid)
        successor = next(filter(self._can_succeed, standbys), None)
        if standbys and successor is None:
            # The standbys have to move first.
            try_at = self.events.now + HANDOVER_SECONDS
            self.events.at(try_at, partial(self._evict_after_handover, pod, node))
            return
        if successor is None:
            # The successor is outside of the rollout.
            budgets = tuple(budget for budget in own.budgets if budget not in self.handovers)
        else:
            successor_traits = self._traits(successor)
            budgets = successor_traits.budgets
            self._traits_by_pod[successor.uid] = replace(successor_traits, budgets=own.budgets)
        self._traits_by_pod[pod.uid] = replace(own, budgets=budgets)
        self._evict_or_wait(pod, node)

    def _standbys(self, owner_uid: str) -> Sequence[Pod]:
        """Return the owner's pods on nodes of the rollout that do not have the role."""
        if not self._pods_by_owner:
            pods = [pod for residents in self.residents.values() for pod in residents.values()]
            self._pods_by_owner.update(grouped((_owner_uid(pod), pod) for pod in pods))
        pods = [pod for pod in self._pods_by_owner[owner_uid] if not self._has_role(pod)]
        return sorted(pods, key=lambda pod: natural_key(pod.name))

    def _has_role(self, pod: Pod) -> bool:
        """Whether a budget that another controller opens covers the pod."""
        return any(budget in self.handovers for budget in self._traits(pod).budgets)

    def _can_succeed(self, pod: Pod) -> bool:
        return pod.uid not in self._away and self.scheduler.node_of(pod) not in self.cordoned

    def _evict_or_wait(self, pod: Pod, node: str) -> None:
        traits = self._traits(pod)
        budget = self._find_used_up_budget(pod, traits)
        if budget is None:
            self._evict(pod, traits, node)
        else:
            self._waiting_pods.setdefault(budget, {}).setdefault(node, deque()).append(pod)

    def _find_used_up_budget(self, pod: Pod, traits: _Traits) -> str | None:
        # A pod that is away still has its permits.
        if pod.uid in self._away:
            return None
        for budget in traits.budgets:
            if budget in self.permits and not self._has_permit(budget):
                return budget
        return None

    def _has_permit(self, budget: str) -> bool:
        # A closed budget is assumed to let one pod go later.
        return self._used_permits[budget] < max(1, self.permits.get(budget, 0))

    def _evict(self, pod: Pod, traits: _Traits, node: str) -> None:
        if pod.uid not in self._away:
            self._away.add(pod.uid)
            for budget in traits.budgets:
                self._used_permits[budget] += 1
            self.away_by_owner[traits.owner_uid] += 1
            self._drains[node].evicted_ready[traits.owner_uid] += 1
        self._eviction_counts[pod.uid] += 1
        if traits.is_ordered:
            self._statefulsets[traits.owner_uid].note_evicted(pod)
        gone_at = self.events.now + traits.ending_seconds
        self.events.at(gone_at, partial(self._note_gone, pod, traits, node))
        if traits.is_replaced_at_once:
            self._remove(pod, node)
            self._place(pod, traits)

    def _put(self, pod: Pod, node: str) -> None:
        self.scheduler.put(pod, node)
        self.residents.setdefault(node, {})[pod.uid] = pod

    def _remove(self, pod: Pod, node: str) -> None:
        # Pods that no drain moves are not residents, so have no entry here.
        self.residents.get(node, {}).pop(pod.uid, None)
        self.scheduler.take_out(pod)

    def _note_gone(self, pod: Pod, traits: _Traits, node: str) -> None:
        # A drained node is cordoned, so it has no room for others.
        retried = self._pending_by_others
        if pod.uid in self._ending:
            self._ending.discard(pod.uid)
            self._remove(pod, node)
            # This node may be another one.
            retried = self._pending
        elif not traits.is_replaced_at_once:
            self._remove(pod, node)
            self._start_replacement(pod, traits)
        if retried:
            self._place_pending(list(retried.values()))
        drain = self._drains.get(node)
        if drain is not None:
            drain.pods_left -= 1
            if not drain.pods_left:
                drain.on_empty()

    def _start_replacement(self, pod: Pod, traits: _Traits) -> None:
        if traits.is_ordered:
            self._statefulsets[traits.owner_uid].note_gone(pod)
            self._start_next(traits.owner_uid)
        else:
            self._place(pod, traits)

    def _start_next(self, owner_uid: str) -> None:
        pod = self._statefulsets[owner_uid].take_next()
        if pod is not None:
            self._place(pod, self._traits(pod))

    def _place(self, pod: Pod, traits: _Traits) -> None:
        target = self.scheduler.choose_node(pod)
        if not target or target in self.cordoned:
            self._pending[pod.uid] = pod
            if pod.placement.minds_others:
                self._pending_by_others[pod.uid] = pod
            return
        self._pending.pop(pod.uid, None)
        self._pending_by_others.pop(pod.uid, None)
        self._put(pod, target)
        note_ready = partial(self._note_ready, pod, traits, self._eviction_counts[pod.uid])
        self.events.at(self.events.now + traits.starting_seconds, note_ready)

    def _place_pending(self, pods: Sequence[Pod]) -> None:
        for pod in pods:
            self._place(pod, self._traits(pod))

    def _note_ready(self, pod: Pod, traits: _Traits, eviction: int) -> None:
        """Give the pod's permits back, unless it was evicted again after this `eviction`."""
        was_evicted_again = self._eviction_counts[pod.uid] != eviction
        if was_evicted_again:
            return
        if pod.uid not in self._away:
            # It was not evicted, so a rolling update has started it.
            update = self._updates[self.surging[pod.uid].key]
            update.note_ready(pod, self.events.now)
            self._continue_update(update)
            return
        self._away.discard(pod.uid)
        self.away_by_owner[traits.owner_uid] -= 1
        if traits.is_ordered:
            self._statefulsets[traits.owner_uid].note_ready(pod)
            self._start_next(traits.owner_uid)
        for budget in traits.budgets:
            self._used_permits[budget] -= 1
        for budget in traits.budgets:
            self._grant_permits(budget)
        self.on_ready(traits.owner_uid)

    def _grant_permits(self, budget: str) -> None:
        """Evict waiting pods, first of the node with the fewest left."""
        pods_by_node = self._waiting_pods.get(budget)
        while pods_by_node and self._has_permit(budget):
            _, node = min((self._drains[name].pods_left, name) for name in pods_by_node)
            pod = pods_by_node[node].popleft()
            if not pods_by_node[node]:
                del pods_by_node[node]
            self._evict_or_wait(pod, node)

    def _traits(self, pod: Pod) -> _Traits:
        if pod.uid not in self._traits_by_pod:
            self._traits_by_pod[pod.uid] = self._look_up_traits(pod)
        return self._traits_by_pod[pod.uid]

    def _look_up_traits(self, pod: Pod) -> _Traits:
        budgets = guarding_budgets(pod, self.index)
        uid = _owner_uid(pod)
        key = (uid, budgets, pod.grace_period)
        if key not in self._traits_cache:
            kind = pod.owner.kind if pod.owner else ""
            grace = self.rules.grace_of(pod.grace_period)
            self._traits_cache[key] = _Traits(
                owner_uid=uid,
                budgets=budgets,
                ending_seconds=self.pace.ending_seconds_of((uid,), grace),
                starting_seconds=self.pace.starting_seconds((uid,)),
                is_ordered=kind == ORDERED,
                is_replaced_at_once=kind in REPLACED_AT_ONCE,
            )
        return self._traits_cache[key]


def _owner_uid(pod: Pod) -> str:
    return pod.owner.uid if pod.owner else pod.uid
