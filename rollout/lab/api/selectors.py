"""Label and field selectors: parsed once per request, then asked about many objects.

The grammar and its complaints are those of a real server, so that a client's typing mistake shows here too.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rollout.lab.api.content import label_number, label_value_problems, qualified_name_problems
from rollout.lab.api.resources import EVENTS, JOBS, NAMESPACES, NODES, PODS, REPLICASETS, SECRETS, Resource
from rollout.lab.api.statuses import bad_request
from rollout.lab.api.store import Json

_TOKEN = re.compile(r"\s*(==|!=|[=!(),<>]|[^\s=!(),<>]+)")


_SIGNS = {"=": "In", "==": "In", "!=": "NotIn", "in": "In", "notin": "NotIn"}
_COMPARISONS = {">": "Gt", "<": "Lt"}

# Each term as an object's matchExpressions write it: key, operator, values.
LabelSelector = tuple[Json, ...]


def matches_labels(selector: LabelSelector, obj: Json) -> bool:
    """Whether an object's labels satisfy all terms."""
    labels = obj["metadata"].get("labels") or {}
    return all(holds(term, labels) for term in selector)


def matches(selector: Json | None, labels: Mapping[str, str]) -> bool:
    """Whether a LabelSelector picks these labels: an empty one picks all, an absent one none."""
    if selector is None:
        return False
    wanted: Json = selector.get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        holds(expression, labels) for expression in selector.get("matchExpressions") or ()
    )


def selects(selector: Json | None, obj: Json) -> bool:
    """Whether a LabelSelector selects the object; a broken one selects nothing."""
    try:
        return matches(selector, obj["metadata"].get("labels") or {})
    except KeyError:
        return False


def holds(term: Json, labels: Mapping[str, str]) -> bool:
    """Whether one term (key, operator, values) holds; an unknown operator never does."""
    decide = _OPERATORS.get(term["operator"])
    return decide is not None and decide(labels.get(term["key"]), term.get("values") or ())


def _compared(value: str | None, values: Sequence[str]) -> int:
    """The order of two whole numbers; 0 where either is none."""
    left, right = label_number(value), label_number(next(iter(values), None))
    return 0 if left is None or right is None else (left > right) - (left < right)


_OPERATORS: Final[Mapping[str, Callable[[str | None, Sequence[str]], bool]]] = {
    "In": lambda value, values: value is not None and value in values,
    "NotIn": lambda value, values: value is None or value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: _compared(value, values) > 0,
    "Lt": lambda value, values: _compared(value, values) < 0,
}


def parse_labels(text: str) -> LabelSelector:
    """Parse `a=b,c!=d,e in (f,g),!h,i`; a 400 where a real server has one."""
    if not text.strip():
        return ()
    return _LabelParser(_TOKEN.findall(text)).requirements()


