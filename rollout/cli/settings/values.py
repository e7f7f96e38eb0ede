"""Types of settings. Bad values raise `UsageError` or `ValueError`.

Callers add the setting's name. Checks import modules late, for a fast help.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
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

from msgspec.structs import replace

from rollout.adapters.operator_command import split_command
from rollout.cli.settings.setting import Setting
from rollout.errors import UsageError
from rollout.model.fleetlock import is_group
from rollout.model.gates import is_matcher
from rollout.model.object_reference import ObjectReference
from rollout.model.quantity import Count, Duration
from rollout.model.selectors import check_label_name, parse_selector
from rollout.model.text import is_version
from rollout.model.timestamps import parse_timestamp
from rollout.planning.eligibility import windows

T = TypeVar("T")
_NAMESPACE = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"


def checked_by(check: Callable[[str], object]) -> Callable[[str], str]:
    """Return a parser that strips a text, and checks it unless empty."""

    def parse(value: str) -> str:
        text = value.strip()
        if text:
            check(text)
        return text

    return parse


def fitting(is_valid: Callable[[str], object], description: str) -> Callable[[str], str]:
    """Return a parser whose error is `VALUE is not DESCRIPTION`."""

    def parse(value: str) -> str:
        if not is_valid(value):
            raise ValueError(f"{value!r} is not {description}")
        return value

    return parse


def matching(pattern: str, description: str) -> Callable[[str], str]:
    """Return a parser of texts that match the whole pattern."""
    return fitting(re.compile(pattern, re.ASCII).fullmatch, description)


def parse_positive_duration(value: str) -> Duration:
    """Raises `ValueError` for zero."""
    duration = Duration.parse(value)
    if not duration:
        raise ValueError("0s leaves no time at all. Write it as in Kubernetes: 90s, 10m, 1h30m.")
    return duration


def parse_positive_count(value: str) -> Count:
    """Raises `ValueError` for zero."""
    count = Count.parse(value)
    if count.is_zero:
        raise ValueError(
            "0 would allow no node to be rebooted. Write at least 1, or a percentage above 0%."
        )
    return count


NODE_PREFIXES = ("node/", "nodes/")


def parse_node_name(value: str) -> str:
    """Drop the kind that kubectl writes: `node/worker-1`."""
    name = value
    for prefix in NODE_PREFIXES:
        if value.startswith(prefix):
            name = value.removeprefix(prefix)
    if not name:
        raise ValueError(f"{value!r} contains no node name. Use a name such as node/worker-1.")
    return name


def parse_os_version(value: str) -> str:
    """Raises `ValueError` for an invalid version."""
    if not is_version(value):
        raise ValueError(f"{value!r} is not a version. Write it as rollout status shows it.")
    return value


def parse_label_prefix(value: str) -> str:
    """Raises `ValueError` unless it is a label prefix with its slash."""
    if not value.endswith("/"):
        raise ValueError(f"{value!r} is not a label prefix. Use a prefix such as example.com/")
    check_label_name(f"{value}name")
    return value


def _check_evidence_source(value: str) -> None:
    if not value.startswith(("http://", "https://")):
        return
    from rollout.adapters.foreign_http import parse_url

    parts = parse_url(value)
    if parts is None or not parts.host or parts.auth or parts.query or parts.fragment:
        raise ValueError(
            "it is not a plain URL. Use a URL such as https://example.com/4081.2.1.json"
        )


def parse_one_line(value: str) -> str:
    """Raises `ValueError` unless it is one printable line."""
    if not value.strip().isprintable():
        raise ValueError(
            "it must be one line of printable text. For a longer command, use a script."
        )
    return value.strip()


def _check_prometheus_url(value: str) -> None:
    from rollout.adapters.prometheus import check_url

    check_url(value)


def _check_alertmanager_url(value: str) -> None:
    from rollout.adapters.prometheus import ALERTMANAGER, check_url

    check_url(value, ALERTMANAGER)


def _check_expression(value: str) -> None:
    from rollout.adapters.cel import check_expression

    check_expression(value)


def _check_pushgateway_url(value: str) -> None:
    from rollout.adapters.metrics import check_push_url

    check_push_url(value)


def _check_listen_address(value: str) -> None:
    from rollout.adapters.web import parse_address

    parse_address(value)


def _parse_textfile(value: str) -> Path:
    path = Path(value)
    if path.suffix != ".prom":
        raise ValueError(
            f"node_exporter would not read {value!r}, because it does not end in .prom"
        )
    return path


def check_notify_urls(urls: Sequence[str]) -> None:
    """Raises for unusable URLs, by their number: URLs can be secret."""
    from rollout.adapters.notify import destinations

    destinations(urls)


def _group_parser(check: Callable[[str], object], example: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        name, _, value = (part.strip() for part in text.partition("="))
        if not value or not is_group(name):
            raise ValueError(f"{text!r} does not specify a FleetLock group. Write it as {example}.")
        check(value)
        return f"{name}={value}"

    return parse


def parse_future_time(value: str | None, now: datetime, flag: str) -> datetime | None:
    """Parse a time, or a duration from `now`. Raises `UsageError` unless it is in the future."""
    if value is None:
        return None
    try:
        time = parse_timestamp(value.strip())
        if time is None:
            time = now + timedelta(seconds=Duration.parse(value))
        time = time.astimezone(UTC)
    except (UsageError, OverflowError) as error:
        hint = "Write a duration (8h, 2d), or a time: 2030-01-07T06:00Z."
        raise UsageError(
            f"{flag}: {value!r} is neither a duration nor a time", hint=hint
        ) from error
    if time <= now:
        hint = f"It is {now:%Y-%m-%dT%H:%M}Z now."
        raise UsageError(f"{flag}: {value!r} is not in the future", hint=hint)
    return time


_ALERT_LABEL = "the name of an alert's label. Use a label such as node or instance."
AlertLabel = Annotated[str, Setting("LABEL", matching(r"([A-Za-z_]\w{0,99})?", _ALERT_LABEL))]
Command = Annotated[str, Setting("COMMAND", parse_one_line)]
Expression = Annotated[str, Setting("CEL", checked_by(_check_expression))]
Freeze = Annotated[str, Setting("FREEZE", checked_by(windows.parse_freeze), separator=";")]
OperatorCommand = Annotated[str, Setting("COMMAND", checked_by(split_command))]
_SELECTOR_OF_GROUP = _group_parser(parse_selector, "NAME=SELECTOR: workers=pool=web")
GroupSelector = Annotated[str, Setting("NAME=SELECTOR", _SELECTOR_OF_GROUP, separator=";")]
GroupSlots = Annotated[
    str, Setting("NAME=COUNT", _group_parser(parse_positive_count, "NAME=3, or NAME=25%"))
]
Label = Annotated[str, Setting("LABEL", checked_by(check_label_name))]
Annotation = Annotated[str, Setting("ANNOTATION", checked_by(check_label_name))]
LabelPrefix = Annotated[str, Setting("PREFIX", parse_label_prefix)]
Line = Annotated[str, Setting("NAME", parse_one_line)]
ListenAddress = Annotated[str, Setting("[ADDRESS]:PORT", checked_by(_check_listen_address))]
_MATCHER = 'a label matcher. Use one such as severity="critical", with =, !=, =~ or !~.'
_READ_MATCHER = checked_by(fitting(is_matcher, _MATCHER))
Matcher = Annotated[str, Setting("MATCHER", _READ_MATCHER, separator=";")]
Name = Annotated[str, Setting("NAME")]
parse_namespace = matching(_NAMESPACE, "a namespace name. Use a name such as kube-system.")
Namespace = Annotated[str, Setting("NAMESPACE", parse_namespace)]
NodeName = Annotated[str, Setting("NAME", parse_node_name)]
Pause = Annotated[Duration, Setting("DURATION", Duration.parse)]
_POOL = "a name. Use at most 63 lower-case letters, digits and dashes, such as web."
PoolName = Annotated[str, Setting("NAME", matching(_NAMESPACE, _POOL))]
_PRINCIPAL = "the name of a cluster. Use letters, digits, dots and dashes."
Principal = Annotated[str, Setting("NAME", matching(r"([A-Za-z0-9][\w.@-]{0,99})?", _PRINCIPAL))]
PrometheusUrl = Annotated[str, Setting("URL", checked_by(_check_prometheus_url))]
AlertmanagerUrl = Annotated[str, Setting("URL", checked_by(_check_alertmanager_url))]
PushgatewayUrl = Annotated[str, Setting("URL", checked_by(_check_pushgateway_url))]
Resource = Annotated[str, Setting("RESOURCE", checked_by(ObjectReference.parse))]
Seconds = Annotated[int, Setting("SECONDS")]
Selector = Annotated[str, Setting("SELECTOR", checked_by(parse_selector), separator=";")]
EvidenceSource = Annotated[str, Setting("SOURCE", checked_by(_check_evidence_source))]
Textfile = Annotated[Path, Setting("FILE", _parse_textfile)]
_TIME = "a date with a time. Use a time such as 2030-01-07T06:00Z."
# A duration would start again with each pass.
Time = Annotated[str, Setting("TIME", checked_by(fitting(parse_timestamp, _TIME)))]
Url = Annotated[str, Setting("URL", separator=" ")]
Window = Annotated[str, Setting("WINDOW", checked_by(windows.Window.parse), separator=";")]

# For annotations without a `Setting`.
_SETTING_BY_TYPE = {
    Count: Setting("COUNT", parse_positive_count),
    Duration: Setting("DURATION", parse_positive_duration),
    Path: Setting("FILE"),
    int: Setting("N"),
}


def setting(default: T, help: str, **others: Any) -> T:
    """Declare a field; `others` are fields of `Setting`."""
    declared: T = field(default=default, metadata={"help": help, **others})
    return declared


def flag(default: T, help: str, name: str = "", **others: Any) -> T:
    """Declare a setting with a flag, by default named like the field."""
    return setting(default, help, flag=name, **others)


@dataclass_transform(frozen_default=True, kw_only_default=True)
class SettingsTable:
    """A table of the settings file."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True, repr=False, eq=False)(cls)


