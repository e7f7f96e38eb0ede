"""What a setting is made of: how the schema declares one, and how one is read from what is written."""

import re
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar, Union, dataclass_transform, get_args, get_origin, get_type_hints

from rollout.cli.settings.values import TRUTH, at_least_one, some_time
from rollout.model.quantity import Count, Duration

T = TypeVar("T")
_READERS = {Count: at_least_one, Duration: some_time}
_NUMBERS = {int: re.compile(r"-?[0-9]{1,10}"), float: re.compile(r"-?[0-9]{1,10}(\.[0-9]{1,10})?")}
_METAVARS = {Count: "COUNT", Duration: "DURATION", Path: "FILE", bool: "", int: "N"}


@dataclass(frozen=True, slots=True)
class Key:
    """How a setting is written, besides its type, which implies `read` and `metavar` where they are not given.

    `read` makes a value of one text; `words` are all that it may be. `flag` and `short` are for what people type.
    `variable` is for a secret without a flag, whose value no message shows. What separates the items of a list in one
    text is `between`; a flag of a list is repeatable as well. `check` looks at a whole list.
    `is_required`: a table of a list has to have it.
    """

    help: str
    metavar: str = ""
    read: Callable[[str], Any] | None = None
    words: Sequence[str] = ()
    flag: str = ""
    short: str = ""
    variable: str = ""
    between: str = ","
    check: Callable[[Sequence[str]], object] | None = None
    least: int | None = None
    most: int | None = None
    is_required: bool = False


def setting(default: T, help: str, metavar: str = "", **how: Any) -> T:  # noqa: A002 - what it is
    """Declare a field of a table: its default, its help, and the rest of its `Key`."""
    declared: T = field(default=default, metadata={"key": Key(help, metavar, **how)})
    return declared


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Table:
    """A table of the file: a frozen dataclass of settings."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: `name` is `drain.timeout`; `kind` is the type of the value, or of an item of a list."""

    name: str
    field: str
    kind: Any
    is_list: bool
    default: Any
    key: Key

    @property
    def help(self) -> str:
        """What it is, in a sentence."""
        return self.key.help

    @property
    def metavar(self) -> str:
        """What stands for its value in a help text."""
        words = "WORD" if issubclass(self.kind, Enum) or self.key.words else ""
        return self.key.metavar or words or _METAVARS.get(self.kind, "")

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
        return self.key.words or ([str(item.value) for item in self.kind] if issubclass(self.kind, Enum) else ())

    def read(self, written: Any) -> Any:
        """Return the value of what stands in a file, or of a text; `ValueError` for what cannot be one."""
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
        read = self.key.read or _READERS.get(self.kind)
        if read is not None and isinstance(written, str | int | float) and not isinstance(written, bool):
            return read(str(written))
        if self.kind is bool:
            return _truth(written)
        if isinstance(written, bool) or not isinstance(written, str | int | float):
            raise ValueError("it takes one value, not a list or a table")  # noqa: TRY004 - told as any other
        if self.kind in _NUMBERS:
            return _number(written, self.kind, self.key)
        if self.choices and str(written) not in self.choices:
            raise ValueError(f"{str(written)!r} is not one of {', '.join(self.choices)}")
        return self.kind(str(written))


def _truth(written: Any) -> bool:
    value = written if isinstance(written, bool) else TRUTH.get(str(written).lower())
    if value is None:
        raise ValueError("it is neither true nor false")
    return value


def _number(written: Any, kind: Any, limits: Key) -> Any:
    text = str(written).strip()
    if not _NUMBERS[kind].fullmatch(text):
        raise ValueError(f"{written!r} is not a {'whole ' if kind is int else ''}number")
    number = kind(text)
    if limits.least is not None and number < limits.least:
        raise ValueError(f"{number} is too small: at least {limits.least}")
    if limits.most is not None and number > limits.most:
        raise ValueError(f"{number} is too large: at most {limits.most}")
    return number


def settings_of(table: type[Table], before: str = "") -> Iterator[Setting]:
    """Yield the settings of a table, each with this `before` its name."""
    hints = get_type_hints(table)
    for item in fields(table):  # type: ignore[arg-type]
        kind = hints[item.name]
        if isinstance(kind, types.UnionType) or get_origin(kind) is Union:
            kind = next(part for part in get_args(kind) if part is not type(None))
        is_list = get_origin(kind) is tuple
        kind = get_args(kind)[0] if is_list else kind
        name = f"{before}{item.name.replace('_', '-')}"
        yield Setting(name, item.name, kind, is_list, item.default, item.metadata["key"])


def written(value: Any) -> str:
    """Return a default as people read it; empty where there is none."""
    if value is None or value in (False, "", ()):
        return ""
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return "true" if value is True else str(value)
