from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from rollout.model.cluster import HOST_PORT, Node, Resources
from rollout.model.drain_finding import Shortage

USUAL_PODS = 110
_PLENTY = 1 << 62


@dataclass(slots=True)
class FreeCapacity:
    """What is free on a node; negative if it is overcommitted."""

    node: Node
    cpu_milli: int
    memory: int
    pods: int
    # Besides CPU, memory and pods.
    others: dict[str, int]
    name: str = field(init=False)
    # Allocatable CPU and memory.
    _offered: tuple[int, int] = field(init=False)

    @classmethod
    def of(cls, node: Node, tracked: Iterable[str]) -> "FreeCapacity":
        allocatable = node.allocatable
        others = dict.fromkeys(tracked, 0)
        for name, amount in allocatable.others:
            if name in others:
                others[name] = amount
        return cls(
            node,
            cpu_milli=allocatable.cpu_milli,
            memory=allocatable.memory,
            pods=allocatable.pods or USUAL_PODS,
            others=others,
        )

    def __post_init__(self) -> None:
        self.name = self.node.name
        # Divisors must not be 0.
        self._offered = (
            max(1, self.node.allocatable.cpu_milli),
            max(1, self.node.allocatable.memory),
        )

    @property
    def free_share(self) -> float:
        """Return the free shares of CPU and memory added up, from 0 to 2."""
        offered_cpu, offered_memory = self._offered
        return self.cpu_milli / offered_cpu + self.memory / offered_memory

    def takes(self, requests: Resources) -> bool:
        """An overcommitted resource matters only if the pod requests it."""
        if self.pods <= 0:
            return False
        if self.cpu_milli < requests.cpu_milli and requests.cpu_milli:
            return False
        if self.memory < requests.memory and requests.memory:
            return False
        if not requests.others:
            return True
        return all(self.free(name) >= amount for name, amount in requests.others)

    def add(self, requests: Resources) -> None:
        self.cpu_milli -= requests.cpu_milli
        self.memory -= requests.memory
        self.pods -= 1
        if requests.others:
            self._change_free_others(requests, -1)

    def remove(self, requests: Resources) -> None:
        self.cpu_milli += requests.cpu_milli
        self.memory += requests.memory
        self.pods += 1
        if requests.others:
            self._change_free_others(requests, 1)

    def _change_free_others(self, requests: Resources, sign: int) -> None:
        for name, amount in requests.others:
            self.others[name] = self.free(name) + sign * amount

    def free(self, name: str) -> int:
        # Every node has each host port once. What no node offers is not counted.
        uncounted = 1 if name.startswith(HOST_PORT) else _PLENTY
        return self.others.get(name, uncounted)


@dataclass(slots=True)
class MatchingNodes:
    """The nodes that can take pods with equal demands, if there is room.

    `failed_requests` fit on none of them; None if no search has failed.
    """

    nodes: list[FreeCapacity]
    tolerates_cordons: bool = False
    minds_soft_taint: bool = False
    names: frozenset[str] = frozenset()
    next_index: int = 0
    # Outdated when the scheduler has another `_room_version`.
    failed_requests: Resources | None = None
    room_version: int = 0
    # Those without the soft taint, and how many of `Scheduler._untainted` they include.
    untainted: "MatchingNodes | None" = None
    untainted_read: int = 0

    def has_failed_with_less(self, requests: Resources) -> bool:
        failed = self.failed_requests
        if failed is None:
            return False
        if requests.cpu_milli < failed.cpu_milli or requests.memory < failed.memory:
            return False
        return not failed.others or requests.others == failed.others


def common_shortage(requests: Resources, nodes: Sequence[FreeCapacity]) -> Shortage | None:
    """Return the first resource that no node has enough of; `nodes` is not empty."""
    for name, amount in _requested_amounts(requests):
        free_by_node = [max(0, _free_amount(node, name)) for node in nodes]
        most_on_one_node = max(free_by_node)
        if most_on_one_node < amount:
            total = sum(free_by_node)
            return Shortage(name, total, most_on_one_node, is_enough_in_total=total >= amount)
    return None


def _requested_amounts(requests: Resources) -> Iterator[tuple[str, int]]:
    yield "CPU", requests.cpu_milli
    yield "memory", requests.memory
    yield from requests.others
    yield "pods", 1


def _free_amount(node: FreeCapacity, name: str) -> int:
    match name:
        case "CPU":
            return node.cpu_milli
        case "memory":
            return node.memory
        case "pods":
            return node.pods
        case _:
            return node.free(name)
