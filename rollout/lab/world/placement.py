"""Where a pod may run: the scheduler's rules, as pure functions of a node's room and a pod's demand.

A refusal is the phrase that a real scheduler counts in its message ("0/3 nodes are available: …").
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rollout.gather.cluster.demands import whole
from rollout.lab.api.selectors import holds, matches
from rollout.lab.api.store import Json
from rollout.lab.objects import is_deleting, labels_of, name_of, namespace_of, spec_of, status_of

UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"

Taint = Mapping[str, Any]


def tolerates(toleration: Json, taint: Taint) -> bool:
    """Whether one toleration covers one taint."""
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", "")


def untolerated_taints(
    pod_spec: Json, taints: Iterable[Taint], effects: tuple[str, ...] = ("NoSchedule", "NoExecute")
) -> list[Taint]:
    """Return the taints with one of the effects that the pod does not tolerate."""
    tolerations = pod_spec.get("tolerations") or ()
    return [
        taint
        for taint in taints
        if taint["effect"] in effects
        and not any(tolerates(toleration, taint) for toleration in tolerations)
    ]


def seconds_on(pod_spec: Json, taint: Taint) -> float | None:
    """How long a pod may stay under a NoExecute taint: None for ever, 0 not at all."""
    fitting = [
        toleration
        for toleration in pod_spec.get("tolerations") or ()
        if tolerates(toleration, taint)
    ]
    if not fitting:
        # A pod that came without the tolerations which an API server adds at admission has theirs.
        return 300 if taint["key"] in {NOT_READY, UNREACHABLE} else 0
    limits = [
        entry["tolerationSeconds"]
        for entry in fitting
        if entry.get("tolerationSeconds") is not None
    ]
    return max(0, min(limits)) if limits else None


_UNSCHEDULABLE_TAINT = {"key": UNSCHEDULABLE, "effect": "NoSchedule"}


@dataclass(slots=True)
class Used:
    """What is taken of a node: CPU in thousandths, memory in bytes, pods, and other resources by name."""

    cpu: int = 0
    memory: int = 0
    pods: int = 0
    others: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class NodeRoom:
    """What a node offers, in the same units."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Json, ...]
    unschedulable: bool
    cpu: int
    memory: int
    pods: int
    used: Used
    others: Mapping[str, int] = field(default_factory=dict)

    def free_share(self) -> float:
        """How empty the node is, between 0 and 3: the least allocated one wins."""
        used = self.used
        return (
            _share(used.cpu, self.cpu)
            + _share(used.memory, self.memory)
            + _share(used.pods, self.pods)
        )


@dataclass(frozen=True, slots=True)
class PlacementDemand:
    """What a pod asks of a node, and what the pods already placed forbid it.

    `forbidden` are labels with the values that are out, `crowded` those that have too many of its
    like. `drawn` are the values of which one is needed for each term of pod affinity, None for any.
    `volume_terms` are, for each of the pod's volumes, the alternatives of which one must hold for
    the node.
    """

    pod: Json
    cpu: int
    memory: int
    others: Mapping[str, int] = field(default_factory=dict)
    forbidden: frozenset[tuple[str, str]] = frozenset()
    crowded: Mapping[str, frozenset[str]] = field(default_factory=dict)
    drawn: tuple[tuple[str, frozenset[str] | None], ...] = ()
    volume_terms: tuple[list[Json], ...] = ()


def room_of(node: Json, used: Used) -> NodeRoom:
    """Return the room of a node of which that much is used."""
    allocatable: Json = status_of(node).get("allocatable") or {}
    return NodeRoom(
        name=name_of(node),
        labels=labels_of(node),
        taints=tuple(spec_of(node).get("taints") or ()),
        unschedulable=bool(spec_of(node).get("unschedulable")),
        cpu=whole(str(allocatable.get("cpu", 0)), 1000),
        memory=whole(str(allocatable.get("memory", 0))),
        pods=whole(str(allocatable.get("pods", 110))),
        used=used,
        others={
            name: whole(str(amount)) for name, amount in allocatable.items() if name not in _COUNTED
        },
    )


_COUNTED = ("cpu", "memory", "pods")


def requests_of(pod: Json) -> tuple[int, int, Mapping[str, int]]:
    """Return the CPU (thousandths), the memory (bytes) and the other resources, by name, that a pod requests.

    Containers request together; an init container runs alone, and at most the largest request of
    one counts. What has a limit and no request requests as much as its limit.
    """
    spec = spec_of(pod)
    together = Counter[str]()
    alone = Counter[str]()
    for container in spec.get("containers") or ():
        together.update(_requests_of_container(container))
    for container in spec.get("initContainers") or ():
        requests = _requests_of_container(container)
        if container.get("restartPolicy") == "Always":
            together.update(requests)
        else:
            alone |= Counter(requests)
    needed = together | alone
    return needed.pop("cpu", 0), needed.pop("memory", 0), +needed


def _requests_of_container(container: Json) -> dict[str, int]:
    resources = container.get("resources") or {}
    amounts = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {
        name: whole(str(amount), 1000 if name == "cpu" else 1) for name, amount in amounts.items()
    }


def refusal(demand: PlacementDemand, room: NodeRoom) -> str | None:
    """Why the node does not take the pod; None: it does."""
    return (
        _why_node_refuses(demand.pod, room)
        or _short_of(demand, room)
        or _why_pods_refuse(demand, room)
    )


