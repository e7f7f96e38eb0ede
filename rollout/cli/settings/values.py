"""Readers of single values: `UsageError` or `ValueError` for what cannot be one, which is told with the setting's name.

What they need is imported where it is needed: a help text and a completion need none of it.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rollout.errors import UsageError
from rollout.model.memory import moment
from rollout.model.quantity import Count, Duration

TRUTH = {
    **dict.fromkeys(("true", "t", "yes", "y", "on", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "off", "0"), False),
}
_PRINCIPAL = re.compile(r"[A-Za-z0-9][\w.@-]{0,99}", re.ASCII)
_ALERT_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def duration(value: str) -> Duration:
    """Return a written duration."""
    return Duration.parse(value)


def some_time(value: str) -> Duration:
    """Return a written duration that is not zero, for nothing happens in no time."""
    seconds = Duration.parse(value)
    if not seconds:
        raise ValueError("0s leaves no time at all. Write it as in Kubernetes: 90s, 10m, 1h30m.")
    return seconds


def date_with_time(value: str) -> str:
    """A moment, or none; a duration would begin anew with each pass."""
    from rollout.model.memory import moment

    if value and moment(value) is None:
        raise ValueError(f"{value!r} is not a date with a time. Write it as 2026-11-23T06:00Z.")
    return value


def at_least_one(value: str) -> Count:
    """Return a written count that is not zero, for a rollout that may take no node never ends."""
    count = Count.parse(value)
    if count.is_zero:
        raise ValueError("0 would take no node at all. Write at least 1, or a percentage above 0%.")
    return count


def node_name(value: str) -> str:
    """Return a node's name, which may stand as kubectl writes it: `node/worker-1`."""
    return value.removeprefix("node/").removeprefix("nodes/")


def label_selector(value: str) -> str:
    """Return a label selector that can be read, as it was written; or none."""
    if value.strip():
        from rollout.planning.eligibility.selector import parse_selector

        parse_selector(value)
    return value.strip()


def label_name(value: str) -> str:
    """Return the name of a label or annotation, or none."""
    if not value.strip():
        return ""
    from rollout.planning.eligibility.selector import checked_label

    return checked_label(value.strip())


def label_prefix(value: str) -> str:
    """Return the prefix of a label, with its slash."""
    prefix, slash, name = value.partition("/")
    if not slash or name:
        raise ValueError(f"{value!r} is not a label prefix. Write it as example.com/")
    label_name(f"{prefix}/name")
    return value


def window(value: str) -> str:
    """Return a window that can be read, as it was written."""
    from rollout.planning.eligibility.windows import Window

    Window.parse(value)
    return value


def freeze(value: str) -> str:
    """A freeze that can be read, as it was written."""
    from rollout.planning.eligibility.windows import parse_freeze

    parse_freeze(value)
    return value


def principal(value: str) -> str:
    """What names one signer in a file of allowed signers, or none."""
    if value and not _PRINCIPAL.fullmatch(value):
        raise ValueError(f"{value!r} is not the name of a cluster. Write letters, digits, dots and dashes.")
    return value


def evidence_source(value: str) -> str:
    """A place where evidence may be, or none."""
    if not value.startswith(("http://", "https://")):
        return value
    from rollout.adapters.prometheus import parsed_url

    parts = parsed_url(value)
    if parts is None or not parts.host or parts.auth or parts.query or parts.fragment:
        raise ValueError("it is not a plain URL. Write it as https://example.com/4081.2.1.json")
    return value


def command_words(value: str) -> str:
    """Return a command that can be split into words as a shell does, as it was written; or none."""
    if value:
        from rollout.adapters.gate_command import split_command

        split_command(value)
    return value


def one_line(value: str) -> str:
    """One line of printable text."""
    if not value.strip().isprintable():
        raise ValueError("it must be one line of printable text. Put more into a script on the hosts.")
    return value.strip()


def namespace(value: str) -> str:
    """Return the name of a namespace."""
    if not _NAMESPACE.fullmatch(value):
        raise ValueError(f"{value!r} is not a namespace name. Write it as kube-system.")
    return value


def is_label_like(value: str) -> bool:
    """Whether it has the form of a DNS label, as names of pools do."""
    return bool(_NAMESPACE.fullmatch(value))


def pool_name(value: str) -> str:
    """Return the name of a pool."""
    if not is_label_like(value):
        raise ValueError(f'{value!r} is not a name. Write name = "web": at most 63 lower-case letters, digits, dashes.')
    return value


def pattern(value: str) -> str:
    """Return a regular expression that can be read, or none."""
    if value:
        from rollout.adapters.prometheus import checked_pattern

        checked_pattern(value)
    return value


def matcher(value: str) -> str:
    """Return a label matcher, as it was written."""
    from rollout.model.gates import is_matcher

    if not is_matcher(value):
        raise ValueError(f'{value!r} is not a label matcher. Write it as severity="critical", with =, !=, =~ or !~.')
    return value


def alert_label(value: str) -> str:
    """The name of an alert's label, or none."""
    if value and not _ALERT_LABEL.fullmatch(value):
        raise ValueError(f"{value!r} is not the name of an alert's label. Write it as node, or instance.")
    return value


def prometheus_url(value: str) -> str:
    """Return a URL that can be asked, or none."""
    if not value.strip():
        return ""
    from rollout.adapters.prometheus import checked_url

    return checked_url(value.strip())


def pushgateway_url(value: str) -> str:
    """Return the address of a Pushgateway, or none."""
    if not value.strip():
        return ""
    from rollout.adapters.metrics import checked_push_url

    return checked_push_url(value.strip())


def listen_address(value: str) -> str:
    """Return an address to listen on, or none."""
    if value.strip():
        from rollout.adapters.metrics import parsed_address

        parsed_address(value.strip())
    return value.strip()


def textfile(value: str) -> Path:
    """Return a file that node_exporter would read."""
    path = Path(value)
    if path.suffix != ".prom":
        raise ValueError(f"{value!r} would not be read: node_exporter takes files that end in .prom")
    return path


def notify_urls(urls: Sequence[str]) -> tuple[str, ...]:
    """URLs that can be sent to. None is part of a complaint, which has their number."""
    from rollout.adapters.notify import destinations

    destinations(urls)
    return tuple(urls)


def group_slots(value: str) -> str:
    """Return a group and its slots, as they were written."""
    name, count = _group(value, "NAME=3, or NAME=25%")
    at_least_one(count)
    return f"{name}={count}"


def group_selector(value: str) -> str:
    """Return a group and the labels of its nodes, as they were written."""
    name, selector = _group(value, "NAME=SELECTOR: workers=node.kubernetes.io/role=worker")
    return f"{name}={label_selector(selector)}"


def _group(value: str, example: str) -> tuple[str, str]:
    from rollout.model.fleetlock import is_group

    name, equals, rest = value.partition("=")
    if not equals or not rest.strip() or not is_group(name.strip()):
        raise ValueError(f"{value!r} names no group of FleetLock. Write it as {example}.")
    return name.strip(), rest.strip()


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
