import re
from collections.abc import Callable, Hashable, Mapping
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from operator import add
from typing import TypeVar

from rollout.gather.cluster import wire
from rollout.gather.cluster.wire import decoder_of
from rollout.model.cluster import HOST_PORT, LabelSelector, Resources
from rollout.model.placement import ANYWHERE, NodeTerm, Placement, PodTerm, Spread, Toleration
from rollout.model.selectors import Requirement, SelectorOperator

T = TypeVar("T")


class _NodeAffinity(wire.Wire, frozen=True):
    required_during_scheduling_ignored_during_execution: wire.NodeSelector | None = None


class _AffinityTerm(wire.Wire, frozen=True):
    topology_key: str = ""
    label_selector: wire.Selector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: wire.Selector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class _AffinityTerms(wire.Wire, frozen=True):
    required_during_scheduling_ignored_during_execution: tuple[_AffinityTerm, ...] = ()


class _Affinity(wire.Wire, frozen=True):
    node_affinity: _NodeAffinity = _NodeAffinity()
    pod_affinity: _AffinityTerms = _AffinityTerms()
    pod_anti_affinity: _AffinityTerms = _AffinityTerms()


class _SpreadConstraint(wire.Wire, frozen=True):
    topology_key: str = ""
    max_skew: int = 1
    when_unsatisfiable: str = ""
    label_selector: wire.Selector | None = None
    match_label_keys: tuple[str, ...] = ()
    min_domains: int = 1
    node_affinity_policy: str = ""
    node_taints_policy: str = ""


def read_placement(affinity: bytes, tolerations: bytes, spreads: bytes) -> Placement:
    """Parse a pod's constraints; `ValueError` for undocumented JSON."""
    constraints = _decode_part(affinity, _Affinity) or _Affinity()
    placement = Placement(
        node_terms=node_terms(
            constraints.node_affinity.required_during_scheduling_ignored_during_execution
        ),
        tolerations=_decode_part(tolerations, tuple[Toleration, ...]) or (),
        repulsions=_pod_terms(constraints.pod_anti_affinity),
        attractions=_pod_terms(constraints.pod_affinity),
        spreads=_spreads(_decode_part(spreads, tuple[_SpreadConstraint, ...]) or ()),
    )
    return ANYWHERE if placement == ANYWHERE else placement


def _spreads(constraints: tuple[_SpreadConstraint, ...]) -> tuple[Spread, ...]:
    spreads: list[Spread] = []
    for item in constraints:
        is_preference = item.when_unsatisfiable != "DoNotSchedule"
        # No selector matches no pod, so the constraint holds.
        if is_preference or item.label_selector is None:
            continue
        spreads.append(
            Spread(
                topology=item.topology_key,
                max_skew=item.max_skew,
                selector=label_selector(item.label_selector),
                match_keys=item.match_label_keys,
                min_domains=item.min_domains,
                ignores_affinity=item.node_affinity_policy == "Ignore",
                heeds_taints=item.node_taints_policy == "Honor",
            )
        )
    return tuple(spreads)


def node_terms(selector: wire.NodeSelector | None) -> tuple[NodeTerm, ...] | None:
    """Return alternative terms: a node must match one; None for any node."""
    if selector is None:
        return None
    return tuple(
        NodeTerm(term.match_expressions, term.match_fields) for term in selector.node_selector_terms
    )


def label_selector(selector: wire.Selector) -> LabelSelector:
    label_requirements = [
        Requirement(key, SelectorOperator.IN, (value,))
        for key, value in selector.match_labels.items()
    ]
    return LabelSelector((*label_requirements, *selector.match_expressions))


def _decode_part(raw: bytes, shape: type[T]) -> T | None:
    return decoder_of(shape).decode(raw) if raw not in {b"", b"null"} else None


def _pod_terms(affinity: _AffinityTerms) -> tuple[PodTerm, ...]:
    """A term without a selector matches no pod."""
    terms = affinity.required_during_scheduling_ignored_during_execution
    return tuple(
        PodTerm(
            topology=term.topology_key,
            selector=label_selector(term.label_selector),
            namespaces=term.namespaces,
            namespace_selector=(
                None if term.namespace_selector is None else label_selector(term.namespace_selector)
            ),
            match_keys=term.match_label_keys,
            mismatch_keys=term.mismatch_label_keys,
        )
        for term in terms
        if term.label_selector is not None
    )


_NOTHING = Resources()
_OWN_FIELDS = frozenset({"cpu", "memory", "pods"})
_ANY_ADDRESS = ("", "0.0.0.0", "::")  # noqa: S104 - as manifests write it

_OtherAmounts = tuple[tuple[str, int], ...]

