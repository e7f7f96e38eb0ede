"""The JSON Schema (2020-12) of a settings file, for editors: made from the program's own schema."""

import json
from collections.abc import Mapping
from typing import Any

from rollout.cli.settings.schema import LISTS, settings, settings_in
from rollout.cli.settings.setting import Setting
from rollout.cli.settings.values import default_text
from rollout.model.quantity import Count
from tests.docs.reference import split_default

NAME = "settings"


def schema() -> Mapping[str, Any]:
    """A table an object, which has no keys but these."""
    tables: dict[str, dict[str, Any]] = {}
    for setting in settings().values():
        table, _, key = setting.name.partition(".")
        tables.setdefault(table, {})[key] = _of(setting)
    lists: dict[str, Any] = {}
    for name in LISTS:
        table, _, key = name.rpartition(".")
        (tables[table] if table else lists)[key] = _list_of_tables(name)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Settings of rollout",
        **_object({name: _object(keys) for name, keys in tables.items()} | lists),
    }


def _list_of_tables(name: str) -> Mapping[str, Any]:
    items = settings_in(name)
    required = [key for key, setting in items.items() if setting.is_required]
    table = _object({key: _of(setting) for key, setting in items.items()})
    return {"type": "array", "items": table | {"required": required}}


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _of(setting: Setting) -> Mapping[str, Any]:
    item = _item(setting)
    kind = {"anyOf": [item, {"type": "array", "items": item}]} if setting.is_list else item
    text, written = split_default(setting.help)
    value = written or default_text(setting.default)
    default = f" Default: {value}." if value else ""
    return {**kind, "description": f"{text}.{default}"}


def _item(setting: Setting) -> dict[str, Any]:
    limits = {"minimum": setting.least, "maximum": setting.most}
    if setting.kind is bool:
        return {"type": "boolean"}
    if setting.kind is int:
        return {
            "type": "integer",
            **{word: value for word, value in limits.items() if value is not None},
        }
    # items of a list may stand in one text
    if setting.words and not setting.is_list:
        return {"enum": list(setting.words)}
    return {"type": ["string", "integer"] if setting.kind is Count else "string"}


def text() -> str:
    """As it stands beside the pages."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"
