import sys
from typing import TYPE_CHECKING

import typer

from rollout.cli import consent
from rollout.cli.flags import LINES, YES, takes
from rollout.cli.options import option
from rollout.cli.settings.reading import PLANNED, TIMEOUTS, CommandSettings
from rollout.cli.terminal import show, show_lines
from rollout.errors import ExitCode
from rollout.model.quantity import Duration
from rollout.model.text import counted

if TYPE_CHECKING:
    from rollout.cli.stages.cluster import Connections
    from rollout.cli.stages.execute import ReadyRun
    from rollout.cli.stages.prepare import PreparedRun
    from rollout.execution.lease import LeaseWatch
    from rollout.execution.record.unfinished import Unfinished
    from rollout.execution.rollout.ledger import Aborted
    from rollout.ports import ClusterApi

_FORCE_UNLOCK = option(
    "",
    "Take over the lock of this run without waiting; use this only if no process is working on"
    " the run",
    "RUN",
)
_WAIT = "How long to wait for a node that may be rebooting"


@takes(
    "cluster",
    "nodes.allow",
    "nodes.skip",
    *TIMEOUTS,
    "gates.interactive",
    "ssh",
    reads=PLANNED,
    formats=LINES,
    helps={
        "nodes.allow": "Proceed despite this condition, or include nodes with it: blocked, held or"
        " unhealthy; repeatable"
    },
    defaults=dict.fromkeys(TIMEOUTS, "as planned"),
)
def resume(
    settings: CommandSettings,
    yes: bool = YES,
    retry_failed: bool = option(False, "Also retry the nodes that failed"),
    force_unlock: str = _FORCE_UNLOCK,
) -> None:
    """Continue an interrupted rollout, from any machine.

    All state is stored in the cluster. Resumes each node in flight from its current phase, uses
    the settings of the interrupted rollout, and replans the remaining nodes. You can use --allow,
    --skip and --interactive, and change the timeouts; if you resume again later, the changed
    timeouts still apply. Exits with 6 if the record of the rollout is missing or unreadable. Does
    not end a pause: use `rollout unpause`.

    \b
    Examples:
      rollout resume
      rollout resume --retry-failed --reboot-timeout 30m
    """
    from rollout.cli import gate_wiring
    from rollout.cli.stages.cluster import connect
    from rollout.cli.stages.lock import refuse_if_locked
    from rollout.cli.stages.metrics import deliver_metrics, measure_attempt

    connections = connect(settings)
    watch = None if force_unlock else refuse_if_locked(connections.api, settings.lock.namespace)
    # Imported late to send the first request sooner.
    from rollout.cli.stages import execute, resumption

    unfinished = _find_resumable(settings, connections.api, retry_failed=retry_failed)
    if unfinished is None:
        return
    spec = resumption.resumption_spec(settings, unfinished)
    gate_ports = gate_wiring.gate_ports(settings, spec.policy.gates.alerts)
    if not yes:
        consent.refuse_without_terminal(as_json=settings.output.as_json)
    with deliver_metrics(settings, connections.api.server) as metrics, measure_attempt(metrics):
        prepared = resumption.prepare_resumption(
            connections, spec, unfinished, metrics=metrics, retry_failed=retry_failed
        )
        ready_run = execute.ReadyRun(
            prepared,
            connections,
            execute.new_graceful_stop(settings),
            gate_ports,
            watch=watch,
            force_unlock=force_unlock,
            metrics=metrics,
        )
        raise typer.Exit(_confirm_and_run(ready_run, unfinished, yes=yes))


def _confirm_and_run(ready_run: "ReadyRun", unfinished: "Unfinished", *, yes: bool) -> ExitCode:
    from rollout.cli import wiring
    from rollout.cli.stages import execute, screens

    prepared = ready_run.prepared
    settings = prepared.spec.settings
    nothing_can_run = not unfinished.in_flight and screens.leaves_out_all_pending(prepared.plan)
    # JSON lines are written even if no node starts.
    if nothing_can_run and not settings.output.as_json:
        execute.report_nothing_to_do(ready_run)
        return ExitCode.PARTIAL
    if not yes:
        _confirm(prepared, wiring.cluster_place(settings, ready_run.connections.api))
    result = execute.run_and_show(ready_run)
    return execute.run_exit_code(ready_run, result)


def _find_resumable(
    settings: CommandSettings, api: "ClusterApi", *, retry_failed: bool
) -> "Unfinished | None":
    from rollout.cli.stages import execute, resumption
    from rollout.cli.stages.unfinished import find_unfinished
    from rollout.execution.rollout.continuation import has_something_left

    unfinished = find_unfinished(api, settings.lock.namespace)
    is_resumable = (
        unfinished is not None
        and not unfinished.is_aborted
        and has_something_left(unfinished, retry_failed=retry_failed)
    )
    if unfinished is None or not is_resumable:
        if settings.output.as_json:
            execute.write_lines_without_plan()
        else:
            show_lines(resumption.nothing_to_resume_text(unfinished))
        return None
    resumption.refuse_without_record(unfinished)
    return resumption.with_given_timeouts(unfinished, settings)


