from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import chain, count
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
    """Scheduled actions and their clock, in seconds since the rollout's start."""

    def __init__(self) -> None:
        self.now = 0
        self._events: list[tuple[int, int, Action]] = []
        self._numbers = count()

    def call_at(self, seconds: int, action: Action) -> None:
        """An action in the past runs now, after this second's actions."""
        heappush(self._events, (max(seconds, self.now), next(self._numbers), action))

    def run_until(self, is_over: Callable[[], bool], deadline: float = inf) -> None:
        while self._events and not is_over():
            next_at = self._events[0][0]
            if next_at > deadline:
                return
            self.now, _, action = heappop(self._events)
            action()

    def advance_to(self, seconds: int) -> None:
        self.run_until(lambda: False, seconds)
        self.now = max(self.now, seconds)


class _Traits(Struct, frozen=True):
    # The pod's own UID if it has no owner.
    owner_uid: str
    budgets: tuple[str, ...]
    ending_seconds: int
    starting_seconds: int
    is_ordered: bool
    is_replaced_at_once: bool


# Owner's UID, budgets' keys, grace period.
_TraitsKey = tuple[str, tuple[str, ...], int]


@dataclass(slots=True)
class _DrainState:
    on_empty: Action
    pods_left: int
    # Ready pods, by owner.
    evicted_ready: Counter[str] = field(default_factory=Counter)
    has_timed_out: bool = False


