"""Label selectors: what they match, and how operators write them.

`parse_selector` reads `app=web,tier!=x`, `app in (web, api)`, `!debug` and `x>1`. The grammar and
the rules for names and values are those of apimachinery's `labels.Parse`, so that kubectl, the API
server and rollout select the same objects.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from rollout.errors import UsageError

# Longer ones do not fit into 64 bits, but for leading zeros that nobody writes: labels are at most
# 63 long anyway.
_INTEGER = re.compile(r"[+-]?[0-9]{1,63}")
_WORD = r"[^ \t\r\n=!(),<>]+"
_S = r"[ \t\r\n]"
# A requirement, and whether another follows.
_REQUIREMENT = re.compile(
    rf"{_S}*(?:!{_S}*(?P<absent>{_WORD})|(?P<key>{_WORD})(?:{_S}*(?P<sign>==|!=|[=<>]){_S}*(?P<value>{_WORD})?"
    rf"|{_S}+(?P<set>in|notin){_S}*\((?P<values>(?:{_S}*(?:{_WORD})?{_S}*,)*{_S}*(?:{_WORD})?){_S}*\))?)"
    rf"{_S}*(?:(?P<more>,)|$)"
)
_NAME = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)?[A-Za-z0-9]")
_PREFIX = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_LONGEST_NAME = 63
_LONGEST_PREFIX = 253
_HINT = (
    "Write it as for kubectl: role=worker,zone!=b, 'role in (worker,edge)', '!edge' or 'cores>8'."
)


class SelectorOperator(StrEnum):
    """Operators of a selector's requirement; Gt and Lt are for nodes' selectors and written ones (`x>1`) only."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GREATER = "Gt"
    LESS = "Lt"


_OPERATORS = {
    "=": SelectorOperator.IN,
    "==": SelectorOperator.IN,
    "!=": SelectorOperator.NOT_IN,
    "in": SelectorOperator.IN,
    "notin": SelectorOperator.NOT_IN,
    ">": SelectorOperator.GREATER,
    "<": SelectorOperator.LESS,
}


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
        return compare_numbers(labels.get(self.key, ""), self.values[0] if self.values else "")


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


def compare_numbers(left: str, right: str) -> int:
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


def parse_selector(text: str) -> LabelSelector:
    """Return the selector that `text` writes, an empty one for all; `UsageError` where no API server takes it."""
    requirements = list[Requirement]()
    at = 0
    more = bool(text.strip())
    while more:
        match = _REQUIREMENT.match(text, at)
        if match is None:
            unread = text[at:].strip()
            raise _selector_error(
                text, f"it cannot be parsed from {unread!r}" if unread else "it ends too early"
            )
        requirements.append(_requirement(match, text))
        at = match.end()
        more = bool(match["more"])
    return LabelSelector(tuple(requirements))


def _requirement(match: re.Match[str], text: str) -> Requirement:
    key = match["absent"] or match["key"]
    sign = match["sign"] or match["set"]
    prefix, slash, name = key.rpartition("/")
    if slash and not (len(prefix) <= _LONGEST_PREFIX and _PREFIX.fullmatch(prefix)):
        raise _selector_error(
            text, f"the prefix {_shorten(prefix)!r} is not a DNS name of at most 253 characters"
        )
    _check_name(name, "name", text)
    if not sign:
        return Requirement(
            key, SelectorOperator.DOES_NOT_EXIST if match["absent"] else SelectorOperator.EXISTS
        )
    # An absent value is an empty one, as in `app=`, `app in (,web)` and `app in ()`.
    written = match["values"].split(",") if match["set"] else [match["value"] or ""]
    values = tuple(value.strip() for value in written)
    for value in filter(None, values):
        _check_name(value, "value", text)
    if sign in ("<", ">") and whole_number(values[0]) is None:
        raise _selector_error(text, f"{values[0]!r} is not a whole number, which < and > need")
    return Requirement(key, _OPERATORS[sign], values)


def _check_name(written: str, noun: str, text: str) -> None:
    if len(written) > _LONGEST_NAME:
        raise _selector_error(
            text,
            f"the {noun} {_shorten(written)!r} is {len(written)} characters long, of at most"
            f" {_LONGEST_NAME}",
        )
    if not _NAME.fullmatch(written):
        raise _selector_error(text, f"{written!r} is not a label's {noun}")


def _selector_error(text: str, why: str) -> UsageError:
    return UsageError(f"{text!r} is not a label selector: {why}", hint=_HINT)


def check_label_name(name: str) -> str:
    """Return the name of a label, its prefix before a slash, as it was written; `UsageError` where it can be none."""
    if parse_selector(name).requirements != (Requirement(name, SelectorOperator.EXISTS),):
        raise UsageError(
            f"{name!r} is not a label name", hint="Write it as topology.kubernetes.io/zone."
        )
    return name


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST_NAME else f"{text[:20]}…"


def is_label_value(text: str) -> bool:
    """Whether the API server takes it for a label's value."""
    return not text or (len(text) <= _LONGEST_NAME and _NAME.fullmatch(text) is not None)
