"""JSON Schemas (2020-12) of what programs read, made from the program's own types by msgspec.

`python -m tests.docs.pages` writes them beside the pages; whatever a test has the program print is
held against them.
"""

import tomllib
from collections.abc import Container, Iterator, Mapping, Sequence
from enum import Enum
from inspect import cleandoc
from pathlib import Path
from typing import Any, get_args, is_typeddict
from unittest.mock import patch

import msgspec

from rollout.model.host import KeyState, UpdateOperation
from rollout.model.json_text import json_document
from rollout.model.notification import Note, NotifyEvent, RolloutState
from rollout.model.plan import ExclusionReason, RolloutPlan
from rollout.model.progress import Outcome, Phase
from rollout.model.quantity import Count, Duration
from rollout.planning.plan.explanation import Explanation
from rollout.report import document_types, fleetlock, status, unfinished
from rollout.report.doctor import DoctorReport
from rollout.report.document_types import (
    CheckReport,
    HoldReport,
    PauseReport,
    ReleaseReport,
    UnpauseReport,
)
from rollout.report.fleetlock import SlotReleaseReport, SlotsReport
from rollout.report.history import HistoryReport
from rollout.report.host_keys import HostKeysReport
from rollout.report.lines import (
    AbortedRecord,
    AnyLine,
    DryRunLine,
    EventLine,
    JournalHeader,
    VersionLine,
)
from rollout.report.runs.model import RunReport
from rollout.report.status import StatusReport
from rollout.report.unfinished import AbortReport, UnfinishedRun
from tests.docs import written_types
from tests.docs.written_types import AllGroup, HostGroup, InventoryMeta, ManifestList

DOCUMENTS: Mapping[str, Any] = {
    "status": StatusReport,
    "status-run": UnfinishedRun | None,
    "plan": RolloutPlan,
    "explain": Explanation,
    "apply": get_args(VersionLine | JournalHeader | DryRunLine | EventLine),
    "journal": get_args(JournalHeader | EventLine | AbortedRecord),
    "abort": AbortReport | None,
    "doctor": DoctorReport,
    "check-update": CheckReport,
    "history": HistoryReport,
    "report": RunReport,
    "pause": PauseReport,
    "unpause": UnpauseReport,
    "hold": HoldReport,
    "release": ReleaseReport,
    "known-hosts": HostKeysReport,
    "inventory": (InventoryMeta, AllGroup, HostGroup),
    "manifests": ManifestList,
    "fleetlock-status": SlotsReport,
    "fleetlock-release": SlotReleaseReport,
    "notification": Note,
}
"""By name, the type of the document; of what is written in lines, the types that a line may have.

A type that several have is told of where it comes first.
"""

TITLES: Mapping[str, str] = {
    "status-run": "`rollout status --run -o json`, and a line of `status --watch -o json`",
    "plan": "`rollout plan -o json`, `rollout plan FILE -o json`, and a saved plan",
    "explain": "`rollout plan --explain NODE -o json`",
    "apply": "a line of `apply -o json`, `rollback -o json`, `resume -o json` or `operate -o json`",
    "journal": "a line of a journal",
    "hold": "`rollout hold VERSION -o json`",
    "inventory": "`rollout inventory --list`",
    "manifests": "`rollout manifests KIND -o json`",
    "fleetlock-status": "`rollout fleetlock status -o json`",
    "fleetlock-release": "`rollout fleetlock release NODE -o json`",
    "report": "`rollout report -o json`",
    "notification": "a notification, as rollout sends it to a webhook in `notify.url`",
}
"""Where the title is not that of the command."""

MEANINGS: Mapping[str, Mapping[str, str]] = tomllib.loads(
    Path(__file__).with_name("fields.toml").read_text(encoding="utf-8")
)
"""What each field means, by type."""

_QUANTITIES = {
    Count: "a count: `3`, or as text `25%`",
    Duration: "a duration: `90s`, `10m`, `1h30m`",
}
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_REF = "#/$defs/{name}"
# Lines that hold a plan, or parts of one.
_WITH_PLAN = frozenset({"apply", "journal"})
# Documents that are kept, and read by later versions; and the fields of their lines that were added
# since the first.
_KEPT = frozenset({"plan", "journal"})
_ADDED_TO_LINES: Mapping[str, Sequence[str]] = {
    "SummaryLine": ("not_done", "left_out", "pods_to_move", "evictions"),
    "WaveStarted": ("in_flight",),
}
ADDED = "always present now; missing in documents that an older version of rollout has saved"
# Words that the code has fixed, in fields that are mere text to it.
_FIXED: Mapping[tuple[str, str], Sequence[str]] = {
    ("Note", "event"): (*NotifyEvent, "test"),
    ("Note", "state"): (*RolloutState, ""),
    ("NodeStatus", "operation"): (*UpdateOperation, ""),
    ("NodeStatus", "reason"): (*ExclusionReason, ""),
    ("NodeStatus", "phase"): (*Phase, ""),
    ("NotDone", "reason"): (*ExclusionReason, *Outcome),
    ("HostKeyRow", "standing"): tuple(KeyState),
    ("HostKeyRow", "confirmed_by"): ("fingerprint", ""),
}
# What is read from a journal as any object.
_PARTS: Mapping[tuple[str, str], str] = {
    ("PlanLine", "plan"): "RolloutPlan",
    ("JournalHeader", "cluster"): "ClusterIdentity",
    ("JournalHeader", "policy"): "Policy",
}


