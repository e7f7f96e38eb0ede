"""Label selectors, as budgets, affinities and volumes write them."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

# Longer ones do not fit into 64 bits, but for leading zeros that nobody writes: labels are at most
# 63 long anyway.
_INTEGER = re.compile(r"[+-]?[0-9]{1,63}")


class SelectorOperator(StrEnum):
    """Operators of a selector's requirement; Gt and Lt are for nodes' selectors and written ones (`x>1`) only."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GREATER = "Gt"
    LESS = "Lt"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement of a label selector."""

    key: str
    operator: SelectorOperator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether these labels satisfy it (NotIn is satisfied by an absent key, as in Kubernetes)."""
        match self.operator:
            case SelectorOperator.IN:
                return labels.get(self.key) in self.values
            case SelectorOperator.NOT_IN:
                return labels.get(self.key) not in self.values
            case SelectorOperator.EXISTS:
                return self.key in labels
            case SelectorOperator.DOES_NOT_EXIST:
                return self.key not in labels
            case SelectorOperator.GREATER:
                return self._compared(labels) > 0
            case SelectorOperator.LESS:
                return self._compared(labels) < 0

    def _compared(self, labels: Mapping[str, str]) -> int:
        return compared(labels.get(self.key, ""), self.values[0] if self.values else "")


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """A label selector; one without requirements matches everything, as in policy/v1."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether these labels satisfy every requirement."""
        return all(requirement.matches(labels) for requirement in self.requirements)


def has_labels(labels: Mapping[str, str], exact: Iterable[tuple[str, str]]) -> bool:
    """Whether each of these keys has its value, as `nodeSelector` and `matchLabels` demand."""
    return all(labels.get(key) == value for key, value in exact)


def first_naming_values(requirements: Iterable[Requirement]) -> Requirement | None:
    """Return the first requirement that names values: what has none is not chosen, so it may serve as an index."""
    return next(
        (
            requirement
            for requirement in requirements
            if requirement.operator is SelectorOperator.IN
        ),
        None,
    )


def compared(left: str, right: str) -> int:
    """Return the order of two whole numbers; 0 where either is none."""
    first = whole_number(left)
    second = whole_number(right)
    if first is None or second is None:
        return 0
    return (first > second) - (first < second)


def whole_number(text: str) -> int | None:
    """Return the number that Kubernetes reads in a label (Go's ParseInt, 64 bits); None where it reads none."""
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None
