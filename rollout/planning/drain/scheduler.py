"""A model of kube-scheduler: which nodes can take a pod, with capacity counted as pods move.

It heeds requests, node selector and affinity, taints, volumes' node affinity, and neighbors. Of
preferences it heeds one: nodes without the soft taint come first.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from operator import attrgetter

from rollout.model.cluster import ClusterSnapshot, PersistentVolume, Pod
from rollout.model.demand import PodDemand
from rollout.planning.drain.capacity import FreeCapacity, MatchingNodes, requests_in_words, shortage
from rollout.planning.drain.neighbors import Neighbors, TopologyCheck

# Comparing a few nodes is enough to spread pods as kube-scheduler does.
_COMPARED_NODES = 5


@dataclass(frozen=True, slots=True)
class Nowhere:
    """Why no other node takes a pod, in a clause, and whether room would help."""

    why: str
    lacks_room: bool


@dataclass(slots=True)
class Scheduler:
    """The cluster's free capacity as pods move.

    `volumes` are by claim (`namespace/name`). `closed` has the names of nodes that take no pods.
    `_tainted` have the soft taint; `_untainted` had it, in the order in which they lost it.
    `_closing` counts changes that may make room, after which a cached `too_much` is stale.
    `_where` has the node of each pod that was moved, by UID.
    `_matchings` and `_alike` cache the matching nodes, by object identity and by demand.
    """

    nodes: Mapping[str, FreeCapacity]
    volumes: Mapping[str, tuple[PersistentVolume, ...]]
    neighbors: Neighbors
    closed: frozenset[str] = frozenset()
    _tainted: set[str] = field(default_factory=set)
    _untainted: list[str] = field(default_factory=list)
    _closing: int = 0
    _where: dict[str, str] = field(default_factory=dict)
    _matchings: dict[tuple[object, ...], MatchingNodes] = field(default_factory=dict)
    _alike: dict[PodDemand, MatchingNodes] = field(default_factory=dict)
    _by_label: dict[str, Mapping[str, Sequence[FreeCapacity]]] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshot: ClusterSnapshot) -> "Scheduler":
        requested = {name for pod in snapshot.pods for name, _ in pod.requests.others}
        offered = {
            name
            for node in snapshot.nodes
            for name, _ in node.allocatable.others
            if name in requested
        }
        nodes = {
            node.name: FreeCapacity.of(node, offered)
            for node in sorted(snapshot.nodes, key=lambda node: node.name)
        }
        standing = [
            pod
            for pod in snapshot.pods
            if pod.node in nodes and not (pod.finished or pod.terminating)
        ]
        for pod in standing:
            nodes[pod.node].account(pod.requests, -1)
        volumes: dict[str, list[PersistentVolume]] = defaultdict(list)
        for volume in snapshot.volumes:
            volumes[volume.claim].append(volume)
        neighbors = Neighbors(standing, [free.node for free in nodes.values()], snapshot.namespaces)
        return cls(nodes, {claim: tuple(claimed) for claim, claimed in volumes.items()}, neighbors)

    def close(self, names: Iterable[str]) -> None:
        self.closed = frozenset(names)
        self._closing += 1

    def taint(self, names: Iterable[str]) -> None:
        """Let pods prefer other nodes; call it before any pod is placed."""
        self._tainted.update(names)

    def untaint(self, names: Iterable[str]) -> None:
        """Treat these nodes like any other again, once they are open."""
        changed = [name for name in names if name in self._tainted]
        self._untainted += changed
        self._tainted.difference_update(changed)

    def take_out(self, pod: Pod) -> None:
        where = self.node_of(pod)
        self.nodes[where].account(pod.requests, 1)
        self._where[pod.uid] = ""
        if self.neighbors.any_minds:
            self.neighbors.move(pod, to="")

    def put(self, pod: Pod, node: str) -> None:
        self.nodes[node].account(pod.requests, -1)
        self._where[pod.uid] = node
        if self.neighbors.any_minds:
            self.neighbors.move(pod, to=node)

    def node_of(self, pod: Pod) -> str:
        """Return the pod's current node; empty if it is on none."""
        return self._where.get(pod.uid, pod.node)

    @contextmanager
    def emptied(
        self, leaving: Mapping[str, Sequence[Pod]]
    ) -> Iterator[Mapping[str, Sequence[Pod]]]:
        """Move these pods off their nodes, yield those that stay, and undo it."""
        try:
            yield self.empty(leaving)
        finally:
            self.put_back(leaving)

    def empty(
        self, leaving: Mapping[str, Sequence[Pod]], beside: Iterable[str] = ()
    ) -> Mapping[str, Sequence[Pod]]:
        """Move these pods off their nodes, and return by node those that fit nowhere else.

        Their nodes and those in `beside` are closed. Pods move one after another; those that found
        no place are tried again until a round moves none, because others may have made room.
        """
        self.close((*leaving, *beside))
        staying: Mapping[str, Sequence[Pod]] = leaving
        while any(staying.values()):
            before = sum(map(len, staying.values()))
            staying = {
                name: [pod for pod in pods if not self._leaves(pod, name)]
                for name, pods in staying.items()
            }
            if sum(map(len, staying.values())) == before:
                break
        return {name: pods for name, pods in staying.items() if pods}

    def put_back(self, leaving: Mapping[str, Sequence[Pod]]) -> None:
        for name, pods in leaving.items():
            for pod in pods:
                if self.node_of(pod) != name:
                    self.take_out(pod)
                    self.put(pod, name)
        self._closing += 1

    def _leaves(self, pod: Pod, node: str) -> bool:
        """Move a pod to an open node; return False if none takes it."""
        self.take_out(pod)
        target = self.place(pod)
        if not target or target in self.closed:
            self.put(pod, node)
            return False
        self.put(pod, target)
        return True

    def place(self, pod: Pod) -> str:
        """Return one of the emptier nodes that take the pod; empty if none does.

        A pod that tolerates cordons may go to a closed node if no open one takes it.
        """
        matching = self._matching(pod)
        if self._is_full_for(pod, matching):
            return self._place_back(pod, matching)
        checks = self.neighbors.checks(pod, self.closed) if self.neighbors.any_minds else ()
        if (
            self._tainted
            and (preferred := self._without_taint(matching))
            and not self._is_full_for(pod, preferred)
        ):
            best = self._best(pod, preferred, checks) or self._best(pod, matching, checks)
        else:
            best = self._best(pod, matching, checks)
        return best.name if best else self._place_back(pod, matching)

    def _is_full_for(self, pod: Pod, matching: MatchingNodes) -> bool:
        """Whether no larger pod has found no room since nodes were last closed."""
        if matching.closing != self._closing:
            matching.closing = self._closing
            matching.too_much = None
        return matching.is_too_small_for(pod.requests)

    def _best(
        self, pod: Pod, matching: MatchingNodes, checks: Sequence[TopologyCheck]
    ) -> FreeCapacity | None:
        """Return the emptiest of a few nodes that take the pod."""
        best = max(self._open(pod, matching, checks), key=attrgetter("free_share"), default=None)
        if best is None and not (checks and self._has_room(pod, matching)):
            matching.too_much = pod.requests
        return best

    def _has_room(self, pod: Pod, matching: MatchingNodes) -> bool:
        """Whether an open node has room, so that only the checks keep the pod away."""
        return any(
            free.name not in self.closed and free.takes(pod.requests) for free in matching.nodes
        )

    def _without_taint(self, matching: MatchingNodes) -> MatchingNodes | None:
        """Return the nodes without the soft taint; None if the pods do not care."""
        if not matching.minds_taint or len(matching.nodes) == 1:
            return None
        if matching.untainted is None:
            matching.untainted = MatchingNodes(
                [free for free in matching.nodes if free.name not in self._tainted]
            )
        else:
            more = [
                self.nodes[name]
                for name in self._untainted[matching.known :]
                if name in matching.names
            ]
            if more:
                matching.untainted.nodes += more
                matching.untainted.too_much = None
        matching.known = len(self._untainted)
        return matching.untainted

    def _place_back(self, pod: Pod, matching: MatchingNodes) -> str:
        if not matching.returns:
            return ""
        free = next(
            self._open(pod, matching, self.neighbors.checks(pod, self.closed), closed=True), None
        )
        return free.name if free else ""

    def lacks_room(self, pod: Pod) -> bool:
        """Whether open nodes match the pod, and all of them are full."""
        elsewhere = self._elsewhere(pod)
        return bool(elsewhere) and not any(free.takes(pod.requests) for free in elsewhere)

    def nodes_for(self, pod: Pod) -> frozenset[str]:
        """Return the names of matching nodes: one object for the same demands."""
        return self._matching(pod).names

    def returns(self, pod: Pod) -> bool:
        """Whether the pod tolerates cordons, and can come back to a closed node."""
        return self._matching(pod).returns

    def _elsewhere(self, pod: Pod) -> list[FreeCapacity]:
        return [free for free in self._matching(pod).nodes if free.name not in self.closed]

    def nowhere(self, pod: Pod) -> Nowhere:
        return Nowhere(self.why_nowhere(pod), self.lacks_room(pod))

    def why_nowhere(self, pod: Pod) -> str:
        """Return, in a clause, why no node takes the pod, which is on none."""
        elsewhere = self._elsewhere(pod)
        if not elsewhere:
            held = [volume.name for volume in self._volumes_of(pod)]
            if held and all(self._holds(volume, pod.node) for volume in self._volumes_of(pod)):
                return f"its volume {held[0]} attaches to no other schedulable node"
            return "no other schedulable node matches its node selector, affinity and tolerations"
        roomy = [free for free in elsewhere if free.takes(pod.requests)]
        if not roomy:
            asked = requests_in_words(pod.requests)
            return (
                f"no other schedulable node has room for its requests ({asked}):"
                f" {shortage(pod.requests, elsewhere)}"
            )
        checks = self.neighbors.checks(pod, self.closed)
        # Name only the first check that each node fails: the anti-affinity between pods of one
        # owner fails twice, as the pod's own and as the other's.
        first_failed = set[int]()
        for free in roomy:
            failures = (
                number for number, check in enumerate(checks) if not check.admits(free.node)
            )
            first_failed.update(islice(failures, 1))
        failed = dict.fromkeys(checks[number].because for number in sorted(first_failed))
        return f"{' and '.join(failed)} {'leave' if len(failed) > 1 else 'leaves'} no other node"

    def _holds(self, volume: PersistentVolume, node: str) -> bool:
        free = self.nodes.get(node)
        return free is not None and any(
            term.holds(node, free.node.labels) for term in volume.node_terms
        )

    def _open(
        self,
        pod: Pod,
        matching: MatchingNodes,
        checks: Sequence[TopologyCheck],
        *,
        closed: bool = False,
    ) -> Iterator[FreeCapacity]:
        """Yield the first few nodes that can take the pod, from where the last search ended.

        They are open nodes, or closed ones if `closed`.
        """
        if any(check.is_hopeless for check in checks):
            return
        nodes = matching.nodes
        requests = pod.requests
        yielded = 0
        for place in chain(range(matching.next, len(nodes)), range(matching.next)):
            free = nodes[place]
            if (free.name in self.closed) is not closed or not free.takes(requests):
                continue
            if not checks or all(check.admits(free.node) for check in checks):
                yield free
                yielded += 1
            if yielded == _COMPARED_NODES:
                matching.next = (place + 1) % len(nodes)
                return

    def _matching(self, pod: Pod) -> MatchingNodes:
        """Pods of one snapshot share objects, so look up by identity first."""
        volumes = self._volumes_of(pod)
        key = (id(pod.node_selector) if pod.node_selector else 0, id(pod.placement), volumes)
        matching = self._matchings.get(key)
        if matching is None:
            matching = self._matchings[key] = self._matching_of(PodDemand.of(pod, volumes))
        return matching

    def _matching_of(self, demand: PodDemand) -> MatchingNodes:
        if demand not in self._alike:
            nodes = [free for free in self._likely(demand) if demand.admits(free.node)]
            names = frozenset(free.name for free in nodes)
            self._alike[demand] = MatchingNodes(
                nodes, demand.tolerates_cordons, demand.minds_soft_taint, names
            )
        return self._alike[demand]

    def _likely(self, demand: PodDemand) -> Iterable[FreeCapacity]:
        """Return only nodes with a label that the demand names, because they are few."""
        labels = demand.named_labels
        if not labels:
            return self.nodes.values()
        labelled = (free for key, value in labels for free in self._labelled(key).get(value, ()))
        return {free.name: free for free in labelled}.values()

    def _labelled(self, key: str) -> Mapping[str, Sequence[FreeCapacity]]:
        if key not in self._by_label:
            by_value: dict[str, list[FreeCapacity]] = defaultdict(list)
            for free in self.nodes.values():
                if key in free.node.labels:
                    by_value[free.node.labels[key]].append(free)
            self._by_label[key] = by_value
        return self._by_label[key]

    def _volumes_of(self, pod: Pod) -> tuple[PersistentVolume, ...]:
        if not pod.claims or not self.volumes:
            return ()
        return tuple(
            volume
            for claim in pod.claims
            for volume in self.volumes.get(f"{pod.namespace}/{claim}", ())
        )