def settings_of(table: type[SettingsTable], table_name: str) -> Iterator[tuple[str, Setting]]:
    """Yield settings by key. The field's type says how each is read."""
    hints = get_type_hints(table, include_extras=True)
    for item in fields(table):  # type: ignore[arg-type]
        kind = hints[item.name]
        if type(None) in get_args(kind):
            kind, _ = get_args(kind)
        is_list = get_origin(kind) is tuple
        if is_list:
            kind, _ = get_args(kind)
        if get_origin(kind) is Annotated:
            kind, setting_of_type = get_args(kind)
        elif issubclass(kind, Enum):
            setting_of_type = Setting("VALUE", words=tuple(word.value for word in kind))
        else:
            setting_of_type = _SETTING_BY_TYPE.get(kind, Setting())
        key = item.name.replace("_", "-")
        declared = dict(item.metadata)
        if "flag" in declared:
            declared["flag"] = declared["flag"] or key
        setting = replace(
            setting_of_type,
            kind=kind,
            name=f"{table_name}.{key}",
            is_list=is_list,
            default=item.default,
            **declared,
        )
        yield key, setting


def default_text(value: Any) -> str:
    """Return help's text; empty for no default, such as 0."""
    if value in (None, False, "", ()):
        return ""
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return "true" if value is True else str(value)