class _LabelParser:
    """A cursor over tokens; one method per production of the grammar."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._at = 0

    def requirements(self) -> LabelSelector:
        requirements = [self._requirement()]
        while self._peek():
            self._expect({","}, "',' or 'end of string'")
            requirements.append(self._requirement())
        return tuple(requirements)

    def _requirement(self) -> Json:
        if self._peek() == "!":
            self._next()
            return {"key": self._key(), "operator": "DoesNotExist"}
        key = self._key()
        if self._peek() in {"", ","}:
            return {"key": key, "operator": "Exists"}
        sign = self._expect({*_SIGNS, *_COMPARISONS}, "in, notin, =, ==, !=, gt, lt")
        if sign in _COMPARISONS:
            return {"key": key, "operator": _COMPARISONS[sign], "values": [self._number()]}
        values = self._set() if sign in {"in", "notin"} else frozenset({self._value()})
        return {"key": key, "operator": _SIGNS[sign], "values": values}

    def _set(self) -> frozenset[str]:
        self._expect({"("}, "'('")
        # an empty set holds the empty value
        values = {self._value()}
        while self._expect({",", ")"}, "',', or ')'") == ",":
            values.add(self._value())
        return frozenset(values)

    def _value(self) -> str:
        value = "" if self._peek() in {"", ",", ")"} else self._identifier()
        for problem in label_value_problems(value):
            raise bad_request(f'unable to parse requirement: values: Invalid value: "{value}": {problem}')
        return value

    def _key(self) -> str:
        key = self._identifier()
        for problem in qualified_name_problems(key):
            raise bad_request(f'unable to parse requirement: invalid label key "{key}": {problem}')
        return key

    def _number(self) -> str:
        text = self._value()
        if label_number(text) is None:
            raise bad_request("unable to parse requirement: for 'Gt', 'Lt' operators, the value must be an integer")
        return text

    def _identifier(self) -> str:
        token = self._next()
        if not token or not token[0].isalnum():
            raise bad_request(f"unable to parse requirement: found '{token}', expected: identifier")
        return token

    def _expect(self, allowed: set[str], expected: str) -> str:
        token = self._next()
        if token not in allowed:
            raise bad_request(f"unable to parse requirement: found '{token}', expected: {expected}")
        return token

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        return token


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """One term of a field selector; the path is a supported one."""

    path: str
    value: str
    negated: bool


FieldSelector = tuple[FieldTerm, ...]

_COMMON = ("metadata.name", "metadata.namespace")
_FIELDS: dict[Resource, tuple[str, ...]] = {
    NODES: ("spec.unschedulable",),
    NAMESPACES: ("status.phase",),
    PODS: (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    EVENTS: (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    REPLICASETS: ("status.replicas",),
    JOBS: ("status.successful",),
    SECRETS: ("type",),
}
# The core resources complain in one way, those of named groups in another.
_OWN_WORDS = frozenset({PODS, NODES, NAMESPACES, EVENTS, SECRETS, REPLICASETS, JOBS})
_TERM = re.compile(r"^([^=!]+)(==|!=|=)(.*)$")


def parse_fields(text: str, resource: Resource) -> FieldSelector:
    """Parse `spec.nodeName=a,status.phase!=Failed`; a 400 for a path that the resource does not support."""
    terms = (term for term in text.split(",") if term.strip())
    return tuple(_field_term(term, resource) for term in terms)


def _field_term(term: str, resource: Resource) -> FieldTerm:
    match = _TERM.match(term)
    if match is None:
        raise bad_request(f"invalid selector: '{term}'; can't understand '{term}'")
    path, sign, value = (part.strip() for part in match.groups())
    if path not in _FIELDS.get(resource, ()) and not _common_field(path, resource):
        raise bad_request(_unsupported(path, resource))
    return FieldTerm(path, value, negated=sign == "!=")


def _common_field(path: str, resource: Resource) -> bool:
    return path in _COMMON and (resource.namespaced or path == "metadata.name" or resource not in _OWN_WORDS)


def _unsupported(path: str, resource: Resource) -> str:
    if resource in _OWN_WORDS:
        return f"field label not supported: {path}"
    return f'"{path}" is not a known field selector: only "metadata.name", "metadata.namespace"'


def matches_fields(selector: FieldSelector, obj: Json) -> bool:
    """Whether an object satisfies all terms."""
    return all((field_value(obj, term.path) == term.value) is not term.negated for term in selector)


def field_value(obj: Json, path: str) -> str:
    """A field as selectors compare it: text, booleans as words, absence as empty."""
    special = _SPECIAL.get(path)
    if special is not None:
        return special(obj)
    value: object = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return "" if value is None else str(value)


def _word(value: object) -> str:
    return "true" if value else "false"


def _source(event: Json) -> str:
    return str((event.get("source") or {}).get("component") or event.get("reportingComponent") or "")


_SPECIAL: dict[str, Callable[[Json], str]] = {
    "spec.unschedulable": lambda obj: _word((obj.get("spec") or {}).get("unschedulable")),
    "spec.hostNetwork": lambda obj: _word((obj.get("spec") or {}).get("hostNetwork")),
    "status.replicas": lambda obj: str((obj.get("status") or {}).get("replicas", 0)),
    "status.successful": lambda obj: str((obj.get("status") or {}).get("succeeded", 0)),
    "source": _source,
}


@dataclass(frozen=True, slots=True)
class Selection:
    """What a list or a watch asks for."""

    labels: LabelSelector = ()
    fields: FieldSelector = ()

    @property
    def everything(self) -> bool:
        """Whether nothing is selected away."""
        return not self.labels and not self.fields

    def matches(self, obj: Json) -> bool:
        """Whether the object is among those asked for."""
        return matches_labels(self.labels, obj) and matches_fields(self.fields, obj)

    def of(self, objects: Iterable[Json]) -> list[Json]:
        """Those of the objects that are asked for."""
        if self.everything:
            return list(objects)
        return [obj for obj in objects if self.matches(obj)]

    def exact(self, path: str) -> str | None:
        """The value that a field must have, where the selection fixes it."""
        fixed = (term.value for term in self.fields if term.path == path and not term.negated)
        return next(fixed, None)
