"""Which nodes could take a pod: the scheduler's rules, on counted room.

Requests, node selector and affinity, taints, the nodes that the pod's volumes attach to, and what its neighbours mean
for it. Preferences are left out of account, but for that of nodes without the soft taint: it weighs most of all.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain
from operator import attrgetter

from rollout.model.cluster import HOST_PORT, ClusterSnapshot, Node, PersistentVolume, Pod, Resources
from rollout.planning.demands import Check, Demand, Neighbours

# Enough to spread what moves, as a scheduler does, without looking at every node for every pod.
_LOOKS = 3
# Pods times nodes: in a larger cluster, one of the first few nodes that take a pod is good enough.
_MOST_SCORES = 300_000
USUAL_PODS = 110
_PLENTY = 1 << 62


@dataclass(slots=True)
class FreeRoom:
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

    def __post_init__(self) -> None:
        """Keep at hand what is asked for each pod and room."""
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
            and (not requests.others or all(self._free(name) >= amount for name, amount in requests.others))
        )

    def account(self, requests: Resources, sign: int) -> None:
        """Take a pod in (-1: less is free), or let it out (+1)."""
        self.cpu += sign * requests.cpu_milli
        self.memory += sign * requests.memory
        self.pods += sign
        if requests.others:
            for name, amount in requests.others:
                self.others[name] = self._free(name) + sign * amount

    def _free(self, name: str) -> int:
        return self.others.get(name, 1 if name.startswith(HOST_PORT) else _PLENTY)


@dataclass(slots=True)
class _Shape:
    """Pods that ask the same of a node itself: the rooms of the nodes that match them and take new pods.

    `returns`: what is closed takes these pods all the same, for they tolerate cordons.
    `too_much` is the smallest demand that found no room since the last change of what is open, which is `closing`.
    `untainted` is the same without the nodes that have the soft taint, None where these pods do not mind it, or it has
    not been asked for; `known` is how many of the nodes that lost it are in there already. `names` are all its nodes'.
    """

    rooms: list[FreeRoom]
    returns: bool = False
    minds_taint: bool = False
    names: frozenset[str] = frozenset()
    next: int = 0
    too_much: Resources | None = None
    closing: int = 0
    untainted: "_Shape | None" = None
    known: int = 0


@dataclass(slots=True)
class Scores:
    """How a scheduler chooses of the nodes that take a pod: the fewest pods of its owner, then the most that is free.

    `siblings` counts pods by the UID of their owner and by node. `draw` decides between nodes that are equal.
    """

    siblings: Counter[tuple[str, str]]
    draw: int = 0

    @classmethod
    def of(cls, snapshot: ClusterSnapshot, draw: int) -> "Scores":
        """For the pods of a snapshot."""
        standing = (pod for pod in snapshot.pods if pod.owner and pod.node and not pod.finished)
        return cls(Counter((_owner(pod), pod.node) for pod in standing), draw)

    def count(self, pod: Pod, node: str, sign: int) -> None:
        """A pod comes to a node (+1), or leaves it (-1)."""
        self.siblings[_owner(pod), node] += sign

    def choice(self, pod: Pod, rooms: Iterable[FreeRoom]) -> FreeRoom | None:
        """The best; of equal ones another in each draw, so that as many draws as there are equal ones try them all."""
        owner, best, equal = _owner(pod), (0, 0.0), list[FreeRoom]()
        for room in rooms:
            score = -self.siblings.get((owner, room.name), 0), room.free_share
            if not equal or score > best:
                best, equal = score, [room]
            elif score == best:
                equal.append(room)
        if len(equal) > 1:
            equal.sort(key=lambda room: blake2b(f"{pod.key} {room.name}".encode(), digest_size=8).digest())
        return equal[self.draw % len(equal)] if equal else None


def _owner(pod: Pod) -> str:
    return pod.owner.uid if pod.owner else pod.uid


@dataclass(slots=True)
class Scheduler:
    """The cluster's room as pods move. `closed` are the names of the nodes that take none for the while."""

    rooms: Mapping[str, FreeRoom]
    volumes: Mapping[str, tuple[PersistentVolume, ...]]
    neighbours: Neighbours
    closed: frozenset[str] = frozenset()
    _tainted: set[str] = field(default_factory=set)
    _untainted: list[str] = field(default_factory=list)
    scores: "Scores | None" = None
    _closing: int = 0
    _where: dict[str, str] = field(default_factory=dict)
    _shapes: dict[tuple[object, ...], _Shape] = field(default_factory=dict)
    _alike: dict[Demand, _Shape] = field(default_factory=dict)
    _by_label: dict[str, Mapping[str, Sequence[FreeRoom]]] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshot: ClusterSnapshot) -> "Scheduler":
        """The room that a snapshot shows."""
        requested = {name for pod in snapshot.pods for name, _ in pod.requests.others}
        offered = {name for node in snapshot.nodes for name, _ in node.allocatable.others if name in requested}
        rooms = {node.name: _empty(node, offered) for node in sorted(snapshot.nodes, key=lambda node: node.name)}
        standing = [pod for pod in snapshot.pods if pod.node in rooms and not pod.finished]
        for pod in standing:
            rooms[pod.node].account(pod.requests, -1)
        volumes: dict[str, list[PersistentVolume]] = defaultdict(list)
        for volume in snapshot.volumes:
            volumes[volume.claim].append(volume)
        staying = (pod for pod in standing if not pod.terminating)
        neighbours = Neighbours(staying, [room.node for room in rooms.values()], snapshot.namespaces)
        return cls(rooms, {claim: tuple(claimed) for claim, claimed in volumes.items()}, neighbours)

    def close(self, names: Iterable[str]) -> None:
        """Let these nodes, and no others, take no pods from now on."""
        self.closed = frozenset(names)
        self._closing += 1

    def taint(self, names: Iterable[str]) -> None:
        """Let these nodes take pods only where no other does; not after a pod was placed under a taint."""
        self._tainted.update(names)

    def untaint(self, names: Iterable[str]) -> None:
        """Let these nodes take pods like any other again, once they are open."""
        done = [name for name in names if name in self._tainted]
        self._untainted += done
        self._tainted.difference_update(done)

    def take_out(self, pod: Pod) -> None:
        """The pod leaves its node."""
        where = self.node_of(pod)
        self.rooms[where].account(pod.requests, 1)
        if self.scores:
            self.scores.count(pod, where, -1)
        self._where[pod.uid] = ""
        if self.neighbours.any_minds:
            self.neighbours.move(pod, to="")

    def put(self, pod: Pod, node: str) -> None:
        """The pod, or its replacement, comes to a node."""
        self.rooms[node].account(pod.requests, -1)
        if self.scores:
            self.scores.count(pod, node, 1)
        self._where[pod.uid] = node
        if self.neighbours.any_minds:
            self.neighbours.move(pod, to=node)

    def node_of(self, pod: Pod) -> str:
        """Where the pod is by now; empty while it is nowhere."""
        return self._where.get(pod.uid, pod.node)

    def place(self, pod: Pod) -> str:
        """A node that takes the pod, which stands nowhere, one of the emptier ones; empty where none does.

        A pod that tolerates cordons goes to one that is closed where no other takes it.
        """
        shape = self._shape(pod)
        if self._is_full_for(pod, shape):
            return self._place_back(pod, shape)
        checks = self.neighbours.checks(pod, self.closed) if self.neighbours.any_minds else ()
        if self._tainted and (preferred := self._without_taint(shape)) and not self._is_full_for(pod, preferred):
            best = self._best(pod, preferred, checks) or self._best(pod, shape, checks)
        else:
            best = self._best(pod, shape, checks)
        return best.name if best else self._place_back(pod, shape)

    def _is_full_for(self, pod: Pod, shape: _Shape) -> bool:
        """Whether a smaller pod has found no room since the last change of what is open."""
        if shape.closing != self._closing:
            shape.closing, shape.too_much = self._closing, None
        return shape.too_much is not None and _exceeds(pod.requests, shape.too_much)

    def _best(self, pod: Pod, shape: _Shape, checks: Sequence[Check]) -> FreeRoom | None:
        if self.scores:
            best = self.scores.choice(pod, self._open(pod, shape, checks))
        elif checks:
            best = max(self._open(pod, shape, checks), key=attrgetter("free_share"), default=None)
        else:
            best = self._emptiest(pod.requests, shape)
        if best is None and not (checks and self._has_room(pod, shape)):
            shape.too_much = pod.requests
        return best

    def _emptiest(self, requests: Resources, shape: _Shape) -> FreeRoom | None:
        """The same as of those that `_open` yields, where no neighbour minds: most pods are placed by this."""
        rooms, closed, first = shape.rooms, self.closed, shape.next
        cpu, memory, best, most, looks = requests.cpu_milli, requests.memory, None, 0.0, 0
        for place in chain(range(first, len(rooms)), range(first)):
            room = rooms[place]
            # As `FreeRoom.takes` has it: a call for each of the rooms that are full costs more than all else.
            if (cpu and room.cpu < cpu) or (memory and room.memory < memory) or room.pods <= 0:
                continue
            if room.name in closed or (requests.others and not room.takes(requests)):
                continue
            share = room.free_share
            if best is None or share > most:
                best, most = room, share
            looks += 1
            if looks == _LOOKS:
                shape.next = (place + 1) % len(rooms)
                break
        return best

    def _has_room(self, pod: Pod, shape: _Shape) -> bool:
        """Whether what keeps the pod from all these nodes is something else than their room."""
        return any(room.name not in self.closed and room.takes(pod.requests) for room in shape.rooms)

    def _without_taint(self, shape: _Shape) -> _Shape | None:
        """The shape's nodes that have no soft taint by now; None where that is no preference."""
        if not shape.minds_taint or len(shape.rooms) == 1:
            return None
        if shape.untainted is None:
            shape.untainted = _Shape([room for room in shape.rooms if room.name not in self._tainted])
        else:
            more = [self.rooms[name] for name in self._untainted[shape.known :] if name in shape.names]
            if more:
                shape.untainted.rooms += more
                shape.untainted.too_much = None
        shape.known = len(self._untainted)
        return shape.untainted

    def _place_back(self, pod: Pod, shape: _Shape) -> str:
        if not shape.returns:
            return ""
        room = next(self._open(pod, shape, self.neighbours.checks(pod, self.closed), closed=True), None)
        return room.name if room else ""

    def could_go(self, pod: Pod) -> bool:
        """Whether some node that is not closed matches the pod, room or not."""
        rooms = self._shape(pod).rooms
        return len(rooms) > len(self.closed) or any(room.name not in self.closed for room in rooms)

    def lacks_room(self, pod: Pod) -> bool:
        """Whether the open nodes that match the pod are full."""
        return self.could_go(pod) and not self._has_room(pod, self._shape(pod))

    def may_return(self, pod: Pod) -> bool:
        """Whether what is closed takes the pod all the same."""
        return self._shape(pod).returns

    def matching(self, pod: Pod) -> frozenset[str]:
        """The nodes that match the pod, open or not, room or not; the same object for pods of the same demands."""
        return self._shape(pod).names

    def why_nowhere(self, pod: Pod) -> str:
        """What keeps a pod that stands nowhere from every node, in a clause."""
        elsewhere = [room for room in self._shape(pod).rooms if room.name not in self.closed]
        if not elsewhere:
            held = [volume.name for volume in self._volumes_of(pod)]
            if held and all(self._holds(volume, pod.node) for volume in self._volumes_of(pod)):
                return f"its volume {held[0]} attaches to no other schedulable node"
            return "no other schedulable node matches its node selector, affinity and tolerations"
        roomy = [room for room in elsewhere if room.takes(pod.requests)]
        if not roomy:
            return f"no other schedulable node has room for its requests ({requests_in_words(pod.requests)})"
        checks = self.neighbours.checks(pod, self.closed)
        # of each node the first that says no: pods of one owner keep each other away from both sides
        numbers = range(len(checks))
        refused = {next((number for number in numbers if not checks[number].admits(room.node)), -1) for room in roomy}
        failed = dict.fromkeys(checks[number].because for number in sorted(refused) if number >= 0)
        return f"{' and '.join(failed)} {'leave' if len(failed) > 1 else 'leaves'} no other node"

    def _holds(self, volume: PersistentVolume, node: str) -> bool:
        room = self.rooms.get(node)
        return room is not None and any(term.holds(node, room.node.labels) for term in volume.node_terms)

    def _open(self, pod: Pod, shape: _Shape, checks: Sequence[Check], *, closed: bool = False) -> Iterator[FreeRoom]:
        """The first few rooms that take the pod, of the open or the closed ones, from where the last search ended."""
        if any(check.is_hopeless for check in checks):
            return
        rooms, requests, first, yielded = shape.rooms, pod.requests, shape.next, 0
        for place in chain(range(first, len(rooms)), range(first)):
            room = rooms[place]
            if (room.name in self.closed) is not closed or not room.takes(requests):
                continue
            if not checks or all(check.admits(room.node) for check in checks):
                yield room
                yielded += 1
            if yielded == _LOOKS and self.scores is None:
                shape.next = (place + 1) % len(rooms)
                return

    def _shape(self, pod: Pod) -> _Shape:
        """The pod's shape: found by identity, for pods of one read share what they say, else by what it says."""
        volumes = self._volumes_of(pod)
        key = (id(pod.node_selector) if pod.node_selector else 0, id(pod.placement), volumes)
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = self._shape_of(Demand.of(pod, volumes))
        return shape

    def _shape_of(self, demand: Demand) -> _Shape:
        if demand not in self._alike:
            rooms = [room for room in self._likely(demand) if demand.admits(room.node)]
            names = frozenset(room.name for room in rooms)
            self._alike[demand] = _Shape(rooms, demand.tolerates_cordons, demand.minds_soft_taint, names)
        return self._alike[demand]

    def _likely(self, demand: Demand) -> Iterable[FreeRoom]:
        """All rooms, or those with a label that the demand names: volumes and pins concern few of many nodes."""
        labels = demand.named_labels
        if not labels:
            return self.rooms.values()
        labelled = (room for key, value in labels for room in self._labelled(key).get(value, ()))
        return {room.name: room for room in labelled}.values()

    def _labelled(self, key: str) -> Mapping[str, Sequence[FreeRoom]]:
        if key not in self._by_label:
            shelves: dict[str, list[FreeRoom]] = defaultdict(list)
            for room in self.rooms.values():
                if key in room.node.labels:
                    shelves[room.node.labels[key]].append(room)
            self._by_label[key] = shelves
        return self._by_label[key]

    def _volumes_of(self, pod: Pod) -> tuple[PersistentVolume, ...]:
        if not pod.claims or not self.volumes:
            return ()
        return tuple(volume for claim in pod.claims for volume in self.volumes.get(f"{pod.namespace}/{claim}", ()))