def schema(command: str) -> dict[str, Any]:
    """The schema of a command's document."""
    document = DOCUMENTS[command]
    kinds = document if isinstance(document, tuple) else (document,)
    documented = [*kinds, RolloutPlan] if command in _WITH_PLAN else kinds
    # msgspec turns defaults into JSON without a hook, and stumbles over those of our own types; no
    # default is kept.
    with patch("msgspec._json_schema.to_builtins", lambda _default, **_options: None):
        made, components = msgspec.json.schema_components(
            documented, schema_hook=_quantity, ref_template=_REF
        )
    return {
        "$schema": _DIALECT,
        "title": title(command).replace("`", ""),
        **_whole(command, made[: len(kinds)]),
        "$defs": {
            name: _explained(name, component, is_kept=command in _KEPT)
            for name, component in components.items()
        },
    }


def _whole(command: str, made: Sequence[dict[str, Any]]) -> dict[str, Any]:
    if command == "inventory":
        meta, everything, group = made
        properties = {"_meta": meta, "all": everything}
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": group,
        }
    return {"oneOf": list(made)} if isinstance(DOCUMENTS[command], tuple) else made[0]


def _quantity(kind: type) -> dict[str, Any]:
    if kind is Count:
        return {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "description": _QUANTITIES[kind],
        }
    if kind in _QUANTITIES:
        return {"type": "string", "description": _QUANTITIES[kind]}
    raise NotImplementedError(kind)


def _explained(name: str, component: dict[str, Any], *, is_kept: bool) -> dict[str, Any]:
    """The component without defaults (they are the program's, not the document's), its fields explained.

    Of documents that are kept, older ones lack what was added since: what the program reads
    without, none need have.
    """
    properties = component.get("properties", {})
    properties = {field: properties[field] for field in _ORDER.get(name, properties)}
    meanings = MEANINGS.get(name, {})
    explained = {
        field: _field(name, field, content, meanings.get(field, ""))
        for field, content in properties.items()
    }
    whole = {**component, "properties": explained} if properties else component
    if "description" in whole:
        whole["description"] = cleandoc(whole["description"])
    if "required" not in component:
        return whole
    required = component["required"] if name in _WITH_OPTIONAL_FIELDS else list(properties)
    if name in _LINES:
        unset = {
            item.encode_name
            for item in msgspec.structs.fields(_LINES[name])
            if item.default is msgspec.UNSET
        }
        required = [field for field in properties if field not in unset]
    added = _added(name, component) & {*required} if is_kept else frozenset()
    for field in added:
        explained[field] = {"$comment": ADDED, **explained[field]}
    return {**whole, "required": [field for field in required if field not in added]}


def _added(name: str, component: Mapping[str, Any]) -> frozenset[str]:
    """The fields that a kept document of this type may lack: of lines the listed, else what the
    reader has without.
    """
    if name in _TYPED_DICTS or name in _LINES:
        return frozenset(_ADDED_TO_LINES.get(name, ()))
    return frozenset(component["properties"]) - {*component["required"]}


# Only msgspec 0.23 and newer say `propertyNames`, and the schemas do not depend on its version.
_DROPPED = frozenset({"default", "propertyNames"})


def _field(name: str, field: str, content: dict[str, Any], meaning: str) -> dict[str, Any]:
    kept = {key: value for key, value in content.items() if key not in _DROPPED}
    if words := _FIXED.get((name, field)):
        kept["enum"] = [word.value if isinstance(word, Enum) else word for word in words]
    if part := _PARTS.get((name, field)):
        kept["$ref"] = _REF.format(name=part)
    if field == "at" and name.endswith("Line"):
        kept |= {"format": "date-time", "description": "RFC 3339, UTC"}
    return {**kept, "description": meaning} if meaning else kept


# msgspec sorts the fields of these by name.
_MODULES = (document_types, fleetlock, status, unfinished, written_types)
_TYPED_DICTS = {
    kind.__name__: kind
    for kind in (*(kind for module in _MODULES for kind in vars(module).values()), DoctorReport)
    if is_typeddict(kind)
}
_ORDER = {name: list(kind.__annotations__) for name, kind in _TYPED_DICTS.items()}
# What is not always written of these has no value where it is not.
_LINES = {kind.__name__: kind for kind in get_args(AnyLine)}
# Every other type writes each of its fields, whether or not it may be left out when it is made.
_WITH_OPTIONAL_FIELDS = frozenset(
    name for name, kind in _TYPED_DICTS.items() if kind.__optional_keys__
)


