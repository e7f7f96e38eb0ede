"""Label selectors, as apimachinery's `labels.Parse` reads them."""

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
    """Gt and Lt occur for nodes and in `x>1`."""

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
    """One requirement."""

    key: str
    operator: SelectorOperator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels match; NotIn matches a missing key."""
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
    """A selector; it matches everything without requirements."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether all requirements match."""
        return all(requirement.matches(labels) for requirement in self.requirements)


def has_labels(labels: Mapping[str, str], exact: Iterable[tuple[str, str]]) -> bool:
    """Whether all pairs match."""
    return all(labels.get(key) == value for key, value in exact)


def first_in_requirement(requirements: Iterable[Requirement]) -> Requirement | None:
    """Return the first that an index can look up, or None."""
    for requirement in requirements:
        if requirement.operator is SelectorOperator.IN:
            return requirement
    return None


def compare_numbers(left: str, right: str) -> int:
    """Return -1, 0 or 1; 0 if one is not a number."""
    first = whole_number(left)
    second = whole_number(right)
    if first is None or second is None or first == second:
        return 0
    return 1 if first > second else -1


def whole_number(text: str) -> int | None:
    """Return what Go's 64-bit ParseInt reads, or None."""
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    fits_64_bits = -(2**63) <= number < 2**63
    return number if fits_64_bits else None


def parse_selector(text: str) -> LabelSelector:
    """Parse as the API server does, or raise `UsageError`. Empty text selects everything."""
    requirements = list[Requirement]()
    position = 0
    has_more = bool(text.strip())
    while has_more:
        match = _REQUIREMENT.match(text, position)
        if match is None:
            unparsed = text[position:].strip()
            problem = f"it cannot be parsed from {unparsed!r}" if unparsed else "it ends too early"
            raise _selector_error(text, problem)
        requirements.append(_read_requirement(match, text))
        position = match.end()
        has_comma = bool(match["more"])
        has_more = has_comma
    return LabelSelector(tuple(requirements))


def _read_requirement(match: re.Match[str], selector: str) -> Requirement:
    absent_key = match["absent"]
    key = absent_key or match["key"]
    _check_key(key, selector)
    if absent_key:
        return Requirement(key, SelectorOperator.DOES_NOT_EXIST)
    operator = match["sign"] or match["set"]
    if not operator:
        return Requirement(key, SelectorOperator.EXISTS)
    # A missing value is empty: `app in (,web)`.
    parts = match["values"].split(",") if match["set"] else [match["value"] or ""]
    values = tuple(part.strip() for part in parts)
    for value in values:
        if value:
            _check_name(value, "value", selector)
    if operator in ("<", ">") and whole_number(values[0]) is None:
        problem = f"{values[0]!r} is not a whole number, which < and > need"
        raise _selector_error(selector, problem)
    return Requirement(key, _OPERATORS[operator], values)


def _check_key(key: str, selector: str) -> None:
    prefix, slash, name = key.rpartition("/")
    if slash:
        is_dns_name = len(prefix) <= _LONGEST_PREFIX and _PREFIX.fullmatch(prefix) is not None
        if not is_dns_name:
            problem = f"the prefix {_shorten(prefix)!r} is not a DNS name of at most 253 characters"
            raise _selector_error(selector, problem)
    _check_name(name, "name", selector)


def _check_name(name: str, noun: str, text: str) -> None:
    if len(name) > _LONGEST_NAME:
        length = f"{len(name)} characters long, of at most {_LONGEST_NAME}"
        raise _selector_error(text, f"the {noun} {_shorten(name)!r} is {length}")
    if not _NAME.fullmatch(name):
        raise _selector_error(text, f"{name!r} is not a label's {noun}")


def _selector_error(text: str, problem: str) -> UsageError:
    return UsageError(f"{text!r} is not a label selector: {problem}", hint=_HINT)


def check_label_name(name: str) -> str:
    """Return the name, or raise `UsageError`."""
    # A name alone is also a selector: the label exists.
    name_alone = Requirement(name, SelectorOperator.EXISTS)
    if parse_selector(name).requirements != (name_alone,):
        hint = "Use a name such as topology.kubernetes.io/zone."
        raise UsageError(f"{name!r} is not a label name", hint=hint)
    return name


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST_NAME else f"{text[:20]}…"


def is_label_value(text: str) -> bool:
    """Whether the API server accepts the value."""
    return not text or (len(text) <= _LONGEST_NAME and _NAME.fullmatch(text) is not None)
