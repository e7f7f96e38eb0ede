from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from rollout.model.selectors import LabelSelector, Requirement, SelectorOperator, compare_numbers

NAME_FIELD = "metadata.name"
KEEPING_AWAY = ("NoSchedule", "NoExecute")


class Taint(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A taint; `effect` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str = ""


# Pods may tolerate a cordon as this taint.
CORDON = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")


class Toleration(Struct, frozen=True):
    """An empty field matches anything, as in Kubernetes."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def covers(self, taint: Taint) -> bool:
        """Whether the toleration matches the taint."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        match self.operator:
            case "Exists":
                return True
            case "Gt":
                return compare_numbers(taint.value, self.value) > 0
            case "Lt":
                return compare_numbers(taint.value, self.value) < 0
            case _:
                return bool(self.key) and self.value == taint.value


class NodeTerm(Struct, frozen=True):
    """A term of a node selector; an empty one matches nothing."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether the node matches."""
        if not self.labels and not self.fields:
            return False
        if not all(requirement.matches(labels) for requirement in self.labels):
            return False
        fields = {NAME_FIELD: name}
        return all(requirement.matches(fields) for requirement in self.fields)


class PodTerm(Struct, frozen=True):
    """A required (anti-)affinity term."""

    topology: str
    selector: LabelSelector
    # Without both, the pod's own.
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    # Labels that equal, and that differ from, the pod's.
    match_keys: tuple[str, ...] = ()
    mismatch_keys: tuple[str, ...] = ()

    def selector_for(self, labels: Mapping[str, str]) -> LabelSelector:
        """Return the selector for this pod."""
        return narrow_selector(self.selector, labels, self.match_keys, self.mismatch_keys)


class Spread(Struct, frozen=True):
    """A DoNotSchedule spread constraint."""

    topology: str
    max_skew: int
    selector: LabelSelector
    match_keys: tuple[str, ...] = ()
    # With fewer domains, the minimum counts as 0.
    min_domains: int = 1
    # Counts nodes that the affinity excludes.
    ignores_affinity: bool = False
    # Leaves out nodes with untolerated taints.
    heeds_taints: bool = False

    def selector_for(self, labels: Mapping[str, str]) -> LabelSelector:
        """Return the selector for this pod."""
        return narrow_selector(self.selector, labels, self.match_keys)


class Placement(Struct, frozen=True):
    """Requirements besides requests and node selector."""

    # One must match; None admits any node.
    node_terms: tuple[NodeTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    # None of these pods may be in the domain.
    repulsions: tuple[PodTerm, ...] = ()
    # The domain needs a pod of each.
    attractions: tuple[PodTerm, ...] = ()
    spreads: tuple[Spread, ...] = ()

    def admits(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether the node affinity matches."""
        if self.node_terms is None:
            return True
        return any(term.matches(name, labels) for term in self.node_terms)

    @property
    def minds_others(self) -> bool:
        """Whether other pods matter."""
        return bool(self.repulsions or self.attractions or self.spreads)

    @property
    def chooses_namespaces(self) -> bool:
        """Whether a term selects namespaces."""
        return any(
            term.namespace_selector is not None and term.namespace_selector.requirements
            for term in (*self.repulsions, *self.attractions)
        )

    def tolerates(self, taints: Iterable[Taint]) -> bool:
        """Do the same as `are_tolerated`."""
        return are_tolerated(taints, self.tolerations)


def are_tolerated(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> bool:
    """Whether the taints that keep pods away are tolerated."""
    for taint in taints:
        if taint.effect not in KEEPING_AWAY:
            continue
        is_tolerated = any(toleration.covers(taint) for toleration in tolerations)
        if not is_tolerated:
            return False
    return True


def narrow_selector(
    selector: LabelSelector,
    labels: Mapping[str, str],
    equal_keys: Iterable[str],
    unequal_keys: Iterable[str] = (),
) -> LabelSelector:
    """Apply matchLabelKeys and mismatchLabelKeys. Keys that the pod lacks add nothing."""
    equal = _requirements_of(labels, equal_keys, SelectorOperator.IN)
    unequal = _requirements_of(labels, unequal_keys, SelectorOperator.NOT_IN)
    return LabelSelector((*selector.requirements, *equal, *unequal))


def _requirements_of(
    labels: Mapping[str, str], keys: Iterable[str], operator: SelectorOperator
) -> list[Requirement]:
    return [Requirement(key, operator, (labels[key],)) for key in keys if key in labels]


ANYWHERE = Placement()


class PersistentVolume(Struct, frozen=True):
    """A bound volume."""

    name: str
    # namespace/name
    claim: str
    # One must match; none admits all nodes.
    node_terms: tuple[NodeTerm, ...] = ()
    is_shared: bool = False
