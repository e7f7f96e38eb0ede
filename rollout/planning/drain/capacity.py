"""What is free on nodes as pods move, and which nodes pods have to choose from."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rollout.model.cluster import HOST_PORT, Node, Resources

USUAL_PODS = 110
_PLENTY = 1 << 62


@dataclass(slots=True)
class FreeCapacity:
    """A node, and what is free on it: CPU in thousandths, memory in bytes, pods, and whatever else pods ask for.

    A resource that no node offers is not reckoned with: somebody else than its nodes gives it, and knows where.
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
        """Return what a node without pods has; of the resources that are counted none that it does not offer."""
        offered = node.allocatable
        amounts = dict.fromkeys(counted, 0) | {name: most for name, most in offered.others if name in counted}
        return cls(node, offered.cpu_milli, offered.memory, offered.pods or USUAL_PODS, amounts)

    def __post_init__(self) -> None:
        """Keep at hand what is asked for each pod and node."""
        self.name = self.node.name
        self._offered = max(1, self.node.allocatable.cpu_milli), max(1, self.node.allocatable.memory)

    @property
    def free_share(self) -> float:
        """How much of its CPU and its memory is free, as shares of what it offers."""
        cpu, memory = self._offered
        return self.cpu / cpu + self.memory / memory

    def takes(self, requests: Resources) -> bool:
        """Whether a pod with these requests fits; what is not asked for never lacks."""
        return (
            self.pods > 0
            and (not requests.cpu_milli or self.cpu >= requests.cpu_milli)
            and (not requests.memory or self.memory >= requests.memory)
            and (not requests.others or all(self.free(name) >= amount for name, amount in requests.others))
        )

    def account(self, requests: Resources, sign: int) -> None:
        """Take a pod in (-1: less is free), or let it out (+1)."""
        self.cpu += sign * requests.cpu_milli
        self.memory += sign * requests.memory
        self.pods += sign
        if requests.others:
            for name, amount in requests.others:
                self.others[name] = self.free(name) + sign * amount

    def free(self, name: str) -> int:
        """Return how much is free of a resource that is neither CPU nor memory."""
        return self.others.get(name, 1 if name.startswith(HOST_PORT) else _PLENTY)


@dataclass(slots=True)
class MatchingNodes:
    """What pods that ask the same of a node itself have to choose from: the nodes that match them and take new pods.

    `returns`: what is closed takes these pods all the same, for they tolerate cordons.
    `too_much` is the smallest demand that found no room since the last change of what is open, which is `closing`.
    `untainted` is the same without the nodes that have the soft taint, None where these pods do not mind it, or it has
    not been asked for; `known` is how many of the nodes that lost it are in there already. `names` are all its nodes'.
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
        """Whether no more than these requests has found no room before."""
        bound = self.too_much
        return (
            bound is not None
            and requests.cpu_milli >= bound.cpu_milli
            and requests.memory >= bound.memory
            and (not bound.others or requests.others == bound.others)
        )


def requests_in_words(requests: Resources) -> str:
    """Return requests as manifests write them."""
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
    """Return what these nodes really lack for a pod that none of them has room for, in a clause.

    Of what each of them has too little, how much is free in all: it may be enough, though only in pieces.
    """
    free = {"CPU": [node.cpu for node in nodes], "memory": [node.memory for node in nodes]}
    free |= {name: [node.free(name) for node in nodes] for name, _ in requests.others}
    free |= {"pods": [node.pods for node in nodes]}
    asked = {"CPU": requests.cpu_milli, "memory": requests.memory, **dict(requests.others), "pods": 1}
    for name, amount in asked.items():
        if amount > 0 and max(free[name]) < amount:
            most, total = max(0, *free[name]), sum(max(0, left) for left in free[name])
            pieces = " in pieces" if total >= amount else ""
            return f"{_in_words(name, total)} free{pieces}, at most {_in_words(name, most)} on one"
    return "each has too little of another of these"