# Thousands would be slow.
_DIGITS = r"\d{1,100}"
_NUMBER = rf"[+-]?(?:{_DIGITS}\.?(?:{_DIGITS})?|\.{_DIGITS})"
_SUFFIX = r"[numkMGTPE]|[KMGTPE]i|[eE][+-]?\d{1,3}"
_QUANTITY = re.compile(rf"({_NUMBER})({_SUFFIX})?", re.ASCII)
_DECIMAL = {
    suffix: 3 * power
    for power, suffix in enumerate(("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), -3)
}
_BINARY = {
    suffix: 1 << (10 * power)
    for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)
}


def parse_quantity(text: str) -> Decimal:
    """Parse `1500m`, `2Ki` or `1e3`; may raise `ValueError`."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a quantity")
    number = Decimal(match[1])
    suffix = match[2] or ""
    if suffix in _BINARY:
        return number * _BINARY[suffix]
    if suffix in _DECIMAL:
        return number.scaleb(_DECIMAL[suffix])
    power_of_ten = int(suffix[1:])
    return number.scaleb(power_of_ten)


@lru_cache(maxsize=4096)
def round_up(text: str, parts_per_unit: int = 1) -> int:
    """`parts_per_unit`: such as 1000 of a CPU."""
    return int((parse_quantity(text) * parts_per_unit).to_integral_value(ROUND_CEILING))


def parse_resources(quantities: Mapping[str, wire.Quantity]) -> Resources:
    """Round up; `others` are neither CPU nor memory."""
    return Resources(
        cpu_milli=round_up(str(quantities.get("cpu", 0)), 1000),
        memory=round_up(str(quantities.get("memory", 0))),
        pods=round_up(str(quantities.get("pods", 0))),
        others=() if quantities.keys() <= _OWN_FIELDS else _other_resources(quantities),
    )


def _other_resources(quantities: Mapping[str, wire.Quantity]) -> _OtherAmounts:
    others: list[tuple[str, int]] = []
    for name, quantity in quantities.items():
        amount = 0 if name in _OWN_FIELDS else round_up(str(quantity))
        if amount:
            others.append((name, amount))
    return tuple(sorted(others))


def demand_key(spec: wire.PodSpec) -> Hashable:
    """Return equal keys only for equal `pod_requests`, which are slow."""
    containers = [
        (item.restart_policy, bytes(item.ports), *item.resources.requests.items())
        for item in (*spec.init_containers, *spec.containers)
    ]
    separator = None
    whole_pod = (*spec.overhead.items(), separator, *spec.resources.requests.items())
    return (len(spec.init_containers), whole_pod, *containers)


def pod_requests(spec: wire.PodSpec) -> Resources:
    """Return what the scheduler reserves for a pod.

    That is the sum of its containers and sidecars, or a larger init container; the pod's own
    requests override these.
    """
    running, starting = _requests_of_containers(spec)
    highest = _combine(running, starting, max)
    total = _override_by_pod(highest, spec.resources.requests)
    if spec.overhead:
        total = _combine(total, parse_resources(spec.overhead), add)
    others = _combine_others(total.others, _host_ports(spec), add)
    return Resources(cpu_milli=total.cpu_milli, memory=total.memory, pods=1, others=others)


def _host_ports(spec: wire.PodSpec) -> _OtherAmounts:
    """Return the ports that one pod on a node can have.

    Ports of a single address rarely conflict, and are left out.
    """
    sidecars = [item for item in spec.init_containers if item.restart_policy == "Always"]
    ports: dict[str, int] = {}
    for container in (*spec.containers, *sidecars):
        undecoded_ports = bytes(container.ports)
        # Decoding all ports is slow.
        if b"hostPort" not in undecoded_ports:
            continue
        for port in decoder_of(tuple[wire.Port, ...]).decode(undecoded_ports):
            if port.host_port and port.host_ip in _ANY_ADDRESS:
                ports[f"{HOST_PORT}{port.host_port}/{port.protocol}"] = 1
    return tuple(ports.items())


def _requests_of_containers(spec: wire.PodSpec) -> tuple[Resources, Resources]:
    """Return requests while running, and the highest while starting.

    A sidecar, an init container that is always restarted, runs beside all later containers.
    """
    sidecars = _NOTHING
    starting = _NOTHING
    for container in spec.init_containers:
        while_it_starts = _combine(sidecars, _requests(container), add)
        if container.restart_policy == "Always":
            sidecars = while_it_starts
        starting = _combine(starting, while_it_starts, max)
    running = sidecars
    for container in spec.containers:
        running = _combine(running, _requests(container), add)
    return running, starting


def _requests(container: wire.Container) -> Resources:
    requests = container.resources.requests
    return parse_resources(requests) if requests else _NOTHING


def _override_by_pod(summed: Resources, pod_level: Mapping[str, wire.Quantity]) -> Resources:
    if not pod_level:
        return summed
    overriding = parse_resources(pod_level)
    return Resources(
        cpu_milli=overriding.cpu_milli if "cpu" in pod_level else summed.cpu_milli,
        memory=overriding.memory if "memory" in pod_level else summed.memory,
        others=_combine_others(summed.others, overriding.others, lambda _sum, of_pod: of_pod),
    )


def _combine(left: Resources, right: Resources, merge: Callable[[int, int], int]) -> Resources:
    if left is _NOTHING or right is _NOTHING:
        return right if left is _NOTHING else left
    cpu = merge(left.cpu_milli, right.cpu_milli)
    memory = merge(left.memory, right.memory)
    return Resources(cpu, memory, others=_combine_others(left.others, right.others, merge))


def _combine_others(
    left: _OtherAmounts, right: _OtherAmounts, merge: Callable[[int, int], int]
) -> _OtherAmounts:
    if not right:
        return left
    if not left:
        return tuple(sorted(right))
    joined = dict(left)
    for name, amount in right:
        joined[name] = merge(joined[name], amount) if name in joined else amount
    return tuple(sorted(joined.items()))
