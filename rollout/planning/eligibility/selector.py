"""Label selectors as operators write them: `app=web,tier!=x`, `app in (web, api)`, `!debug`, `x>1`.

The grammar, and the rules for names and values, are those of kubectl and the API server
(apimachinery's `labels.Parse`), so that what is asked of the server and what is judged here are
one.
"""

import re

from rollout.errors import UsageError
from rollout.model.cluster import LabelSelector
from rollout.model.selectors import Requirement, SelectorOperator, whole_number

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
_OPERATORS = {
    "=": SelectorOperator.IN,
    "==": SelectorOperator.IN,
    "!=": SelectorOperator.NOT_IN,
    "in": SelectorOperator.IN,
    "notin": SelectorOperator.NOT_IN,
    ">": SelectorOperator.GREATER,
    "<": SelectorOperator.LESS,
}
_HINT = (
    "Write it as for kubectl: role=worker,zone!=b, 'role in (worker,edge)', '!edge' or 'cores>8'."
)


def parse_selector(text: str) -> LabelSelector:
    """Return the selector that `text` writes, an empty one for all; `UsageError` where no API server takes it."""
    requirements = list[Requirement]()
    at = 0
    more = bool(text.strip())
    while more:
        match = _REQUIREMENT.match(text, at)
        if match is None:
            unread = text[at:].strip()
            raise _refused(
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
        raise _refused(
            text, f"the prefix {_cut(prefix)!r} is not a DNS name of at most 253 characters"
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
        raise _refused(text, f"{values[0]!r} is not a whole number, which < and > need")
    return Requirement(key, _OPERATORS[sign], values)


def _check_name(written: str, noun: str, text: str) -> None:
    if len(written) > _LONGEST_NAME:
        raise _refused(
            text,
            f"the {noun} {_cut(written)!r} is {len(written)} characters long, of at most"
            f" {_LONGEST_NAME}",
        )
    if not _NAME.fullmatch(written):
        raise _refused(text, f"{written!r} is not a label's {noun}")


def _refused(text: str, why: str) -> UsageError:
    return UsageError(f"{text!r} is not a label selector: {why}", hint=_HINT)


def checked_label(name: str) -> str:
    """Return the name of a label, its prefix before a slash, as it was written; `UsageError` where it can be none."""
    if parse_selector(name).requirements != (Requirement(name, SelectorOperator.EXISTS),):
        raise UsageError(
            f"{name!r} is not a label name", hint="Write it as topology.kubernetes.io/zone."
        )
    return name


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_NAME else f"{text[:20]}…"


def is_label_value(text: str) -> bool:
    """Whether the API server takes it for a label's value."""
    return not text or (len(text) <= _LONGEST_NAME and _NAME.fullmatch(text) is not None)
