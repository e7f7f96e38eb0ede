"""Which nodes could take a pod: the scheduler's rules, on counted room.

Requests, node selector and affinity, taints, required anti-affinity, strict topology spreads, and the nodes that the
pod's volumes attach to. What other pods' anti-affinity says of this one, and preferences, are left out of account.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rollout.model.cluster import ClusterSnapshot, LabelSelector, Node, PersistentVolume, Pod, Resources
from rollout.model.placement import EVERY_NAMESPACE, Repulsion

# Enough to spread what moves, as a scheduler does, without looking at every node for every pod.
_LOOKS = 3
_USUAL_PODS = 110
_EFFECTS = ("NoSchedule", "NoExecute")


@dataclass(slots=True)
class Room:
    """A node, and what is free on it: CPU in thousandths, memory in bytes, pods."""

    node: Node
    cpu: int
    memory: int
    pods: int

    def takes(self, asked: Resources) -> bool:
        """Whether a pod with these requests fits; what is not asked for never lacks."""
        return (
            self.pods > 0
            and (not asked.cpu_milli or self.cpu >= asked.cpu_milli)
            and (not asked.memory or self.memory >= asked.memory)
        )

    def account(self, asked: Resources, sign: int) -> None:
        """Take a pod in (-1: less is free), or let it out (+1)."""
        self.cpu += sign * asked.cpu_milli
        self.memory += sign * asked.memory
        self.pods += sign


@dataclass(slots=True)
class _Shape:
    """Pods that ask the same of a node itself: the nodes they match, and those of them that take new pods.

    `too_much` is the smallest demand that found no room since the last change of what is open.
    """

    matching: Sequence[Node]
    rooms: Sequence[Room]
    next: int = 0
    too_much: Resources | None = None


@dataclass(frozen=True, slots=True)
class _Others:
    """Where other pods keep one away from: by topology key, the values that are out; `needed` keys must be there."""

    barred: Mapping[str, frozenset[str]]
    needed: frozenset[str] = frozenset()

    def admit(self, node: Node) -> bool:
        labels = node.labels
        return all(key in labels for key in self.needed) and all(
            labels.get(key) not in values for key, values in self.barred.items()
        )


_NO_OTHERS = _Others({})


@dataclass(slots=True)
class Rooms:
    """The cluster's room as pods move. `closed` are the names of the nodes that take none for the while."""

    rooms: Mapping[str, Room]
    volumes: Mapping[str, tuple[PersistentVolume, ...]]
    bound: Mapping[str, Sequence[Pod]]
    closed: frozenset[str] = frozenset()
    _where: dict[str, str] = field(default_factory=dict)
    _shapes: dict[tuple[object, ...], _Shape] = field(default_factory=dict)
    _members: dict[tuple[str, Repulsion | LabelSelector], tuple[Pod, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshot: ClusterSnapshot) -> "Rooms":
        """The room that a snapshot shows."""
        rooms = {node.name: _empty(node) for node in sorted(snapshot.nodes, key=lambda node: node.name)}
        bound: dict[str, list[Pod]] = defaultdict(list)
        for pod in snapshot.pods:
            if pod.node in rooms and not pod.finished:
                rooms[pod.node].account(pod.requests, -1)
                if not pod.terminating:
                    bound[pod.namespace].append(pod)
        volumes: dict[str, list[PersistentVolume]] = defaultdict(list)
        for volume in snapshot.volumes:
            volumes[volume.claim].append(volume)
        return cls(rooms, {claim: tuple(some) for claim, some in volumes.items()}, bound)

    def close(self, names: Iterable[str]) -> None:
        """Let these nodes, and no others, take no pods from now on."""
        self.closed = frozenset(names)
        for shape in self._shapes.values():
            shape.too_much = None

    def take_out(self, pod: Pod) -> None:
        """The pod leaves its node."""
        self.rooms[self.node_of(pod)].account(pod.requests, 1)
        self._where[pod.uid] = ""

    def put(self, pod: Pod, node: str) -> None:
        """The pod, or its replacement, comes to a node."""
        self.rooms[node].account(pod.requests, -1)
        self._where[pod.uid] = node

    def node_of(self, pod: Pod) -> str:
        """Where the pod is by now; empty while it is nowhere."""
        return self._where.get(pod.uid, pod.node)

    def place(self, pod: Pod) -> str:
        """A node that takes the pod, one of the emptier ones; empty where none does."""
        shape = self._shape(pod)
        if not pod.placement.minds_others and _exceeds(pod.requests, shape.too_much):
            return ""
        others = self._others(pod, shape)
        best = max(self._open(pod, shape, others), key=_free_share, default=None)
        if best is None and not pod.placement.minds_others:
            shape.too_much = pod.requests
        return best.node.name if best else ""

    def could_go(self, pod: Pod) -> bool:
        """Whether some node that is not closed matches the pod, room or not."""
        rooms = self._shape(pod).rooms
        return len(rooms) > len(self.closed) or any(room.node.name not in self.closed for room in rooms)

    def why_nowhere(self, pod: Pod) -> str:
        """What keeps a pod without a place from every node, in a clause."""
        shape = self._shape(pod)
        away = {*self.closed, self.node_of(pod), pod.node}
        elsewhere = [room for room in shape.rooms if room.node.name not in away]
        if not elsewhere:
            held = [volume.name for volume in self._volumes_of(pod)]
            if held and all(self._holds(volume, pod.node) for volume in self._volumes_of(pod)):
                return f"its volume {held[0]} attaches to no other node that is open"
            return "no other open node matches its node selector, affinity and tolerations"
        if not any(room.takes(pod.requests) for room in elsewhere):
            return f"no other open node has room for its requests ({in_words(pod.requests)})"
        return "its anti-affinity or topology spread leaves no other open node"

    def _holds(self, volume: PersistentVolume, node: str) -> bool:
        known = self.rooms.get(node)
        return known is not None and any(term.holds(node, known.node.labels) for term in volume.node_terms)

    def _open(self, pod: Pod, shape: _Shape, others: _Others) -> Iterator[Room]:
        """The first few rooms that take the pod, from where the last search ended."""
        number, found = len(shape.rooms), 0
        for step in range(number):
            room = shape.rooms[(shape.next + step) % number]
            if room.node.name in self.closed or not room.takes(pod.requests):
                continue
            if others is _NO_OTHERS or others.admit(room.node):
                yield room
                found += 1
            if found == _LOOKS:
                shape.next = (shape.next + step + 1) % number
                return

    def _shape(self, pod: Pod) -> _Shape:
        volumes = self._volumes_of(pod)
        key = (id(pod.node_selector) if pod.node_selector else 0, id(pod.placement), volumes)
        known = self._shapes.get(key)
        if known is None:
            matching = [room.node for room in self.rooms.values() if _matches(pod, volumes, room.node)]
            rooms = [self.rooms[node.name] for node in matching if takes_pods(node) and tolerated(pod, node)]
            known = self._shapes[key] = _Shape(matching, rooms)
        return known

    def _volumes_of(self, pod: Pod) -> tuple[PersistentVolume, ...]:
        if not pod.claims or not self.volumes:
            return ()
        return tuple(each for claim in pod.claims for each in self.volumes.get(f"{pod.namespace}/{claim}", ()))

    def _others(self, pod: Pod, shape: _Shape) -> _Others:
        if not pod.placement.minds_others:
            return _NO_OTHERS
        barred: dict[str, set[str]] = defaultdict(set)
        for term in pod.placement.repulsions:
            barred[term.topology].update(self._values(term.topology, self._repelling(pod, term), pod))
        for spread in pod.placement.spreads:
            members = self._selected(pod.namespace, spread.selector)
            own = spread.selector.matches(pod.labels)
            counts = Counter(self._values(spread.topology, members, pod))
            places = {node.labels[spread.topology] for node in shape.matching if spread.topology in node.labels}
            least = min((counts[value] for value in places), default=0)
            barred[spread.topology].update(value for value in places if counts[value] + own - least > spread.max_skew)
        needed = frozenset(spread.topology for spread in pod.placement.spreads)
        return _Others({key: frozenset(values) for key, values in barred.items()}, needed)

    def _values(self, topology: str, members: Iterable[Pod], moving: Pod) -> Iterator[str]:
        """The topology value under each of these pods, the moving one left out."""
        for member in members:
            room = self.rooms.get(self.node_of(member)) if member.uid != moving.uid else None
            if room is not None and topology in room.node.labels:
                yield room.node.labels[topology]

    def _repelling(self, pod: Pod, term: Repulsion) -> tuple[Pod, ...]:
        key = (pod.namespace, term)
        if key not in self._members:
            names = term.namespaces or (pod.namespace,)
            within = self.bound if EVERY_NAMESPACE in names else names
            self._members[key] = tuple(each for name in within for each in self._selected(name, term.selector))
        return self._members[key]

    def _selected(self, namespace: str, selector: LabelSelector) -> tuple[Pod, ...]:
        key = (namespace, selector)
        if key not in self._members:
            pods = self.bound.get(namespace, ())
            self._members[key] = tuple(each for each in pods if selector.matches(each.labels))
        return self._members[key]


def takes_pods(node: Node) -> bool:
    """Whether the scheduler gives this node any pods."""
    return node.is_ready and not node.unschedulable and not node.deleting


def tolerated(pod: Pod, node: Node) -> bool:
    """Whether the pod puts up with the node's taints."""
    return not node.taints or all(
        any(toleration.covers(taint) for toleration in pod.placement.tolerations)
        for taint in node.taints
        if taint.effect in _EFFECTS
    )


def in_words(asked: Resources) -> str:
    """Requests as manifests write them."""
    cpu = f"{asked.cpu_milli}m CPU" if asked.cpu_milli % 1000 else f"{asked.cpu_milli // 1000} CPU"
    return f"{cpu}, {asked.memory >> 20}Mi memory"


def _empty(node: Node) -> Room:
    offered = node.allocatable
    return Room(node, offered.cpu_milli, offered.memory, offered.pods or _USUAL_PODS)


def _matches(pod: Pod, volumes: Collection[PersistentVolume], node: Node) -> bool:
    """Whether node selector, node affinity and volumes let the pod run there."""
    terms = (pod.placement.node_terms, *(volume.node_terms for volume in volumes))
    return all(node.labels.get(key) == value for key, value in pod.node_selector.items()) and all(
        some is None or any(term.holds(node.name, node.labels) for term in some) for some in terms
    )


def _exceeds(asked: Resources, bound: Resources | None) -> bool:
    return bound is not None and asked.cpu_milli >= bound.cpu_milli and asked.memory >= bound.memory


def _free_share(room: Room) -> float:
    offered = room.node.allocatable
    return room.cpu / max(1, offered.cpu_milli) + room.memory / max(1, offered.memory)