def _confirm(prepared: "PreparedRun", place: str) -> None:
    from rollout.cli.stages.screens import start_notes

    nodes = counted(prepared.plan.summary.nodes, "node")
    notes = start_notes(prepared.plan, prepared.spec.policy) if prepared.plan.waves else ()
    consent.ask(f"Resume this rollout on {nodes} in {place}", notes)


@takes("cluster", "ssh")
def abort(
    settings: CommandSettings,
    yes: bool = YES,
    wait: Duration = option(Duration(120), _WAIT, "DURATION", parser=Duration.parse),
    force_unlock: str = _FORCE_UNLOCK,
) -> None:
    """Cancel an interrupted rollout, and clean up after it.

    Removes the rollout's cordons, annotations, taints, labels and record. Does not change anything
    that someone else has set. Waits for a node that may be rebooting, and leaves the node as it is
    if it does not come back in time.

    \b
    Examples:
      rollout abort
      rollout abort --yes --wait 5m
    """
    from rollout.cli import wiring
    from rollout.cli.stages import observers
    from rollout.cli.stages.cluster import connect
    from rollout.cli.stages.lock import read_lock, refuse_if_locked
    from rollout.cli.stages.unfinished import find_unfinished
    from rollout.report.columns import wrap
    from rollout.report.unfinished import abort_document, abort_preview, abort_result

    output = settings.output
    connections = connect(settings)
    api = connections.api
    namespace = settings.lock.namespace
    watch = None if force_unlock else refuse_if_locked(api, namespace)
    unfinished = find_unfinished(api, namespace, deferred=True)
    if unfinished is None and not _has_slots(connections, namespace):
        output.show(None, lambda: "Nothing to undo: this cluster has no record of a rollout.")
        return
    if not yes:
        consent.refuse_without_terminal(as_json=output.as_json)
    if not output.as_json:
        lock = read_lock(api, namespace)
        show(wrap(abort_preview(unfinished, lock, ready_timeout=wait), output.width))
    if not yes:
        consent.ask(_question(unfinished, wiring.cluster_place(settings, api)))
    aborted = _undo_rollout(connections, settings, watch, force_unlock=force_unlock, wait=wait)
    if not aborted.stopped:
        observers.record_abort(aborted)
    same_command = settings.with_typed_settings("rollout abort")
    output.show(abort_document(aborted), lambda: abort_result(aborted, same_command), is_prose=True)
    if aborted.stopped:
        raise typer.Exit(ExitCode.INTERRUPTED)
    is_incomplete = aborted.left_cordoned or aborted.left_tainted
    raise typer.Exit(ExitCode.PARTIAL if is_incomplete else ExitCode.OK)


def _has_slots(connections: "Connections", namespace: str) -> bool:
    from rollout.cli.stages.cluster import with_retries
    from rollout.errors import ApiError
    from rollout.gather.cluster.documents import read_slots

    try:
        return bool(with_retries(read_slots, connections.api, namespace).all)
    except ApiError:
        return False


def _question(unfinished: "Unfinished | None", place: str) -> str:
    touched = len(unfinished.in_flight) + len(unfinished.failed) if unfinished else 0
    if touched:
        return f"Abort this rollout, and return {counted(touched, 'node')} to service, in {place}"
    return f"Abort this rollout in {place}"


def _undo_rollout(
    connections: "Connections",
    settings: CommandSettings,
    watch: "LeaseWatch | None",
    *,
    force_unlock: str,
    wait: Duration,
) -> "Aborted":
    from rollout.cli import wiring
    from rollout.cli.program import with_program_name
    from rollout.cli.signals import stopped_by_signals
    from rollout.cli.stages.cluster import read_nodes
    from rollout.cli.stages.execute import lock_options, new_process_token, reach_hosts
    from rollout.cli.stages.hosts import find_hosts
    from rollout.execution.base.deadline import GracefulStop
    from rollout.execution.rollout.abort import abort as undo
    from rollout.report.plain import PlainLines

    nodes = read_nodes(connections.api)
    hosts = find_hosts(nodes, [node.name for node in nodes], settings.ssh)
    progress = PlainLines(sys.stderr, with_program_name=with_program_name)
    options = lock_options(
        settings, process=new_process_token(), watch=watch, force_unlock=force_unlock
    )
    stop = GracefulStop()
    with stopped_by_signals(stop, effect="no more nodes are returned to service"):
        return undo(
            reach_hosts(hosts, connections, settings),
            connections.api,
            clock=wiring.system_clock(),
            observers=(progress,),
            lock_options=options,
            wait=wait,
            stop=stop,
        )
