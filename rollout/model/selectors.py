"""Label selectors, with the grammar and rules of apimachinery's `labels.Parse`."""

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum

from msgspec import Struct

from rollout.errors import UsageError

# Labels have at most 63 characters.
_INTEGER = re.compile(r"[+-]?[0-9]{1,63}")
_WORD = r"[^ \t\r\n=!(),<>]+"
_S = r"[ \t\r\n]"
_REQUIREMENT = re.compile(
    rf"{_S}*(?:!{_S}*(?P<absent>{_WORD})|(?P<key>{_WORD})"
    rf"(?:{_S}*(?P<sign>==|!=|[=<>]){_S}*(?P<value>{_WORD})?"
    rf"|{_S}+(?P<set>in|notin){_S}*"
    rf"\((?P<values>(?:{_S}*(?:{_WORD})?{_S}*,)*{_S}*(?:{_WORD})?){_S}*\))?)"
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
    """How a requirement compares a label; Gt and Lt occur in node selectors and in `x>1`."""

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


class Requirement(Struct, frozen=True):
    """One requirement of a label selector."""

    key: str
    operator: SelectorOperator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether these labels match; an absent key matches NotIn."""
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
                return self._compare(labels) > 0
            case SelectorOperator.LESS:
                return self._compare(labels) < 0

    def _compare(self, labels: Mapping[str, str]) -> int:
        value = self.values[0] if self.values else ""
        return compare_numbers(labels.get(self.key, ""), value)


class LabelSelector(Struct, frozen=True):
    """A label selector; without requirements it matches everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether these labels satisfy every requirement."""
        return all(requirement.matches(labels) for requirement in self.requirements)


def has_labels(labels: Mapping[str, str], exact: Iterable[tuple[str, str]]) -> bool:
    """Whether the labels have all of these keys with these values."""
    return all(labels.get(key) == value for key, value in exact)


def first_in_requirement(requirements: Iterable[Requirement]) -> Requirement | None:
    """Return the first requirement whose values an index can look up, or None."""
    for requirement in requirements:
        if requirement.operator is SelectorOperator.IN:
            return requirement
    return None


def compare_numbers(left: str, right: str) -> int:
    """Compare two whole numbers: -1, 0 or 1; 0 if one is not a number."""
    first = whole_number(left)
    second = whole_number(right)
    if first is None or second is None:
        return 0
    return (first > second) - (first < second)


def whole_number(text: str) -> int | None:
    """Return the number that Go's 64-bit ParseInt reads, or None."""
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def parse_selector(text: str) -> LabelSelector:
    """Return the selector in `text`, or raise `UsageError` as the API server would.

    An empty one selects everything.
    """
    requirements = list[Requirement]()
    position = 0
    has_more = bool(text.strip())
    while has_more:
        match = _REQUIREMENT.match(text, position)
        if match is None:
            unparsed = text[position:].strip()
            problem = f"it cannot be parsed from {unparsed!r}" if unparsed else "it ends too early"
            raise _selector_error(text, problem)
        requirements.append(_parse_requirement(match, text))
        position = match.end()
        has_more = bool(match["more"])
    return LabelSelector(tuple(requirements))


def _parse_requirement(match: re.Match[str], text: str) -> Requirement:
    key = match["absent"] or match["key"]
    sign = match["sign"] or match["set"]
    prefix, slash, name = key.rpartition("/")
    if slash and not (len(prefix) <= _LONGEST_PREFIX and _PREFIX.fullmatch(prefix)):
        problem = f"the prefix {_shorten(prefix)!r} is not a DNS name of at most 253 characters"
        raise _selector_error(text, problem)
    _check_name(name, "name", text)
    if match["absent"]:
        return Requirement(key, SelectorOperator.DOES_NOT_EXIST)
    if not sign:
        return Requirement(key, SelectorOperator.EXISTS)
    # An absent value is empty, as in `app=`, `app in (,web)` and `app in ()`.
    parts = match["values"].split(",") if match["set"] else [match["value"] or ""]
    values = tuple(part.strip() for part in parts)
    for value in values:
        if value:
            _check_name(value, "value", text)
    if sign in ("<", ">") and whole_number(values[0]) is None:
        raise _selector_error(text, f"{values[0]!r} is not a whole number, which < and > need")
    return Requirement(key, _OPERATORS[sign], values)


def _check_name(name: str, noun: str, text: str) -> None:
    """Raise `UsageError` unless a label may have this name or value."""
    if len(name) > _LONGEST_NAME:
        length = f"{len(name)} characters long, of at most {_LONGEST_NAME}"
        raise _selector_error(text, f"the {noun} {_shorten(name)!r} is {length}")
    if not _NAME.fullmatch(name):
        raise _selector_error(text, f"{name!r} is not a label's {noun}")


def _selector_error(text: str, problem: str) -> UsageError:
    return UsageError(f"{text!r} is not a label selector: {problem}", hint=_HINT)


def check_label_name(name: str) -> str:
    """Return the name if a label may have it, or raise `UsageError`."""
    # As a selector, a name alone means that the label exists.
    if parse_selector(name).requirements != (Requirement(name, SelectorOperator.EXISTS),):
        hint = "Use a name such as topology.kubernetes.io/zone."
        raise UsageError(f"{name!r} is not a label name", hint=hint)
    return name


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST_NAME else f"{text[:20]}…"


def is_label_value(text: str) -> bool:
    """Whether the API server accepts the label value."""
    return not text or (len(text) <= _LONGEST_NAME and _NAME.fullmatch(text) is not None)
