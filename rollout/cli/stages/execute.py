"""The stage that acts: the run itself, watched, and stoppable by signals; or its rehearsal."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from rollout.cli import wiring
from rollout.cli.consent import TerminalConfirmation
from rollout.cli.log import stage
from rollout.cli.program import as_started
from rollout.cli.settings.schema import StopMode
from rollout.cli.signals import stopped_by_signals
from rollout.cli.stages.gather import Run, Session
from rollout.cli.stages.observers import run_journal, run_notifications
from rollout.cli.stages.plan import conceded
from rollout.cli.terminal import (
    error_console,
    let_go_of_lost_terminals,
    show,
    show_lines,
    shown_meanwhile,
)
from rollout.errors import ExitCode
from rollout.execution.base.deadline import StopRequest
from rollout.execution.base.reporting import Reporter
from rollout.execution.gates import GatePorts
from rollout.execution.rollout.ledger import Rehearsal
from rollout.execution.rollout.ports import Ports, RunOptions
from rollout.execution.rollout.rehearsal import rehearse as ask_server
from rollout.execution.rollout.run import run_plan
from rollout.gather.hosts.probe_command import REBOOT_COMMAND
from rollout.model.own_node import OwnNode
from rollout.model.plan import ExclusionReason
from rollout.model.progress import NotStarted, RunResult
from rollout.ports import Observer
from rollout.report.lines import Command, DryRunLine, JsonLines
from rollout.report.live import LiveProgress
from rollout.report.plain import PlainLines
from rollout.report.plan_screen import NOT_REHEARSED, rehearsal_text
from rollout.report.sentences import ended, tallied
from rollout.report.summary import rehearsal_ending, summary_text


def run_options(session: Session, selected: int, own_node: OwnNode | None = None) -> RunOptions:
    """Return how this process runs, for the engine; percentages are of the `selected` nodes."""
    settings = session.settings
    return RunOptions(
        selected=selected,
        holder=wiring.lease_holder(),
        lease_namespace=session.namespace,
        lease_seconds=settings.lock.seconds,
        probe_timeout=settings.ssh.probe_timeout,
        force_unlock=session.force_unlock,
        reboot_command=settings.reboot.command or REBOOT_COMMAND,
        own_node=own_node,
        unattended=session.unattended,
        watch=session.watch,
        detect_command=settings.detect.command,
        process=session.process,
        proven=session.proven,
    )


def execute(run: Run) -> ExitCode:
    """Run the plan and tell its end; what the process ends with."""
    stop = StopRequest(revert=run.session.settings.waves.stop is StopMode.REVERT)
    result = carry_out(run, stop)
    if stop.requested and result.not_started:
        return ExitCode.INTERRUPTED
    confirmation = run.session.gates.confirmation if run.session.gates else None
    if (
        isinstance(confirmation, TerminalConfirmation)
        and confirmation.is_declined
        and not result.finished
    ):
        return ExitCode.DECLINED
    return ExitCode.OK if result.complete else ExitCode.PARTIAL


def carry_out(run: Run, stop: StopRequest) -> RunResult:
    """Run the plan and tell its end; what came of it."""
    session = run.session
    asked = bool(run.session.gates and run.session.gates.confirmation)
    if not (run.plan.waves or run.inherited is not None or run.deferred):
        return nothing_done(run, stop)
    began = wiring.system_clock().monotonic()
    names_pods = session.settings.output.verbose > 0
    shown = display(as_json=session.as_json, live=not asked, stop=stop, names_pods=names_pods)
    with shown as observer, stage("run") as note:
        result = _executed(run, observer, stop)
        note(ended(result))
        # a process that was not told of it goes on
        let_go_of_lost_terminals()
    if not session.as_json and (run.plan.waves or result.not_done or result.left_over):
        took = wiring.system_clock().monotonic() - began
        show(f"\n{_summary(result, session, took)}")
    return result


def _summary(result: RunResult, session: Session, took: float = 0.0) -> str:
    repeated = session.settings.repeated
    return summary_text(
        result, took=took, width=session.width, unattended=session.unattended, repeated=repeated
    )


def _executed(run: Run, shown: Observer, stop: StopRequest) -> RunResult:
    session = run.session
    # An unattended process may run in a pod, whose log outlives its files.
    lines = shown if session.unattended and isinstance(shown, JsonLines) else None
    command: Command = (
        "operate" if session.unattended else "apply" if run.inherited is None else "resume"
    )
    with (
        run_journal(
            run.plan,
            command,
            session.settings,
            process=session.process,
            selected=run.selected,
            lines=lines,
        ) as journal,
        stopped_by_signals(stop, shown=isinstance(shown, LiveProgress)),
        _notifications(run, stop) as notifier,
        wiring.silences(session.settings.alerts, run.hosts) or nullcontext() as silences,
    ):
        # Alerts are silenced before anyone hears that a node is started.
        observers = _present(silences, journal, session.metrics, shown, notifier)
        _report_accepted(run, Reporter(observers, wiring.system_clock()))
        ports = Ports(
            session.api,
            session.shell,
            wiring.system_clock(),
            observers,
            session.gates or GatePorts(),
        )
        options = run_options(session, run.selected, run.targets.own_node)
        return run_plan(run.plan, run.hosts, ports, options, stop, run.inherited)


def _present(*observers: Observer | None) -> Sequence[Observer]:
    return [observer for observer in observers if observer is not None]


def _notifications(run: Run, stop: StopRequest) -> AbstractContextManager[Observer | None]:
    session = run.session
    return run_notifications(
        run.plan,
        session.settings,
        is_stopped=lambda: stop.requested,
        resumed=run.inherited is not None,
        unattended=session.unattended,
        news=session.news,
    )


def nothing_done(run: Run, stop: StopRequest) -> RunResult:
    """Report a run without nodes, of which people have seen all in the plan unless it is unattended.

    JSON lines still get a plan and a summary.
    """
    session = run.session
    result = RunResult((), excluded=run.plan.excluded)
    lines = JsonLines(sys.stdout, wiring.now()) if session.as_json else None
    with _notifications(run, stop) if result.not_done else nullcontext() as notifier:
        observers = _present(session.metrics, lines, notifier)
        report = Reporter(observers, wiring.system_clock())
        _report_accepted(run, report)
        report.plan(run.plan)
        report.finished(result)
    if session.unattended and not session.as_json:
        reasons = {
            reason: number
            for reason, number in result.left_out.items()
            if reason != ExclusionReason.NO_UPDATE
        }
        left_out = f" (left out: {tallied(reasons)})" if reasons else ""
        nothing = f"Nothing to do: no node waits for a reboot{left_out}."
        show(_summary(result, session)) if result.not_done else show_lines(nothing)
    return result


def _report_accepted(run: Run, report: Reporter) -> None:
    """Report the warnings that JSON lines would not show, and the journal with them."""
    for sentence in conceded(run) if run.session.as_json else ():
        report.notice(sentence)


def rehearse(run: Run, *, asks_server: bool) -> ExitCode:
    """Rehearse the plan without changing anything, and return the exit code.

    `asks_server`: the API server checks each write in a dry run.
    """
    rehearsed: Sequence[Rehearsal] = ()
    if asks_server:
        with shown_meanwhile("asking the API server about each write"):
            rehearsed = ask_server(run.session.api, run.plan)
    not_started = tuple(NotStarted(node.name, "dry run") for node in run.plan.nodes)
    pods = run.plan.summary.pods_to_move
    result = RunResult((), not_started=not_started, excluded=run.plan.excluded, pods_to_move=pods)
    if run.session.as_json:
        now = wiring.now()
        lines = JsonLines(sys.stdout, now)
        report = Reporter((lines,), wiring.system_clock())
        _report_accepted(run, report)
        report.plan(run.plan)
        for node in rehearsed:
            lines.write(DryRunLine(now, node.node, node.evictions, node.objections))
        report.finished(result)
    elif run.plan.waves:
        width = run.session.width
        said = rehearsal_text(rehearsed, width) if asks_server else NOT_REHEARSED
        show("\n".join(filter(None, (said, rehearsal_ending(result, width)))))
    return ExitCode.PARTIAL if result.not_done else ExitCode.OK


def tell_nothing(*why: str) -> None:
    """Write the JSON lines of a run that has no plan: their readers wait for the last line."""
    report = Reporter((JsonLines(sys.stdout, wiring.now()),), wiring.system_clock())
    for sentence in why:
        report.notice(sentence)
    report.finished(RunResult(()))


@contextmanager
def display(
    *, as_json: bool, live: bool = True, stop: StopRequest | None = None, names_pods: bool = False
) -> Iterator[Observer]:
    """Yield the observer that shows a run: JSON lines, a `live` display on a terminal, or plain lines.

    `names_pods`: each evicted pod is shown.
    """
    console = error_console()
    if as_json:
        yield JsonLines(sys.stdout, wiring.now())
    elif live and console.is_terminal and not console.is_dumb_terminal:
        with LiveProgress(console, stop=stop, names_pods=names_pods, rephrase=as_started) as board:
            yield board
    else:
        with PlainLines(sys.stderr, names_pods=names_pods, rephrase=as_started) as lines_for_people:
            yield lines_for_people
