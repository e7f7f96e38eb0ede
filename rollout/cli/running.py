"""The acting stage of apply: the run itself, watched, and stoppable by signals; or its rehearsal."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from rollout.cli import wiring
from rollout.cli.gate_options import LocalGateOptions
from rollout.cli.gathering import Connections, Targets
from rollout.cli.interruption import stopped_by_signals
from rollout.cli.options import LeaseOptions, SshOptions
from rollout.cli.recording import journalled
from rollout.cli.run_options import LockOptions, StopMode
from rollout.cli.terminal import error_console, say, show
from rollout.errors import BlockedError, ExitCode
from rollout.execution.base.stop import StopRequest
from rollout.execution.gates.playbooks import NodePlaybooks
from rollout.execution.rollout.execute import execute
from rollout.execution.rollout.ports import Inheritance, Ports, RunOptions
from rollout.execution.rollout.rehearsal import Rehearsal
from rollout.execution.rollout.rehearsal import rehearse as ask_server
from rollout.model.host import Host
from rollout.model.plan import BlockerKind, RolloutPlan
from rollout.model.policy import Policy, Selection
from rollout.model.progress import Notice, NotStarted, PlanReady, RunFinished, RunResult
from rollout.planning.concessions import concessions
from rollout.planning.eligibility import excluded_by_name
from rollout.ports import Observer
from rollout.report.json_lines import JsonLines
from rollout.report.live import LiveProgress
from rollout.report.observers import Unfailing
from rollout.report.plain import PlainLines
from rollout.report.rehearsal import rehearsal_text
from rollout.report.summary import rehearsal_ending, summary_text
from rollout.report.text import listed

_MOST_BLOCKERS = 10


@dataclass(frozen=True, slots=True)
class Run:
    """A plan, and all it takes to run it.

    `inherited` is what an earlier process has left of it, None for a new run. `prometheus_url` is this process's own.
    `conceded` is what rules that were not given just now give up, for the reader of JSON lines.
    """

    plan: RolloutPlan
    targets: Targets
    connections: Connections
    options: RunOptions
    stop: StopMode = StopMode.FINISH
    inherited: Inheritance | None = None
    journal: Path | None = None
    local: LocalGateOptions = field(default_factory=LocalGateOptions)
    prometheus_url: str = ""
    conceded: tuple[str, ...] = ()
    playbooks: NodePlaybooks | None = None

    @property
    def hosts(self) -> Mapping[str, Host]:
        """The planned nodes' hosts."""
        return {node.name: self.targets.hosts[node.name] for node in self.plan.nodes}


def run_options(selected: int, ssh: SshOptions, lease: LeaseOptions, lock: LockOptions) -> RunOptions:
    """How this process runs; percentages are of the `selected` nodes."""
    return RunOptions(
        selected=selected,
        holder=wiring.lease_holder(),
        lease_namespace=lease.lease_namespace,
        lease_seconds=lock.seconds,
        probe_timeout=ssh.probe_timeout,
        unlock=lock.force_unlock,
    )


def selected_by(targets: Targets, selection: Selection) -> int:
    """The number of nodes that percentages are of."""
    return sum(1 for name in targets.selected if not excluded_by_name(name, selection))


def refuse_blocked(plan: RolloutPlan, *, only_rivals: bool = False) -> None:
    """`BlockedError` where something is bound to stop the run, all of it named at once."""
    blockers = [found for found in plan.blockers if not only_rivals or found.kind is BlockerKind.RIVAL]
    if blockers:
        told = [f"{found.object} {found.message}" for found in blockers]
        raise BlockedError(
            f"not started, for this stands in the way: {listed(told, _MOST_BLOCKERS)}",
            hint="Clear it, leave those nodes out (--skip-blocked, --exclude), or try them (--ignore-blockers).",
        )


