"""Label and field selectors: parsed once per request, then asked about many objects."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rollout.lab.api.resources import EVENTS, NAMESPACES, NODES, PODS, SECRETS, Resource
from rollout.lab.api.statuses import bad_request
from rollout.lab.api.store import Json
from rollout.lab.api.validation import key_problem, value_problem
from rollout.model.selectors import compared, whole_number

_TERMS: Final = re.compile(r",(?![^(]*\))")
_TERM: Final = re.compile(
    r"(?P<no>!?)\s*(?P<key>[^\s=!(),<>]+)\s*(?:(?P<sign>==?|!=|[<>])\s*(?P<value>[^\s=!(),<>]*)"
    r"|\s(?P<set>in|notin)\s*\((?P<values>[^()]*)\))?"
)
_SIGNS: Final = {"=": "In", "==": "In", "!=": "NotIn", "in": "In", "notin": "NotIn", ">": "Gt", "<": "Lt"}

# Each term as an object's matchExpressions write it: key (of fields a path), operator, values.
Terms = tuple[Json, ...]


def matches_labels(selector: Terms, obj: Json) -> bool:
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


def holds(term: Json, labels: Mapping[str, str]) -> bool:
    """Whether one term (key, operator, values) holds; a broken one never does."""
    decide = _OPERATORS.get(term.get("operator", ""))
    return decide is not None and decide(labels.get(term.get("key", "")), term.get("values") or ())


_OPERATORS: Final[Mapping[str, Callable[[str | None, Sequence[str]], bool]]] = {
    "In": lambda value, values: value is not None and value in values,
    "NotIn": lambda value, values: value is None or value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: compared(value or "", values[0] if values else "") > 0,
    "Lt": lambda value, values: compared(value or "", values[0] if values else "") < 0,
}


def parse_labels(text: str) -> Terms:
    """Parse `a=b,c!=d,e in (f,g),!h,i`; a 400 where a real server has one."""
    return tuple(_label_term(term.strip()) for term in _TERMS.split(text)) if text.strip() else ()


def _label_term(text: str) -> Json:
    match = _TERM.fullmatch(text)
    if match is None or (match["no"] and (match["sign"] or match["set"])):
        raise bad_request(f"unable to parse requirement: found '{text}', expected: identifier")
    key, sign = match["key"], match["sign"] or match["set"] or ""
    listed = match["values"].split(",") if match["set"] else [match["value"] or ""]
    values = [value.strip() for value in listed]
    problem = key_problem(key) or next(filter(None, map(value_problem, values)), "")
    if problem or (sign in {">", "<"} and whole_number(values[0]) is None):
        raise bad_request(f"unable to parse requirement: {problem or 'for Gt, Lt operators, an integer is needed'}")
    if not sign:
        return {"key": key, "operator": "DoesNotExist" if match["no"] else "Exists"}
    return {"key": key, "operator": _SIGNS[sign], "values": values}


_COMMON: Final = ("metadata.name", "metadata.namespace")
_FIELDS: Final[dict[Resource, tuple[str, ...]]] = {
    NODES: ("spec.unschedulable",),
    NAMESPACES: ("status.phase",),
    PODS: ("spec.nodeName", "spec.restartPolicy", "spec.hostNetwork", "status.phase", "status.podIP"),
    EVENTS: (
        *(f"involvedObject.{field}" for field in ("kind", "namespace", "name", "uid", "apiVersion", "fieldPath")),
        *("reason", "reportingComponent", "source", "type"),
    ),
    SECRETS: ("type",),
}
_FIELD_TERM: Final = re.compile(r"\s*([^=!]+?)\s*(==|!=|=)\s*(.*?)\s*")


def parse_fields(text: str, resource: Resource) -> Terms:
    """Parse `spec.nodeName=a,status.phase!=Failed`; a 400 for a path that the resource does not support."""
    return tuple(_field_term(term, resource) for term in text.split(",") if term.strip())


def _field_term(term: str, resource: Resource) -> Json:
    match = _FIELD_TERM.fullmatch(term)
    if match is None:
        raise bad_request(f"invalid selector: '{term}'; can't understand '{term}'")
    path, sign, value = match.groups()
    common = path in _COMMON and (resource.namespaced or path == "metadata.name")
    if not common and path not in _FIELDS.get(resource, ()):
        raise bad_request(f"field label not supported: {path}")
    return {"key": path, "operator": _SIGNS[sign], "values": [value]}


def field_value(obj: Json, path: str) -> str:
    """Return a field as selectors compare it: text, booleans as words, absence as empty."""
    if path == "source":
        return str((obj.get("source") or {}).get("component") or obj.get("reportingComponent") or "")
    value: object = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if path in {"spec.unschedulable", "spec.hostNetwork"}:
        return "true" if value else "false"
    return "" if value is None else str(value)


@dataclass(frozen=True, slots=True)
class Selection:
    """What a list or a watch asks for."""

    labels: Terms = ()
    fields: Terms = ()

    @property
    def everything(self) -> bool:
        """Whether nothing is selected away."""
        return not self.labels and not self.fields

    def matches(self, obj: Json) -> bool:
        """Whether the object is among those asked for."""
        fields = {term["key"]: field_value(obj, term["key"]) for term in self.fields}
        return matches_labels(self.labels, obj) and all(holds(term, fields) for term in self.fields)

    def of(self, objects: Iterable[Json]) -> list[Json]:
        """Those of the objects that are asked for."""
        if self.everything:
            return list(objects)
        return [obj for obj in objects if self.matches(obj)]

    def exact(self, path: str) -> str | None:
        """Return the value that a field must have, where the selection fixes it."""
        fixed = (term["values"][0] for term in self.fields if term["key"] == path and term["operator"] == "In")
        return next(fixed, None)
