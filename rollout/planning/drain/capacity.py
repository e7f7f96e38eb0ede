"""Free capacity of nodes as pods move."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from rollout.model.cluster import HOST_PORT, Node, Resources
from rollout.model.drain_finding import Shortage

USUAL_PODS = 110
_PLENTY = 1 << 62


@dataclass(slots=True)
class FreeCapacity:
    """What is free on a node: CPU (millicores), memory (bytes), pods, and others.

    A resource that no node offers is not counted.
    """

    node: Node
    cpu: int
    memory: int
    pods: int
    others: dict[str, int]
    name: str = field(init=False)
    _offered: tuple[int, int] = field(init=False)

    @classmethod
    def of(cls, node: Node, tracked: Iterable[str]) -> "FreeCapacity":
        offered = node.allocatable
        others = dict.fromkeys(tracked, 0)
        for name, amount in offered.others:
            if name in others:
                others[name] = amount
        return cls(
            node,
            cpu=offered.cpu_milli,
            memory=offered.memory,
            pods=offered.pods or USUAL_PODS,
            others=others,
        )

    def __post_init__(self) -> None:
        self.name = self.node.name
        self._offered = (
            max(1, self.node.allocatable.cpu_milli),
            max(1, self.node.allocatable.memory),
        )

    @property
    def free_share(self) -> float:
        """The free shares of CPU and memory added up, from 0 to 2."""
        cpu, memory = self._offered
        return self.cpu / cpu + self.memory / memory

    def takes(self, requests: Resources) -> bool:
        """Whether a pod fits; an overcommitted resource only matters if requested."""
        if self.pods <= 0:
            return False
        if requests.cpu_milli and self.cpu < requests.cpu_milli:
            return False
        if requests.memory and self.memory < requests.memory:
            return False
        if not requests.others:
            return True
        return all(self.free(name) >= amount for name, amount in requests.others)

    def add(self, requests: Resources) -> None:
        self._change(requests, -1)

    def remove(self, requests: Resources) -> None:
        self._change(requests, 1)

    def _change(self, requests: Resources, sign: int) -> None:
        self.cpu += sign * requests.cpu_milli
        self.memory += sign * requests.memory
        self.pods += sign
        for name, amount in requests.others:
            self.others[name] = self.free(name) + sign * amount

    def free(self, name: str) -> int:
        # Each node has every port of the host once.
        uncounted = 1 if name.startswith(HOST_PORT) else _PLENTY
        return self.others.get(name, uncounted)


@dataclass(slots=True)
class MatchingNodes:
    """The nodes that pods with the same node demands can be scheduled to.

    `minds_taint`: the pods prefer `untainted` nodes, which are read from the scheduler's
    `_untainted` up to `untainted_read`. `next` is where the next search begins. `too_much` are the
    smallest requests that did not fit since the scheduler's `change`.
    """

    nodes: list[FreeCapacity]
    tolerates_cordons: bool = False
    minds_taint: bool = False
    names: frozenset[str] = frozenset()
    next: int = 0
    too_much: Resources | None = None
    change: int = 0
    untainted: "MatchingNodes | None" = None
    untainted_read: int = 0

    def is_too_small_for(self, requests: Resources) -> bool:
        bound = self.too_much
        return (
            bound is not None
            and requests.cpu_milli >= bound.cpu_milli
            and requests.memory >= bound.memory
            and (not bound.others or requests.others == bound.others)
        )


def shortage(requests: Resources, nodes: Sequence[FreeCapacity]) -> Shortage | None:
    for name, amount in _amounts(requests):
        free = [max(0, _free_of(node, name)) for node in nodes]
        most = max(free)
        if most < amount:
            total = sum(free)
            return Shortage(name, total, most, is_enough_in_total=total >= amount)
    return None


def _amounts(requests: Resources) -> Iterator[tuple[str, int]]:
    yield "CPU", requests.cpu_milli
    yield "memory", requests.memory
    yield from requests.others
    yield "pods", 1


def _free_of(node: FreeCapacity, name: str) -> int:
    match name:
        case "CPU":
            return node.cpu
        case "memory":
            return node.memory
        case "pods":
            return node.pods
        case _:
            return node.free(name)
