"""Label selectors as operators write them: `app=web,tier!=x`, `app in (web, api)`, `!debug`, `x>1`.

The grammar, and the rules for names and values, are those of kubectl and the API server (apimachinery's
`labels.Parse`), so that what is asked of the server and what is judged here are one.
"""

import re
from typing import Final

from rollout.errors import UsageError
from rollout.model.cluster import LabelSelector, Requirement, SelectorOperator
from rollout.model.selectors import whole_number

_TOKEN = re.compile(r"[ \t\r\n]*(==|!=|[=!(),<>]|[^ \t\r\n=!(),<>]+|$)")
_NAME = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)?[A-Za-z0-9]")
_PREFIX = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_LONGEST_NAME, _LONGEST_PREFIX = 63, 253
_END: Final = ("", ",")
_SYMBOLS = frozenset({"", "=", "==", "!=", "!", "(", ")", ",", "<", ">"})
_OPERATORS = {
    "=": SelectorOperator.IN,
    "==": SelectorOperator.IN,
    "!=": SelectorOperator.NOT_IN,
    "in": SelectorOperator.IN,
    "notin": SelectorOperator.NOT_IN,
    ">": SelectorOperator.GREATER,
    "<": SelectorOperator.LESS,
}
_HINT = "Write it as for kubectl: role=worker,zone!=b, 'role in (worker,edge)', '!edge' or 'cores>8'."


def parse_selector(text: str) -> LabelSelector:
    """The selector that `text` writes; an empty one matches everything. `UsageError` where no API server takes it."""
    return LabelSelector(_Reader(text).requirements() if text.strip() else ())


def checked_label(name: str) -> str:
    """The name of a label, its prefix before a slash, as it was written; `UsageError` where it can be none."""
    requirements = parse_selector(name).requirements
    if [(requirement.key, requirement.operator) for requirement in requirements] != [(name, SelectorOperator.EXISTS)]:
        raise UsageError(f"{name!r} is not a label name", hint="Write it as topology.kubernetes.io/zone.")
    return name


class _Reader:
    """A cursor over the tokens; one method for each production of the grammar."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_TOKEN.finditer(text))
        self._at = 0

    def requirements(self) -> tuple[Requirement, ...]:
        terms = [self._requirement()]
        while self._next() == ",":
            terms.append(self._requirement())
        self._at -= 1
        if self._peek():
            raise self._malformed()
        return tuple(terms)

    def _requirement(self) -> Requirement:
        if self._peek() == "!":
            self._at += 1
            return Requirement(self._key(), SelectorOperator.DOES_NOT_EXIST)
        key = self._key()
        if self._peek() in _END:
            return Requirement(key, SelectorOperator.EXISTS)
        if self._peek() not in _OPERATORS:
            raise self._malformed()
        sign = self._next()
        return Requirement(key, _OPERATORS[sign], self._values(sign))

    def _values(self, sign: str) -> tuple[str, ...]:
        if sign in ("<", ">"):
            return (self._number(),)
        return self._set() if sign in ("in", "notin") else (self._value(),)

    def _set(self) -> tuple[str, ...]:
        self._expect("(")
        values = [self._value()]
        while self._peek() == ",":
            self._at += 1
            values.append(self._value())
        self._expect(")")
        return tuple(values)

    def _key(self) -> str:
        key = self._word()
        prefix, slash, name = key.rpartition("/")
        if slash and not (len(prefix) <= _LONGEST_PREFIX and _PREFIX.fullmatch(prefix)):
            raise self._refused(f"the prefix {_cut(prefix)!r} is not a DNS name of at most 253 characters")
        self._check_name(name, "name")
        return key

    def _value(self) -> str:
        """An absent value is an empty one, as in `app=`, `app in (,web)` and `app in ()`."""
        if self._peek() in ("", ",", ")"):
            return ""
        value = self._word()
        self._check_name(value, "value")
        return value

    def _number(self) -> str:
        value = self._value()
        if whole_number(value) is None:
            raise self._refused(f"{value!r} is not a whole number, which < and > need")
        return value

    def _check_name(self, written: str, noun: str) -> None:
        if len(written) > _LONGEST_NAME:
            most = f"{len(written)} characters long, of at most {_LONGEST_NAME}"
            raise self._refused(f"the {noun} {_cut(written)!r} is {most}")
        if not _NAME.fullmatch(written):
            self._at -= 1
            raise self._malformed()

    def _word(self) -> str:
        if self._peek() in _SYMBOLS:
            raise self._malformed()
        return self._next()

    def _expect(self, symbol: str) -> None:
        if self._peek() != symbol:
            raise self._malformed()
        self._at += 1

    def _peek(self) -> str:
        return self._tokens[self._at][1]

    def _next(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1][1]

    def _malformed(self) -> UsageError:
        unread = self._text[self._tokens[self._at].start() :]
        return self._refused(f"it cannot be parsed from {unread!r}" if unread else "it ends too early")

    def _refused(self, why: str) -> UsageError:
        return UsageError(f"{self._text!r} is not a label selector: {why}", hint=_HINT)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_NAME else f"{text[:20]}…"


def is_label_value(text: str) -> bool:
    """Whether the API server takes it for a label's value."""
    return not text or (len(text) <= _LONGEST_NAME and _NAME.fullmatch(text) is not None)