def run(this: Run, *, as_json: bool) -> ExitCode:
    """Run the plan and tell its end; what the process ends with."""
    stop = StopRequest(revert=this.stop is StopMode.REVERT)
    with watched(as_json=as_json, asking=this.local.interactive) as observer:
        if as_json:
            _notify_conceded(this, observer)
        anything = this.plan.waves or this.inherited is not None
        result = _executed(this, observer, stop) if anything else _nothing_done(this, observer)
    if not as_json and (this.plan.waves or result.not_done):
        show(f"\n{summary_text(this.plan, result)}")
    return _exit_code(result, stop)


def rehearse(this: Run, *, as_json: bool) -> ExitCode:
    """Have the API server judge every write of the plan; nothing is changed. What the process ends with."""
    rehearsed = ask_server(this.connections.api, this.plan)
    left = tuple(NotStarted(node.name, "dry run") for node in this.plan.nodes)
    result = RunResult((), not_started=left, excluded=this.plan.excluded)
    if as_json:
        _write_rehearsal(this, rehearsed, result)
    else:
        show("\n".join(filter(None, (rehearsal_text(rehearsed), rehearsal_ending(result)))))
    return ExitCode.PARTIAL if result.not_done else ExitCode.OK


def _write_rehearsal(this: Run, rehearsed: Sequence[Rehearsal], result: RunResult) -> None:
    now = wiring.system_clock().now()
    lines = JsonLines(sys.stdout)
    lines.begin(now)
    _notify_conceded(this, lines)
    lines.notify(PlanReady(now, this.plan))
    lines.rehearsed(now, rehearsed)
    lines.notify(RunFinished(now, result))


def tell_conceded(policy: Policy, origin: str) -> tuple[str, ...]:
    """Warn of what these rules give up, on standard error whatever the output is; the same as sentences."""
    sentences = tuple(f"{origin} {sentence}" for sentence in concessions(policy))
    for sentence in sentences:
        say(f"warning: {sentence}")
    return sentences


def _notify_conceded(this: Run, observer: Observer) -> None:
    for sentence in this.conceded:
        observer.notify(Notice(wiring.system_clock().now(), sentence))


def _executed(this: Run, observer: Observer, stop: StopRequest) -> RunResult:
    gates = wiring.gates(this.plan.policy.gates.alerts, this.local, this.prometheus_url)
    gates = replace(gates, playbooks=this.playbooks)
    ports = Ports(this.connections.api, this.connections.shell, wiring.system_clock(), Unfailing(observer), gates)
    command = "apply" if this.inherited is None else "resume"
    with journalled(ports.observer, this.plan, command, this.journal) as told, stopped_by_signals(stop):
        ports = replace(ports, observer=told)
        return execute(this.plan, this.hosts, ports, this.options, stop, this.inherited)


def _nothing_done(this: Run, observer: Observer) -> RunResult:
    """A run without nodes: whoever reads the lines still gets a plan and a summary, and the journal what it owes."""
    now, result = wiring.system_clock().now(), RunResult((), excluded=this.plan.excluded)
    owing = journalled(observer, this.plan, "apply", this.journal) if result.not_done else nullcontext(observer)
    with owing as told:
        told.notify(PlanReady(now, this.plan))
        told.notify(RunFinished(now, result))
    return result


def tell_nothing() -> None:
    """Where not even a plan is left: the first line and the last, for whoever reads lines waits for them."""
    with watched(as_json=True) as observer:
        observer.notify(RunFinished(wiring.system_clock().now(), RunResult(())))


@contextmanager
def watched(*, as_json: bool, asking: bool = False) -> Iterator[Observer]:
    """Whoever shows the run: JSON lines, a live board on a terminal, plain lines elsewhere."""
    console = error_console()
    if as_json:
        lines = JsonLines(sys.stdout)
        lines.begin(wiring.system_clock().now())
        yield lines
    elif console.is_terminal and not asking and not console.is_dumb_terminal:
        with LiveProgress(console) as live:
            yield live
    else:
        with PlainLines(sys.stderr) as lines_for_people:
            yield lines_for_people


def _exit_code(result: RunResult, stop: StopRequest) -> ExitCode:
    if stop.requested and result.not_started:
        return ExitCode.INTERRUPTED
    return ExitCode.OK if result.complete else ExitCode.PARTIAL
