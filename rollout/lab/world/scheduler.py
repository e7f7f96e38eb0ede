"""The scheduler: binds pending pods to nodes, and tries the others again when something changed."""

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice

from rollout.lab.api.resources import NAMESPACES, PODS
from rollout.lab.api.selectors import matches
from rollout.lab.api.store import Change, Json
from rollout.lab.objects import (
    Key,
    controller_of,
    is_deleting,
    is_finished,
    key,
    labels_of,
    name_of,
    namespace_of,
    node_name,
    with_condition,
)
from rollout.lab.world.cluster import SimulatedCluster
from rollout.lab.world.placement import (
    NodeRoom,
    PlacementDemand,
    Used,
    affinity_terms,
    crowded_values,
    pinned_node,
    refusal,
    requests_of,
    room_of,
    strict_spreads,
    term_namespaces,
    untolerated_taints,
)
from rollout.lab.world.volumes import volume_terms

# Like a real scheduler, which on large clusters stops looking once it has found this many feasible
# nodes.
_ENOUGH_NODES = 100
_RETRY_SECONDS = 0.5


class SimulatedScheduler:
    """Keeps each node's room, and a queue of the pods without a node."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._rooms: dict[str, NodeRoom] = {}
        self._used: defaultdict[str, Used] = defaultdict(Used)
        self._names: list[str] = []
        self._next = 0
        self._queue: OrderedDict[Key, None] = OrderedDict()
        self._unschedulable: dict[Key, bool] = {}
        self._placed: set[Key] = set()
        self._siblings: Counter[tuple[str, str]] = Counter()
        # Placed pods with anti-affinity, which counts both ways: their node, and the terms and
        # where these look.
        self._repelling: dict[Key, tuple[str, list[tuple[list[str], Json]]]] = {}

    def node_changed(self, change: Change) -> None:
        """Take in a change of a Node."""
        name = name_of(change.obj)
        if change.gone:
            self._rooms.pop(name, None)
        else:
            fresh = room_of(change.obj, self._used[name])
            if fresh == self._rooms.get(name):
                return
            self._rooms[name] = fresh
            self._retry()
        self._names = list(self._rooms)

    def pod_changed(self, change: Change) -> None:
        """Take in a change of a pod."""
        pod = change.obj
        where = key(change.obj)
        ended = change.gone or is_finished(pod)
        if ended or node_name(pod):
            self._queue.pop(where, None)
            self._unschedulable.pop(where, None)
            if ended and where in self._placed:
                self._release(where, pod)
            elif not ended and where not in self._placed:
                self._take(where, pod)
        elif not is_deleting(pod) and where not in self._unschedulable:
            self._queue[where] = None
            self._cluster.agenda.soon(self._schedule)

    def _retry(self) -> None:
        if self._unschedulable:
            self._cluster.agenda.later(_RETRY_SECONDS, self._requeue)

    def _requeue(self) -> None:
        self._queue.update(dict.fromkeys(self._unschedulable))
        self._unschedulable.clear()
        self._cluster.agenda.soon(self._schedule)

    def _schedule(self) -> None:
        """Bind one pod; the rest follows, so that a long queue does not hold up everything else."""
        if self._queue:
            where, _ = self._queue.popitem(last=False)
            pod = self._cluster.store.get(PODS, where[1], where[0])
            if pod is not None and not node_name(pod) and not is_deleting(pod):
                self._place(where, pod)
            self._cluster.agenda.soon(self._schedule)

    def _place(self, where: Key, pod: Json) -> None:
        spreads = {
            constraint["topologyKey"]: self._crowded_topology_values(pod, constraint)
            for constraint in strict_spreads(pod)
        }
        demand = PlacementDemand(
            pod,
            *requests_of(pod),
            forbidden=frozenset(self._repelling_values(pod)),
            crowded=spreads,
            drawn=tuple(self._attracting_values(pod)),
            volume_terms=volume_terms(self._cluster.store, pod),
        )
        refusals: Counter[str] = Counter()
        feasible = list(islice(self._feasible(demand, refusals), _ENOUGH_NODES))
        if not feasible:
            self._unschedulable[where] = bool(affinity_terms(pod) or spreads)
            self._report(pod, refusals)
            return
        self._bind(pod, self._best(pod, feasible).name)

    def _best(self, pod: Json, feasible: Sequence[NodeRoom]) -> NodeRoom:
        """Return the node with the fewest soft taints, then of the owner's other pods, then the least allocated one.

        A real scheduler adds these up, and its default weights (3, 2 and 1) put them in this order.
        """
        owner = _owner(pod)
        return min(
            feasible,
            key=lambda room: (
                len(untolerated_taints(pod["spec"], room.taints, ("PreferNoSchedule",))),
                self._siblings[owner, room.name],
                -room.free_share(),
            ),
        )

    def _feasible(self, demand: PlacementDemand, refusals: Counter[str]) -> Iterator[NodeRoom]:
        for room in self._candidates(demand.pod):
            reason = refusal(demand, room)
            if reason is None:
                yield room
            else:
                refusals[reason] += 1

    def _candidates(self, pod: Json) -> Iterator[NodeRoom]:
        """Return the pinned node, or all of them, beginning behind the one where the last search ended."""
        pinned = pinned_node(pod)
        if pinned is not None:
            if pinned in self._rooms:
                yield self._rooms[pinned]
            return
        for _ in range(len(self._names)):
            self._next = (self._next + 1) % len(self._names)
            yield self._rooms[self._names[self._next]]

    def _attracting_values(self, pod: Json) -> Iterator[tuple[str, frozenset[str] | None]]:
        """For each term of pod affinity the values that satisfy it: any, for the first of pods that want each other."""
        terms = affinity_terms(pod)
        meant = [(term["topologyKey"], list(self._rooms_selected_by(term, pod))) for term in terms]
        first = not any(rooms for _, rooms in meant) and all(
            matches(term.get("labelSelector"), labels_of(pod)) for term in terms
        )
        for topology, rooms in meant:
            values = frozenset(room.labels[topology] for room in rooms if topology in room.labels)
            yield topology, None if first else values

    def _rooms_selected_by(self, term: Json, pod: Json) -> Iterator[NodeRoom]:
        """Return the rooms of the placed pods that an affinity term selects, once for each."""
        for namespace in term_namespaces(term, pod, self._cluster.store.items(NAMESPACES)):
            for _, room in self._placed_matching(namespace, term.get("labelSelector")):
                yield room

    def _repelling_values(self, pod: Json) -> Iterator[tuple[str, str]]:
        """Return the topology values that the pod's own terms, or those of placed pods, forbid."""
        terms = affinity_terms(pod, "podAntiAffinity")
        rooms = [
            (term["topologyKey"], room)
            for term in terms
            for room in self._rooms_selected_by(term, pod)
        ]
        namespace = namespace_of(pod)
        labels = labels_of(pod)
        for node, repelling in self._repelling.values():
            room = self._rooms.get(node)
            for namespaces, term in repelling:
                if (
                    room is not None
                    and namespace in namespaces
                    and matches(term.get("labelSelector"), labels)
                ):
                    rooms.append((term["topologyKey"], room))
        for topology, room in rooms:
            if topology in room.labels:
                yield topology, room.labels[topology]

    def _crowded_topology_values(self, pod: Json, spread: Json) -> frozenset[str]:
        placed = self._placed_matching(namespace_of(pod), spread.get("labelSelector"))
        return crowded_values(pod, spread, self._rooms.values(), placed)

    def _placed_matching(
        self, namespace: str, selector: Json | None
    ) -> list[tuple[Json, NodeRoom]]:
        placed = (
            pod for pod in self._cluster.matching(namespace, selector) if key(pod) in self._placed
        )
        return [
            (pod, self._rooms[node_name(pod)]) for pod in placed if node_name(pod) in self._rooms
        ]

    def _bind(self, pod: Json, node: str) -> None:
        scheduled = {"type": "PodScheduled", "status": "True"}
        bound = with_condition(
            {**pod, "spec": {**pod["spec"], "nodeName": node}}, scheduled, self._cluster.now()
        )
        self._cluster.store.put(PODS, bound)

    def _report(self, pod: Json, refusals: Counter[str]) -> None:
        total = len(self._rooms)
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(refusals.items()))
        unscheduled = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": (
                f"0/{total} nodes are available: {reasons}." if reasons else "no nodes available"
            ),
        }
        self._cluster.store.put(PODS, with_condition(pod, unscheduled, self._cluster.now()))

    def _take(self, where: Key, pod: Json) -> None:
        self._account(pod, 1)
        self._placed.add(where)
        if terms := affinity_terms(pod, "podAntiAffinity"):
            namespaces = self._cluster.store.items(NAMESPACES)
            repelling = [(term_namespaces(term, pod, namespaces), term) for term in terms]
            self._repelling[where] = node_name(pod), repelling
        if any(self._unschedulable.values()):
            self._retry()

    def _release(self, where: Key, pod: Json) -> None:
        self._account(pod, -1)
        self._placed.discard(where)
        self._repelling.pop(where, None)
        self._retry()

    def _account(self, pod: Json, sign: int) -> None:
        node = node_name(pod)
        cpu, memory, others = requests_of(pod)
        used = self._used[node]
        for name, amount in others.items():
            used.others[name] += sign * amount
        used.cpu += sign * cpu
        used.memory += sign * memory
        used.pods += sign
        self._siblings[_owner(pod), node] += sign


def _owner(pod: Json) -> str:
    owner = controller_of(pod)
    return str(owner["uid"]) if owner else str(pod["metadata"].get("uid", ""))