def scored(snapshot: ClusterSnapshot, draw: int) -> Scheduler:
    """The room that a snapshot shows, where pods go as a scheduler lets them, as long as there are not too many."""
    rooms = Scheduler.of(snapshot)
    if len(snapshot.nodes) * len(snapshot.pods) <= _MOST_SCORES:
        rooms.scores = Scores.of(snapshot, draw)
    return rooms


def requests_in_words(requests: Resources) -> str:
    """Requests as manifests write them."""
    cpu = f"{requests.cpu_milli}m CPU" if requests.cpu_milli % 1000 else f"{requests.cpu_milli // 1000} CPU"
    further = (name if name.startswith(HOST_PORT) else f"{amount} {name}" for name, amount in requests.others)
    return ", ".join((cpu, f"{requests.memory >> 20}Mi memory", *further))


def _empty(node: Node, counted: Iterable[str]) -> FreeRoom:
    """The room of a node without pods; what it does not offer of the resources that are counted, it has none of."""
    offered = node.allocatable
    amounts = dict.fromkeys(counted, 0) | {name: most for name, most in offered.others if name in counted}
    return FreeRoom(node, offered.cpu_milli, offered.memory, offered.pods or USUAL_PODS, amounts)


def _exceeds(requests: Resources, bound: Resources) -> bool:
    return (
        requests.cpu_milli >= bound.cpu_milli
        and requests.memory >= bound.memory
        and (not bound.others or requests.others == bound.others)
    )


def places_for(pods: Sequence[Pod], rooms: Scheduler) -> Mapping[str, str]:
    """Put pods that stand nowhere on nodes, by UID, empty for nowhere; those drawn to others are tried again."""
    targets: dict[str, str] = {}
    waiting = list(pods)
    while waiting:
        homeless = []
        for pod in waiting:
            targets[pod.uid] = rooms.place(pod)
            if targets[pod.uid]:
                rooms.put(pod, targets[pod.uid])
            else:
                homeless.append(pod)
        drawn = [pod for pod in homeless if pod.placement.attractions]
        if len(homeless) == len(waiting) or not drawn:
            break
        waiting = drawn
    return targets
