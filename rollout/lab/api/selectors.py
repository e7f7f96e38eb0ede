"""The product's parser reads label selectors, so that client and server agree."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct

from rollout.errors import UsageError
from rollout.lab.api.requests import Call
from rollout.lab.api.resources import EVENTS, NODES, PODS, Resource
from rollout.lab.api.statuses import bad_request
from rollout.lab.api.store import Json
from rollout.lab.objects import field_of, labels_of
from rollout.model.selectors import LabelSelector, Requirement, SelectorOperator, parse_selector


def matches(selector: Json | None, labels: Mapping[str, str]) -> bool:
    """An empty selector matches everything, None nothing."""
    if selector is None:
        return False
    match_labels: Json = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in match_labels.items()):
        return False
    return all(holds(expression, labels) for expression in selector.get("matchExpressions") or ())


def holds(expression: Json, labels: Mapping[str, str]) -> bool:
    operator = SelectorOperator(expression["operator"])
    values = tuple(expression.get("values") or ())
    return Requirement(expression["key"], operator, values).matches(labels)


_COMMON: Final = ("metadata.name", "metadata.namespace")
_FIELDS: Final[dict[Resource, tuple[str, ...]]] = {
    NODES: ("spec.unschedulable",),
    PODS: ("spec.nodeName", "status.phase"),
    EVENTS: (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
}


class _FieldTerm(Struct, frozen=True):
    path: str
    value: str
    equals: bool

    def holds(self, obj: Json) -> bool:
        value = _field_value(obj, self.path)
        return (self.value == ("" if value is None else value)) is self.equals


def _field_value(obj: Json, path: str) -> Any:
    if path == "source":
        # Two fields may name the component that reports an Event.
        return field_of(obj, "source.component") or obj.get("reportingComponent")
    if path == "spec.unschedulable":
        return "true" if field_of(obj, path) else "false"
    return field_of(obj, path)


class ListOptions(Struct, frozen=True):
    labels: LabelSelector
    fields: tuple[_FieldTerm, ...]

    def matches(self, obj: Json) -> bool:
        return self.labels.matches(labels_of(obj)) and all(term.holds(obj) for term in self.fields)

    def select(self, objects: Iterable[Json]) -> list[Json]:
        if not self.labels.requirements and not self.fields:
            return list(objects)
        return [obj for obj in objects if self.matches(obj)]

    @property
    def node(self) -> str:
        """The only node whose pods match; empty if there is no such restriction."""
        for term in self.fields:
            if term.path == "spec.nodeName" and term.equals:
                return term.value
        return ""


def selection_of(call: Call) -> ListOptions:
    try:
        labels = parse_selector(call.query.get("labelSelector", ""))
    except UsageError as error:
        raise bad_request(f"unable to parse requirement: {error}") from error
    terms = [term.strip() for term in call.query.get("fieldSelector", "").split(",")]
    resource = call.target.resource
    return ListOptions(labels, tuple(_field_term(term, resource) for term in terms if term))


def _field_term(term: str, resource: Resource) -> _FieldTerm:
    path, sign, value = term.partition("=")
    equals = not path.endswith("!")
    path = path.removesuffix("!").strip()
    if not sign:
        raise bad_request(f"invalid selector: '{term}'; can't understand '{term}'")
    if path not in _COMMON and path not in _FIELDS.get(resource, ()):
        raise bad_request(f"field label not supported: {path}")
    return _FieldTerm(path, value.removeprefix("=").strip(), equals)
