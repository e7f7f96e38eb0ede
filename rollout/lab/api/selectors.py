"""Label and field selectors: parsed once per request, then asked about many objects.

How a written label selector reads is known in one place, for what is asked of a server and for this
one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from rollout.errors import UsageError
from rollout.lab.api.requests import Call
from rollout.lab.api.resources import EVENTS, NODES, PODS, Resource
from rollout.lab.api.statuses import bad_request
from rollout.lab.api.store import Json
from rollout.lab.objects import field_of, labels_of
from rollout.model.selectors import LabelSelector, Requirement, SelectorOperator, parse_selector


def matches(selector: Json | None, labels: Mapping[str, str]) -> bool:
    """Whether a LabelSelector picks these labels: an empty one picks all, an absent one none."""
    if selector is None:
        return False
    wanted: Json = selector.get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        holds(expression, labels) for expression in selector.get("matchExpressions") or ()
    )


def holds(term: Json, labels: Mapping[str, str]) -> bool:
    """Whether one of an object's matchExpressions (key, operator, values) holds."""
    operator = SelectorOperator(term["operator"])
    values = tuple(term.get("values") or ())
    return Requirement(term["key"], operator, values).matches(labels)


_COMMON: Final = ("metadata.name", "metadata.namespace")
_FIELDS: Final[dict[Resource, tuple[str, ...]]] = {
    NODES: ("spec.unschedulable",),
    PODS: ("spec.nodeName", "status.phase"),
    EVENTS: (
        *(
            f"involvedObject.{field}"
            for field in ("kind", "namespace", "name", "uid", "apiVersion", "fieldPath")
        ),
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
}


@dataclass(frozen=True, slots=True)
class _FieldTerm:
    """One term of a field selector; `wanted` is false for `!=`."""

    path: str
    value: str
    wanted: bool

    def holds(self, obj: Json) -> bool:
        value = _source(obj) if self.path == "source" else field_of(obj, self.path)
        if self.path == "spec.unschedulable":
            value = "true" if value else "false"
        return (self.value == ("" if value is None else value)) is self.wanted


def _source(event: Json) -> str:
    """Return the component that reports an Event, as a real server selects by it: by either of two fields."""
    return field_of(event, "source.component") or event.get("reportingComponent") or ""


@dataclass(frozen=True, slots=True)
class ListOptions:
    """What a list or a watch asks for."""

    labels: LabelSelector
    fields: tuple[_FieldTerm, ...]

    def matches(self, obj: Json) -> bool:
        """Whether the object is among those asked for."""
        return self.labels.matches(labels_of(obj)) and all(term.holds(obj) for term in self.fields)

    def of(self, objects: Iterable[Json]) -> list[Json]:
        """Those of the objects that are asked for."""
        if not self.labels.requirements and not self.fields:
            return list(objects)
        return [obj for obj in objects if self.matches(obj)]

    @property
    def node(self) -> str:
        """The node to which it restricts pods; empty for none."""
        return next(
            (term.value for term in self.fields if term.path == "spec.nodeName" and term.wanted), ""
        )


def selection_of(call: Call) -> ListOptions:
    """Return the selectors of a query; 400 for those that cannot be understood."""
    try:
        labels = parse_selector(call.query.get("labelSelector", ""))
    except UsageError as error:
        raise bad_request(f"unable to parse requirement: {error}") from error
    terms = (term.strip() for term in call.query.get("fieldSelector", "").split(","))
    return ListOptions(
        labels, tuple(_field_term(term, call.target.resource) for term in terms if term)
    )


def _field_term(term: str, resource: Resource) -> _FieldTerm:
    path, sign, value = term.partition("=")
    wanted = not path.endswith("!")
    path = path.removesuffix("!").strip()
    if not sign:
        raise bad_request(f"invalid selector: '{term}'; can't understand '{term}'")
    if path not in _COMMON and path not in _FIELDS.get(resource, ()):
        raise bad_request(f"field label not supported: {path}")
    return _FieldTerm(path, value.removeprefix("=").strip(), wanted)
