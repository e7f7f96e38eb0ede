"""Where a pod may run: what its specification, and the volumes it uses, demand of a node and of the pods there."""

from collections.abc import Mapping
from dataclasses import dataclass

from rollout.model.selectors import LabelSelector, Requirement

NAME_FIELD = "metadata.name"
EVERY_NAMESPACE = "*"


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint; `effect` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    value: str
    effect: str


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
        return self.operator == "Exists" or (bool(self.key) and self.value == taint.value)


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """One alternative of a node selector: all its requirements must hold. One without any holds nowhere."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def holds(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether a node of this name and these labels satisfies it."""
        if not self.labels and not self.fields:
            return False
        named = {NAME_FIELD: name}
        return all(each.matches(labels) for each in self.labels) and all(each.matches(named) for each in self.fields)


@dataclass(frozen=True, slots=True)
class Repulsion:
    """A required term of pod anti-affinity: no pod that it selects may be in the same topology.

    `namespaces` is where it looks: none for the pod's own, `*` for all.
    """

    topology: str
    selector: LabelSelector
    namespaces: tuple[str, ...] = ()

    def looks_in(self, namespace: str, own: str) -> bool:
        """Whether it concerns pods of a namespace, said by a pod of the namespace `own`."""
        return namespace in (self.namespaces or (own,)) or EVERY_NAMESPACE in self.namespaces


@dataclass(frozen=True, slots=True)
class Spread:
    """A topology spread constraint that must hold: the selected pods' numbers differ by at most `max_skew`."""

    topology: str
    max_skew: int
    selector: LabelSelector


@dataclass(frozen=True, slots=True)
class Placement:
    """What a pod demands besides its requests and node selector. `node_terms` None: any node."""

    node_terms: tuple[NodeTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    repulsions: tuple[Repulsion, ...] = ()
    spreads: tuple[Spread, ...] = ()

    @property
    def minds_others(self) -> bool:
        """Whether it depends on where other pods are."""
        return bool(self.repulsions or self.spreads)


ANYWHERE = Placement()


@dataclass(frozen=True, slots=True)
class PersistentVolume:
    """A volume that attaches to certain nodes only. `claim` is namespace/name of what is bound to it."""

    name: str
    claim: str
    node_terms: tuple[NodeTerm, ...] = ()
