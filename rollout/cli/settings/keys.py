"""What a setting is made of: how the schema declares one, and how one is read from what is written."""

import re
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union, dataclass_transform, get_args, get_origin, get_type_hints

from rollout.cli.settings.values import TRUTH, Form, at_least_one, some_time
from rollout.model.quantity import Count, Duration

T = TypeVar("T")
_FORMS = {
    Count: Form("COUNT", at_least_one),
    Duration: Form("DURATION", some_time),
    Path: Form("FILE"),
    int: Form("N"),
}
_PLAIN = Form()
_NUMBERS = {int: re.compile(r"-?[0-9]{1,10}"), float: re.compile(r"-?[0-9]{1,10}(\.[0-9]{1,10})?")}


def setting(default: T, help: str, **how: Any) -> T:  # noqa: A002 - what it is
    """Declare a field of a table: its default, its help, and what else of `Setting` its type does not say."""
    declared: T = field(default=default, metadata={"help": help, **how})
    return declared


def flag(default: T, help: str, name: str = "", **how: Any) -> T:  # noqa: A002 - what it is
    """Declare a setting that people type: its flag has the field's own name, unless it is given another."""
    return setting(default, help, flag=name, **how)


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Table:
    """A table of the file: a frozen dataclass of settings."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: `name` is `drain.timeout`; `kind` is the type of the value, or of an item of a list.

    `flag` and `short` are for what people type. `hidden_in` is the variable of a secret, which has no flag, and whose
    value no message shows. `check` looks at a whole list. `is_required`: a table of a list has to have it.
    """

    kind: Any
    form: Form = _PLAIN
    name: str = ""
    field: str = ""
    is_list: bool = False
    default: Any = None
    help: str = ""
    flag: str = ""
    short: str = ""
    hidden_in: str = ""
    check: Callable[[Sequence[str]], object] | None = None
    least: int | None = None
    most: int | None = None
    is_required: bool = False

    @property
    def metavar(self) -> str:
        """What stands for its value in a help text."""
        return self.form.metavar or ("WORD" if self.choices else "")

    @property
    def is_flag(self) -> bool:
        """Whether its flag alone says yes."""
        return self.kind is bool

    @property
    def variable(self) -> str:
        """Its variable of the environment; empty where it has none."""
        return self.hidden_in or (f"ROLLOUT_{self.flag.replace('-', '_').upper()}" if self.flag else "")

    @property
    def choices(self) -> Sequence[str]:
        """Its words, where they are fixed."""
        return self.form.words or ([str(item.value) for item in self.kind] if issubclass(self.kind, Enum) else ())

    def read(self, written: Any) -> Any:
        """Return the value of what stands in a file, or of a text; `ValueError` for what cannot be one."""
        if not self.is_list:
            return self._single(written)
        items = written if isinstance(written, list) else [written]
        texts = [part.strip() for item in items for part in self._parts(item)]
        read = tuple(dict.fromkeys(self._single(text) for text in texts if text))
        if self.check is not None:
            self.check(read)
        return read

    def _parts(self, item: Any) -> Iterable[str]:
        if isinstance(item, bool) or not isinstance(item, str | int | float):
            raise ValueError("it takes texts, in a list")  # noqa: TRY004 - told as any other
        return str(item).split(self.form.between)

    def _single(self, written: Any) -> Any:
        if self.kind is bool:
            value = written if isinstance(written, bool) else TRUTH.get(str(written).lower())
            if value is None:
                raise ValueError("it is neither true nor false")
            return value
        if isinstance(written, bool) or not isinstance(written, str | int | float):
            raise ValueError("it takes one value, not a list or a table")  # noqa: TRY004 - told as any other
        text = str(written)
        if self.form.read is not None:
            return self.form.read(text)
        if self.kind in _NUMBERS:
            return self._number(text.strip())
        if self.choices and text not in self.choices:
            raise ValueError(f"{text!r} is not one of {', '.join(self.choices)}")
        return self.kind(text)

    def _number(self, text: str) -> Any:
        if not _NUMBERS[self.kind].fullmatch(text):
            raise ValueError(f"{text!r} is not a {'whole ' if self.kind is int else ''}number")
        number = self.kind(text)
        if self.least is not None and number < self.least:
            raise ValueError(f"{number} is too small: at least {self.least}")
        if self.most is not None and number > self.most:
            raise ValueError(f"{number} is too large: at most {self.most}")
        return number


def settings_of(table: type[Table], before: str = "") -> Iterator[Setting]:
    """Yield the settings of a table, each with this `before` its name."""
    hints = get_type_hints(table, include_extras=True)
    for item in fields(table):  # type: ignore[arg-type]
        kind = hints[item.name]
        if isinstance(kind, types.UnionType) or get_origin(kind) is Union:
            kind = next(part for part in get_args(kind) if part is not type(None))
        is_list = get_origin(kind) in (tuple, list)
        kind = get_args(kind)[0] if is_list else kind
        kind, form = get_args(kind)[:2] if get_origin(kind) is Annotated else (kind, _FORMS.get(kind, _PLAIN))
        key, how = item.name.replace("_", "-"), dict(item.metadata)
        if "flag" in how:
            how["flag"] = how["flag"] or key
        yield Setting(kind, form, f"{before}{key}", item.name, is_list, item.default, **how)


def written(value: Any) -> str:
    """Return a default as people read it; empty where there is none."""
    if value is None or value in (False, "", ()):
        return ""
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return "true" if value is True else str(value)
