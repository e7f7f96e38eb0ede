"""`rollout fleetlock`: hosts that reboot by themselves ask for permission here, as FleetLock's protocol has it."""

from enum import StrEnum
from typing import Annotated

import typer

from rollout.cli.flags import CLUSTER, LISTING, RULES, takes
from rollout.cli.help import DefaultCommandGroup, SectionedCommand
from rollout.cli.settings.reading import Given
from rollout.cli.settings.schema import Reboot
from rollout.cli.settings.values import node_name, server_url
from rollout.errors import UsageError

fleetlock_app = typer.Typer(
    cls=DefaultCommandGroup,
    help="Serve FleetLock: hosts with Zincati ask before they reboot. Without a command: serve.",
    rich_markup_mode=None,
    add_completion=False,
)


@fleetlock_app.command(cls=SectionedCommand, short_help="Grant reboots to hosts that ask, until SIGTERM.")
@takes("fleetlock", *CLUSTER, "nodes.allow", "nodes.skip", *RULES)
def serve(settings: Given) -> None:
    """Serve FleetLock until SIGTERM: a host may reboot once its node is cordoned and drained, by the rules of apply.

    As many replicas as wanted may serve; all they know stands on the cluster. No SSH is used.

    \b
    Examples:
      rollout fleetlock --listen :8080 --slots 2
      rollout fleetlock --group workers=25% \\
        --group-selector workers=node-role.kubernetes.io/worker
    """
    from rollout.cli.stages import fleetlock

    server = settings.fleetlock
    if bool(server.tls_cert) != bool(server.tls_key):
        raise UsageError("--tls-cert and --tls-key belong together", hint="Give both, or neither for plain HTTP.")
    if settings.gates.interactive:
        raise UsageError("gates.interactive asks before each wave, and a server runs unattended", hint="Drop it.")
    _refuse_what_takes_ssh(settings.reboot)
    fleetlock.serve(settings)


def _refuse_what_takes_ssh(reboot: Reboot) -> None:
    if reboot.wall or reboot.wait_for_users:
        raise UsageError(
            "reboot.wall and reboot.wait-for-users ask hosts over SSH, and a FleetLock server uses none",
            hint="Drop them here: Zincati itself tells logged-in users, and waits for them.",
        )


@fleetlock_app.command(cls=SectionedCommand, short_help="Show who holds a slot, and how far it has come.")
@takes(*CLUSTER, formats=LISTING)
def status(settings: Given) -> None:
    """Show who holds a slot, since when, and how far it has come.

    \b
    Examples:
      rollout fleetlock status
      rollout fleetlock status -o json
    """
    from rollout.cli.stages import slots
    from rollout.cli.terminal import show, show_bytes, show_names
    from rollout.model.json_text import json_document
    from rollout.report.fleetlock import slots_document, slots_text

    output = settings.output
    seen = slots.look(settings.cluster, settings.lock.namespace)
    if output.is_document:
        show_bytes(output.document(json_document(slots_document(seen.slots, seen.nodes, seen.server))))
    elif output.as_names:
        show_names(slot.node for slot in seen.slots.held)
    else:
        show(slots_text(seen.slots, seen.nodes, seen.server, output.width))


@fleetlock_app.command(cls=SectionedCommand, short_help="Take a node's slot away.")
@takes(*CLUSTER, formats=LISTING)
def release(
    settings: Given,
    node: Annotated[str, typer.Argument(metavar="NODE", show_default=False, help="The node, by its name.")],
) -> None:
    """Take a node's slot away: it is given back where that is safe, and its host has to ask anew.

    A node whose host may be about to reboot is watched for a minute; one that is away by then stays cordoned.

    \b
    Examples:
      rollout fleetlock release worker-2
    """
    from rollout.cli.stages import slots
    from rollout.cli.terminal import show, show_bytes, show_names
    from rollout.model.json_text import json_document
    from rollout.model.text import printable
    from rollout.report.fleetlock import SlotReleaseReport

    node, output = node_name(node), settings.output
    was_held = slots.release(settings.cluster, settings.lock.namespace, node)
    if output.is_document:
        show_bytes(output.document(json_document(SlotReleaseReport(node=node, released=was_held))))
    elif output.as_names:
        show_names([node] if was_held else [])
    else:
        name = printable(node)
        show(f"The slot of {name} is free." if was_held else f"Nothing to release: {name} holds no slot.")


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


@fleetlock_app.command(cls=SectionedCommand, short_help="Print the drop-in for hosts with Zincati.")
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
