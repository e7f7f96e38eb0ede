"""JSON Schemas (2020-12) of what programs read, made from the program's own types by msgspec.

`python -m tests.docs.pages` writes them beside the pages; a test validates real output against them.
"""

import json
from collections.abc import Container, Iterator, Mapping
from dataclasses import fields
from typing import Any, get_args
from unittest.mock import patch

import msgspec

from rollout.model.json_text import json_document
from rollout.model.notification import AnyNote, Note
from rollout.model.plan import RolloutPlan
from rollout.model.quantity import Count, Duration
from rollout.planning.status import NodeStatus
from rollout.report.doctor import DoctorReport
from rollout.report.history import RunHistory
from rollout.report.line_types import FailedNode, NotDoneNode, RunLine
from rollout.report.runs.model import RunReport
from tests.docs.field_meanings import MEANINGS

DOCUMENTS: Mapping[str, Any] = {
    "status": list[NodeStatus],
    "plan": RolloutPlan,
    "apply": get_args(RunLine),
    "doctor": DoctorReport,
    "history": list[RunHistory] | RunHistory,
    "report": RunReport,
    "notification": get_args(AnyNote),
}
"""By command, the type of its document; of `apply` (and `resume`) the types that a line may have."""

_QUANTITIES = {Count: "a count: `3` or `25%`", Duration: "a duration: `90s`, `10m`, `1h30m`"}
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_REF = "#/$defs/{name}"
_TITLES = {
    "notification": "A notification, as --notify sends it to a webhook",
    "report": "rollout report --format json",
}


def schema(command: str) -> dict[str, Any]:
    """The schema of a command's document."""
    document = DOCUMENTS[command]
    kinds = document if isinstance(document, tuple) else (document,)
    documented = [*kinds, RolloutPlan] if command == "apply" else kinds
    # msgspec turns defaults into JSON without a hook, and stumbles over those of our own types; no default is kept.
    with patch("msgspec._json_schema.to_builtins", lambda _default, **_options: None):
        made, components = msgspec.json.schema_components(documented, schema_hook=_quantity, ref_template=_REF)
    components = {name: _explained(name, component) for name, component in components.items()}
    whole = {"oneOf": made[: len(document)]} if isinstance(document, tuple) else made[0]
    return {
        "$schema": _DIALECT,
        "title": _TITLES.get(command, f"rollout {command} -o json"),
        **whole,
        "$defs": components,
    }


def _quantity(kind: type) -> dict[str, Any]:
    if kind in _QUANTITIES:
        return {"type": "string", "description": _QUANTITIES[kind]}
    raise NotImplementedError(kind)


def _explained(name: str, component: dict[str, Any]) -> dict[str, Any]:
    """The component without defaults (they are the program's, not the document's), its fields explained."""
    properties = component.get("properties", {})
    properties = {field: properties[field] for field in _ORDER.get(name, properties)}
    meanings = MEANINGS.get(name, {})
    explained = {field: _field(content, meanings.get(field, "")) for field, content in properties.items()}
    whole = {**component, "properties": explained} if properties else component
    if "required" in component and name not in _WITH_OPTIONAL_FIELDS:
        whole["required"] = list(properties)
    return whole


def _field(content: dict[str, Any], meaning: str) -> dict[str, Any]:
    kept = {key: value for key, value in content.items() if key != "default"}
    return {**kept, "description": meaning} if meaning else kept


# msgspec sorts the fields of these by name.
_ORDER = {
    kind.__name__: list(kind.__annotations__) for kind in (*get_args(RunLine), FailedNode, NotDoneNode, DoctorReport)
}
# Every other type writes each of its fields, whether or not it may be left out when it is made.
_WITH_OPTIONAL_FIELDS = frozenset({"NodeFinishedLine"})


def written(command: str) -> str:
    """The schema as its file has it."""
    return json_document(schema(command)).decode()


