"""`rollout abort`."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from rollout.cli.options import values
from rollout.cli.options.cluster import ClusterOptions, LeaseOptions, LockOptions
from rollout.cli.options.declaration import OWN, Flag
from rollout.cli.options.general import GeneralOptions
from rollout.cli.options.run import YesOption
from rollout.cli.options.ssh import SshOptions
from rollout.errors import ExitCode
from rollout.model.quantity import Duration

if TYPE_CHECKING:
    from rollout.cli.stages.gather import Connections
    from rollout.execution.lock_holder import LeaseWatch
    from rollout.execution.rollout.ledger import Aborted

WaitOption = Annotated[
    Duration,
    Flag(OWN, "How long to watch a node that may be rebooting.", "DURATION", read=values.duration),
]


def abort(
    cluster: ClusterOptions,
    ssh: SshOptions,
    lease: LeaseOptions,
    lock: LockOptions,
    general: GeneralOptions,
    yes: YesOption = False,
    wait: WaitOption = Duration(120),
) -> None:
    """Undo what an interrupted rollout has begun: its cordons, its annotations, its taints, its labels, its record.

    Nothing that anybody else has set is touched. A node that may be rebooting right now is watched, and left as it is
    where it does not come back in time.

    \b
    Examples:
      rollout abort
      rollout abort --yes --wait 5m
    """
    from rollout.cli import consent, wiring
    from rollout.cli.stages import gather
    from rollout.cli.stages.journal import note_abort
    from rollout.cli.stages.lock import glance_at_lock, refuse_beside_living
    from rollout.cli.terminal import show
    from rollout.model.policy import Selection
    from rollout.model.text import counted
    from rollout.report.columns import wrapped
    from rollout.report.unfinished import abort_text

    connections = gather.connect(cluster, Selection(), ssh)
    watch = refuse_beside_living(connections.api, lease.lease_namespace, lock)
    unfinished = gather.find_unfinished(connections.api, lease.lease_namespace, deferred=True)
    if unfinished is None and not gather.has_slots(connections.api, lease.lease_namespace):
        show("null" if general.as_json else "Nothing to undo: this cluster has no record of a rollout.")
        return
    consent.refuse_if_nobody_can_be_asked(given=yes, as_json=general.as_json)
    if not general.as_json:
        lock_now = glance_at_lock(connections.api, lease.lease_namespace)
        show(wrapped(abort_text(unfinished, lock_now, wait=wait), general.width))
    if not yes:
        where = consent.place(connections.api.server, wiring.context_of(cluster))
        touched = len((*unfinished.begun, *unfinished.failed)) if unfinished else 0
        what = f"Undo this rollout on {counted(touched, 'node')} of" if touched else "Remove what is left of it on"
        consent.ask(f"{what} {where}")
    aborted = _undo(connections, ssh, lease, lock, watch, wait=wait)
    if not aborted.stopped:
        note_abort(aborted)
    _show_undone(aborted, general)
    if aborted.stopped:
        raise typer.Exit(ExitCode.INTERRUPTED)
    raise typer.Exit(ExitCode.PARTIAL if aborted.left_cordoned or aborted.left_tainted else ExitCode.OK)


def _undo(
    connections: "Connections",
    ssh: SshOptions,
    lease: LeaseOptions,
    lock: LockOptions,
    watch: "LeaseWatch",
    *,
    wait: float,
) -> "Aborted":
    """Undo it, telling each node's end on standard error."""
    from rollout.cli import wiring
    from rollout.cli.signals import stopped_by_signals
    from rollout.cli.stages import gather
    from rollout.execution.base.reporting import Observers
    from rollout.execution.base.stop import StopRequest
    from rollout.execution.rollout.abort import abort as undo
    from rollout.execution.rollout.ports import Ports, RunOptions
    from rollout.report.observers import EventLog, Unfailing
    from rollout.report.plain import PlainLines

    targets = gather.ask_named(gather.read_nodes(connections), (), connections, ssh)
    options = RunOptions(
        selected=len(targets.selected),
        holder=wiring.lease_holder(),
        lease_namespace=lease.lease_namespace,
        lease_seconds=lock.seconds,
        probe_timeout=ssh.probe_timeout,
        unlock=lock.force_unlock,
        watch=watch,
    )
    observer = Observers((EventLog(), Unfailing(PlainLines(sys.stderr))))
    ports = Ports(connections.api, connections.shell, wiring.system_clock(), observer)
    stop = StopRequest()
    with stopped_by_signals(stop, meaning="no further node is given back"):
        return undo(targets.hosts, ports, options, wait=wait, stop=stop)


def _show_undone(aborted: "Aborted", general: GeneralOptions) -> None:
    """Tell what came of it."""
    from rollout.cli.terminal import show_bytes, show_lines
    from rollout.model.json_text import json_line
    from rollout.report.unfinished import abort_document, aborted_text

    if general.as_json:
        show_bytes(json_line(abort_document(aborted)))
    else:
        show_lines(aborted_text(aborted))
