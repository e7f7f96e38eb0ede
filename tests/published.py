"""The published JSON Schemas, held against whatever a test has the program print for programs.

As they are published they let fields be added, which is the promise to readers. Here every object
is closed: a field that no schema has is as wrong as one that is missing.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

SCHEMAS = Path(__file__).parents[1] / "docs" / "schemas"
LINES = frozenset({"apply", "journal"})
# What a command prints with `-o json` where it is not the document of its own name.
_OTHER_NAMES: Mapping[str, str] = {
    "resume": "apply",
    "operate": "apply",
    "rollback": "apply",
}


def document_of(arguments: Sequence[str]) -> str:
    """The name of the schema of what this command line prints; empty where that is not JSON, or not
    ours.
    """
    command = arguments[0] if arguments else ""
    words = set(arguments)
    if words & {"--help", "-h"}:
        return ""
    if command == "inventory":
        return "inventory"
    if not _is_json(arguments):
        return ""
    if command == "plan" and "--explain" in words:
        return "explain"
    if command == "status" and words & {"--watch", "-w", "--run"}:
        return "status-run"
    name = "-".join(arguments[:2]) if command == "fleetlock" else _OTHER_NAMES.get(command, command)
    return name if (SCHEMAS / f"{name}.json").exists() else ""


def _is_json(arguments: Sequence[str]) -> bool:
    """Whether the last word about it is JSON."""
    said = [value for flag, value in pairwise(arguments) if flag in ("-o", "--output")]
    said += [word.partition("=")[2] for word in arguments if word.startswith("--output=")]
    return said[-1:] == ["json"] or "-ojson" in arguments


@cache
def validator(name: str, kind: str = "") -> Draft202012Validator:
    """Of a document, or of those lines of it that are of this kind; its objects closed."""
    schema = _closed(published(name))
    by_kind = {_kind(part): part_name for part_name, part in schema["$defs"].items()}
    if kind in by_kind:
        # of all that a line may be, this is the one
        return Draft202012Validator({"$ref": f"#/$defs/{by_kind[kind]}", "$defs": schema["$defs"]})
    return Draft202012Validator(schema)


@cache
def published(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    return schema


def _kind(part: Mapping[str, Any]) -> str:
    words = part.get("properties", {}).get("type", {}).get("enum", ())
    return str(words[0] if len(words) == 1 else part.get("title", ""))


def _closed(part: Any) -> Any:
    if isinstance(part, list):
        return [_closed(item) for item in part]
    if not isinstance(part, dict):
        return part
    closed = {key: _closed(value) for key, value in part.items()}
    if added := [
        name for name, content in part.get("properties", {}).items() if "$comment" in content
    ]:
        # the schemas of what is kept allow for older documents; what is written now has it all
        closed["required"] = [*part["required"], *added]
    is_open = (
        "properties" in part
        and "additionalProperties" not in part
        and part.get("title") != "Manifest"
    )
    return {**closed, "additionalProperties": False} if is_open else closed


def assert_published(name: str, document: Any) -> None:
    kind = str(document.get("type", "")) if name in LINES and isinstance(document, dict) else ""
    errors = [
        f"{error.json_path}: {error.message}"
        for error in validator(name, kind).iter_errors(document)
    ]
    assert errors == [], f"docs/schemas/{name}.json: {errors[:5]}"


def assert_printed(arguments: Sequence[str], text: str, code: int | None) -> None:
    """What this command line has printed is what its schema says; one that was killed may leave
    half a line.
    """
    name = document_of(arguments)
    if not name or not text.strip():
        return
    if name not in LINES and not set(arguments) & {"--watch", "-w"}:
        assert_published(name, json.loads(text))
        return
    whole, _, rest = text.rpartition("\n")
    assert not rest or (code or 0) < 0, rest
    for line in whole.splitlines():
        assert_published(name, json.loads(line))


def assert_journal(path: Path) -> None:
    """The records of a journal; the last may be cut off."""
    whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
    for line in whole.splitlines():
        assert_published("journal", json.loads(line))
