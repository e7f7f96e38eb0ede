"""`rollout abort`."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from rollout.cli.flags import CLUSTER, HOSTS, takes
from rollout.cli.options.shared import UnlockOption, YesOption
from rollout.cli.settings.reading import Given
from rollout.cli.settings.values import duration
from rollout.errors import ExitCode
from rollout.model.quantity import Duration

if TYPE_CHECKING:
    from rollout.cli.stages.gather import Connections
    from rollout.execution.lease import LeaseWatch
    from rollout.execution.record.unfinished import Unfinished
    from rollout.execution.rollout.ledger import Aborted


WaitOption = Annotated[
    Duration, typer.Option(parser=duration, metavar="DURATION", help="How long to watch a node that may be rebooting")
]


@takes(*CLUSTER, *HOSTS)
def abort(
    settings: Given, yes: YesOption = False, wait: WaitOption = Duration(120), force_unlock: UnlockOption = ""
) -> None:
    """Undo what an interrupted rollout has begun: its cordons, its annotations, its taints, its labels, its record.

    Nothing that anybody else has set is touched. A node that may be rebooting right now is watched, and left as it is
    where it does not come back in time.

    \b
    Examples:
      rollout abort
      rollout abort --yes --wait 5m
    """
    from rollout.cli import consent
    from rollout.cli.stages import gather
    from rollout.cli.stages.journal import note_abort
    from rollout.cli.stages.lock import glance_at_lock, refuse_beside_living
    from rollout.cli.terminal import show
    from rollout.model.policy import Selection
    from rollout.report.columns import wrapped
    from rollout.report.unfinished import abort_text

    connections, namespace, as_json = (
        gather.connect(settings, Selection()),
        settings.lock.namespace,
        settings.output.as_json,
    )
    watch = refuse_beside_living(connections.api, namespace, force_unlock)
    unfinished = gather.find_unfinished(connections.api, namespace, deferred=True)
    if unfinished is None and not gather.has_slots(connections.api, namespace):
        show("null" if as_json else "Nothing to undo: this cluster has no record of a rollout.")
        return
    consent.refuse_if_nobody_can_be_asked(given=yes, as_json=as_json)
    if not as_json:
        lock_now = glance_at_lock(connections.api, namespace)
        show(wrapped(abort_text(unfinished, lock_now, wait=wait), settings.output.width))
    if not yes:
        _ask(unfinished, connections, settings)
    aborted = _undo(connections, settings, watch, force_unlock, wait=wait)
    if not aborted.stopped:
        note_abort(aborted)
    _show_undone(aborted, as_json=as_json)
    if aborted.stopped:
        raise typer.Exit(ExitCode.INTERRUPTED)
    raise typer.Exit(ExitCode.PARTIAL if aborted.left_cordoned or aborted.left_tainted else ExitCode.OK)


def _ask(unfinished: "Unfinished | None", connections: "Connections", settings: Given) -> None:
    from rollout.cli import consent, wiring
    from rollout.model.text import counted

    where = consent.place(connections.api.server, wiring.context_of(settings.cluster))
    touched = len((*unfinished.begun, *unfinished.failed)) if unfinished else 0
    what = f"Undo this rollout on {counted(touched, 'node')} of" if touched else "Remove what is left of it on"
    consent.ask(f"{what} {where}")


def _undo(
    connections: "Connections",
    settings: Given,
    watch: "LeaseWatch",
    force_unlock: str,
    *,
    wait: float,
) -> "Aborted":
    """Undo it, telling each node's end on standard error."""
    from rollout.cli import wiring
    from rollout.cli.signals import stopped_by_signals
    from rollout.cli.stages import gather
    from rollout.execution.base.reporting import Observers, Unfailing
    from rollout.execution.base.stop import StopRequest
    from rollout.execution.rollout.abort import abort as undo
    from rollout.execution.rollout.ports import Ports, RunOptions
    from rollout.report.plain import EventLog, PlainLines

    targets = gather.ask_named(gather.read_nodes(connections), (), connections, settings.ssh)
    options = RunOptions(
        selected=len(targets.selected),
        holder=wiring.lease_holder(),
        lease_namespace=settings.lock.namespace,
        lease_seconds=settings.lock.seconds,
        probe_timeout=settings.ssh.probe_timeout,
        unlock=force_unlock,
        watch=watch,
    )
    observer = Observers((EventLog(), Unfailing(PlainLines(sys.stderr))))
    ports = Ports(connections.api, connections.shell, wiring.system_clock(), observer)
    stop = StopRequest()
    with stopped_by_signals(stop, meaning="no further node is given back"):
        return undo(targets.hosts, ports, options, wait=wait, stop=stop)


def _show_undone(aborted: "Aborted", *, as_json: bool) -> None:
    """Tell what came of it."""
    from rollout.cli.terminal import show_bytes, show_lines
    from rollout.model.json_text import json_line
    from rollout.report.unfinished import abort_document, aborted_text

    if as_json:
        show_bytes(json_line(abort_document(aborted)))
    else:
        show_lines(aborted_text(aborted))
