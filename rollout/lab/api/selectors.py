"""Label and field selectors: parsed once per request, then asked about many objects.

The grammar and its complaints are those of a real server, so that a client's typing mistake shows here too.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from rollout.lab.api.content import label_number, label_value_problems, qualified_name_problems
from rollout.lab.api.resources import EVENTS, JOBS, NAMESPACES, NODES, PODS, REPLICASETS, SECRETS, Resource
from rollout.lab.api.statuses import bad_request
from rollout.lab.api.store import Json

_TOKEN = re.compile(r"\s*(==|!=|[=!(),<>]|[^\s=!(),<>]+)")


class Operator(StrEnum):
    """How a requirement compares."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    ABSENT = "DoesNotExist"
    GREATER = "Gt"
    LESS = "Lt"


_SIGNS = {"=": Operator.IN, "==": Operator.IN, "!=": Operator.NOT_IN, "in": Operator.IN, "notin": Operator.NOT_IN}
_COMPARISONS = {">": Operator.GREATER, "<": Operator.LESS}


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term of a label selector."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels satisfy this term."""
        value = labels.get(self.key)
        match self.operator:
            case Operator.IN:
                return value in self.values
            case Operator.NOT_IN:
                return value not in self.values
            case Operator.EXISTS:
                return value is not None
            case Operator.ABSENT:
                return value is None
            case Operator.GREATER | Operator.LESS:
                return self._compares(value)
            case _:
                assert_never(self.operator)

    def _compares(self, value: str | None) -> bool:
        number, limit = label_number(value), label_number(next(iter(self.values)))
        if number is None or limit is None:
            return False
        return number > limit if self.operator is Operator.GREATER else number < limit


LabelSelector = tuple[Requirement, ...]


def matches_labels(selector: LabelSelector, obj: Json) -> bool:
    """Whether an object's labels satisfy all terms."""
    labels = obj["metadata"].get("labels") or {}
    return all(requirement.matches(labels) for requirement in selector)


def selector_of(spec: Json | None) -> LabelSelector | None:
    """A LabelSelector object (`matchLabels`, `matchExpressions`) as terms; None, which matches nothing, for None."""
    if spec is None:
        return None
    exact = (
        Requirement(key, Operator.IN, frozenset({value})) for key, value in (spec.get("matchLabels") or {}).items()
    )
    expressions = (
        Requirement(each["key"], Operator(each["operator"]), frozenset(each.get("values") or ()))
        for each in spec.get("matchExpressions") or ()
    )
    return (*exact, *expressions)


def selects(spec: Json | None, obj: Json) -> bool:
    """Whether a LabelSelector object selects the object; an empty one selects everything, a broken one nothing."""
    try:
        selector = selector_of(spec)
    except (KeyError, ValueError):
        return False
    return selector is not None and matches_labels(selector, obj)


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
        found = [self._requirement()]
        while self._peek():
            self._expect({","}, "',' or 'end of string'")
            found.append(self._requirement())
        return tuple(found)

    def _requirement(self) -> Requirement:
        if self._peek() == "!":
            self._next()
            return Requirement(self._key(), Operator.ABSENT)
        key = self._key()
        if self._peek() in {"", ","}:
            return Requirement(key, Operator.EXISTS)
        sign = self._expect({*_SIGNS, *_COMPARISONS}, "in, notin, =, ==, !=, gt, lt")
        if sign in _COMPARISONS:
            return Requirement(key, _COMPARISONS[sign], frozenset({self._number()}))
        values = self._set() if sign in {"in", "notin"} else frozenset({self._value()})
        return Requirement(key, _SIGNS[sign], values)

    def _set(self) -> frozenset[str]:
        self._expect({"("}, "'('")
        if self._peek() == ")":
            raise bad_request("unable to parse requirement: for 'in', 'notin' operators, values set can't be empty")
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
    found = _TERM.match(term)
    if found is None:
        raise bad_request(f"invalid selector: '{term}'; can't understand '{term}'")
    path, sign, value = (part.strip() for part in found.groups())
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
