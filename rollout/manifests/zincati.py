"""What a host's Zincati has to be told, so that it asks a FleetLock server before it reboots: a drop-in, or its Butane.

The keys are those of Zincati's `config/fragments.rs`. It joins paths to the base URL as RFC 3986 has it: without a
slash at its end the last part of the path would be lost.
"""

import json
from dataclasses import dataclass
from textwrap import indent

PATH = "/etc/zincati/config.d/55-rollout-fleetlock.toml"
# Butane that every Fedora CoreOS of these years reads.
_BUTANE = """\
variant: fcos
version: 1.5.0
storage:
  files:
    - path: {path}
      mode: 0644
      contents:
        inline: |
{text}"""


@dataclass(frozen=True, slots=True)
class DropIn:
    """What it says: the server's base URL, the host's group, and how late in an update's rollout it comes.

    `wariness` is between 0 and 1; None leaves it to Zincati.
    """

    base_url: str
    group: str
    wariness: float | None = None


def drop_in(content: DropIn) -> str:
    """A TOML file: of these strings JSON's form is TOML's as well."""
    wariness = [] if content.wariness is None else [f"rollout_wariness = {float(content.wariness)}"]
    lines = (
        f"# {PATH}",
        "[updates]",
        "enabled = true",
        'strategy = "fleet_lock"',
        "",
        "[updates.fleet_lock]",
        f"base_url = {json.dumps(content.base_url)}",
        "",
        "[identity]",
        f"group = {json.dumps(content.group)}",
        *wariness,
    )
    return "\n".join((*lines, ""))


def butane(content: DropIn) -> str:
    """The same file for hosts that are set up by Ignition."""
    return _BUTANE.format(path=PATH, text=indent(drop_in(content), " " * 10))
