"""What a setting is made of: how the schema declares one, how it is written, and how it is read from that.

`UsageError` or `ValueError` for what cannot be a value are told with the setting's name.

What only some need is imported where it is needed: a help text and a completion need none of it.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from configparser import RawConfigParser
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import (
    Annotated,
    Any,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from rollout.adapters.gate_command import split_command
from rollout.errors import UsageError
from rollout.model.fleetlock import is_group
from rollout.model.gates import is_matcher
from rollout.model.quantity import LONGEST, Count, Duration
from rollout.model.selectors import check_label_name, parse_selector
from rollout.model.timestamps import parse_timestamp
from rollout.planning.eligibility import windows

T = TypeVar("T")
BOOLEANS = RawConfigParser.BOOLEAN_STATES
_NUMBERS = {int: re.compile(r"-?[0-9]{1,10}"), float: re.compile(r"-?[0-9]{1,10}(\.[0-9]{1,10})?")}
_NAMESPACE = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"


def verbatim_if(check: Callable[[str], object]) -> Callable[[str], str]:
    """Return what reads a text as it was written, where `check` takes it; or none."""

    def read(value: str) -> str:
        if text := value.strip():
            check(text)
        return text

    return read


def fitting(fits: Callable[[str], object], what: str) -> Callable[[str], str]:
    """Return what reads a text that `fits`; `what` it has to be is told otherwise."""

    def read(value: str) -> str:
        if not fits(value):
            raise ValueError(f"{value!r} is not {what}")
        return value

    return read


def matching(shape: str, what: str) -> Callable[[str], str]:
    """Return what reads a text of this shape."""
    return fitting(re.compile(shape, re.ASCII).fullmatch, what)


def some_time(value: str) -> Duration:
    """Return a written duration that is not zero, for nothing happens in no time."""
    seconds = Duration.parse(value)
    if not seconds:
        raise ValueError("0s leaves no time at all. Write it as in Kubernetes: 90s, 10m, 1h30m.")
    return seconds


def at_least_one(value: str) -> Count:
    """Return a written count that is not zero, for a rollout that may take no node never ends."""
    count = Count.parse(value)
    if count.is_zero:
        raise ValueError("0 would take no node at all. Write at least 1, or a percentage above 0%.")
    return count


# As kubectl writes a node and its kind.
NODE_PREFIXES = ("node/", "nodes/")


def node_name(value: str) -> str:
    """Return a node's name, which may stand as kubectl writes it: `node/worker-1`."""
    kind = next((prefix for prefix in NODE_PREFIXES if value.startswith(prefix)), "")
    return value.removeprefix(kind)


def label_prefix(value: str) -> str:
    """Return the prefix of a label, with its slash."""
    if not value.endswith("/"):
        raise ValueError(f"{value!r} is not a label prefix. Write it as example.com/")
    check_label_name(f"{value}name")
    return value


def _evidence_source(value: str) -> None:
    if not value.startswith(("http://", "https://")):
        return
    from rollout.adapters.foreign_http import parse_url

    parts = parse_url(value)
    if parts is None or not parts.host or parts.auth or parts.query or parts.fragment:
        raise ValueError("it is not a plain URL. Write it as https://example.com/4081.2.1.json")


def one_line(value: str) -> str:
    """Return one line of printable text."""
    if not value.strip().isprintable():
        raise ValueError(
            "it must be one line of printable text. Put more into a script on the hosts."
        )
    return value.strip()


def _prometheus_url(value: str) -> None:
    from rollout.adapters.prometheus import check_url

    check_url(value)


def _pushgateway_url(value: str) -> None:
    from rollout.adapters.metrics import check_push_url

    check_push_url(value)


def _listen_address(value: str) -> None:
    from rollout.adapters.metrics import parse_address

    parse_address(value)


def _textfile(value: str) -> Path:
    path = Path(value)
    if path.suffix != ".prom":
        raise ValueError(
            f"{value!r} would not be read: node_exporter takes files that end in .prom"
        )
    return path


def notify_urls(urls: Sequence[str]) -> None:
    """Refuse URLs that cannot be sent to. None is part of a complaint, which has their number."""
    from rollout.adapters.notify import destinations

    destinations(urls)


def _of_group(read: Callable[[str], object], example: str) -> Callable[[str], str]:
    """Return what reads a group and, after its `=`, what is said of it, as they were written."""

    def group(value: str) -> str:
        name, _, rest = (part.strip() for part in value.partition("="))
        if not rest or not is_group(name):
            raise ValueError(f"{value!r} names no group of FleetLock. Write it as {example}.")
        read(rest)
        return f"{name}={rest}"

    return group


