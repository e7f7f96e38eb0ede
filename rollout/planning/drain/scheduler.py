"""Which nodes could take a pod: the scheduler's rules, on counted room.

Requests, node selector and affinity, taints, the nodes that the pod's volumes attach to, and what its neighbours mean
for it. Preferences are left out of account, but for that of nodes without the soft taint: it weighs most of all.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter

from rollout.model.cluster import ClusterSnapshot, PersistentVolume, Pod
from rollout.model.demand import Demand
from rollout.planning.drain.capacity import FreeCapacity, MatchingNodes, requests_in_words, shortage
from rollout.planning.drain.neighbours import Check, Neighbours

# Enough to spread what moves, as a scheduler does, without looking at every node for every pod.
_LOOKS = 5


@dataclass(frozen=True, slots=True)
class Nowhere:
    """Why a pod fits on no other node, in a clause, and whether more room there would help."""

    why: str
    lacks_room: bool


@dataclass(slots=True)
class Scheduler:
    """The cluster's free capacity as pods move. `closed` are the names of the nodes that take none for the while."""

    nodes: Mapping[str, FreeCapacity]
    volumes: Mapping[str, tuple[PersistentVolume, ...]]
    neighbours: Neighbours
    closed: frozenset[str] = frozenset()
    _tainted: set[str] = field(default_factory=set)
    _untainted: list[str] = field(default_factory=list)
    _closing: int = 0
    _where: dict[str, str] = field(default_factory=dict)
    _matchings: dict[tuple[object, ...], MatchingNodes] = field(default_factory=dict)
    _alike: dict[Demand, MatchingNodes] = field(default_factory=dict)
    _by_label: dict[str, Mapping[str, Sequence[FreeCapacity]]] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshot: ClusterSnapshot) -> "Scheduler":
        """Return the free capacity that a snapshot shows."""
        requested = {name for pod in snapshot.pods for name, _ in pod.requests.others}
        offered = {name for node in snapshot.nodes for name, _ in node.allocatable.others if name in requested}
        nodes = {
            node.name: FreeCapacity.of(node, offered) for node in sorted(snapshot.nodes, key=lambda node: node.name)
        }
        standing = [pod for pod in snapshot.pods if pod.node in nodes and not (pod.finished or pod.terminating)]
        for pod in standing:
            nodes[pod.node].account(pod.requests, -1)
        volumes: dict[str, list[PersistentVolume]] = defaultdict(list)
        for volume in snapshot.volumes:
            volumes[volume.claim].append(volume)
        neighbours = Neighbours(standing, [free.node for free in nodes.values()], snapshot.namespaces)
        return cls(nodes, {claim: tuple(claimed) for claim, claimed in volumes.items()}, neighbours)

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
        """Take the pod from its node."""
        where = self.node_of(pod)
        self.nodes[where].account(pod.requests, 1)
        self._where[pod.uid] = ""
        if self.neighbours.any_minds:
            self.neighbours.move(pod, to="")

    def put(self, pod: Pod, node: str) -> None:
        """Put the pod, or its replacement, on a node."""
        self.nodes[node].account(pod.requests, -1)
        self._where[pod.uid] = node
        if self.neighbours.any_minds:
            self.neighbours.move(pod, to=node)

    def node_of(self, pod: Pod) -> str:
        """Where the pod is by now; empty while it is nowhere."""
        return self._where.get(pod.uid, pod.node)

    @contextmanager
    def emptied(self, leaving: Mapping[str, Sequence[Pod]]) -> Iterator[Mapping[str, Sequence[Pod]]]:
        """Let these pods leave their nodes, and yield those with no other place; then undo it."""
        yield self.empty(leaving)
        self.put_back(leaving)

    def empty(self, leaving: Mapping[str, Sequence[Pod]], beside: Iterable[str] = ()) -> Mapping[str, Sequence[Pod]]:
        """Let these pods leave their nodes, closed `beside` others, and return those with no other place.

        One goes after another, so that each is tried while others are there, and again once others have gone.
        """
        self.close((*leaving, *beside))
        staying: Mapping[str, Sequence[Pod]] = leaving
        while any(staying.values()):
            left = {name: [pod for pod in pods if not self._leaves(pod, name)] for name, pods in staying.items()}
            if sum(map(len, left.values())) == sum(map(len, staying.values())):
                break
            staying = left
        return {name: pods for name, pods in staying.items() if pods}

    def put_back(self, leaving: Mapping[str, Sequence[Pod]]) -> None:
        """Put these pods on their nodes again."""
        for name, pods in leaving.items():
            for pod in pods:
                if self.node_of(pod) != name:
                    self.take_out(pod)
                    self.put(pod, name)
        self._closing += 1

    def _leaves(self, pod: Pod, node: str) -> bool:
        """Move a pod to a node that is open, if there is one."""
        self.take_out(pod)
        target = self.place(pod)
        if not target or target in self.closed:
            self.put(pod, node)
            return False
        self.put(pod, target)
        return True

    def place(self, pod: Pod) -> str:
        """Return a node that takes the pod, which stands nowhere, one of the emptier ones; empty where none does.

        A pod that tolerates cordons goes to one that is closed where no other takes it.
        """
        matching = self._matching(pod)
        if self._is_full_for(pod, matching):
            return self._place_back(pod, matching)
        checks = self.neighbours.checks(pod, self.closed) if self.neighbours.any_minds else ()
        if self._tainted and (preferred := self._without_taint(matching)) and not self._is_full_for(pod, preferred):
            best = self._best(pod, preferred, checks) or self._best(pod, matching, checks)
        else:
            best = self._best(pod, matching, checks)
        return best.name if best else self._place_back(pod, matching)

    def _is_full_for(self, pod: Pod, matching: MatchingNodes) -> bool:
        """Whether a smaller pod has found no room since the last change of what is open."""
        if matching.closing != self._closing:
            matching.closing, matching.too_much = self._closing, None
        return matching.is_too_small_for(pod.requests)

    def _best(self, pod: Pod, matching: MatchingNodes, checks: Sequence[Check]) -> FreeCapacity | None:
        """Return the emptiest of the first few that take it."""
        best = max(self._open(pod, matching, checks), key=attrgetter("free_share"), default=None)
        if best is None and not (checks and self._has_room(pod, matching)):
            matching.too_much = pod.requests
        return best

    def _has_room(self, pod: Pod, matching: MatchingNodes) -> bool:
        """Whether what keeps the pod from all these nodes is something else than their room."""
        return any(free.name not in self.closed and free.takes(pod.requests) for free in matching.nodes)

    def _without_taint(self, matching: MatchingNodes) -> MatchingNodes | None:
        """Return the matching's nodes that have no soft taint by now; None where that is no preference."""
        if not matching.minds_taint or len(matching.nodes) == 1:
            return None
        if matching.untainted is None:
            matching.untainted = MatchingNodes([free for free in matching.nodes if free.name not in self._tainted])
        else:
            more = [self.nodes[name] for name in self._untainted[matching.known :] if name in matching.names]
            if more:
                matching.untainted.nodes += more
                matching.untainted.too_much = None
        matching.known = len(self._untainted)
        return matching.untainted

    def _place_back(self, pod: Pod, matching: MatchingNodes) -> str:
        if not matching.returns:
            return ""
        free = next(self._open(pod, matching, self.neighbours.checks(pod, self.closed), closed=True), None)
        return free.name if free else ""

    def lacks_room(self, pod: Pod) -> bool:
        """Whether there are open nodes that match the pod, and all of them are full."""
        matching = [free for free in self._matching(pod).nodes if free.name not in self.closed]
        return bool(matching) and not any(free.takes(pod.requests) for free in matching)

    def nodes_for(self, pod: Pod) -> frozenset[str]:
        """Return the nodes that match the pod, open or not, full or not; one object for pods of the same demands."""
        return self._matching(pod).names

    def returns(self, pod: Pod) -> bool:
        """Whether a cordon is nothing to the pod, so that it comes back to a node that is closed."""
        return self._matching(pod).returns

    def nowhere(self, pod: Pod) -> Nowhere:
        """Return why this unscheduled pod fits on no node."""
        elsewhere = [free for free in self._matching(pod).nodes if free.name not in self.closed]
        lacks_room = bool(elsewhere) and not any(free.takes(pod.requests) for free in elsewhere)
        return Nowhere(self.why_nowhere(pod), lacks_room)

    def why_nowhere(self, pod: Pod) -> str:
        """Return what keeps a pod that stands nowhere from every node, in a clause."""
        elsewhere = [free for free in self._matching(pod).nodes if free.name not in self.closed]
        if not elsewhere:
            held = [volume.name for volume in self._volumes_of(pod)]
            if held and all(self._holds(volume, pod.node) for volume in self._volumes_of(pod)):
                return f"its volume {held[0]} attaches to no other schedulable node"
            return "no other schedulable node matches its node selector, affinity and tolerations"
        roomy = [free for free in elsewhere if free.takes(pod.requests)]
        if not roomy:
            asked = requests_in_words(pod.requests)
            return f"no other schedulable node has room for its requests ({asked}): {shortage(pod.requests, elsewhere)}"
        checks = self.neighbours.checks(pod, self.closed)
        # of each node the first that says no: pods of one owner keep each other away from both sides
        numbers = range(len(checks))
        refused = {next((number for number in numbers if not checks[number].admits(free.node)), -1) for free in roomy}
        failed = dict.fromkeys(checks[number].because for number in sorted(refused) if number >= 0)
        return f"{' and '.join(failed)} {'leave' if len(failed) > 1 else 'leaves'} no other node"

    def _holds(self, volume: PersistentVolume, node: str) -> bool:
        free = self.nodes.get(node)
        return free is not None and any(term.holds(node, free.node.labels) for term in volume.node_terms)

    def _open(
        self, pod: Pod, matching: MatchingNodes, checks: Sequence[Check], *, closed: bool = False
    ) -> Iterator[FreeCapacity]:
        """Yield the first few nodes that take the pod, of open or closed ones, from where the last search ended."""
        if any(check.is_hopeless for check in checks):
            return
        nodes, requests, first, yielded = matching.nodes, pod.requests, matching.next, 0
        for place in chain(range(first, len(nodes)), range(first)):
            free = nodes[place]
            if (free.name in self.closed) is not closed or not free.takes(requests):
                continue
            if not checks or all(check.admits(free.node) for check in checks):
                yield free
                yielded += 1
            if yielded == _LOOKS:
                matching.next = (place + 1) % len(nodes)
                return

    def _matching(self, pod: Pod) -> MatchingNodes:
        """Return the pod's matching, found by identity, as pods of one read share what they say, or by what it says."""
        volumes = self._volumes_of(pod)
        key = (id(pod.node_selector) if pod.node_selector else 0, id(pod.placement), volumes)
        matching = self._matchings.get(key)
        if matching is None:
            matching = self._matchings[key] = self._matching_of(Demand.of(pod, volumes))
        return matching

    def _matching_of(self, demand: Demand) -> MatchingNodes:
        if demand not in self._alike:
            nodes = [free for free in self._likely(demand) if demand.admits(free.node)]
            names = frozenset(free.name for free in nodes)
            self._alike[demand] = MatchingNodes(nodes, demand.tolerates_cordons, demand.minds_soft_taint, names)
        return self._alike[demand]

    def _likely(self, demand: Demand) -> Iterable[FreeCapacity]:
        """All nodes, or those with a label that the demand names: volumes and pins concern few of many nodes."""
        labels = demand.named_labels
        if not labels:
            return self.nodes.values()
        labelled = (free for key, value in labels for free in self._labelled(key).get(value, ()))
        return {free.name: free for free in labelled}.values()

    def _labelled(self, key: str) -> Mapping[str, Sequence[FreeCapacity]]:
        if key not in self._by_label:
            shelves: dict[str, list[FreeCapacity]] = defaultdict(list)
            for free in self.nodes.values():
                if key in free.node.labels:
                    shelves[free.node.labels[key]].append(free)
            self._by_label[key] = shelves
        return self._by_label[key]

    def _volumes_of(self, pod: Pod) -> tuple[PersistentVolume, ...]:
        if not pod.claims or not self.volumes:
            return ()
        return tuple(volume for claim in pod.claims for volume in self.volumes.get(f"{pod.namespace}/{claim}", ()))
