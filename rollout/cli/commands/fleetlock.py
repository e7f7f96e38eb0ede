import time
from functools import partial

import typer

from rollout.cli import wiring
from rollout.cli.flags import LINES, takes
from rollout.cli.options import Group, SectionedCommand, argument
from rollout.cli.settings.reading import SELECTION, CommandSettings
from rollout.cli.settings.values import parse_node_name
from rollout.cli.stages.cluster import read_nodes, with_retries
from rollout.cli.suggestions import node_names
from rollout.cli.terminal import say
from rollout.errors import BlockedError, InputError, UsageError
from rollout.execution.lease import read_lease
from rollout.execution.record.slots import change_slots
from rollout.gather.cluster.documents import read_slots
from rollout.model.fleetlock import Slots, is_fleetlock_run
from rollout.model.text import printable
from rollout.ports import ClusterApi
from rollout.report.fleetlock import SlotReleaseReport, fleetlock_document, slots_text

_POLL_SECONDS = 0.5
# The server watches a host for a minute after a grant.
_RELEASE_SECONDS = 120.0
# While one server replaces another, nobody holds the lock.
_WITHOUT_SERVER_SECONDS = 15.0
_RULES = (
    *SELECTION,
    "nodes.allow",
    "drain",
    "reboot.ready-timeout",
    "gates.window",
    "waves.max-unavailable",
    "waves.max-failures",
    "waves.spread-by",
    "waves.control-plane",
    "waves.settle-timeout",
)
_HELPS = {
    "nodes.allow": "Proceed despite this condition, or include nodes with it: cordoned, held, or a"
    " reboot coordinator such as kured; repeatable",
    "waves.max-unavailable": "Maximum number of nodes unavailable at once, such as 3 or 25%"
    " [the sum of the slots]",
    "waves.max-failures": "Hold a version after it has failed on this many nodes",
    "waves.spread-by": "Reboot nodes with different values of this label, such as zones, at"
    " different times",
}

fleetlock_app = typer.Typer(
    cls=Group,
    help="Serve the FleetLock protocol for hosts that run Zincati.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)


@fleetlock_app.command(
    cls=SectionedCommand, short_help="Serve the FleetLock protocol until SIGTERM."
)
@takes("fleetlock", "cluster", *_RULES, formats=LINES, helps=_HELPS)
def serve(settings: CommandSettings) -> None:
    """Serve the FleetLock protocol until SIGTERM.

    Before a host may reboot, the server drains its node, under the same rules as apply.

    You can run several replicas, because all state is stored in the cluster. Does not use SSH.

    \b
    Examples:
      rollout fleetlock serve --listen :8080 --slots 2
      rollout fleetlock serve --group workers=25% \\
        --group-selector 'workers=!node-role.kubernetes.io/control-plane'
    """
    from rollout.cli.stages.fleetlock import serve_fleetlock

    options = settings.fleetlock
    if bool(options.tls_cert) != bool(options.tls_key):
        raise UsageError(
            "--tls-cert and --tls-key belong together",
            hint="Specify both, or neither for plain HTTP.",
        )
    if settings.gates.interactive:
        raise UsageError(
            "gates.interactive asks before each wave, but a FleetLock server runs unattended",
            hint="Drop it.",
        )
    serve_fleetlock(settings)


@fleetlock_app.command(
    cls=SectionedCommand, short_help="Show which hosts hold a slot, and their progress."
)
@takes("cluster")
def status(settings: CommandSettings) -> None:
    """Show which hosts hold a slot, since when, and their progress.

    \b
    Examples:
      rollout fleetlock status
      rollout fleetlock status -o json
    """
    output = settings.output
    namespace = settings.lock.namespace
    api = wiring.cluster_api(settings)
    slots = with_retries(read_slots, api, namespace)
    nodes = {node.name: node for node in read_nodes(api)}
    holder = _read_lock_holder(api, namespace)
    output.show(
        fleetlock_document(slots, nodes, holder),
        lambda: slots_text(slots, nodes, holder, output.width),
    )


@fleetlock_app.command(
    cls=SectionedCommand, short_help="Cancel the reboot of a node and release its slot."
)
@takes("cluster")
def release(
    settings: CommandSettings, node: str = argument(..., "Name of the node.", "NODE", node_names)
) -> None:
    """Cancel the reboot of a node, release its slot, and uncordon the node if that is safe.

    To reboot, the host must request a slot again. If the host may be about to reboot, the server
    watches the node for a minute first. If the node goes down, it stays cordoned.

    \b
    Examples:
      rollout fleetlock release worker-2
    """
    node = parse_node_name(node)
    was_released = _release_slot(settings, node)
    if was_released:
        text = f"The slot of {printable(node)} is released."
    else:
        text = f"Nothing to release: {printable(node)} holds no slot."
    settings.output.show(SlotReleaseReport(node=node, released=was_released), lambda: text)


def _read_lock_holder(api: ClusterApi, namespace: str) -> str:
    lease = with_retries(read_lease, api, namespace)
    return lease.holder if is_fleetlock_run(lease.run_id) else ""


def _release_slot(settings: CommandSettings, node: str) -> bool:
    """Return False if the node holds no slot."""
    api = wiring.cluster_api(settings)
    namespace = settings.lock.namespace
    slot = with_retries(read_slots, api, namespace).of_node(node)
    if slot is None:
        if node not in {known.name for known in read_nodes(api)}:
            raise InputError(f"there is no Node {node}", hint="See: rollout fleetlock status")
        return False
    run_id = slot.run_id
    with_retries(change_slots, api, namespace, partial(Slots.cancel, run_id=run_id))
    say(f"{node}: waiting for a FleetLock server to release its slot")
    began = time.monotonic()
    while with_retries(read_slots, api, namespace).of_run(run_id) is not None:
        waited = time.monotonic() - began
        # A server may just be starting.
        has_no_server = waited > _WITHOUT_SERVER_SECONDS and not _read_lock_holder(api, namespace)
        if has_no_server or waited > _RELEASE_SECONDS:
            raise BlockedError(
                f"the reboot of {node} is canceled,"
                " but no FleetLock server has released its slot yet",
                hint=(
                    "The next FleetLock server that starts releases it."
                    " If none runs, run: rollout abort"
                ),
            )
        wiring.system_clock().sleep(_POLL_SECONDS)
    return True
