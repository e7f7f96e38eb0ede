"""Refusals are phrases of a real scheduler ("0/3 nodes are available: …")."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from rollout.gather.cluster.demands import round_up
from rollout.lab.api.selectors import holds, matches
from rollout.lab.api.store import Json
from rollout.lab.objects import (
    field_of,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    spec_of,
    status_of,
)

UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

Taint = Mapping[str, Any]


def tolerates(toleration: Json, taint: Taint) -> bool:
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
    tolerations = pod_spec.get("tolerations") or ()
    return [
        taint
        for taint in taints
        if taint["effect"] in effects
        and not any(tolerates(toleration, taint) for toleration in tolerations)
    ]


def toleration_seconds(pod_spec: Json, taint: Taint) -> float | None:
    """Return None if the pod may stay for ever."""
    tolerations = pod_spec.get("tolerations") or ()
    matching = [toleration for toleration in tolerations if tolerates(toleration, taint)]
    if not matching:
        # Such a pod lacks the tolerations that admission adds.
        return 300 if taint["key"] in {NOT_READY, UNREACHABLE} else 0
    limits = [toleration.get("tolerationSeconds") for toleration in matching]
    limits = [limit for limit in limits if limit is not None]
    return max(0, min(limits)) if limits else None


_UNSCHEDULABLE_TAINT = {"key": UNSCHEDULABLE, "effect": "NoSchedule"}


@dataclass(slots=True)
class NodeUsage:
    """CPU is in thousandths, memory in bytes."""

    cpu: int = 0
    memory: int = 0
    pods: int = 0
    others: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class NodeRoom:
    name: str
    labels: Mapping[str, str]
    taints: tuple[Json, ...]
    unschedulable: bool
    cpu: int
    memory: int
    pods: int
    used: NodeUsage
    others: Mapping[str, int] = field(default_factory=dict)

    def free_share(self) -> float:
        """The sum of CPU, memory and pods is between 0 and 3."""
        cpu = _free_share(self.used.cpu, self.cpu)
        memory = _free_share(self.used.memory, self.memory)
        return cpu + memory + _free_share(self.used.pods, self.pods)


class PlacementDemand(Struct, frozen=True):
    """What a pod asks of a node.

    `forbidden` are labels ruled out by anti-affinity, `crowded` values by topology key that have
    too many similar pods. `attracting` has a topology key and the allowed values (None: any) per
    term of pod affinity. `volume_terms` has node selector terms per volume, one of which must hold.
    """

    pod: Json
    cpu: int
    memory: int
    others: Mapping[str, int] = {}
    forbidden: frozenset[tuple[str, str]] = frozenset()
    crowded: Mapping[str, frozenset[str]] = {}
    attracting: tuple[tuple[str, frozenset[str] | None], ...] = ()
    volume_terms: tuple[list[Json], ...] = ()


def room_of(node: Json, used: NodeUsage) -> NodeRoom:
    allocatable: Json = status_of(node).get("allocatable") or {}
    others = {name: round_up(str(amount)) for name, amount in allocatable.items()}
    for name in ("cpu", "memory", "pods"):
        others.pop(name, None)
    return NodeRoom(
        name=name_of(node),
        labels=labels_of(node),
        taints=tuple(spec_of(node).get("taints") or ()),
        unschedulable=bool(spec_of(node).get("unschedulable")),
        cpu=round_up(str(allocatable.get("cpu", 0)), 1000),
        memory=round_up(str(allocatable.get("memory", 0))),
        pods=round_up(str(allocatable.get("pods", 110))),
        used=used,
        others=others,
    )


def requests_of(pod: Json) -> tuple[int, int, Mapping[str, int]]:
    """Return CPU (thousandths), memory (bytes) and others.

    An init container runs beside the sidecars before it. A container with a limit and no request
    requests its limit.
    """
    spec = spec_of(pod)
    sidecars = Counter[str]()
    starting = Counter[str]()
    for container in spec.get("initContainers") or ():
        requests = Counter(_requests_of_container(container))
        starting |= sidecars + requests
        if container.get("restartPolicy") == "Always":
            sidecars += requests
    running = sidecars
    for container in spec.get("containers") or ():
        running = running + Counter(_requests_of_container(container))
    needed = running | starting
    return needed.pop("cpu", 0), needed.pop("memory", 0), +needed


def _requests_of_container(container: Json) -> dict[str, int]:
    resources = container.get("resources") or {}
    amounts = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    scales = {"cpu": 1000}
    return {name: round_up(str(amount), scales.get(name, 1)) for name, amount in amounts.items()}


def refusal(demand: PlacementDemand, room: NodeRoom) -> str | None:
    return (
        _why_node_refuses(demand.pod, room)
        or _why_too_full(demand, room)
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


def _why_too_full(demand: PlacementDemand, room: NodeRoom) -> str | None:
    used = room.used
    if used.pods + 1 > room.pods:
        return "Too many pods"
    if demand.cpu and used.cpu + demand.cpu > room.cpu:
        return "Insufficient cpu"
    if demand.memory and used.memory + demand.memory > room.memory:
        return "Insufficient memory"
    for name, amount in demand.others.items():
        # A node that does not report its disk has one nevertheless.
        is_unreported_disk = name == "ephemeral-storage" and name not in room.others
        if not is_unreported_disk and used.others[name] + amount > room.others.get(name, 0):
            return f"Insufficient {name}"
    return None


def _why_pods_refuse(demand: PlacementDemand, room: NodeRoom) -> str | None:
    labels = room.labels
    if not all(any_term_holds(terms, room.name, labels) for terms in demand.volume_terms):
        return "node(s) had volume node affinity conflict"
    if demand.forbidden and not demand.forbidden.isdisjoint(labels.items()):
        return "node(s) didn't match pod anti-affinity rules"
    for label, allowed in demand.attracting:
        if label not in labels or (allowed is not None and labels[label] not in allowed):
            return "node(s) didn't match pod affinity rules"
    for label, crowded in demand.crowded.items():
        if label not in labels or labels[label] in crowded:
            return "node(s) didn't match pod topology spread constraints"
    return None


def node_affinity_holds(spec: Json, node_name: str, labels: Mapping[str, str]) -> bool:
    selector: Json = spec.get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    terms = required_node_terms(spec)
    return terms is None or any_term_holds(terms, node_name, labels)


def any_term_holds(terms: Sequence[Json], node_name: str, labels: Mapping[str, str]) -> bool:
    return any(_term_holds(term, node_name, labels) for term in terms)


def required_node_terms(spec: Json) -> list[Json] | None:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get(_REQUIRED)
    return None if required is None else required.get("nodeSelectorTerms") or []


def _term_holds(term: Json, node_name: str, labels: Mapping[str, str]) -> bool:
    expressions = term.get("matchExpressions") or ()
    fields = term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    node_fields = {"metadata.name": node_name}
    labels_match = all(holds(expression, labels) for expression in expressions)
    return labels_match and all(holds(field, node_fields) for field in fields)


def pinned_node(pod: Json) -> str | None:
    terms = required_node_terms(pod["spec"])
    if not terms or len(terms) != 1:
        return None
    match terms[0].get("matchFields"):
        case [{"key": "metadata.name", "values": [name]}]:
            return str(name)
        case _:
            return None


def affinity_terms(pod: Json, kind: str = "podAffinity") -> list[Json]:
    return field_of(pod, f"spec.affinity.{kind}.{_REQUIRED}") or []


def strict_spreads(pod: Json) -> list[Json]:
    spreads = pod["spec"].get("topologySpreadConstraints") or ()
    return [spread for spread in spreads if spread.get("whenUnsatisfiable") == "DoNotSchedule"]


def term_namespaces(term: Json, pod: Json, namespaces: Iterable[Json]) -> list[str]:
    names = list(term.get("namespaces") or ())
    selector = term.get("namespaceSelector")
    if selector is None:
        return names or [namespace_of(pod)]
    selected = [space for space in namespaces if matches(selector, labels_of(space))]
    return names + [name_of(namespace) for namespace in selected]


def crowded_values(
    pod: Json, spread: Json, rooms: Iterable[NodeRoom], placed: Iterable[tuple[Json, NodeRoom]]
) -> frozenset[str]:
    """Return the values for which one more pod would exceed the skew.

    As by default, cordoned and tainted nodes count, and terminating pods do not.
    """
    topology = spread["topologyKey"]
    eligible = set()
    counts: dict[str, int] = {}
    for room in rooms:
        if topology in room.labels and node_affinity_holds(pod["spec"], room.name, room.labels):
            eligible.add(room.name)
            counts[room.labels[topology]] = 0
    for other, room in placed:
        if room.name in eligible and not is_deleting(other):
            counts[room.labels[topology]] += 1
    own = int(matches(spread.get("labelSelector"), labels_of(pod)))
    limit = min(counts.values(), default=0) + spread["maxSkew"] - own
    return frozenset(value for value, count in counts.items() if count > limit)


def _free_share(used: int, total: int) -> float:
    return (total - used) / total if total else 0.0
