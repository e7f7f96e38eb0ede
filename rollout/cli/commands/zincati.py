"""`rollout fleetlock zincati`: what hosts are given, so that they ask."""

from enum import StrEnum
from typing import Annotated

import typer

from rollout.cli.settings.values import server_url
from rollout.errors import UsageError


class DropInFormat(StrEnum):
    """For whom it is."""

    TOML = "toml"
    BUTANE = "butane"


UrlOption = Annotated[
    str,
    typer.Option(
        "--url",
        metavar="URL",
        help="Where hosts reach the server: by its address, as they cannot resolve names of Services.",
    ),
]


def _checked_group(name: str) -> str:
    from rollout.model.fleetlock import is_group

    if not is_group(name):
        raise UsageError(f"--group {name!r} is not a group: letters, digits, dots and dashes")
    return name


GroupOption = Annotated[
    str, typer.Option("--group", metavar="NAME", parser=_checked_group, help="Group for which the hosts ask.")
]
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
      rollout fleetlock zincati --url http://10.96.0.15/ \\
        --format butane > fleetlock.bu
    """
    from rollout.cli.terminal import say, show
    from rollout.manifests.zincati import DropIn, butane, drop_in

    if wariness is not None and not 0 <= wariness <= 1:
        raise UsageError(f"--wariness {wariness} is not between 0 and 1")
    content = DropIn(server_url("--url", url), group, wariness)
    show((butane if drop_in_format is DropInFormat.BUTANE else drop_in)(content).rstrip("\n"))
    if content.base_url.startswith("http:"):
        say("warning: plain HTTP: whoever can answer in the server's place can have hosts reboot undrained")
