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
    NodeUsage,
    PlacementDemand,
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

# Like a real scheduler, stop searching at this number.
_ENOUGH_NODES = 100
_RETRY_SECONDS = 0.5


class SimulatedScheduler:
    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._rooms: dict[str, NodeRoom] = {}
        self._used: defaultdict[str, NodeUsage] = defaultdict(NodeUsage)
        self._names: list[str] = []
        self._next = 0
        self._queue: OrderedDict[Key, None] = OrderedDict()
        # True for pods that may fit after another pod was placed: by affinity or spread.
        self._unschedulable: dict[Key, bool] = {}
        self._placed: set[Key] = set()
        self._siblings: Counter[tuple[str, str]] = Counter()
        # Node, and terms with namespaces, of placed pods with anti-affinity, which counts both
        # ways.
        self._repelling: dict[Key, tuple[str, list[tuple[list[str], Json]]]] = {}

    def node_changed(self, change: Change) -> None:
        name = name_of(change.obj)
        if change.gone:
            self._rooms.pop(name, None)
        else:
            room = room_of(change.obj, self._used[name])
            if room == self._rooms.get(name):
                return
            self._rooms[name] = room
            self._retry()
        self._names = list(self._rooms)

    def pod_changed(self, change: Change) -> None:
        pod = change.obj
        pod_key = key(pod)
        has_ended = change.gone or is_finished(pod)
        if has_ended or node_name(pod):
            self._queue.pop(pod_key, None)
            self._unschedulable.pop(pod_key, None)
            if has_ended and pod_key in self._placed:
                self._release(pod_key, pod)
            elif not has_ended and pod_key not in self._placed:
                self._occupy(pod_key, pod)
        elif not is_deleting(pod) and pod_key not in self._unschedulable:
            self._queue[pod_key] = None
            self._cluster.agenda.soon(self._schedule)

    def _retry(self) -> None:
        if self._unschedulable:
            self._cluster.agenda.later(_RETRY_SECONDS, self._requeue)

    def _requeue(self) -> None:
        self._queue.update(dict.fromkeys(self._unschedulable))
        self._unschedulable.clear()
        self._cluster.agenda.soon(self._schedule)

    def _schedule(self) -> None:
        """Place only one pod, so that other work is not delayed."""
        if not self._queue:
            return
        pod_key, _ = self._queue.popitem(last=False)
        namespace, name = pod_key
        pod = self._cluster.store.get(PODS, name, namespace)
        if pod is not None and not node_name(pod) and not is_deleting(pod):
            self._place(pod_key, pod)
        self._cluster.agenda.soon(self._schedule)

    def _place(self, pod_key: Key, pod: Json) -> None:
        cpu, memory, others = requests_of(pod)
        crowded = {
            spread["topologyKey"]: self._crowded_values(pod, spread)
            for spread in strict_spreads(pod)
        }
        demand = PlacementDemand(
            pod=pod,
            cpu=cpu,
            memory=memory,
            others=others,
            forbidden=frozenset(self._repelling_values(pod)),
            crowded=crowded,
            attracting=tuple(self._attracting_values(pod)),
            volume_terms=volume_terms(self._cluster.store, pod),
        )
        refusals: Counter[str] = Counter()
        feasible = list(islice(self._feasible(demand, refusals), _ENOUGH_NODES))
        if feasible:
            self._bind(pod, self._best(pod, feasible).name)
        else:
            self._unschedulable[pod_key] = bool(affinity_terms(pod) or crowded)
            self._report_unschedulable(pod, refusals)

    def _best(self, pod: Json, feasible: Sequence[NodeRoom]) -> NodeRoom:
        """Return the node with fewest soft taints, then siblings, then most room.

        A real scheduler's default weights put them in this order.
        """
        owner = _owner(pod)

        def rank(room: NodeRoom) -> tuple[int, int, float]:
            taints = untolerated_taints(pod["spec"], room.taints, ("PreferNoSchedule",))
            return len(taints), self._siblings[owner, room.name], -room.free_share()

        return min(feasible, key=rank)

    def _feasible(self, demand: PlacementDemand, refusals: Counter[str]) -> Iterator[NodeRoom]:
        """Count the reasons of the nodes that refuse the pod."""
        for room in self._candidates(demand.pod):
            reason = refusal(demand, room)
            if reason is None:
                yield room
            else:
                refusals[reason] += 1

    def _candidates(self, pod: Json) -> Iterator[NodeRoom]:
        pinned = pinned_node(pod)
        if pinned is not None:
            if pinned in self._rooms:
                yield self._rooms[pinned]
            return
        for _ in range(len(self._names)):
            self._next = (self._next + 1) % len(self._names)
            yield self._rooms[self._names[self._next]]

    def _attracting_values(self, pod: Json) -> Iterator[tuple[str, frozenset[str] | None]]:
        """All values are allowed (None) for the first of pods that attract each other."""
        terms = affinity_terms(pod)
        rooms_by_term = [list(self._rooms_selected_by(term, pod)) for term in terms]
        selects_itself = all(matches(term.get("labelSelector"), labels_of(pod)) for term in terms)
        is_first = selects_itself and not any(rooms_by_term)
        for term, rooms in zip(terms, rooms_by_term, strict=True):
            topology = term["topologyKey"]
            values = frozenset(room.labels[topology] for room in rooms if topology in room.labels)
            yield topology, None if is_first else values

    def _rooms_selected_by(self, term: Json, pod: Json) -> Iterator[NodeRoom]:
        for namespace in term_namespaces(term, pod, self._cluster.store.items(NAMESPACES)):
            for _, room in self._placed_matching(namespace, term.get("labelSelector")):
                yield room

    def _repelling_values(self, pod: Json) -> Iterator[tuple[str, str]]:
        for term in affinity_terms(pod, "podAntiAffinity"):
            for room in self._rooms_selected_by(term, pod):
                if term["topologyKey"] in room.labels:
                    yield term["topologyKey"], room.labels[term["topologyKey"]]
        namespace = namespace_of(pod)
        labels = labels_of(pod)
        for node, terms in self._repelling.values():
            node_labels = self._rooms[node].labels if node in self._rooms else {}
            for namespaces, term in terms:
                topology = term["topologyKey"]
                is_selected = namespace in namespaces and matches(term.get("labelSelector"), labels)
                if is_selected and topology in node_labels:
                    yield topology, node_labels[topology]

    def _crowded_values(self, pod: Json, spread: Json) -> frozenset[str]:
        placed = self._placed_matching(namespace_of(pod), spread.get("labelSelector"))
        return crowded_values(pod, spread, self._rooms.values(), placed)

    def _placed_matching(
        self, namespace: str, selector: Json | None
    ) -> list[tuple[Json, NodeRoom]]:
        placed = []
        for pod in self._cluster.pods_matching(namespace, selector):
            room = self._rooms.get(node_name(pod))
            if room is not None and key(pod) in self._placed:
                placed.append((pod, room))
        return placed

    def _bind(self, pod: Json, node: str) -> None:
        bound = {**pod, "spec": {**pod["spec"], "nodeName": node}}
        scheduled = {"type": "PodScheduled", "status": "True"}
        self._cluster.store.put(PODS, with_condition(bound, scheduled, self._cluster.now()))

    def _report_unschedulable(self, pod: Json, refusals: Counter[str]) -> None:
        message = "no nodes available"
        if refusals:
            reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(refusals.items()))
            message = f"0/{len(self._rooms)} nodes are available: {reasons}."
        unscheduled = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
        }
        self._cluster.store.put(PODS, with_condition(pod, unscheduled, self._cluster.now()))

    def _occupy(self, pod_key: Key, pod: Json) -> None:
        self._account(pod, 1)
        self._placed.add(pod_key)
        terms = affinity_terms(pod, "podAntiAffinity")
        if terms:
            namespaces = self._cluster.store.items(NAMESPACES)
            repelling = [(term_namespaces(term, pod, namespaces), term) for term in terms]
            self._repelling[pod_key] = node_name(pod), repelling
        if any(self._unschedulable.values()):
            self._retry()

    def _release(self, pod_key: Key, pod: Json) -> None:
        self._account(pod, -1)
        self._placed.discard(pod_key)
        self._repelling.pop(pod_key, None)
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