def written(command: str) -> str:
    """The schema as its file has it."""
    return json_document(schema(command)).decode()


def listing() -> str:
    """A table of the schemas, each with what it is of."""
    rows = [f"| [{name}](schemas/{name}.json) | {title(name)} |" for name in DOCUMENTS]
    return "\n".join(("| schema | document |", "| --- | --- |", *rows))


def title(command: str) -> str:
    """What a schema is of."""
    return TITLES.get(command, f"`rollout {command} -o json`")


def tables(command: str) -> str:
    """A table a type of the command's document: each field, its type, and what it means."""
    components = schema(command)["$defs"]
    told = _told_before(command)
    parts = [
        _table(name, component)
        for name, component in components.items()
        if "properties" in component and name not in told
    ]
    return "\n\n".join(parts)


def _told_before(command: str) -> Container[str]:
    names = list(DOCUMENTS)
    return {name for earlier in names[: names.index(command)] for name in schema(earlier)["$defs"]}


def _table(name: str, component: Mapping[str, Any]) -> str:
    required = component.get("required", ())
    rows = [
        f"| `{field}`{'' if field in required or '$comment' in content else ' (optional)'} |"
        f" {_type(content)} | {_meaning(content)} |"
        for field, content in component["properties"].items()
        if field not in _told_of_all(component)
    ]
    return "\n".join(
        (
            _title(name, component),
            "",
            "| field | type | description |",
            "| --- | --- | --- |",
            *rows,
        )
    )


def _told_of_all(component: Mapping[str, Any]) -> Container[str]:
    """What every line has: it is told where lines are told of."""
    kind = component["properties"].get("type", {})
    return ("type", "at") if len(kind.get("enum", ())) == 1 else ()


def _title(name: str, component: Mapping[str, Any]) -> str:
    """Of a line its `type`, and what it tells; of any other object the type's name."""
    properties = component["properties"]
    match properties.get("type"):
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
            words = _alternatives([_type(choice) for choice in choices])
        case {"prefixItems": list(items)}:
            words = " and ".join(_type(item) for item in items)
        case {"type": "array", "items": items}:
            words = f"array of {_in_brackets(_type(items))}"
        case {"type": "object", "additionalProperties": values}:
            words = f"object: name to {_in_brackets(_type(values))}"
        case {"enum": list(values)} if len(values) <= _MOST_WORDS:
            *others, last = (f"`{value}`" for value in values if value)
            words = f"{', '.join(others)} or {last}" if others else last
        case _:
            words = str(content.get("type", "any"))
    return words


def _alternatives(types: Sequence[str]) -> str:
    """Join with `or`, after a comma if it could seem to belong to the last word of a type."""
    *others, last = types
    comma = "," if any(" of " in other or ": " in other for other in others) else ""
    return f"{', '.join(others)}{comma} or {last}"


def _in_brackets(words: str) -> str:
    """Put a type in brackets if it has several alternatives or is an object with named values."""
    return f"({words})" if " or " in words or ": " in words else words


def _named(reference: str) -> str:
    name = reference.rpartition("/")[2]
    return _WORDS.get(name, name)


_MOST_WORDS = 4
_WORDS: Mapping[str, str] = {
    "ExclusionReason": "[reason](#reasons)",
    "BlockerKind": "[blocker](#blockers)",
    "WarningKind": "[warning](#warnings)",
    "Outcome": "[outcome](#outcomes)",
    "Phase": "[phase](#phases)",
    "ControlPlaneOrder": "`last`, `first` or `exclude`",
    "Level": "`info`, `success`, `warning` or `failure`",
    "RolloutState": "`completed`, `failed` or `interrupted`",
    "System": "`fluo`, `cluo`, `kured`, `krm`, `cro`, `fleetlock` or `rollout`",
    "Cordon": "`none`, `theirs` or `kept`",
    "SlotState": "`held`, `failed` or `absent`",
    "CheckName": "string",
    "CheckOutcome": "string",
    "UpdateOperation": "string",
    "VerdictReason": "string",
    "Action": "`evict`, `wait`, `leave` or `refuse`",
    "Verdict": "string",
}


def unexplained() -> Iterator[str]:
    """Fields of any document that nobody explains."""
    for command in DOCUMENTS:
        for name, component in schema(command)["$defs"].items():
            for field, content in component.get("properties", {}).items():
                if field not in _told_of_all(component) and not content.get("description"):
                    yield f"{name}.{field}"


def stale_meanings() -> Iterator[str]:
    """Explanations of fields that are no more."""
    components = {
        name: part for command in DOCUMENTS for name, part in schema(command)["$defs"].items()
    }
    for name, meanings in MEANINGS.items():
        properties = components.get(name, {}).get("properties", {})
        yield from (f"{name}.{field}" for field in meanings if field not in properties)
