"""Durations, counts and selectors as option values: a bad one is reported with the flag it was given to.

What reads them is imported where it is needed: a help text and a completion need none of it.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

import typer

from rollout.errors import UsageError
from rollout.model.quantity import Count, Duration

if TYPE_CHECKING:
    from rollout.model.detection import Source

S = TypeVar("S")
T = TypeVar("T")

_LONGEST_REASON = 120
_SWITCH = {
    **dict.fromkeys(("true", "t", "yes", "y", "on"), True),
    **dict.fromkeys(("false", "f", "no", "n", "off", ""), False),
}
_SERVER = "Write it as hosts reach the server: http://10.96.0.15/, https://fleetlock.example:8443/base/."
# What needs no escape in TOML, YAML or a URL; Zincati would put something else in place of a $.
_PLAIN_URL = re.compile(r"[A-Za-z0-9._~:/\[\]%@!&'()*+,;=-]+")
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def verbosity(value: str | int) -> int:
    """How often `-v` was given; by a variable or a file also whether at all."""
    word = str(value).lower()
    if word.isdecimal():
        return int(word)
    if word in _SWITCH:
        return int(_SWITCH[word])
    raise ValueError(f"{value!r} is neither a number nor true or false")


def duration(value: str | Duration) -> Duration:
    """A written duration, read."""
    return value if isinstance(value, Duration) else _read(Duration.parse, value)


def at_least_one(value: str | Count) -> Count:
    """A written count, read; not zero, for a rollout that may take no node never ends."""
    count = value if isinstance(value, Count) else _read(Count.parse, value)
    if count.is_zero:
        raise ValueError("0 would take no node at all. Write at least 1, or a percentage above 0%.")
    return count


def some_time(value: str | Duration) -> Duration:
    """A written duration, read; not zero, for nothing happens in no time."""
    seconds = duration(value)
    if not seconds:
        raise ValueError("0s leaves no time at all. Write it as in Kubernetes: 90s, 10m, 1h30m.")
    return seconds


def names(value: str) -> str:
    """At least one name, separated by commas, as they were written; none would be taken for all nodes."""
    if not value.replace(",", " ").strip():
        raise ValueError(f"{value!r} names no node. Drop the flag, or write names: worker-1,worker-2.")
    return value


def label_selector(value: str) -> str:
    """A label selector that can be read, as it was written; or none."""
    if value.strip():
        from rollout.planning.selector import parse_selector

        _read(parse_selector, value)
    return value.strip()


def label_name(value: str) -> str:
    """The name of a label, or none."""
    if not value.strip():
        return ""
    from rollout.planning.selector import checked_label

    return _read(checked_label, value.strip())


def label_names(value: str) -> str:
    """Names of labels or annotations, separated by commas, as they were written."""
    for name in value.split(","):
        label_name(name)
    return value


def node_labels(value: str) -> str:
    """Labels with their values, separated by commas, as they were written."""
    if value:
        from rollout.planning.selector import node_labels as read_labels

        _read(read_labels, [part.strip() for part in value.split(",") if part.strip()])
    return value


def windows(value: list[str] | None) -> list[str]:
    """Windows that can be read, as they were written. From a variable they come in words, and end at semicolons."""
    if not value:
        return []
    from rollout.planning.windows import Window

    in_words = all(" " not in text.strip() for text in value)
    every = " ".join(value).split(";") if in_words else value
    written = [text.strip() for text in every if text.strip()]
    for text in written:
        try:
            Window.parse(text)
        except UsageError as error:
            # a callback, which sees all of them at once, has no other way to name its flag
            raise typer.BadParameter(f"{error.message}. {error.hint}") from error
    return written


def sources(value: str) -> str:
    """Sources, separated by commas, that are all known; as they were written."""
    parsed_sources([value])
    return value


def parsed_sources(value: list[str] | None) -> "tuple[Source, ...]":
    """The same, each once, in order; the default where nothing is written."""
    from rollout.model.detection import DEFAULT_SOURCES, Source

    names = [name.strip() for text in value or DEFAULT_SOURCES for name in text.split(",")]
    if unknown := [name for name in names if name not in set(Source)]:
        raise ValueError(f"{unknown[0]!r} is not a known source. Known: {', '.join(Source)}.")
    return tuple(dict.fromkeys(map(Source, names)))


def command_words(value: str) -> str:
    """A command that can be split into words as a shell does, as it was written; or none."""
    if value:
        from rollout.adapters.gate_command import split_command

        _read(split_command, value)
    return value


def one_line(value: str) -> str:
    """One line of printable text."""
    if not value.strip().isprintable():
        raise ValueError("it must be one line of printable text. Put more into a script on the hosts.")
    return value.strip()


def reason(value: str) -> str:
    """A sentence, which is not too long to be shown in one line."""
    if len(value) > _LONGEST_REASON:
        raise ValueError(f"it has {len(value)} characters; at most {_LONGEST_REASON} are kept. Make it shorter.")
    return one_line(value)


def until(value: str) -> str:
    """A duration or a time, which may be empty, as it was written."""
    from rollout.model.memory import moment

    written = value.strip()
    if written and not moment(written):
        try:
            Duration.parse(written)
        except UsageError as error:
            hint = "Write a duration (8h, 2d), or a time: 2026-11-23T06:00Z."
            raise ValueError(f"{value!r} is neither a duration nor a time. {hint}") from error
    return written


def end(written: str, now: datetime) -> datetime | None:
    """The time that is meant by a duration from `now`, or by a time (see `until`); None where nothing is written."""
    from rollout.model.memory import moment

    if not written:
        return None
    time = moment(written)
    try:
        meant = time.astimezone(UTC) if time else now + timedelta(seconds=Duration.parse(written))
    except OverflowError as error:
        raise UsageError(f"--until: {written!r} is beyond the calendar", hint="The last year is 9999.") from error
    if meant <= now:
        raise UsageError(f"--until: {written!r} is over already", hint=f"It is {now:%Y-%m-%dT%H:%M}Z now.")
    return meant


def namespace(value: str) -> str:
    """The name of a namespace."""
    if not _NAMESPACE.fullmatch(value):
        raise ValueError(f"{value!r} is not a namespace name. Write it as kube-system.")
    return value


def is_label_like(value: str) -> bool:
    """Whether it has the form of a DNS label, as names of pools do."""
    return bool(_NAMESPACE.fullmatch(value))


def ramp(value: str) -> str:
    """Counts, separated by commas, none of them zero; as they were written. Empty: none."""
    for part in value.split(",") if value.strip() else ():
        at_least_one(part)
    return value.strip()


def pattern(value: str) -> str:
    """A regular expression that can be read, or none."""
    if value:
        from rollout.adapters.prometheus import checked_pattern

        _read(checked_pattern, value)
    return value


def prometheus_url(value: str) -> str:
    """A URL that can be asked, or none."""
    if not value.strip():
        return ""
    from rollout.adapters.prometheus import checked_url

    return _read(checked_url, value.strip())


def pushgateway_url(value: str) -> str:
    """The address of a Pushgateway, or none."""
    if not value.strip():
        return ""
    from rollout.adapters.pushgateway import checked_push_url

    return _read(checked_push_url, value.strip())


def listen_address(value: str) -> str:
    """An address to listen on, or none."""
    if value.strip():
        from rollout.adapters.metrics_server import parsed_address

        _read(parsed_address, value.strip())
    return value.strip()


def textfile(value: str) -> Path:
    """A file that node_exporter would read."""
    path = Path(value)
    if path.suffix != ".prom":
        raise ValueError(f"{value!r} would not be read: node_exporter takes files that end in .prom")
    return path


def rival(value: str) -> str:
    """The name of a reboot coordinator."""
    from rollout.planning.rivals import checked_name

    return _read(checked_name, value.strip())


def label_prefix(value: str) -> str:
    """The prefix of a label, with its slash."""
    prefix, slash, name = value.partition("/")
    if not slash or name:
        raise ValueError(f"{value!r} is not a label prefix. Write it as example.com/")
    label_name(f"{prefix}/name")
    return value


def _read(parse: Callable[[S], T], text: S) -> T:
    try:
        return parse(text)
    except UsageError as error:
        # typer reports a ValueError together with the flag
        raise ValueError(f"{error.message}. {error.hint}") from error


def server_url(flag: str, text: str) -> str:
    """The address of a FleetLock server, with the slash at its end that keeps the last part of its path."""
    if not text:
        raise UsageError(f"no {flag}: hosts need the address of the server", hint=_SERVER)
    try:
        parts, port = urlsplit(text), urlsplit(text).port
    except ValueError as error:
        raise UsageError(f"{flag} {text!r} is not a URL: {error}", hint=_SERVER) from error
    if parts.username is not None or parts.query or parts.fragment:
        raise UsageError(f"{flag} has a user, a query or a fragment, which no request would have", hint=_SERVER)
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or not _PLAIN_URL.fullmatch(text):
        raise UsageError(f"{flag} {text!r} is not the URL of a server", hint=_SERVER)
    return text if text.endswith("/") else f"{text}/"
