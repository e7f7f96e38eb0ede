"""The schema's settings by their dotted names: what each is made of, and how one is read from what is written."""

import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from rollout.cli.settings.schema import Allow, Key, PoolTable, Settings
from rollout.cli.settings.values import TRUTH, allowed
from rollout.planning.rivals import RIVALS

POOL = "pool"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: `name` is `drain.timeout`; `kind` is the type of the value, or of an item of a list."""

    name: str
    field: str
    kind: Any
    is_list: bool
    default: Any
    help: str
    key: Key

    @property
    def is_flag(self) -> bool:
        """Whether its flag alone says yes."""
        return self.kind is bool

    @property
    def is_secret(self) -> bool:
        """Whether no message may show its value."""
        return bool(self.key.variable)

    @property
    def variable(self) -> str:
        """Its variable of the environment; empty where it has none."""
        return self.key.variable or (f"ROLLOUT_{self.key.flag.replace('-', '_').upper()}" if self.key.flag else "")

    @property
    def choices(self) -> Sequence[str]:
        """Its words, where they are fixed."""
        if self.key.read is allowed:
            return (*Allow, *RIVALS)
        return [str(item.value) for item in self.kind] if issubclass(self.kind, Enum) else ()

    def read(self, written: Any) -> Any:
        """The value of what stands in a file, or of a text; `ValueError` for what cannot be one."""
        if not self.is_list:
            return self._single(written)
        items = written if isinstance(written, list) else [written]
        texts = [part.strip() for item in items for part in self._parts(item)]
        read = tuple(dict.fromkeys(self._single(text) for text in texts if text))
        if self.key.check is not None:
            self.key.check(read)
        return read

    def _parts(self, item: Any) -> Iterable[str]:
        if isinstance(item, bool) or not isinstance(item, str | int | float):
            raise ValueError("it takes texts, in a list")  # noqa: TRY004 - told as any other
        return str(item).split(self.key.between)

    def _single(self, written: Any) -> Any:
        if self.key.read is not None and isinstance(written, str | int | float) and not isinstance(written, bool):
            return self.key.read(str(written))
        if self.kind is bool:
            return _truth(written)
        if isinstance(written, bool) or not isinstance(written, str | int | float):
            raise ValueError("it takes one value, not a list or a table")  # noqa: TRY004 - told as any other
        if self.kind is int:
            return _number(written, self.key)
        if issubclass(self.kind, Enum):
            return _word(self.kind, str(written))
        return self.kind(str(written))


def _truth(written: Any) -> bool:
    value = written if isinstance(written, bool) else TRUTH.get(str(written).lower())
    if value is None:
        raise ValueError("it is neither true nor false")
    return value


def _number(written: Any, limits: Key) -> int:
    text = str(written).strip()
    if not (text.isascii() and text.removeprefix("-").isdecimal()) or len(text) > len(str(1 << 31)):
        raise ValueError(f"{written!r} is not a whole number")
    number = int(text)
    if limits.least is not None and number < limits.least:
        raise ValueError(f"{number} is too small: at least {limits.least}")
    if limits.most is not None and number > limits.most:
        raise ValueError(f"{number} is too large: at most {limits.most}")
    return number


def _word(kind: type[Enum], text: str) -> Enum:
    try:
        return kind(text)
    except ValueError:
        known = ", ".join(str(item.value) for item in kind)
        raise ValueError(f"{text!r} is not one of {known}") from None


@cache
def settings() -> Mapping[str, Setting]:
    """Every setting but those of pools, by its dotted name, in the order of the schema."""
    tables = get_type_hints(Settings, include_extras=True)
    return {
        setting.name: setting
        for table, kind in tables.items()
        if table != POOL
        for setting in _of_table(kind, f"{table}.")
    }


@cache
def pool_settings() -> Mapping[str, Setting]:
    """Those of a [[pool]], by key."""
    return {setting.name: setting for setting in _of_table(PoolTable, "")}


def _of_table(table: type[msgspec.Struct], before: str) -> list[Setting]:
    hints = get_type_hints(table, include_extras=True)
    return [
        _setting(f"{before}{field.encode_name}", field.name, hints[field.name], field.default)
        for field in msgspec.structs.fields(table)
    ]


def _setting(name: str, field: str, hint: Any, default: Any) -> Setting:
    annotated, meta = get_args(hint)
    kind = annotated
    if isinstance(kind, types.UnionType) or get_origin(kind) is Union:
        kind = next(part for part in get_args(kind) if part is not type(None))
    is_list = get_origin(kind) is tuple
    kind = get_args(kind)[0] if is_list else kind
    return Setting(name, field, kind, is_list, default, meta.description, meta.extra["key"])


def written(value: Any) -> str:
    """A default for people; empty where there is none."""
    if value is None or value is msgspec.NODEFAULT or value in (False, "", ()):
        return ""
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return "true" if value is True else str(value)
