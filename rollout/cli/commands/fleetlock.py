"""`rollout fleetlock`: hosts that reboot by themselves ask for permission here, as FleetLock's protocol has it."""

from dataclasses import replace
from typing import Annotated

import typer

from rollout.cli.help import DefaultCommandGroup, SectionedCommand
from rollout.cli.options import pools
from rollout.cli.options.cluster import ClusterOptions, LeaseOptions, LockOptions, NameOptions
from rollout.cli.options.courtesy import CourtesyOptions
from rollout.cli.options.flattening import flattened
from rollout.cli.options.fleetlock import ServerOptions
from rollout.cli.options.gates import GateOptions, LocalGateOptions
from rollout.cli.options.general import GeneralOptions, JournalOptions, ListingOptions
from rollout.cli.options.nodes import SelectionOptions, node_name
from rollout.cli.options.notify import NotifyOptions
from rollout.cli.options.policy import PolicyOptions
from rollout.errors import UsageError

fleetlock_app = typer.Typer(
    cls=DefaultCommandGroup,
    help="Serve FleetLock: hosts with Zincati ask before they reboot. Without a command: serve.",
    rich_markup_mode=None,
    add_completion=False,
)


@fleetlock_app.command(cls=SectionedCommand, short_help="Grant reboots to hosts that ask, until SIGTERM.")
@flattened
def serve(  # noqa: PLR0917 - typer's parameters; each is a group of options
    call: typer.Context,
    server: ServerOptions,
    cluster: ClusterOptions,
    lease: LeaseOptions,
    lock: LockOptions,
    selection: SelectionOptions,
    policy: PolicyOptions,
    gates: GateOptions,
    local: LocalGateOptions,
    journal: JournalOptions,
    notify: NotifyOptions,
    naming: NameOptions,
    general: GeneralOptions,
) -> None:
    """Serve FleetLock until SIGTERM: a host may reboot once its node is cordoned and drained, by the rules of apply.

    As many replicas as wanted may serve; all they know stands on the cluster. No SSH is used.

    \b
    Examples:
      rollout fleetlock --listen :8080 --slots 2
      rollout fleetlock --group workers=25% \\
        --group-selector workers=node-role.kubernetes.io/worker
    """
    server.check()
    _refuse_what_persons_decide(local, lock)
    _refuse_what_takes_ssh(policy.courtesy)
    from rollout.cli.stages import fleetlock

    fleetlock.serve(
        fleetlock.Serving(
            server=server,
            cluster=cluster,
            lease=lease,
            lock=lock,
            selection=selection.selection,
            policy=gates.added_to(_with_limit(call, policy, server).with_pools(pools.given(call))),
            local=local,
            prometheus_url=gates.prometheus_url,
            journal=journal,
            notify=notify,
            cluster_name=naming.cluster_name,
            as_json=general.as_json,
        )
    )


def _with_limit(call: typer.Context, policy: PolicyOptions, server: ServerOptions) -> PolicyOptions:
    """The rules; where nobody gives --max-unavailable, as many nodes may be away as there are slots."""
    source = call.get_parameter_source("max_unavailable")
    is_given = source is not None and source.name != "DEFAULT"
    return policy if is_given else replace(policy, max_unavailable=server.most_away)


def _refuse_what_persons_decide(local: LocalGateOptions, lock: LockOptions) -> None:
    if local.interactive:
        raise UsageError("--interactive asks before each wave, and a server runs unattended", hint="Drop it.")
    if lock.force_unlock:
        raise UsageError(
            "--force-unlock is a person's decision, and a server waits for the lock",
            hint="Drop it; or undo that run: rollout abort --force-unlock RUN.",
        )


def _refuse_what_takes_ssh(courtesy: CourtesyOptions) -> None:
    if courtesy.wall or courtesy.wait_for_users:
        raise UsageError(
            "--wall and --wait-for-users ask hosts over SSH, and a FleetLock server uses none",
            hint="Drop them here: Zincati itself tells logged-in users, and waits for them.",
        )


@fleetlock_app.command(cls=SectionedCommand, short_help="Show who holds a slot, and how far it has come.")
@flattened
def status(cluster: ClusterOptions, lease: LeaseOptions, general: ListingOptions) -> None:
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

    seen = slots.look(cluster, lease.lease_namespace)
    if general.is_document:
        show_bytes(general.document(json_document(slots_document(seen.slots, seen.nodes, seen.server))))
    elif general.as_names:
        show_names(slot.node for slot in seen.slots.held)
    else:
        show(slots_text(seen.slots, seen.nodes, seen.server, general.width))


@fleetlock_app.command(cls=SectionedCommand, short_help="Take a node's slot away.")
@flattened
def release(
    node: Annotated[str, typer.Argument(metavar="NODE", show_default=False, help="The node, by its name.")],
    cluster: ClusterOptions,
    lease: LeaseOptions,
    general: ListingOptions,
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

    node = node_name(node)
    was_held = slots.release(cluster, lease.lease_namespace, node)
    if general.is_document:
        show_bytes(general.document(json_document(SlotReleaseReport(node=node, released=was_held))))
    elif general.as_names:
        show_names([node] if was_held else [])
    else:
        name = printable(node)
        show(f"The slot of {name} is free." if was_held else f"Nothing to release: {name} holds no slot.")
