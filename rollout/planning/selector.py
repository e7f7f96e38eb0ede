"""Label selectors as operators write them, read into values: `app=web,tier!=cache`, `app in (web, api)`, `!debug`."""

import re
from collections.abc import Iterator

from rollout.errors import UsageError
from rollout.model.cluster import LabelSelector, Requirement, SelectorOperator

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_KEY = rf"(?:{_NAME}/)?{_NAME}"
_VALUE = rf"(?:{_NAME})?"
_TERM = re.compile(
    rf"\s*(?:!\s*(?P<absent>{_KEY})|(?P<key>{_KEY})\s*"
    rf"(?:(?P<sign>==?|!=)\s*(?P<value>{_VALUE})"
    rf"|\s(?P<word>notin|in)\s*\(\s*(?P<values>{_VALUE}\s*(?:,\s*{_VALUE}\s*)*)\))?)\s*(?:,|$)"
)
_SIGNS = {"=": SelectorOperator.IN, "==": SelectorOperator.IN, "!=": SelectorOperator.NOT_IN}
_WORDS = {"in": SelectorOperator.IN, "notin": SelectorOperator.NOT_IN}


def parse_selector(text: str) -> LabelSelector:
    """The selector that `text` writes; an empty one matches everything. `UsageError` where it is none."""
    return LabelSelector(tuple(_requirement(term) for term in _terms(text)) if text.strip() else ())


def _terms(text: str) -> Iterator[re.Match[str]]:
    position = 0
    while position < len(text):
        term = _TERM.match(text, position)
        if term is None:
            raise _malformed(text, position)
        yield term
        position = term.end()
    if text.rstrip().endswith(","):
        raise _malformed(text, len(text))


def _requirement(term: re.Match[str]) -> Requirement:
    if term["absent"]:
        return Requirement(term["absent"], SelectorOperator.DOES_NOT_EXIST)
    if term["sign"]:
        return Requirement(term["key"], _SIGNS[term["sign"]], (term["value"],))
    if term["word"]:
        values = tuple(value.strip() for value in term["values"].split(","))
        return Requirement(term["key"], _WORDS[term["word"]], values)
    return Requirement(term["key"], SelectorOperator.EXISTS)


def _malformed(text: str, position: int) -> UsageError:
    rest = text[position:] or "its end"
    return UsageError(
        f"{text!r} is not a label selector: it cannot be read from {rest!r}",
        hint="Write it as for kubectl: app=web,tier!=cache or 'app in (web,api)'.",
    )
