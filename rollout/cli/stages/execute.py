"""Runs a prepared plan, or rehearses it.

RolloutSpec   what the command was asked to do
RunInputs     what the engine carries out: the plan, and what an earlier process left
PreparedRun   both, and the hosts
FreshRun      a `PreparedRun` for a new rollout, and what else is shown
ReadyRun      a `PreparedRun` in this process: its connections, graceful stop, gates and metrics
RunPorts      what the engine uses of these
"""

import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from msgspec import Struct

from rollout.cli import gate_wiring, wiring
from rollout.cli.consent import TerminalConfirmation
from rollout.cli.log import stage
from rollout.cli.program import with_program_name
from rollout.cli.settings.schema import Settings, StopMode
from rollout.cli.signals import stopped_by_signals
from rollout.cli.stages.cluster import Connections
from rollout.cli.stages.notification_repeats import RepeatFilter
from rollout.cli.stages.observers import run_journal, run_notifications
from rollout.cli.stages.prepare import PreparedRun
from rollout.cli.stages.rollout_spec import RolloutSpec
from rollout.cli.stages.screens import relaxed_notes
from rollout.cli.terminal import (
    discard_lost_terminals,
    error_console,
    show,
    show_lines,
    show_progress,
)
from rollout.errors import ExitCode
from rollout.execution.base.deadline import GracefulStop
from rollout.execution.base.gate_ports import GatePorts
from rollout.execution.base.reporting import Reporter
from rollout.execution.lease import LeaseWatch
from rollout.execution.lock import LockOptions
from rollout.execution.node.ssh_host import RolloutHosts
from rollout.execution.rollout.assembly import RunPorts, assemble_rollout
from rollout.execution.rollout.ledger import Rehearsal
from rollout.execution.rollout.rehearsal import rehearse_on_api_server
from rollout.gather.hosts.probe_command import REBOOT_COMMAND
from rollout.model.host import Host
from rollout.model.plan import ExclusionReason
from rollout.model.progress import NotStarted, RunResult
from rollout.ports import ClusterApi, Observer
from rollout.report.lines import Command, DryRunLine, JsonLines
from rollout.report.live import LiveProgress
from rollout.report.plain import PlainLines
from rollout.report.plan_screen import NOT_REHEARSED, rehearsal_text
from rollout.report.sentences import reason_counts, result_counts
from rollout.report.summary import rehearsal_ending, summary_text

if TYPE_CHECKING:
    from rollout.report.metrics import Metrics


class ReadyRun(Struct, frozen=True):
    prepared: PreparedRun
    connections: Connections
    stop: GracefulStop
    gate_ports: GatePorts
    watch: LeaseWatch | None = None
    # The run whose lock is taken over at once; empty for none.
    force_unlock: str = ""
    metrics: "Metrics | None" = None
    repeats: RepeatFilter | None = None


def lock_options(
    settings: Settings, *, process: str, watch: LeaseWatch | None, force_unlock: str
) -> LockOptions:
    return LockOptions(
        holder=wiring.lock_holder(),
        namespace=settings.lock.namespace,
        seconds=settings.lock.seconds,
        force_unlock=force_unlock,
        process=process,
        watch=watch,
    )


def reach_hosts(
    hosts: Mapping[str, Host], connections: Connections, settings: Settings
) -> RolloutHosts:
    return RolloutHosts(
        hosts,
        connections.shell,
        probe_timeout=settings.ssh.probe_timeout,
        reboot_command=settings.reboot.command or REBOOT_COMMAND,
        detect_command=settings.detect.command,
    )


def new_process_token() -> str:
    """Holder names of two containers can be the same."""
    return secrets.token_hex(8)


def new_graceful_stop(settings: Settings) -> GracefulStop:
    return GracefulStop(revert=settings.waves.stop is StopMode.REVERT)


def run_exit_code(ready_run: ReadyRun, result: RunResult) -> ExitCode:
    """For apply and resume. operate has `Pass._exit_code`."""
    was_stopped = ready_run.stop.is_due and result.not_started
    if was_stopped:
        return ExitCode.INTERRUPTED
    confirmation = ready_run.gate_ports.confirmation
    is_declined = isinstance(confirmation, TerminalConfirmation) and confirmation.is_declined
    if is_declined and not result.finished:
        return ExitCode.DECLINED
    return ExitCode.OK if result.complete else ExitCode.PARTIAL


