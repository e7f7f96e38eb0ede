"""How single values are written: `UsageError` or `ValueError` for what cannot be one, told with the setting's name.

What only some need is imported where it is needed: a help text and a completion need none of it.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

from rollout.errors import UsageError
from rollout.model.fleetlock import is_group
from rollout.model.gates import is_matcher
from rollout.model.memory import moment
from rollout.model.quantity import Count, Duration
from rollout.planning.eligibility.selector import checked_label, parse_selector

TRUTH = {
    **dict.fromkeys(("true", "t", "yes", "y", "on", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "off", "0"), False),
}
_NAMESPACE = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"


@dataclass(frozen=True, slots=True)
class Form:
    """How a value is written, besides its type, which it is an annotation of.

    `metavar` stands for it in help texts, `read` makes it of one text, `words` are all that it may be. What separates
    the items of a list in one text is `between`; a flag of a list is repeatable as well.
    """

    metavar: str = ""
    read: Callable[[str], Any] | None = None
    words: Sequence[str] = ()
    between: str = ","


def checked(check: Callable[[str], object]) -> Callable[[str], str]:
    """Return what reads a text as it was written, where `check` takes it; or none."""

    def read(value: str) -> str:
        if text := value.strip():
            check(text)
        return text

    return read


def shaped(shape: str, what: str) -> Callable[[str], str]:
    """Return what reads a text of this shape; `what` it has to be is told otherwise."""
    pattern = re.compile(shape, re.ASCII)

    def read(value: str) -> str:
        if not pattern.fullmatch(value):
            raise ValueError(f"{value!r} is not {what}")
        return value

    return read


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


def node_name(value: str) -> str:
    """Return a node's name, which may stand as kubectl writes it: `node/worker-1`."""
    return value.removeprefix("node/").removeprefix("nodes/")


def label_prefix(value: str) -> str:
    """Return the prefix of a label, with its slash."""
    prefix, slash, name = value.partition("/")
    if not slash or name:
        raise ValueError(f"{value!r} is not a label prefix. Write it as example.com/")
    checked_label(f"{prefix}/name")
    return value


def _window(value: str) -> None:
    from rollout.planning.eligibility.windows import Window

    Window.parse(value)


def _freeze(value: str) -> None:
    from rollout.planning.eligibility.windows import parse_freeze

    parse_freeze(value)


def _date_with_time(value: str) -> None:
    # a duration would begin anew with each pass
    if moment(value) is None:
        raise ValueError(f"{value!r} is not a date with a time. Write it as 2026-11-23T06:00Z.")


def _evidence_source(value: str) -> None:
    if not value.startswith(("http://", "https://")):
        return
    from rollout.adapters.foreign_http import parsed_url

    parts = parsed_url(value)
    if parts is None or not parts.host or parts.auth or parts.query or parts.fragment:
        raise ValueError("it is not a plain URL. Write it as https://example.com/4081.2.1.json")


def _command_words(value: str) -> None:
    from rollout.adapters.gate_command import split_command

    split_command(value)


def one_line(value: str) -> str:
    """Return one line of printable text."""
    if not value.strip().isprintable():
        raise ValueError("it must be one line of printable text. Put more into a script on the hosts.")
    return value.strip()


def _pattern(value: str) -> None:
    from rollout.adapters.prometheus import checked_pattern

    checked_pattern(value)


def _matcher(value: str) -> None:
    if not is_matcher(value):
        raise ValueError(f'{value!r} is not a label matcher. Write it as severity="critical", with =, !=, =~ or !~.')


def _prometheus_url(value: str) -> None:
    from rollout.adapters.prometheus import checked_url

    checked_url(value)


def _pushgateway_url(value: str) -> None:
    from rollout.adapters.metrics import checked_push_url

    checked_push_url(value)


def _listen_address(value: str) -> None:
    from rollout.adapters.metrics import parsed_address

    parsed_address(value)


def _textfile(value: str) -> Path:
    path = Path(value)
    if path.suffix != ".prom":
        raise ValueError(f"{value!r} would not be read: node_exporter takes files that end in .prom")
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


def written_time(value: str) -> str:
    """Return a duration or a time, which may be empty, as it was written."""
    written = value.strip()
    if written and not moment(written):
        try:
            Duration.parse(written)
        except UsageError as error:
            hint = "Write a duration (8h, 2d), or a time: 2026-11-23T06:00Z."
            raise ValueError(f"{value!r} is neither a duration nor a time. {hint}") from error
    return written


def time_meant(written: str, now: datetime, flag: str) -> datetime | None:
    """Return the time that is meant by a duration from `now`, or by a time; None where nothing is written."""
    if not written:
        return None
    time = moment(written)
    try:
        meant = time.astimezone(UTC) if time else now + timedelta(seconds=Duration.parse(written))
    except OverflowError as error:
        raise UsageError(f"{flag}: {written!r} is beyond the calendar", hint="The last year is 9999.") from error
    if meant <= now:
        raise UsageError(f"{flag}: {written!r} is over already", hint=f"It is {now:%Y-%m-%dT%H:%M}Z now.")
    return meant


AlertLabel = Annotated[
    str,
    Form("LABEL", shaped(r"([A-Za-z_]\w{0,99})?", "the name of an alert's label. Write it as node, or instance.")),
]
Command = Annotated[str, Form("COMMAND", one_line)]
Freeze = Annotated[str, Form("FREEZE", checked(_freeze), between=";")]
GateCommand = Annotated[str, Form("COMMAND", checked(_command_words))]
GroupSelector = Annotated[
    str,
    Form("NAME=SELECTOR", _of_group(parse_selector, "NAME=SELECTOR: workers=pool=web"), between=";"),
]
GroupSlots = Annotated[str, Form("NAME=COUNT", _of_group(at_least_one, "NAME=3, or NAME=25%"))]
Label = Annotated[str, Form("LABEL", checked(checked_label))]
LabelPrefix = Annotated[str, Form("PREFIX", label_prefix)]
Line = Annotated[str, Form("NAME", one_line)]
ListenAddress = Annotated[str, Form("[ADDRESS]:PORT", checked(_listen_address))]
Matcher = Annotated[str, Form("MATCHER", checked(_matcher), between=";")]
Name = Annotated[str, Form("NAME")]
Namespace = Annotated[str, Form("NAMESPACE", shaped(_NAMESPACE, "a namespace name. Write it as kube-system."))]
NodeName = Annotated[str, Form("NAME", node_name)]
Pattern = Annotated[str, Form("REGEXP", checked(_pattern))]
Pause = Annotated[Duration, Form("DURATION", Duration.parse)]
PoolName = Annotated[
    str,
    Form("NAME", shaped(_NAMESPACE, 'a name. Write name = "web": at most 63 lower-case letters, digits, dashes.')),
]
Principal = Annotated[
    str,
    Form("NAME", shaped(r"([A-Za-z0-9][\w.@-]{0,99})?", "the name of a cluster. Write letters, digits, dots, dashes.")),
]
PrometheusUrl = Annotated[str, Form("URL", checked(_prometheus_url))]
PushgatewayUrl = Annotated[str, Form("URL", checked(_pushgateway_url))]
Seconds = Annotated[int, Form("SECONDS")]
Selector = Annotated[str, Form("SELECTOR", checked(parse_selector), between=";")]
Source = Annotated[str, Form("SOURCE", checked(_evidence_source))]
Textfile = Annotated[Path, Form("FILE", _textfile)]
Time = Annotated[str, Form("TIME", checked(_date_with_time))]
Url = Annotated[str, Form("URL", between=" ")]
Window = Annotated[str, Form("WINDOW", checked(_window), between=";")]