def time_meant(written: str | None, now: datetime, flag: str) -> datetime | None:
    """Return the time that is meant by a duration from `now`, or by a time; None where nothing is written."""
    if written is None:
        return None
    try:
        time = parse_timestamp(written.strip())
        meant = time.astimezone(UTC) if time else now + timedelta(seconds=Duration.parse(written))
    except (UsageError, OverflowError) as error:
        hint = "Write a duration (8h, 2d), or a time: 2026-11-23T06:00Z."
        raise UsageError(
            f"{flag}: {written!r} is neither a duration nor a time", hint=hint
        ) from error
    if meant <= now:
        raise UsageError(
            f"{flag}: {written!r} is over already", hint=f"It is {now:%Y-%m-%dT%H:%M}Z now."
        )
    return meant


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: `name` is `drain.timeout`; `kind` is the type of the value, or of an item of a list.

    How it is written besides stands as an annotation of its type: `metavar` stands for it in help
    texts, `parse` makes it of one text, `words` are all that it may be. What separates the items of
    a list in one text is `between`; a flag of a list is repeatable as well.

    `flag` and `short` are for what people type. `hidden_in` is the variable of a secret, which has
    no flag, and whose value no message shows. `check` looks at a whole list. `is_required`: a table
    of a list has to have it.
    """

    metavar: str = ""
    parse: Callable[[str], Any] | None = None
    words: Sequence[str] = ()
    between: str = ","
    kind: Any = str
    name: str = ""
    is_list: bool = False
    default: Any = None
    help: str = ""
    flag: str = ""
    short: str = ""
    hidden_in: str = ""
    check: Callable[[Sequence[str]], object] | None = None
    least: int | None = None
    most: int = LONGEST
    is_required: bool = False

    @property
    def variable(self) -> str:
        """Its variable of the environment; empty where it has none."""
        return self.hidden_in or (
            f"ROLLOUT_{self.flag.replace('-', '_').upper()}" if self.flag else ""
        )

    def read(self, written: Any) -> Any:
        """Return the value of what stands in a file, or of a text; `ValueError` for what cannot be one."""
        if not self.is_list:
            return self._single(written)
        items = written if isinstance(written, list) else [written]
        texts = [part.strip() for item in items for part in _text(item).split(self.between)]
        read = tuple(dict.fromkeys(self._single(text) for text in texts if text))
        if self.check is not None:
            self.check(read)
        return read

    def _single(self, written: Any) -> Any:
        if self.kind is bool:
            value = written if isinstance(written, bool) else BOOLEANS.get(str(written).lower())
            if value is None:
                raise ValueError("it is neither true nor false")
            return value
        text = _text(written)
        if self.parse is not None:
            return self.parse(text)
        if self.kind in _NUMBERS:
            return self._number(text.strip())
        if self.words and text not in self.words:
            raise ValueError(f"{text!r} is not one of {', '.join(self.words)}")
        return self.kind(text)

    def _number(self, text: str) -> Any:
        if not _NUMBERS[self.kind].fullmatch(text):
            raise ValueError(f"{text!r} is not a {'whole ' if self.kind is int else ''}number")
        number = self.kind(text)
        if self.least is not None and number < self.least:
            raise ValueError(f"{number} is too small: at least {self.least}")
        if number > self.most:
            raise ValueError(f"{number} is too large: at most {self.most}")
        return number


AlertLabel = Annotated[
    str,
    Setting(
        "LABEL",
        matching(
            r"([A-Za-z_]\w{0,99})?", "the name of an alert's label. Write it as node, or instance."
        ),
    ),
]
Command = Annotated[str, Setting("COMMAND", one_line)]
Freeze = Annotated[str, Setting("FREEZE", verbatim_if(windows.parse_freeze), between=";")]
GateCommand = Annotated[str, Setting("COMMAND", verbatim_if(split_command))]
GroupSelector = Annotated[
    str,
    Setting(
        "NAME=SELECTOR", _of_group(parse_selector, "NAME=SELECTOR: workers=pool=web"), between=";"
    ),
]
GroupSlots = Annotated[str, Setting("NAME=COUNT", _of_group(at_least_one, "NAME=3, or NAME=25%"))]
Label = Annotated[str, Setting("LABEL", verbatim_if(check_label_name))]
LabelPrefix = Annotated[str, Setting("PREFIX", label_prefix)]
Line = Annotated[str, Setting("NAME", one_line)]
ListenAddress = Annotated[str, Setting("[ADDRESS]:PORT", verbatim_if(_listen_address))]
_MATCHER = 'a label matcher. Write it as severity="critical", with =, !=, =~ or !~.'
Matcher = Annotated[
    str, Setting("MATCHER", verbatim_if(fitting(is_matcher, _MATCHER)), between=";")
]
Name = Annotated[str, Setting("NAME")]
Namespace = Annotated[
    str, Setting("NAMESPACE", matching(_NAMESPACE, "a namespace name. Write it as kube-system."))
]
NodeName = Annotated[str, Setting("NAME", node_name)]
Pause = Annotated[Duration, Setting("DURATION", Duration.parse)]
PoolName = Annotated[
    str,
    Setting(
        "NAME",
        matching(
            _NAMESPACE, 'a name. Write name = "web": at most 63 lower-case letters, digits, dashes.'
        ),
    ),
]
Principal = Annotated[
    str,
    Setting(
        "NAME",
        matching(
            r"([A-Za-z0-9][\w.@-]{0,99})?",
            "the name of a cluster. Write letters, digits, dots, dashes.",
        ),
    ),
]
PrometheusUrl = Annotated[str, Setting("URL", verbatim_if(_prometheus_url))]
PushgatewayUrl = Annotated[str, Setting("URL", verbatim_if(_pushgateway_url))]
Seconds = Annotated[int, Setting("SECONDS")]
Selector = Annotated[str, Setting("SELECTOR", verbatim_if(parse_selector), between=";")]
EvidenceSource = Annotated[str, Setting("SOURCE", verbatim_if(_evidence_source))]
Textfile = Annotated[Path, Setting("FILE", _textfile)]
# no duration, which would begin anew with each pass
Time = Annotated[
    str,
    Setting(
        "TIME",
        verbatim_if(fitting(parse_timestamp, "a date with a time. Write it as 2026-11-23T06:00Z.")),
    ),
]
Url = Annotated[str, Setting("URL", between=" ")]
Window = Annotated[str, Setting("WINDOW", verbatim_if(windows.Window.parse), between=";")]

_FORMS = {
    Count: Setting("COUNT", at_least_one),
    Duration: Setting("DURATION", some_time),
    Path: Setting("FILE"),
    int: Setting("N"),
}


def setting(default: T, help: str, **how: Any) -> T:  # noqa: A002 - what it is
    """Declare a field of a table: its default, its help, and what else of `Setting` its type does not say."""
    declared: T = field(default=default, metadata={"help": help, **how})
    return declared


def flag(default: T, help: str, name: str = "", **how: Any) -> T:  # noqa: A002 - what it is
    """Declare a setting that people type: its flag has the field's own name, unless it is given another."""
    return setting(default, help, flag=name, **how)