def run_and_show(ready_run: ReadyRun) -> RunResult:
    prepared = ready_run.prepared
    plan = prepared.plan
    output = prepared.spec.settings.output
    if not prepared.has_something_to_do:
        return report_nothing_to_do(ready_run)
    began = wiring.system_clock().monotonic()
    # A question must not be overwritten.
    asks_before_waves = ready_run.gate_ports.confirmation is not None
    display = progress_display(
        as_json=output.as_json,
        may_redraw=not asks_before_waves,
        stop=ready_run.stop,
        names_pods=output.verbose > 0,
    )
    with display as display_observer, stage("run") as add_note:
        process_token = new_process_token()
        with _observers_and_signals(ready_run, display_observer, process_token) as observers:
            ports = _run_ports(ready_run, observers)
            options = lock_options(
                prepared.spec.settings,
                process=process_token,
                watch=ready_run.watch,
                force_unlock=ready_run.force_unlock,
            )
            rollout = assemble_rollout(prepared.inputs, ports, options, ready_run.stop)
            result = rollout.run()
        add_note(result_counts(result))
        # The summary must not fail if the terminal is gone.
        discard_lost_terminals()
    has_result_to_show = plan.waves or result.not_done or result.left_over
    if has_result_to_show and not output.as_json:
        took = wiring.system_clock().monotonic() - began
        show(f"\n{_summary(result, prepared.spec, took)}")
    return result


def _summary(result: RunResult, spec: RolloutSpec, took: float = 0.0) -> str:
    return summary_text(
        result,
        took=took,
        width=spec.settings.output.width,
        unattended=spec.unattended,
        with_flags=spec.settings.with_typed_settings,
    )


@contextmanager
def _observers_and_signals(
    ready_run: ReadyRun, display: Observer, process: str
) -> Iterator[Sequence[Observer]]:
    """In this context, signals stop the run.

    `process` is the token by which the lock knows this process.
    """
    prepared = ready_run.prepared
    spec = prepared.spec
    # The log of operate's pod outlives the journal file.
    lines_with_header = display if spec.unattended and isinstance(display, JsonLines) else None
    command: Command = "apply"
    if spec.unattended:
        command = "operate"
    elif prepared.inputs.is_resumed:
        command = "resume"
    with (
        run_journal(
            prepared.plan,
            command,
            spec.settings,
            process=process,
            selected=prepared.inputs.percentage_base,
            lines=lines_with_header,
        ) as journal,
        stopped_by_signals(ready_run.stop, has_live_display=isinstance(display, LiveProgress)),
        _run_notifications(ready_run) as notifier,
        gate_wiring.silences(spec.settings.alerts, prepared.hosts) or nullcontext() as silences,
    ):
        # Silence alerts before others hear of a node's start.
        observers = _without_none(silences, journal, ready_run.metrics, display, notifier)
        _report_relaxed_rules(prepared, Reporter(observers, wiring.system_clock()))
        yield observers


def _run_ports(ready_run: ReadyRun, observers: Sequence[Observer]) -> RunPorts:
    prepared = ready_run.prepared
    connections = ready_run.connections
    return RunPorts(
        api=connections.api,
        hosts=reach_hosts(prepared.hosts, connections, prepared.spec.settings),
        clock=wiring.system_clock(),
        gate_ports=ready_run.gate_ports,
        observers=observers,
    )


def _without_none(*observers: Observer | None) -> Sequence[Observer]:
    return [observer for observer in observers if observer is not None]


def _run_notifications(ready_run: ReadyRun) -> AbstractContextManager[Observer | None]:
    spec = ready_run.prepared.spec
    return run_notifications(
        ready_run.prepared.plan,
        spec.settings,
        is_stopped=lambda: ready_run.stop.is_due,
        resumed=ready_run.prepared.inputs.is_resumed,
        unattended=spec.unattended,
        repeats=ready_run.repeats,
    )


