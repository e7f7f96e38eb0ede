"""What a pod, or a volume, demands of a node: affinities, tolerations and spreads, out of their JSON."""

from typing import TypeVar

import msgspec

from rollout.gather.cluster import wire
from rollout.gather.cluster.wire import decoder_of
from rollout.model.cluster import LabelSelector, Requirement, SelectorOperator
from rollout.model.placement import (
    ANYWHERE,
    NodeTerm,
    Placement,
    PodTerm,
    Spread,
    Toleration,
)

T = TypeVar("T")


class _Term(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    match_expressions: tuple[wire.Expression, ...] | None = None
    match_fields: tuple[wire.Expression, ...] | None = None


class _NodeSelector(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    node_selector_terms: tuple[_Term, ...] | None = None


class _NodeAffinity(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    required_during_scheduling_ignored_during_execution: _NodeSelector | None = None


class _PodTerm(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    topology_key: str = ""
    label_selector: wire.Selector | None = None
    namespaces: tuple[str, ...] | None = None
    namespace_selector: wire.Selector | None = None
    match_label_keys: tuple[str, ...] | None = None
    mismatch_label_keys: tuple[str, ...] | None = None


class _PodTerms(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    required_during_scheduling_ignored_during_execution: tuple[_PodTerm, ...] | None = None


class _Affinity(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    node_affinity: _NodeAffinity | None = None
    pod_affinity: _PodTerms | None = None
    pod_anti_affinity: _PodTerms | None = None


class _Toleration(msgspec.Struct, frozen=True, gc=False):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class _Spread(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    topology_key: str = ""
    max_skew: int = 1
    when_unsatisfiable: str = ""
    label_selector: wire.Selector | None = None
    match_label_keys: tuple[str, ...] | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None


def read_placement(affinity: bytes, tolerations: bytes, spreads: bytes) -> Placement:
    """Read the demands in these parts of a pod's spec, each empty where absent; ValueError for the undocumented."""
    read = _read(affinity, _Affinity) or _Affinity()
    placement = Placement(
        node_terms=_terms(read.node_affinity),
        tolerations=tuple(_toleration(item) for item in _read(tolerations, tuple[_Toleration, ...]) or ()),
        repulsions=_pod_terms(read.pod_anti_affinity),
        attractions=_pod_terms(read.pod_affinity),
        spreads=tuple(
            _spread(item, item.label_selector)
            for item in _read(spreads, tuple[_Spread, ...]) or ()
            if item.when_unsatisfiable == "DoNotSchedule" and item.label_selector is not None
        ),
    )
    return ANYWHERE if placement == ANYWHERE else placement


def node_terms(required: bytes) -> tuple[NodeTerm, ...] | None:
    """Return the alternatives of a node selector; None where there is none."""
    read = _read(required, _NodeSelector)
    return _alternatives(read) if read else None


def label_selector(read: wire.Selector) -> LabelSelector:
    """Return a label selector."""
    exact = (Requirement(key, SelectorOperator.IN, (value,)) for key, value in (read.match_labels or {}).items())
    return LabelSelector((*exact, *(_requirement(entry) for entry in read.match_expressions or ())))


def _read(raw: bytes, shape: type[T]) -> T | None:
    return decoder_of(shape).decode(raw) if raw not in {b"", b"null"} else None


def _terms(affinity: _NodeAffinity | None) -> tuple[NodeTerm, ...] | None:
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    return _alternatives(required) if required else None


def _alternatives(selector: _NodeSelector) -> tuple[NodeTerm, ...]:
    return tuple(
        NodeTerm(
            tuple(_requirement(expression) for expression in term.match_expressions or ()),
            tuple(_requirement(expression) for expression in term.match_fields or ()),
        )
        for term in selector.node_selector_terms or ()
    )


def _requirement(read: wire.Expression) -> Requirement:
    return Requirement(read.key, SelectorOperator(read.operator), read.values or ())


def _toleration(read: _Toleration) -> Toleration:
    return Toleration(read.key or "", read.operator or "Equal", read.value or "", read.effect or "")


def _pod_terms(affinity: _PodTerms | None) -> tuple[PodTerm, ...]:
    terms = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    return tuple(_pod_term(term, term.label_selector) for term in terms or () if term.label_selector is not None)


def _pod_term(read: _PodTerm, selector: wire.Selector) -> PodTerm:
    return PodTerm(
        topology=read.topology_key,
        selector=label_selector(selector),
        namespaces=read.namespaces or (),
        namespace_selector=None if read.namespace_selector is None else label_selector(read.namespace_selector),
        match_keys=read.match_label_keys or (),
        mismatch_keys=read.mismatch_label_keys or (),
    )


def _spread(read: _Spread, selector: wire.Selector) -> Spread:
    return Spread(
        topology=read.topology_key,
        max_skew=read.max_skew,
        selector=label_selector(selector),
        match_keys=read.match_label_keys or (),
        min_domains=read.min_domains or 1,
        ignores_affinity=read.node_affinity_policy == "Ignore",
        heeds_taints=read.node_taints_policy == "Honor",
    )
