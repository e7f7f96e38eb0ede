"""Free capacity of nodes as pods move, and the nodes that match a pod."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rollout.model.cluster import HOST_PORT, Node, Resources

USUAL_PODS = 110
_PLENTY = 1 << 62


@dataclass(slots=True)
class FreeCapacity:
    """What is free on a node: millicores of CPU, bytes of memory, pods, and others.

    A resource that no node offers is not counted, because something other than nodes provides it.
    """

    node: Node
    cpu: int
    memory: int
    pods: int
    others: dict[str, int]
    name: str = field(init=False)
    _offered: tuple[int, int] = field(init=False)

    @classmethod
    def of(cls, node: Node, counted: Iterable[str]) -> "FreeCapacity":
        """Return an empty node's capacity; `counted` are names of other resources."""
        offered = node.allocatable
        amounts = dict.fromkeys(counted, 0) | {
            name: most for name, most in offered.others if name in counted
        }
        return cls(node, offered.cpu_milli, offered.memory, offered.pods or USUAL_PODS, amounts)

    def __post_init__(self) -> None:
        """Cache values that are read for each pod and node."""
        self.name = self.node.name
        self._offered = (
            max(1, self.node.allocatable.cpu_milli),
            max(1, self.node.allocatable.memory),
        )

    @property
    def free_share(self) -> float:
        """The free share of its CPU plus the free share of its memory, from 0 to 2."""
        cpu, memory = self._offered
        return self.cpu / cpu + self.memory / memory

    def takes(self, requests: Resources) -> bool:
        """Whether a pod fits; an overcommitted resource only matters if requested."""
        return (
            self.pods > 0
            and (not requests.cpu_milli or self.cpu >= requests.cpu_milli)
            and (not requests.memory or self.memory >= requests.memory)
            and (
                not requests.others
                or all(self.free(name) >= amount for name, amount in requests.others)
            )
        )

    def account(self, requests: Resources, sign: int) -> None:
        """Add a pod (`sign` -1) or remove it (+1)."""
        self.cpu += sign * requests.cpu_milli
        self.memory += sign * requests.memory
        self.pods += sign
        if requests.others:
            for name, amount in requests.others:
                self.others[name] = self.free(name) + sign * amount

    def free(self, name: str) -> int:
        return self.others.get(name, 1 if name.startswith(HOST_PORT) else _PLENTY)


@dataclass(slots=True)
class MatchingNodes:
    """The nodes that pods with the same node demands can be scheduled to.

    `returns`: these pods tolerate cordons, so that closed nodes take them too.
    `minds_taint`: they prefer nodes without the soft taint.
    `names` are the names of `nodes`.
    `next` is the index at which the next search begins.
    `too_much` are the smallest requests that found no room since the change number `closing`.
    `untainted` are the nodes without the soft taint; None until it is asked for.
    `known` is how many nodes that lost the soft taint are already in `untainted`.
    """

    nodes: list[FreeCapacity]
    returns: bool = False
    minds_taint: bool = False
    names: frozenset[str] = frozenset()
    next: int = 0
    too_much: Resources | None = None
    closing: int = 0
    untainted: "MatchingNodes | None" = None
    known: int = 0

    def is_too_small_for(self, requests: Resources) -> bool:
        """Whether requests that were no larger have found no room."""
        bound = self.too_much
        return (
            bound is not None
            and requests.cpu_milli >= bound.cpu_milli
            and requests.memory >= bound.memory
            and (not bound.others or requests.others == bound.others)
        )


def requests_in_words(requests: Resources) -> str:
    asked = (("CPU", requests.cpu_milli), ("memory", requests.memory), *requests.others)
    return ", ".join(_in_words(name, amount) for name, amount in asked)


def _in_words(name: str, amount: int) -> str:
    match name:
        case "CPU":
            return f"{amount}m CPU" if amount % 1000 else f"{amount // 1000} CPU"
        case "memory":
            return f"{amount >> 20}Mi memory"
        case _:
            return name if name.startswith(HOST_PORT) else f"{amount} {name}"


def shortage(requests: Resources, nodes: Sequence[FreeCapacity]) -> str:
    """Return, in a clause, what is missing for a pod that fits on none of these nodes.

    The total of a resource may suffice although no single node has enough of it.
    """
    free = {"CPU": [node.cpu for node in nodes], "memory": [node.memory for node in nodes]}
    free |= {name: [node.free(name) for node in nodes] for name, _ in requests.others}
    free |= {"pods": [node.pods for node in nodes]}
    asked = {
        "CPU": requests.cpu_milli,
        "memory": requests.memory,
        **dict(requests.others),
        "pods": 1,
    }
    for name, amount in asked.items():
        if amount > 0 and max(free[name]) < amount:
            most = max(0, *free[name])
            total = sum(max(0, left) for left in free[name])
            pieces = " in pieces" if total >= amount else ""
            return f"{_in_words(name, total)} free{pieces}, at most {_in_words(name, most)} on one"
    return "each has too little of another of these"
