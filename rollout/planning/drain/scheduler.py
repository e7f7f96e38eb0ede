"""A model of kube-scheduler, which counts capacity as pods move.

It prefers nodes without the soft taint, then with few pods of the owner, then empty ones.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain

from rollout.model import drain_finding as findings
from rollout.model.cluster import ClusterSnapshot, Node, PersistentVolume, Pod
from rollout.model.demand import PodDemand
from rollout.model.drain_finding import PlacementRule
from rollout.model.text import grouped
from rollout.planning.drain.capacity import FreeCapacity, MatchingNodes, common_shortage
from rollout.planning.drain.neighbors import Neighbors, TopologyCheck

# kube-scheduler compares up to 100.
_COMPARED_NODES = 5
_SMALL_CLUSTER = 20

# How many pods each owner (UID) has on each node.
_CountsByOwner = defaultdict[str, dict[str, int]]

# Identities of node selector and placement, and the volumes.
_DemandKey = tuple[int, int, tuple[PersistentVolume, ...]]


@dataclass(slots=True)
class Scheduler:
    """A cluster whose pods move to the nodes that kube-scheduler would choose.

    Requests that fitted nowhere are remembered until `_room_version` changes.
    """

    nodes: Mapping[str, FreeCapacity]
    # Those that only some nodes can mount, by claim (`namespace/name`).
    volumes: Mapping[str, Sequence[PersistentVolume]]
    neighbors: Neighbors
    _pods_by_owner: _CountsByOwner
    cordoned: frozenset[str] = frozenset()
    _tainted: set[str] = field(default_factory=set)
    # Nodes that have lost the soft taint, in this order.
    _untainted: list[str] = field(default_factory=list)
    _room_version: int = 0
    # How many pods of the owner each node has, by pod UID. An owner's pods share the dict in
    # `_pods_by_owner`.
    _counts_by_pod: dict[str, dict[str, int]] = field(default_factory=dict)
    # By pod UID; empty while on no node.
    _moved_to: dict[str, str] = field(default_factory=dict)
    # These cache the same objects: identities are faster to compare.
    _matching_by_identity: dict[_DemandKey, MatchingNodes] = field(default_factory=dict)
    _matching_by_demand: dict[PodDemand, MatchingNodes] = field(default_factory=dict)
    _by_label_and_value: dict[str, Mapping[str, Sequence[FreeCapacity]]] = field(
        default_factory=dict
    )

    @classmethod
    def of(cls, snapshot: ClusterSnapshot) -> "Scheduler":
        requested = {name for pod in snapshot.pods for name, _ in pod.requests.others}
        offered = {name for node in snapshot.nodes for name, _ in node.allocatable.others}
        counted_resources = requested & offered
        ordered_nodes = sorted(snapshot.nodes, key=lambda node: node.name)
        nodes = {node.name: FreeCapacity.of(node, counted_resources) for node in ordered_nodes}
        running = list[Pod]()
        pods_by_owner: _CountsByOwner = defaultdict(dict)
        for pod in snapshot.pods:
            if pod.finished or pod.terminating or pod.node not in nodes:
                continue
            running.append(pod)
            nodes[pod.node].add(pod.requests)
            owner = pod.owner.uid if pod.owner else pod.uid
            counts = pods_by_owner[owner]
            counts[pod.node] = counts.get(pod.node, 0) + 1
        bound_to_nodes = (volume for volume in snapshot.volumes if volume.node_terms)
        volumes = grouped((volume.claim, volume) for volume in bound_to_nodes)
        neighbors = Neighbors(running, ordered_nodes, snapshot.namespaces)
        return cls(nodes, volumes, neighbors, pods_by_owner)

    def set_cordoned(self, names: Iterable[str]) -> None:
        self.cordoned = frozenset(names)
        self._room_version += 1

    def taint(self, names: Iterable[str]) -> None:
        self._tainted.update(names)

    def untaint(self, names: Iterable[str]) -> None:
        changed = [name for name in names if name in self._tainted]
        self._untainted += changed
        self._tainted.difference_update(changed)

    def take_out(self, pod: Pod) -> None:
        node = self._moved_to.get(pod.uid, pod.node)
        self.nodes[node].remove(pod.requests)
        counts = self._counts_by_pod.get(pod.uid)
        if counts is None:
            counts = self._cache_counts(pod)
        counts[node] = counts.get(node, 0) - 1
        self._moved_to[pod.uid] = ""
        if self.neighbors.has_rules:
            self.neighbors.move(pod, to="")

    def put(self, pod: Pod, node: str) -> None:
        self.nodes[node].add(pod.requests)
        counts = self._counts_by_pod.get(pod.uid)
        if counts is None:
            counts = self._cache_counts(pod)
        counts[node] = counts.get(node, 0) + 1
        is_original_node = node == pod.node
        if is_original_node:
            self._moved_to.pop(pod.uid, None)
        else:
            self._moved_to[pod.uid] = node
        if self.neighbors.has_rules:
            self.neighbors.move(pod, to=node)

    def node_of(self, pod: Pod) -> str:
        return self._moved_to.get(pod.uid, pod.node)

    def add_pod(self, pod: Pod, like: Pod, replica_set: str) -> None:
        """`like` has the rules by which the pod is placed."""
        self._counts_by_pod[pod.uid] = self._pods_by_owner[replica_set]
        self.neighbors.add_pod(pod, like)

    def _cache_counts(self, pod: Pod) -> dict[str, int]:
        """Return, by node, the pods that kube-scheduler spreads with this one."""
        owner = pod.owner.uid if pod.owner else pod.uid
        counts = self._pods_by_owner[owner]
        self._counts_by_pod[pod.uid] = counts
        return counts

    @contextmanager
    def emptied(
        self, pods_by_node: Mapping[str, Sequence[Pod]]
    ) -> Iterator[Mapping[str, Sequence[Pod]]]:
        try:
            yield self.empty(pods_by_node)
        finally:
            self.move_back(pods_by_node)

    def empty(
        self, pods_by_node: Mapping[str, Sequence[Pod]], also_cordoned: Iterable[str] = ()
    ) -> Mapping[str, Sequence[Pod]]:
        """Cordon nodes and move their pods; return those that fit nowhere else.

        Rounds repeat until one moves none: a pod may have to follow another.
        """
        self.set_cordoned((*pods_by_node, *also_cordoned))
        staying: Mapping[str, Sequence[Pod]] = pods_by_node
        staying_count = sum(map(len, pods_by_node.values()))
        may_move_more = staying_count > 0
        while may_move_more:
            count_before = staying_count
            staying = {name: self._move_away(name, pods) for name, pods in staying.items()}
            staying_count = sum(map(len, staying.values()))
            may_move_more = 0 < staying_count < count_before
        return {name: pods for name, pods in staying.items() if pods}

    def move_back(self, pods_by_node: Mapping[str, Sequence[Pod]]) -> None:
        """Undo the moves of `empty`, but not its cordons."""
        for name, pods in pods_by_node.items():
            for pod in pods:
                if self.node_of(pod) != name:
                    self.take_out(pod)
                    self.put(pod, name)
        self._room_version += 1

    def _move_away(self, node: str, pods: Sequence[Pod]) -> Sequence[Pod]:
        staying = list[Pod]()
        for pod in pods:
            self.take_out(pod)
            target = self.choose_node(pod)
            if target and target not in self.cordoned:
                self.put(pod, target)
            else:
                self.put(pod, node)
                staying.append(pod)
        return staying

    def choose_node(self, pod: Pod) -> str:
        """Return one of the emptier nodes that take the pod, or empty.

        A tolerant pod goes to a cordoned node only if there is no other.
        """
        matching = self._nodes_matching(pod)
        if self._is_known_full(matching, pod):
            return self._choose_cordoned_node(pod, matching)
        checks: Sequence[TopologyCheck] = ()
        if self.neighbors.has_rules:
            checks = self.neighbors.topology_checks(pod, self.cordoned)
        best = None
        untainted = self._nodes_without_taint(matching) if self._tainted else None
        if untainted and not self._is_known_full(untainted, pod):
            best = self._find_emptiest(pod, untainted, checks)
        if best is None:
            best = self._find_emptiest(pod, matching, checks)
        return best.name if best else self._choose_cordoned_node(pod, matching)

    def _is_known_full(self, matching: MatchingNodes, pod: Pod) -> bool:
        is_up_to_date = matching.room_version == self._room_version
        return is_up_to_date and matching.has_failed_with_less(pod.requests)

    def _find_emptiest(
        self, pod: Pod, matching: MatchingNodes, checks: Sequence[TopologyCheck]
    ) -> FreeCapacity | None:
        counts = self._counts_by_pod.get(pod.uid)
        if counts is None:
            counts = self._cache_counts(pod)
        best = None
        fewest = 0
        largest_share = 0.0
        for free in self._find_nodes(pod, matching, checks):
            count = counts.get(free.name, 0)
            if best is not None and count > fewest:
                continue
            share = free.free_share
            if best is None or count < fewest or share > largest_share:
                best = free
                fewest = count
                largest_share = share
        if best is None:
            is_excluded_by_rules = bool(checks) and self._has_room(pod, matching)
            # Rules may admit another pod with requests that are as large.
            if not is_excluded_by_rules:
                matching.failed_requests = pod.requests
                matching.room_version = self._room_version
        return best

    def _has_room(self, pod: Pod, matching: MatchingNodes) -> bool:
        schedulable = (free for free in matching.nodes if free.name not in self.cordoned)
        return any(free.takes(pod.requests) for free in schedulable)

    def _nodes_without_taint(self, matching: MatchingNodes) -> MatchingNodes | None:
        """Return None if the taint makes no difference."""
        is_only_node = len(matching.nodes) == 1
        if is_only_node or not matching.minds_soft_taint:
            return None
        if matching.untainted is None:
            nodes = [free for free in matching.nodes if free.name not in self._tainted]
            matching.untainted = MatchingNodes(nodes)
        else:
            # Nodes lose the taint, but never get it later.
            untainted_since_last_call = self._untainted[matching.untainted_read :]
            for name in untainted_since_last_call:
                if name in matching.names:
                    matching.untainted.nodes.append(self.nodes[name])
                    matching.untainted.failed_requests = None
        matching.untainted_read = len(self._untainted)
        return matching.untainted

    def _choose_cordoned_node(self, pod: Pod, matching: MatchingNodes) -> str:
        if not matching.tolerates_cordons:
            return ""
        checks = self.neighbors.topology_checks(pod, self.cordoned)
        free = next(self._find_nodes(pod, matching, checks, among_cordoned=True), None)
        return free.name if free else ""

    def nodes_for(self, pod: Pod) -> frozenset[str]:
        """Return one object for equal demands."""
        return self._nodes_matching(pod).names

    def tolerates_cordons(self, pod: Pod) -> bool:
        return self._nodes_matching(pod).tolerates_cordons

    def why_nowhere(self, pod: Pod) -> findings.Nowhere:
        matching = self._nodes_matching(pod).nodes
        schedulable = [free for free in matching if free.name not in self.cordoned]
        if not schedulable:
            volumes = self._volumes_of(pod)
            if volumes and all(self._can_mount(volume, pod.node) for volume in volumes):
                return findings.VolumeElsewhere(volumes[0].name)
            return findings.NoNodeMatches()
        with_room = [free for free in schedulable if free.takes(pod.requests)]
        if not with_room:
            return findings.NoRoom(pod.requests, common_shortage(pod.requests, schedulable))
        return findings.RulesExclude(self._failed_rules(pod, with_room))

    def _failed_rules(self, pod: Pod, nodes: Iterable[FreeCapacity]) -> tuple[PlacementRule, ...]:
        """Return the first rule that excludes each node, without repetitions.

        Anti-affinity between pods of one owner would fail twice.
        """
        checks = self.neighbors.topology_checks(pod, self.cordoned)
        failed_indexes = {_first_failed_index(checks, free.node) for free in nodes}
        rules = (check.rule for index, check in enumerate(checks) if index in failed_indexes)
        return tuple(dict.fromkeys(rules))

    def _can_mount(self, volume: PersistentVolume, node: str) -> bool:
        if node not in self.nodes:
            return False
        labels = self.nodes[node].node.labels
        return any(term.matches(node, labels) for term in volume.node_terms)

    def _find_nodes(
        self,
        pod: Pod,
        matching: MatchingNodes,
        checks: Sequence[TopologyCheck],
        *,
        among_cordoned: bool = False,
    ) -> Iterator[FreeCapacity]:
        """Yield a few nodes that can take the pod."""
        if checks and any(check.is_hopeless for check in checks):
            return
        nodes = matching.nodes
        cordoned = self.cordoned
        most = len(nodes) if len(nodes) <= _SMALL_CLUSTER else _COMPARED_NODES
        requests = pod.requests
        yielded = 0
        from_next_to_end = range(matching.next_index, len(nodes))
        from_start_to_next = range(matching.next_index)
        for index in chain(from_next_to_end, from_start_to_next):
            free = nodes[index]
            is_cordoned = free.name in cordoned
            if is_cordoned != among_cordoned or not free.takes(requests):
                continue
            if not checks or all(check.admits(free.node) for check in checks):
                yield free
                yielded += 1
            if yielded == most:
                matching.next_index = (index + 1) % len(nodes)
                return

    def _nodes_matching(self, pod: Pod) -> MatchingNodes:
        # A snapshot keeps shared selectors and placements alive, so ids can be keys.
        volumes = self._volumes_of(pod)
        selector_id = id(pod.node_selector) if pod.node_selector else 0
        key = (selector_id, id(pod.placement), volumes)
        if key not in self._matching_by_identity:
            demand = PodDemand.of(pod, volumes)
            self._matching_by_identity[key] = self._nodes_matching_demand(demand)
        return self._matching_by_identity[key]

    def _nodes_matching_demand(self, demand: PodDemand) -> MatchingNodes:
        if demand not in self._matching_by_demand:
            candidates = self._candidate_nodes(demand)
            nodes = [free for free in candidates if demand.admits(free.node)]
            names = frozenset(free.name for free in nodes)
            self._matching_by_demand[demand] = MatchingNodes(
                nodes,
                tolerates_cordons=demand.tolerates_cordons,
                minds_soft_taint=demand.minds_soft_taint,
                names=names,
            )
        return self._matching_by_demand[demand]

    def _candidate_nodes(self, demand: PodDemand) -> Iterable[FreeCapacity]:
        """Return the nodes with any required label."""
        labels = demand.required_labels
        if not labels:
            return self.nodes.values()
        candidates = dict[str, FreeCapacity]()
        for key, value in labels:
            for free in self._nodes_by_value(key).get(value, ()):
                candidates[free.name] = free
        return candidates.values()

    def _nodes_by_value(self, label: str) -> Mapping[str, Sequence[FreeCapacity]]:
        if label not in self._by_label_and_value:
            labelled = [free for free in self.nodes.values() if label in free.node.labels]
            self._by_label_and_value[label] = grouped(
                (free.node.labels[label], free) for free in labelled
            )
        return self._by_label_and_value[label]

    def _volumes_of(self, pod: Pod) -> tuple[PersistentVolume, ...]:
        if not pod.claims or not self.volumes:
            return ()
        volumes = list[PersistentVolume]()
        for claim in pod.claims:
            volumes += self.volumes.get(f"{pod.namespace}/{claim}", ())
        return tuple(volumes)


def _first_failed_index(checks: Sequence[TopologyCheck], node: Node) -> int | None:
    for index, check in enumerate(checks):
        if not check.admits(node):
            return index
    return None