def report_nothing_to_do(ready_run: ReadyRun) -> RunResult:
    """Send the plan and an empty summary to lines, metrics and notifications.

    Unattended, no plan has shown the reasons, so also print them.
    """
    prepared = ready_run.prepared
    spec = prepared.spec
    as_json = spec.settings.output.as_json
    plan = prepared.plan
    result = RunResult((), excluded=plan.excluded, rollback=plan.policy.rollback)
    lines = JsonLines(sys.stdout, wiring.now()) if as_json else None
    notifications = _run_notifications(ready_run) if result.not_done else nullcontext()
    with notifications as notifier:
        observers = _without_none(ready_run.metrics, lines, notifier)
        report = Reporter(observers, wiring.system_clock())
        _report_relaxed_rules(prepared, report)
        report.plan(prepared.plan)
        report.finished(result)
    if spec.unattended and not as_json:
        if result.not_done:
            show(_summary(result, spec))
        else:
            show_lines(_nothing_text(result))
    return result


def _nothing_text(result: RunResult) -> str:
    reasons = dict(result.left_out)
    reasons.pop(ExclusionReason.NO_UPDATE, None)
    left_out = f" (left out: {reason_counts(reasons)})" if reasons else ""
    return f"Nothing to do: no node is waiting for a reboot{left_out}."


def _report_relaxed_rules(prepared: PreparedRun, report: Reporter) -> None:
    if prepared.spec.settings.output.as_json:
        for sentence in relaxed_notes(prepared.spec):
            report.notice(sentence)


def rehearse(prepared: PreparedRun, api: ClusterApi, *, asks_api_server: bool) -> ExitCode:
    """With `asks_api_server`, the API server checks each write."""
    rehearsed: Sequence[Rehearsal] = ()
    if asks_api_server:
        with show_progress("asking the API server about each write"):
            rehearsed = rehearse_on_api_server(api, prepared.plan)
    not_started = tuple(NotStarted(node.name, "dry run") for node in prepared.plan.nodes)
    pods = prepared.plan.summary.pods_to_move
    result = RunResult(
        (), not_started=not_started, excluded=prepared.plan.excluded, pods_to_move=pods
    )
    output = prepared.spec.settings.output
    if output.as_json:
        now = wiring.now()
        lines = JsonLines(sys.stdout, now)
        report = Reporter((lines,), wiring.system_clock())
        _report_relaxed_rules(prepared, report)
        report.plan(prepared.plan)
        for node in rehearsed:
            lines.write(DryRunLine(now, node.node, node.evictions, node.objections))
        report.finished(result)
    elif prepared.plan.waves:
        findings = rehearsal_text(rehearsed, output.width) if asks_api_server else NOT_REHEARSED
        ending = rehearsal_ending(result, output.width)
        show("\n".join(part for part in (findings, ending) if part))
    return ExitCode.PARTIAL if result.not_done else ExitCode.OK


def write_lines_without_plan(*reasons: str) -> None:
    """Write the reasons, then an empty summary, for which readers wait."""
    report = Reporter((JsonLines(sys.stdout, wiring.now()),), wiring.system_clock())
    for sentence in reasons:
        report.notice(sentence)
    empty_result = RunResult(())
    report.finished(empty_result)


@contextmanager
def progress_display(
    *,
    as_json: bool,
    may_redraw: bool = True,
    stop: GracefulStop | None = None,
    names_pods: bool = False,
) -> Iterator[Observer]:
    """Yield an observer: JSON lines on stdout, or text on stderr.

    On a terminal, it redraws the nodes in place if it `may_redraw`.
    """
    console = error_console()
    can_redraw = console.is_terminal and not console.is_dumb_terminal
    if as_json:
        yield JsonLines(sys.stdout, wiring.now())
    elif may_redraw and can_redraw:
        live_progress = LiveProgress(
            console, stop=stop, names_pods=names_pods, with_program_name=with_program_name
        )
        with live_progress:
            yield live_progress
    else:
        plain_lines = PlainLines(
            sys.stderr, names_pods=names_pods, with_program_name=with_program_name
        )
        with plain_lines:
            yield plain_lines
