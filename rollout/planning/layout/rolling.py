"""The rolling strategy: one wave per part, whose nodes begin as others come back."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import chain, groupby
from statistics import median
from typing import NamedTuple

from msgspec.structs import replace

from rollout.model.cluster import Pod
from rollout.model.plan import Rolling
from rollout.model.text import grouped
from rollout.model.warning_finding import PlaceWarning
from rollout.planning.drain.scheduler import Scheduler
from rollout.planning.layout.sharing import NodeDemand, WaveLimits
from rollout.planning.layout.waves import Batch

_SLOW = 2
_NOTHING: Mapping[str, int] = {}


class _WaitingNode(NamedTuple):
    name: str
    position_in_part: int
    needed_mask: int


class RollingQueue:
    """Decides which waiting nodes of a rolling part may begin.

    A node needs some of each limit (a key), until it ends. Later nodes pass a node that lacks
    something, up to the number that may be in flight. Then what it needs is kept for it.
    """

    def __init__(
        self,
        rules: Rolling,
        order: Sequence[str],
        waiting: Collection[str] | None = None,
        in_flight: Iterable[str] = (),
    ) -> None:
        """`order` has the nodes of the part; all wait if `waiting` is None."""
        self._rules = rules
        self._node_count = len(order)
        self._in_flight_count = 0
        # Masks are fast to compare.
        self._bits = {key: 1 << index for index, key in enumerate(rules.capacity)}
        self._waiting = list[_WaitingNode]()
        for position, name in enumerate(order):
            if waiting is None or name in waiting:
                needed_mask = sum(self._bits[key] for key in self._needs(name))
                self._waiting.append(_WaitingNode(name, position, needed_mask))
        self._used = Counter[str]()
        self._used_up_mask = 0
        for name in in_flight:
            self._begin(name)

    def candidates(self) -> Iterator[str]:
        """Yield nodes; any one of them may begin now."""
        return (name for _, name in self._find_candidates())

    def begin_all(self) -> Iterator[str]:
        """Begin and yield nodes until no other may begin."""
        while True:
            candidate = next(self._find_candidates(), None)
            if candidate is None:
                return
            index, name = candidate
            del self._waiting[index]
            self._begin(name)
            yield name

    def end(self, name: str) -> None:
        self._in_flight_count -= 1
        for key, need in self._needs(name).items():
            self._set_used(key, self._used[key] - need)

    def _find_candidates(self) -> Iterator[tuple[int, str]]:
        is_full = self._in_flight_count >= self._rules.in_flight
        if is_full:
            return
        unavailable_mask = self._used_up_mask
        begun_count = self._node_count - len(self._waiting)
        for index, node in enumerate(self._waiting):
            lacks_limit = node.needed_mask & unavailable_mask != 0
            if not lacks_limit and not self._exceeds_capacity(node.name):
                yield index, node.name
                continue
            # `index` earlier nodes still wait; the other earlier ones have begun.
            begun_earlier = node.position_in_part - index
            passed_by = begun_count - begun_earlier
            if passed_by >= self._rules.in_flight:
                # From now on, what the node needs is kept for it.
                unavailable_mask |= node.needed_mask

    def _needs(self, name: str) -> Mapping[str, int]:
        return self._rules.holds.get(name, _NOTHING)

    def _exceeds_capacity(self, name: str) -> bool:
        for key, need in self._needs(name).items():
            used = self._used[key]
            is_shared = used > 0
            # A node over the capacity begins when it alone uses the limit.
            if is_shared and used + need > self._rules.capacity[key]:
                return True
        return False

    def _begin(self, name: str) -> None:
        self._in_flight_count += 1
        for key, need in self._needs(name).items():
            self._set_used(key, self._used[key] + need)

    def _set_used(self, key: str, used: int) -> None:
        self._used[key] = used
        # A limit of 0 is used up only while a node, which is alone, uses it.
        is_used_up = used > 0 and used >= self._rules.capacity[key]
        if is_used_up:
            self._used_up_mask |= self._bits[key]
        else:
            self._used_up_mask &= ~self._bits[key]


def roll_parts(waves: Sequence[Batch], limits: WaveLimits) -> tuple[Batch, ...]:
    parts = (list(part) for _, part in groupby(waves, key=lambda wave: wave.parts))
    return tuple(_roll_part(part, limits) for part in parts)


def _roll_part(part: Sequence[Batch], limits: WaveLimits) -> Batch:
    first = part[0]
    demands = tuple(demand for wave in part for demand in wave.demands)
    capacity = limits.allowed_in_all_rounds
    usages = {demand.name: limits.usage(demand) for demand in demands}
    scarce_keys = _scarce_keys(usages.values(), capacity, first.most)
    holds = dict[str, dict[str, int]]()
    for name, usage in usages.items():
        own_scarce_keys = sorted(usage.keys() & scarce_keys)
        if own_scarce_keys:
            holds[name] = {key: usage[key] for key in own_scarce_keys}
    rules = Rolling(
        in_flight=min(first.most, len(demands)),
        capacity={key: capacity.get(key, 0) for key in sorted(scarce_keys)},
        holds=holds,
    )
    refused = dict[str, PlaceWarning]()
    for wave in part:
        refused |= wave.refused
    return replace(first, demands=demands, refused=refused, rolling=rules)


def _scarce_keys(
    usages: Iterable[Mapping[str, int]], capacity: Mapping[str, int], in_flight: int
) -> set[str]:
    """Return the limits that `in_flight` nodes together can exceed."""
    amounts_by_key = grouped(chain.from_iterable(usage.items() for usage in usages))
    scarce = set[str]()
    for key, amounts in amounts_by_key.items():
        is_shared = len(amounts) > 1
        most_used = sum(nlargest(in_flight, amounts))
        if is_shared and most_used > capacity.get(key, 0):
            scarce.add(key)
    return scarce


def slow_first(part: Batch, seconds: Mapping[str, int]) -> Batch:
    """Put slow nodes first, so that none goes alone at the end."""
    if part.rolling is None:
        return part
    slow_seconds = _SLOW * median(seconds.values())

    def rank(demand: NodeDemand) -> int:
        node_seconds = seconds[demand.name]
        is_slow = node_seconds >= slow_seconds
        return -node_seconds if is_slow else 0

    return replace(part, demands=tuple(sorted(part.demands, key=rank)))


Leaving = Mapping[str, Sequence[Pod]]


def limit_node_groups(wave: Batch, leaving: Leaving, scheduler: Scheduler) -> Batch:
    """If the wave rolls, keep room for pods that fit only on certain nodes.

    Each set of nodes becomes a limit, such as `place:pods-1`.
    """
    if wave.rolling is None or wave.rolling.in_flight == 1:
        return wave
    rules = wave.rolling
    for number, members in enumerate(_groups_that_fit_a_pod(wave, leaving, scheduler), start=1):
        key = f"place:pods-{number}"
        rules = _limit_node_group(rules, key, members, leaving=leaving, scheduler=scheduler)
    return replace(wave, rolling=rules)


def _groups_that_fit_a_pod(wave: Batch, leaving: Leaving, scheduler: Scheduler) -> list[list[str]]:
    """Return each set of nodes of the wave that a leaving pod fits on."""
    names = wave.names
    # Pods with equal rules share one set object.
    set_by_identity = dict[int, frozenset[str]]()
    for name in names:
        for pod in leaving.get(name, ()):
            matching = scheduler.nodes_for(pod)
            set_by_identity[id(matching)] = matching
    groups = list[list[str]]()
    for matching in set_by_identity.values():
        members = [name for name in names if name in matching]
        if len(members) > 1:
            groups.append(members)
    return groups


def _limit_node_group(
    rules: Rolling, key: str, members: Sequence[str], leaving: Leaving, scheduler: Scheduler
) -> Rolling:
    """Limit how many nodes are in flight, if the largest would find no room."""

    def total_requests(name: str) -> tuple[int, int]:
        requests = [pod.requests for pod in leaving.get(name, ())]
        cpu = sum(request.cpu_milli for request in requests)
        memory = sum(request.memory for request in requests)
        return cpu, memory

    largest_first = sorted(members, key=total_requests, reverse=True)
    worst_case = list(RollingQueue(rules, largest_first).begin_all())
    most = _most_with_room(worst_case, leaving, scheduler)
    if most >= len(worst_case):
        return rules
    holds = dict(rules.holds)
    for name in members:
        holds[name] = {**holds.get(name, {}), key: 1}
    return replace(rules, capacity={**rules.capacity, key: most}, holds=holds)


def _most_with_room(names: Sequence[str], leaving: Leaving, scheduler: Scheduler) -> int:
    """Return how many nodes, in this order, find as much room as one by one."""

    def is_crowded(size: int) -> bool:
        pods_by_node = {name: leaving.get(name, ()) for name in names[:size]}
        staying = _count_staying(pods_by_node, scheduler)
        if not staying:
            return False
        staying_alone = 0
        for name, pods in pods_by_node.items():
            staying_alone += _count_staying({name: pods}, scheduler)
        return staying > staying_alone

    # A binary search. One node is never crowded.
    smallest = 2
    largest = len(names) + 1
    while smallest < largest:
        size = (smallest + largest) // 2
        if is_crowded(size):
            largest = size
        else:
            smallest = size + 1
    return smallest - 1


def _count_staying(leaving: Leaving, scheduler: Scheduler) -> int:
    with scheduler.emptied(leaving) as staying:
        return sum(map(len, staying.values()))
