"""`rollout fleetlock zincati`: what hosts are given, so that they ask."""

import re
from enum import StrEnum
from typing import Annotated
from urllib.parse import urlsplit

import typer

from rollout.errors import UsageError

_HINT = "Write it as hosts reach the server: http://10.96.0.15/, https://fleetlock.example:8443/base/."
# What needs no escape in TOML, YAML or a URL; Zincati would put something else in place of a $.
_PLAIN = re.compile(r"[A-Za-z0-9._~:/\[\]%@!&'()*+,;=-]+")


class DropInFormat(StrEnum):
    """For whom it is."""

    TOML = "toml"
    BUTANE = "butane"


UrlOption = Annotated[
    str,
    typer.Option(
        "--url",
        metavar="URL",
        help="Where the hosts reach the server. Hosts do not know names of Services: an address.",
    ),
]
GroupOption = Annotated[str, typer.Option("--group", metavar="NAME", help="Group for which the hosts ask.")]
WarinessOption = Annotated[
    float | None,
    typer.Option("--wariness", metavar="0..1", help="How late hosts take a new release; 0 first, 1 last."),
]
FormatOption = Annotated[
    DropInFormat, typer.Option("--format", help="toml: the file itself. butane: for hosts set up by Ignition.")
]


def zincati(
    url: UrlOption = "",
    group: GroupOption = "default",
    wariness: WarinessOption = None,
    drop_in_format: FormatOption = DropInFormat.TOML,
) -> None:
    """Print the drop-in that has a host's Zincati ask this server before it reboots.

    It is a file of the host: /etc/zincati/config.d/55-rollout-fleetlock.toml; systemctl restart zincati reads it.

    \b
    Examples:
      rollout fleetlock zincati --url http://10.96.0.15/ --group workers
      rollout fleetlock zincati --url http://10.96.0.15/ --format butane > fleetlock.bu
    """
    from rollout.cli.terminal import say, show
    from rollout.manifests.zincati import DropIn, butane, drop_in

    if wariness is not None and not 0 <= wariness <= 1:
        raise UsageError(f"--wariness {wariness} is not between 0 and 1")
    content = DropIn(_base_url(url), _checked_group(group), wariness)
    show((butane if drop_in_format is DropInFormat.BUTANE else drop_in)(content).rstrip("\n"))
    if content.base_url.startswith("http:"):
        say("warning: plain HTTP: whoever can answer in the server's place can have hosts reboot undrained")


def _base_url(text: str) -> str:
    """With the slash at its end that keeps the last part of its path."""
    if not text:
        raise UsageError("no --url: hosts need the address of the server", hint=_HINT)
    try:
        parts, port = urlsplit(text), urlsplit(text).port
    except ValueError as error:
        raise UsageError(f"--url {text!r} is not a URL: {error}", hint=_HINT) from error
    if parts.username is not None or parts.query or parts.fragment:
        raise UsageError("--url has a user, a query or a fragment, which no request would have", hint=_HINT)
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or not _PLAIN.fullmatch(text):
        raise UsageError(f"--url {text!r} is not the URL of a server", hint=_HINT)
    return text if text.endswith("/") else f"{text}/"


def _checked_group(name: str) -> str:
    from rollout.model.fleetlock import is_group

    if not is_group(name):
        raise UsageError(f"--group {name!r} is not a group: letters, digits, dots and dashes")
    return name
