"""`rollout fleetlock`: hosts that reboot by themselves ask for permission here, as FleetLock's protocol has it."""

from typing import Annotated

import typer

from rollout.cli.help import DefaultCommandGroup, SectionedCommand
from rollout.cli.options import pools
from rollout.cli.options.cluster import ClusterOptions, LeaseOptions, LockOptions
from rollout.cli.options.flattening import flattened
from rollout.cli.options.fleetlock import ServerOptions
from rollout.cli.options.gates import GateOptions, LocalGateOptions
from rollout.cli.options.general import GeneralOptions
from rollout.cli.options.nodes import SelectionOptions
from rollout.cli.options.notify import NotifyOptions
from rollout.cli.options.policy import PolicyOptions
from rollout.cli.options.run import JournalOptions

fleetlock_app = typer.Typer(
    cls=DefaultCommandGroup,
    help="Serve FleetLock: hosts with Zincati ask before they reboot. Without a command: serve.",
    rich_markup_mode=None,
    add_completion=False,
)


@fleetlock_app.command(cls=SectionedCommand)
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
    general: GeneralOptions,
) -> None:
    """Serve FleetLock until SIGTERM: a host may reboot once its node is cordoned and drained, by the rules of apply.

    As many replicas as wanted may serve; all they know stands on the cluster. No SSH is used.

    \b
    Examples:
      rollout fleetlock --listen :8080 --slots 2 --max-unavailable 2
      rollout fleetlock --group workers=25% --group-selector workers=node-role.kubernetes.io/worker
    """
    server.check()
    rules = gates.added_to(policy.with_pools(pools.given(call)))
    del rules, cluster, lease, lock, selection, local, journal, notify, general


@fleetlock_app.command(cls=SectionedCommand)
@flattened
def status(cluster: ClusterOptions, lease: LeaseOptions, general: GeneralOptions) -> None:
    """Show who holds a slot, since when, and how far it has come.

    \b
    Examples:
      rollout fleetlock status
      rollout fleetlock status -o json
    """
    del cluster, lease, general


@fleetlock_app.command(cls=SectionedCommand)
@flattened
def release(
    node: Annotated[str, typer.Argument(metavar="NODE", show_default=False)],
    cluster: ClusterOptions,
    lease: LeaseOptions,
    general: GeneralOptions,
) -> None:
    """Take a node's slot away: it is given back where that is safe, and its host has to ask anew.

    \b
    Examples:
      rollout fleetlock release worker-2
    """
    del node, cluster, lease, general