def tables(command: str) -> str:
    """A table a type of the command's document: each field, its type, and what it means."""
    components = schema(command)["$defs"]
    skipped = set(schema("plan")["$defs"]) if command == "apply" else set()
    if command == "notification":
        # what they have in common is told once
        common = {item.name for item in fields(Note)}
        own = {name: _without(component, common) for name, component in components.items()}
        components = {"Every notification": _only(components["StartedNote"], common), **own}
    parts = [
        _table(name, component)
        for name, component in components.items()
        if "properties" in component and name not in skipped
    ]
    return "\n\n".join(parts)


def _without(component: Mapping[str, Any], names: Container[str]) -> dict[str, Any]:
    kept = {name: content for name, content in component.get("properties", {}).items() if name not in names}
    return {**component, "properties": kept} if kept else dict(component)


def _only(component: Mapping[str, Any], names: Container[str]) -> dict[str, Any]:
    kept = {name: content for name, content in component["properties"].items() if name in names}
    return {"properties": kept, "required": component["required"]}


def _table(name: str, component: Mapping[str, Any]) -> str:
    required = component.get("required", ())
    rows = [
        f"| `{field}`{'' if field in required else ' (not always)'} | {_type(content)} | {_meaning(content)} |"
        for field, content in component["properties"].items()
        if field not in ("type", "at", "event") or name in _NO_LINES
    ]
    return "\n".join((_title(name, component), "", "| field | type | means |", "| --- | --- | --- |", *rows))


_NO_LINES = frozenset(
    {"NodeCondition", "Moment", "CommandReport", "FailureReport", "NoticeReport", "Every notification"}
)


def _title(name: str, component: Mapping[str, Any]) -> str:
    """Of a line its `type`, of a notification its `event`, and what it tells; of any other object the type's name."""
    properties = component["properties"]
    match properties.get("type") or properties.get("event"):
        case {"enum": [kind]}:
            return f"**`{kind}`**: {_first_line(component)}"
        case _:
            return f"**{name}**"


def _first_line(component: Mapping[str, Any]) -> str:
    return str(component.get("description", "")).partition("\n")[0]


def _meaning(content: Mapping[str, Any]) -> str:
    return str(content.get("description", "")).replace("|", "\\|")


def _type(content: Mapping[str, Any]) -> str:
    """A type in a word or two."""
    match content:
        case {"$ref": str(reference)}:
            words = _named(reference)
        case {"anyOf": list(choices)}:
            words = " or ".join(_type(choice) for choice in choices)
        case {"prefixItems": list(items)}:
            words = " and ".join(_type(item) for item in items)
        case {"type": "array", "items": items}:
            words = f"array of {_type(items)}"
        case {"type": "object", "additionalProperties": values}:
            words = f"object: name to {_type(values)}"
        case {"enum": list(values)}:
            words = json.dumps(values)
        case _:
            words = str(content.get("type", "any"))
    return words


def _named(reference: str) -> str:
    name = reference.rpartition("/")[2]
    return _WORDS.get(name, name)


_WORDS: Mapping[str, str] = {
    "ExclusionReason": "[reason](#reasons)",
    "BlockerKind": "[blocker](#blockers)",
    "WarningKind": "[warning](#warnings)",
    "Outcome": "[outcome](#outcomes)",
    "Phase": "[phase](#phases)",
    "ControlPlaneOrder": "`last`, `first` or `exclude`",
    "Sharing": "`rate` or `exclusive`",
    "Level": "`info`, `success`, `warning` or `failure`",
    "RolloutState": "`completed`, `failed` or `interrupted`",
    "CheckName": "string",
    "Verdict": "string",
}


def unexplained() -> Iterator[str]:
    """Fields of any document that nobody explains."""
    for command in DOCUMENTS:
        for name, component in schema(command)["$defs"].items():
            for field, content in component.get("properties", {}).items():
                if (field not in ("type", "at", "event") or name in _NO_LINES) and not content.get("description"):
                    yield f"{name}.{field}"


def stale_meanings() -> Iterator[str]:
    """Explanations of fields that are no more."""
    components = {name: part for command in DOCUMENTS for name, part in schema(command)["$defs"].items()}
    for name, meanings in MEANINGS.items():
        properties = components.get(name, {}).get("properties", {})
        yield from (f"{name}.{field}" for field in meanings if field not in properties)