@dataclass_transform(frozen_default=True, kw_only_default=True)
class SettingsTable:
    """A table of the file: a frozen dataclass of settings."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)


def _text(written: Any) -> str:
    if isinstance(written, bool) or not isinstance(written, str | int | float):
        raise ValueError("it takes a text, or texts where it is a list")  # noqa: TRY004 - told as any other
    return str(written)


def settings_of(table: type[SettingsTable], called: str) -> Iterator[tuple[str, Setting]]:
    """Yield the settings of a table that is `called` so, each with its key."""
    hints = get_type_hints(table, include_extras=True)
    for item in fields(table):  # type: ignore[arg-type]
        kind = hints[item.name]
        if type(None) in get_args(kind):
            kind, _ = get_args(kind)
        is_list = get_origin(kind) is tuple
        kind = get_args(kind)[0] if is_list else kind
        if get_origin(kind) is Annotated:
            kind, form = get_args(kind)
        elif issubclass(kind, Enum):
            form = Setting("WORD", words=tuple(item.value for item in kind))
        else:
            form = _FORMS.get(kind, Setting())
        key = item.name.replace("_", "-")
        how = dict(item.metadata)
        if "flag" in how:
            how["flag"] = how["flag"] or key
        name = f"{called}.{key}"
        yield key, replace(form, kind=kind, name=name, is_list=is_list, default=item.default, **how)


def written(value: Any) -> str:
    """Return a default as people read it; empty where there is none."""
    if value in (None, False, "", ()):
        return ""
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return "true" if value is True else str(value)
