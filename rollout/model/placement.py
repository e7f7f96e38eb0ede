"""Where a pod may run: what its specification, and the volumes it uses, demand of a node and of the pods there."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec import Struct

from rollout.model.selectors import LabelSelector, Requirement, SelectorOperator, compare_numbers

NAME_FIELD = "metadata.name"
KEEPING_AWAY = ("NoSchedule", "NoExecute")


class Taint(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A taint, as the API has it; `effect` is NoSchedule, PreferNoSchedule or NoExecute, empty what is absent."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str = ""


CORDON = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
"""What a cordon is to the scheduler: a pod that tolerates it may be placed on a cordoned node."""


@dataclass(frozen=True, slots=True)
class Toleration:
    """What taints a pod puts up with; empty fields stand for any, as in Kubernetes."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def covers(self, taint: Taint) -> bool:
        """Whether it puts up with this taint."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        match self.operator:
            case "Exists":
                return True
            case "Gt" | "Lt":
                order = compare_numbers(taint.value, self.value)
                return order > 0 if self.operator == "Gt" else order < 0
            case _:
                return bool(self.key) and self.value == taint.value


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """One alternative of a node selector: all its requirements must hold. One without any holds nowhere."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def holds(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether a node of this name and these labels satisfies it."""
        if not self.labels and not self.fields:
            return False
        own_fields = {NAME_FIELD: name}
        return all(requirement.matches(labels) for requirement in self.labels) and all(
            requirement.matches(own_fields) for requirement in self.fields
        )


@dataclass(frozen=True, slots=True)
class PodTerm:
    """A required term of pod affinity or anti-affinity: the pods that it selects, and the topology that counts.

    It looks in `namespaces` and in those whose labels `namespace_selector` chooses; in the pod's
    own where neither is given. Of `match_keys` the others must have the values that the pod itself
    has; of `mismatch_keys` others.
    """

    topology: str
    selector: LabelSelector
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_keys: tuple[str, ...] = ()
    mismatch_keys: tuple[str, ...] = ()

    def selects_for(self, labels: Mapping[str, str]) -> LabelSelector:
        """Return what it selects when a pod with these labels says it."""
        return narrow_selector(self.selector, labels, self.match_keys, self.mismatch_keys)


@dataclass(frozen=True, slots=True)
class Spread:
    """A topology spread constraint that must hold: the selected pods' numbers differ by at most `max_skew`.

    With fewer places than `min_domains` the least number counts as none. Nodes count as places
    where the pod's node affinity lets it run, unless `ignores_affinity`; and whatever their taints,
    unless `heeds_taints`.
    """

    topology: str
    max_skew: int
    selector: LabelSelector
    match_keys: tuple[str, ...] = ()
    min_domains: int = 1
    ignores_affinity: bool = False
    heeds_taints: bool = False

    def selects_for(self, labels: Mapping[str, str]) -> LabelSelector:
        """Return what it selects when a pod with these labels says it."""
        return narrow_selector(self.selector, labels, self.match_keys)


@dataclass(frozen=True, slots=True)
class Placement:
    """What a pod demands besides its requests and node selector. `node_terms` None: any node.

    No pod that `repulsions` select may be in the same topology; one that each of `attractions`
    selects must be.
    """

    node_terms: tuple[NodeTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    repulsions: tuple[PodTerm, ...] = ()
    attractions: tuple[PodTerm, ...] = ()
    spreads: tuple[Spread, ...] = ()

    def admits(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether its node affinity lets it run on a node of this name and these labels."""
        return self.node_terms is None or any(term.holds(name, labels) for term in self.node_terms)

    @property
    def minds_others(self) -> bool:
        """Whether it depends on where other pods are."""
        return bool(self.repulsions or self.attractions or self.spreads)

    @property
    def chooses_namespaces(self) -> bool:
        """Whether a term looks in namespaces that their labels choose."""
        return any(
            term.namespace_selector is not None and term.namespace_selector.requirements
            for term in (*self.repulsions, *self.attractions)
        )

    def tolerates(self, taints: Iterable[Taint]) -> bool:
        """Whether taints that keep pods away let this one in."""
        return are_tolerated(taints, self.tolerations)


def are_tolerated(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> bool:
    """Whether these tolerations cover every taint that keeps pods away."""
    return all(
        any(toleration.covers(taint) for toleration in tolerations)
        for taint in taints
        if taint.effect in KEEPING_AWAY
    )


def narrow_selector(
    selector: LabelSelector,
    labels: Mapping[str, str],
    same: Iterable[str],
    different: Iterable[str] = (),
) -> LabelSelector:
    """Return the selector with what the values of a pod's own labels add to it; a label that it lacks adds nothing."""
    more = [Requirement(key, SelectorOperator.IN, (labels[key],)) for key in same if key in labels]
    more += [
        Requirement(key, SelectorOperator.NOT_IN, (labels[key],))
        for key in different
        if key in labels
    ]
    return LabelSelector((*selector.requirements, *more)) if more else selector


ANYWHERE = Placement()


@dataclass(frozen=True, slots=True)
class PersistentVolume:
    """A volume that attaches to certain nodes only. `claim` is namespace/name of what is bound to it."""

    name: str
    claim: str
    node_terms: tuple[NodeTerm, ...] = ()
