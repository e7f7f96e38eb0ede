"""The stage that acts: the run itself, watched, and stoppable by signals; or its rehearsal."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from rollout.cli import wiring
from rollout.cli.options.cluster import LeaseOptions, LockOptions
from rollout.cli.options.run import StopMode
from rollout.cli.options.ssh import SshOptions
from rollout.cli.signals import stopped_by_signals
from rollout.cli.stages.gather import Connections, Targets
from rollout.cli.stages.journal import journalled
from rollout.cli.terminal import error_console, show
from rollout.errors import ExitCode
from rollout.execution.base.stop import StopRequest
from rollout.execution.gates.ports import GatePorts
from rollout.execution.rollout.execute import execute as execute_plan
from rollout.execution.rollout.ports import Inheritance, Ports, RunOptions
from rollout.execution.rollout.rehearsal import Rehearsal
from rollout.execution.rollout.rehearsal import rehearse as ask_server
from rollout.gather.hosts.probe_command import REBOOT_COMMAND
from rollout.model.cluster import Pod
from rollout.model.host import Host
from rollout.model.plan import RolloutPlan
from rollout.model.progress import Moves, Notice, NotStarted, PlanReady, RunFinished, RunResult
from rollout.ports import Observer
from rollout.report.json_lines import JsonLines
from rollout.report.live import LiveProgress
from rollout.report.observers import Unfailing
from rollout.report.plain import PlainLines
from rollout.report.rehearsal import rehearsal_text
from rollout.report.summary import rehearsal_ending, summary_text


@dataclass(frozen=True, slots=True)
class Run:
    """A plan, and all it takes to run it.

    `inherited` is what an earlier process has left of it, None for a new run. `conceded` is what rules that were not
    given just now give up, for the reader of JSON lines.
    """

    plan: RolloutPlan
    targets: Targets
    connections: Connections
    options: RunOptions
    gates: GatePorts
    stop: StopMode
    journal: Path | None
    inherited: Inheritance | None = None
    conceded: tuple[str, ...] = ()

    @property
    def hosts(self) -> Mapping[str, Host]:
        """The planned nodes' hosts."""
        return {node.name: self.targets.hosts[node.name] for node in self.plan.nodes}


def run_options(
    selected: int,
    ssh: SshOptions,
    lease: LeaseOptions,
    lock: LockOptions,
    reboot_command: str = REBOOT_COMMAND,
    pods: frozenset[str] = frozenset(),
) -> RunOptions:
    """How this process runs; percentages are of the `selected` nodes, `pods` are the UIDs of those on planned ones."""
    return RunOptions(
        selected=selected,
        holder=wiring.lease_holder(),
        lease_namespace=lease.lease_namespace,
        lease_seconds=lock.seconds,
        probe_timeout=ssh.probe_timeout,
        unlock=lock.force_unlock,
        reboot_command=reboot_command,
        pods=pods,
    )


def pods_on(plan: RolloutPlan, pods: Iterable[Pod]) -> frozenset[str]:
    """The UIDs of those that stand on the planned nodes."""
    names = {node.name for node in plan.nodes}
    return frozenset(pod.uid for pod in pods if pod.node in names)


def execute(run: Run, *, as_json: bool, width: int | None = None) -> ExitCode:
    """Run the plan and tell its end, in `width` columns (None: no limit); what the process ends with."""
    stop = StopRequest(revert=run.stop is StopMode.REVERT)
    with watched(as_json=as_json, asked_between=run.gates.confirmation is not None, stop=stop) as observer:
        if as_json:
            _notify_conceded(run, observer)
        anything = run.plan.waves or run.inherited is not None
        result = _executed(run, observer, stop) if anything else _nothing_done(run, observer)
    if not as_json and (run.plan.waves or result.not_done):
        show(f"\n{summary_text(run.plan, result, width=width)}")
    return _exit_code(result, stop)


def rehearse(run: Run, *, as_json: bool) -> ExitCode:
    """Have the API server judge every write of the plan; nothing is changed. What the process ends with."""
    rehearsed = ask_server(run.connections.api, run.plan)
    not_started = tuple(NotStarted(node.name, "dry run") for node in run.plan.nodes)
    moves = Moves(run.plan.summary.pods_to_move)
    result = RunResult((), not_started=not_started, excluded=run.plan.excluded, moves=moves)
    if as_json:
        _write_rehearsal(run, rehearsed, result)
    else:
        show("\n".join(filter(None, (rehearsal_text(rehearsed), rehearsal_ending(result)))))
    return ExitCode.PARTIAL if result.not_done else ExitCode.OK


def _write_rehearsal(run: Run, rehearsed: Sequence[Rehearsal], result: RunResult) -> None:
    now = wiring.system_clock().now()
    lines = JsonLines(sys.stdout)
    lines.begin(now)
    _notify_conceded(run, lines)
    lines.notify(PlanReady(now, run.plan))
    lines.rehearsed(now, rehearsed)
    lines.notify(RunFinished(now, result))


def _notify_conceded(run: Run, observer: Observer) -> None:
    for sentence in run.conceded:
        observer.notify(Notice(wiring.system_clock().now(), sentence))


def _executed(run: Run, observer: Observer, stop: StopRequest) -> RunResult:
    api, shell, clock = run.connections.api, run.connections.shell, wiring.system_clock()
    command = "apply" if run.inherited is None else "resume"
    with (
        journalled(Unfailing(observer), run.plan, command, run.journal) as journal,
        stopped_by_signals(stop, shown=isinstance(observer, LiveProgress)),
    ):
        ports = Ports(api, shell, clock, journal, run.gates)
        return execute_plan(run.plan, run.hosts, ports, run.options, stop, run.inherited)


def _nothing_done(run: Run, observer: Observer) -> RunResult:
    """A run without nodes: whoever reads the lines still gets a plan and a summary, and the journal what it owes."""
    now, result = wiring.system_clock().now(), RunResult((), excluded=run.plan.excluded)
    owing = journalled(observer, run.plan, "apply", run.journal) if result.not_done else nullcontext(observer)
    with owing as journal:
        journal.notify(PlanReady(now, run.plan))
        journal.notify(RunFinished(now, result))
    return result


def tell_nothing() -> None:
    """Where not even a plan is left: the first line and the last, for whoever reads lines waits for them."""
    with watched(as_json=True) as observer:
        observer.notify(RunFinished(wiring.system_clock().now(), RunResult(())))


@contextmanager
def watched(*, as_json: bool, asked_between: bool = False, stop: StopRequest | None = None) -> Iterator[Observer]:
    """Whoever shows the run: JSON lines, a live board on a terminal, plain lines elsewhere."""
    console = error_console()
    if as_json:
        lines = JsonLines(sys.stdout)
        lines.begin(wiring.system_clock().now())
        yield lines
    elif console.is_terminal and not asked_between and not console.is_dumb_terminal:
        with LiveProgress(console, stop=stop) as live:
            yield live
    else:
        with PlainLines(sys.stderr) as lines_for_people:
            yield lines_for_people


def _exit_code(result: RunResult, stop: StopRequest) -> ExitCode:
    if stop.requested and result.not_started:
        return ExitCode.INTERRUPTED
    return ExitCode.OK if result.complete else ExitCode.PARTIAL