def _why_node_refuses(pod: Json, room: NodeRoom) -> str | None:
    spec = pod["spec"]
    if room.unschedulable and untolerated_taints(spec, (_UNSCHEDULABLE_TAINT,)):
        return "node(s) were unschedulable"
    if room.taints and untolerated_taints(spec, room.taints):
        return "node(s) had untolerated taint(s)"
    if not node_affinity_holds(spec, room.name, room.labels):
        return "node(s) didn't match Pod's node affinity/selector"
    return None


def _short_of(demand: PlacementDemand, room: NodeRoom) -> str | None:
    used = room.used
    if used.pods + 1 > room.pods:
        return "Too many pods"
    if demand.cpu and used.cpu + demand.cpu > room.cpu:
        return "Insufficient cpu"
    if demand.memory and used.memory + demand.memory > room.memory:
        return "Insufficient memory"
    for name, amount in demand.others.items():
        # a node that does not tell its disk has one all the same
        is_offered = name in room.others or name != "ephemeral-storage"
        if is_offered and used.others[name] + amount > room.others.get(name, 0):
            return f"Insufficient {name}"
    return None


def _why_pods_refuse(demand: PlacementDemand, room: NodeRoom) -> str | None:
    labels = room.labels
    if not all(any_term_holds(terms, room.name, labels) for terms in demand.volume_terms):
        return "node(s) had volume node affinity conflict"
    if demand.forbidden and not demand.forbidden.isdisjoint(labels.items()):
        return "node(s) didn't match pod anti-affinity rules"
    if not all(_draws(labels.get(label), values) for label, values in demand.drawn):
        return "node(s) didn't match pod affinity rules"
    if any(
        label not in labels or labels[label] in values for label, values in demand.crowded.items()
    ):
        return "node(s) didn't match pod topology spread constraints"
    return None


def _draws(value: str | None, values: frozenset[str] | None) -> bool:
    return value is not None and (values is None or value in values)


def node_affinity_holds(spec: Json, node_name: str, labels: Mapping[str, str]) -> bool:
    """Whether nodeSelector and required node affinity let a pod of this spec run on a node."""
    selector: Json = spec.get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    terms = required_node_terms(spec)
    return terms is None or any_term_holds(terms, node_name, labels)


def any_term_holds(terms: Sequence[Json], node_name: str, labels: Mapping[str, str]) -> bool:
    """Whether one of the alternatives of a node selector holds for a node."""
    return any(_term_holds(term, node_name, labels) for term in terms)


def required_node_terms(spec: Json) -> list[Json] | None:
    """Return the alternatives of required node affinity; None where there is none."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return None if required is None else required.get("nodeSelectorTerms") or []


def _term_holds(term: Json, node_name: str, labels: Mapping[str, str]) -> bool:
    expressions = term.get("matchExpressions") or ()
    fields = term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    name = {"metadata.name": node_name}
    return all(holds(expression, labels) for expression in expressions) and all(
        holds(field, name) for field in fields
    )


def pinned_node(pod: Json) -> str | None:
    """Return the one node that a DaemonSet's pod was made for."""
    terms = required_node_terms(pod["spec"])
    if not terms or len(terms) != 1:
        return None
    fields: list[Json] = terms[0].get("matchFields") or []
    if len(fields) == 1 and fields[0]["key"] == "metadata.name" and len(fields[0]["values"]) == 1:
        return str(fields[0]["values"][0])
    return None


def affinity_terms(pod: Json, kind: str = "podAffinity") -> list[Json]:
    """Return the required terms of pod affinity, or of `podAntiAffinity`."""
    affinity = (pod["spec"].get("affinity") or {}).get(kind) or {}
    return affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or []


def strict_spreads(pod: Json) -> list[Json]:
    """Return the topology spread constraints that must hold."""
    constraints = pod["spec"].get("topologySpreadConstraints") or ()
    return [
        constraint
        for constraint in constraints
        if constraint.get("whenUnsatisfiable") == "DoNotSchedule"
    ]


def term_namespaces(term: Json, pod: Json, namespaces: Iterable[Json]) -> list[str]:
    """Those of the namespaces in which an affinity term looks for pods."""
    chosen = term.get("namespaceSelector")
    named = list(term.get("namespaces") or ())
    if chosen is None:
        return named or [namespace_of(pod)]
    return named + [
        name_of(namespace) for namespace in namespaces if matches(chosen, labels_of(namespace))
    ]


def crowded_values(
    pod: Json, spread: Json, rooms: Iterable[NodeRoom], placed: Iterable[tuple[Json, NodeRoom]]
) -> frozenset[str]:
    """Return the values of the topology key where one more pod would exceed the skew.

    As in a real cluster by default, cordoned and tainted nodes count as places, and pods on their
    way out do not.
    """
    topology = spread["topologyKey"]
    spec = pod["spec"]
    places = [
        room
        for room in rooms
        if topology in room.labels and node_affinity_holds(spec, room.name, room.labels)
    ]
    counts = {room.labels[topology]: 0 for room in places}
    names = {room.name for room in places}
    for other, room in placed:
        if room.name in names and not is_deleting(other):
            counts[room.labels[topology]] += 1
    own = int(matches(spread.get("labelSelector"), labels_of(pod)))
    limit = min(counts.values(), default=0) + spread["maxSkew"] - own
    return frozenset(value for value, count in counts.items() if count > limit)


def _share(used: int, total: int) -> float:
    return (total - used) / total if total else 0.0