class _StatefulSetOrder:
    """Finds which of a StatefulSet's evicted pods starts next: the lowest ordinal.

    It starts once it is gone; higher ordinals wait until it is ready.
    """

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
    """The pods of the rollout's nodes as drains move them.

    A node's residents are the pods that its drain moves. An evicted `Pod` also stands for its
    replacement: it is away until the replacement is ready and its permit comes back, and pending
    while the replacement finds no room. A handover is the time in which a controller gives a pod's
    role, and so its budget, to another pod.
    """

    events: EventQueue
    pace: Pace
    permits: Mapping[str, int]
    # Seconds from the cordon until a controller opens each budget.
    handovers: Mapping[str, int]
    rules: DrainPolicy
    index: BudgetIndex
    scheduler: Scheduler
    # By node and UID.
    residents: dict[str, dict[str, Pod]]
    # Deployments whose restart moves or has started a pod, by UID.
    surging: dict[str, Deployment]
    # Running pods, by Deployment (`namespace/name`).
    replicas: Mapping[str, Sequence[Pod]]
    on_ready: Callable[[str], None] = lambda _owner_uid: None
    away_by_owner: Counter[str] = field(default_factory=Counter)
    cordoned: set[str] = field(default_factory=set)
    _drains: dict[str, _DrainState] = field(default_factory=dict)
    _used_permits: Counter[str] = field(default_factory=Counter)
    # By budget and node.
    _waiting_pods: dict[str, dict[str, deque[Pod]]] = field(default_factory=dict)
    _away: set[str] = field(default_factory=set)
    _eviction_counts: Counter[str] = field(default_factory=Counter)
    _statefulsets: dict[str, _StatefulSetOrder] = field(
        default_factory=lambda: defaultdict(_StatefulSetOrder)
    )
    # Pods without room, by UID; and those that affinity or spread may hold.
    _pending: dict[str, Pod] = field(default_factory=dict)
    _pending_by_rules: dict[str, Pod] = field(default_factory=dict)
    _traits_by_pod: dict[str, _Traits] = field(default_factory=dict)
    _traits_cache: dict[_TraitsKey, _Traits] = field(default_factory=dict)
    _pods_by_owner: dict[str, Sequence[Pod]] = field(default_factory=dict)
    # By Deployment.
    _updates: dict[str, PlayedUpdate] = field(default_factory=dict)
    # UIDs of pods that a rolling update ends.
    _ending: set[str] = field(default_factory=set)

    def cordon(self, nodes: Sequence[str]) -> None:
        # The soft taint says that nodes wait for their reboot.
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
        drain = self._drains.get(node)
        return drain.evicted_ready[owner_uid] if drain else 0

    def drain(self, node: str, on_empty: Action) -> None:
        """Call `on_empty` once all pods are gone."""
        residents = self.residents.setdefault(node, {})

        # Surging pods first, then as the API lists them.
        def rank(pod: Pod) -> tuple[bool, str, str]:
            is_evicted = pod.uid not in self.surging
            return is_evicted, pod.namespace, pod.name

        pods = sorted(residents.values(), key=rank)
        self._drains[node] = _DrainState(on_empty, len(pods))
        if not pods:
            on_empty()
        for pod in pods:
            is_ended_by_update = pod.uid in self._ending
            if is_ended_by_update:
                continue
            if pod.uid in self.surging:
                self._replace_by_restart(pod)
                continue
            handover = self._handover_seconds(pod)
            if handover:
                opens_at = self.events.now + handover
                self.events.call_at(opens_at, partial(self._evict_after_handover, pod, node))
            else:
                self._evict_or_wait(pod, node)

    def give_up_drain(self, node: str) -> None:
        self._drains[node].has_timed_out = True
        for pods_by_node in self._waiting_pods.values():
            pods_by_node.pop(node, None)

    def _replace_by_restart(self, pod: Pod) -> None:
        deployment = self.surging[pod.uid]
        key = deployment.key
        if key not in self._updates:
            self._updates[key] = PlayedUpdate(
                deployment.progress.desired, deployment.surge, self.replicas[key]
            )
        update = self._updates[key]
        update.ensure_replaced(pod)
        self._continue_update(update)

    def _continue_update(self, update: PlayedUpdate) -> None:
        may_start_more = True
        while may_start_more:
            for new_pod, original in update.start_pods():
                self._start_new(new_pod, original, update.replica_set)
            ending = update.end_pods(self.events.now, self.scheduler.node_of)
            for old_pod in ending:
                self._end_old(old_pod)
            may_start_more = bool(ending)

    def _start_new(self, pod: Pod, original: Pod, replica_set: str) -> None:
        self.scheduler.add_pod(pod, original, replica_set)
        self.surging[pod.uid] = self.surging[original.uid]
        traits = self._traits(original)
        self._traits_by_pod[pod.uid] = traits
        self._place(pod, traits)

    def _end_old(self, pod: Pod) -> None:
        node = self.scheduler.node_of(pod)
        is_pending = not node
        if is_pending:
            self._forget_pending(pod)
            return
        self._ending.add(pod.uid)
        traits = self._traits(pod)
        gone_at = self.events.now + traits.ending_seconds
        drained_node = node if pod.uid in self.residents.get(node, {}) else _NO_NODE
        self.events.call_at(gone_at, partial(self._note_gone, pod, traits, drained_node))

    def _handover_seconds(self, pod: Pod) -> int:
        # A pod that is away has its permits.
        if pod.uid in self._away:
            return 0
        budgets = self._traits(pod).budgets
        return max((self.handovers.get(budget, 0) for budget in budgets), default=0)

    def _evict_after_handover(self, pod: Pod, node: str) -> None:
        """Give the pod's role and budgets to another of its owner, then evict it."""
        drain = self._drains.get(node)
        if drain is None or drain.has_timed_out:
            return
        own_traits = self._traits(pod)
        standbys = self._standbys(own_traits.owner_uid)
        successor = next(filter(self._can_succeed, standbys), None)
        if standbys and successor is None:
            # The standbys have to move first.
            try_at = self.events.now + HANDOVER_SECONDS
            self.events.call_at(try_at, partial(self._evict_after_handover, pod, node))
            return
        if successor is None:
            # The successor is outside of the rollout. The pod loses only the role's budgets.
            new_budgets = tuple(key for key in own_traits.budgets if key not in self.handovers)
        else:
            successor_traits = self._traits(successor)
            new_budgets = successor_traits.budgets
            self._traits_by_pod[successor.uid] = replace(
                successor_traits, budgets=own_traits.budgets
            )
        self._traits_by_pod[pod.uid] = replace(own_traits, budgets=new_budgets)
        self._evict_or_wait(pod, node)

    def _standbys(self, owner_uid: str) -> Sequence[Pod]:
        """Return the owner's pods on the rollout's nodes without the role."""
        if not self._pods_by_owner:
            residents = self.residents.values()
            all_pods = chain.from_iterable(pods_by_uid.values() for pods_by_uid in residents)
            self._pods_by_owner.update(grouped((_owner_uid(pod), pod) for pod in all_pods))
        standbys = [pod for pod in self._pods_by_owner[owner_uid] if not self._has_role(pod)]
        return sorted(standbys, key=lambda pod: natural_key(pod.name))

    def _has_role(self, pod: Pod) -> bool:
        return any(budget in self.handovers for budget in self._traits(pod).budgets)

    def _can_succeed(self, pod: Pod) -> bool:
        return pod.uid not in self._away and self.scheduler.node_of(pod) not in self.cordoned

    def _evict_or_wait(self, pod: Pod, node: str) -> None:
        """Wait for a permit of the first budget without any."""
        traits = self._traits(pod)
        budget = self._find_used_up_budget(pod, traits)
        if budget is None:
            self._evict(pod, traits, node)
            return
        waiting_by_node = self._waiting_pods.setdefault(budget, {})
        waiting_by_node.setdefault(node, deque()).append(pod)

    def _find_used_up_budget(self, pod: Pod, traits: _Traits) -> str | None:
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
        """Only ready pods take permits."""
        was_ready = pod.uid not in self._away
        if was_ready:
            self._away.add(pod.uid)
            for budget in traits.budgets:
                self._used_permits[budget] += 1
            self.away_by_owner[traits.owner_uid] += 1
            self._drains[node].evicted_ready[traits.owner_uid] += 1
        self._eviction_counts[pod.uid] += 1
        if traits.is_ordered:
            self._statefulsets[traits.owner_uid].note_evicted(pod)
        gone_at = self.events.now + traits.ending_seconds
        self.events.call_at(gone_at, partial(self._note_gone, pod, traits, node))
        if traits.is_replaced_at_once:
            self._remove(pod, node)
            self._place(pod, traits)

    def _remove(self, pod: Pod, node: str) -> None:
        # Pods that no drain moves are not residents.
        self.residents.get(node, {}).pop(pod.uid, None)
        self.scheduler.take_out(pod)

    def _note_gone(self, pod: Pod, traits: _Traits, node: str) -> None:
        is_ended_by_update = pod.uid in self._ending
        if is_ended_by_update:
            self._ending.discard(pod.uid)
            self._remove(pod, node)
            # Its node need not be cordoned, so any pod may find room there.
            retried = self._pending
        else:
            if not traits.is_replaced_at_once:
                self._remove(pod, node)
                self._start_replacement(pod, traits)
            # Its node is cordoned, so only pods that this one kept away find room.
            retried = self._pending_by_rules
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
        node = self.scheduler.choose_node(pod)
        has_room = bool(node) and node not in self.cordoned
        if not has_room:
            self._pending[pod.uid] = pod
            if pod.placement.minds_others:
                self._pending_by_rules[pod.uid] = pod
            return
        self._forget_pending(pod)
        self.scheduler.put(pod, node)
        self.residents.setdefault(node, {})[pod.uid] = pod
        ready_at = self.events.now + traits.starting_seconds
        eviction_count = self._eviction_counts[pod.uid]
        self.events.call_at(ready_at, partial(self._note_ready, pod, traits, eviction_count))

    def _forget_pending(self, pod: Pod) -> None:
        self._pending.pop(pod.uid, None)
        self._pending_by_rules.pop(pod.uid, None)

    def _place_pending(self, pods: Sequence[Pod]) -> None:
        for pod in pods:
            self._place(pod, self._traits(pod))

    def _note_ready(self, pod: Pod, traits: _Traits, eviction_count: int) -> None:
        """Give the pod's permits back, unless it has been evicted again."""
        was_evicted_again = self._eviction_counts[pod.uid] != eviction_count
        if was_evicted_again:
            return
        is_started_by_update = pod.uid not in self._away
        if is_started_by_update:
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
        """Evict waiting pods, first of the node with the fewest pods left."""

        def rank(node: str) -> tuple[int, str]:
            return self._drains[node].pods_left, node

        pods_by_node = self._waiting_pods.get(budget)
        while pods_by_node and self._has_permit(budget):
            node = min(pods_by_node, key=rank)
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
