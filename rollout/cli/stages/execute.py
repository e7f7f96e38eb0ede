"""The stage that acts: the run itself, watched, and stoppable by signals; or its rehearsal."""

import secrets
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field

from rollout.cli import wiring
from rollout.cli.log import stage
from rollout.cli.settings.rules import reboot_command, wall_command_of
from rollout.cli.settings.schema import Settings, StopMode
from rollout.cli.signals import stopped_by_signals
from rollout.cli.stages.gather import Connections, Gathered, Targets
from rollout.cli.stages.journal import journalled
from rollout.cli.stages.notify import News, Subject, notified
from rollout.cli.streams import let_go_of_lost_terminals
from rollout.cli.terminal import error_console, show, shown_meanwhile
from rollout.errors import ExitCode
from rollout.execution.base.reporting import Observers, Unfailing
from rollout.execution.base.stop import StopRequest
from rollout.execution.gates.gates import GatePorts
from rollout.execution.lease import LeaseWatch
from rollout.execution.rollout.execute import rehearse as ask_server
from rollout.execution.rollout.execute import run_plan
from rollout.execution.rollout.ledger import Inheritance, Rehearsal
from rollout.execution.rollout.ports import Ports, RunOptions
from rollout.model.cluster import Pod
from rollout.model.host import Host
from rollout.model.plan import ExclusionReason, RolloutPlan
from rollout.model.progress import Moves, Notice, NotStarted, PlanReady, RunFinished, RunResult
from rollout.ports import Observer
from rollout.report.findings import rehearsal_text
from rollout.report.json_lines import JsonLines
from rollout.report.lines import Command
from rollout.report.live import LiveProgress
from rollout.report.plain import EventLog, PlainLines
from rollout.report.sentences import ended
from rollout.report.summary import rehearsal_ending, summary_text


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How this process runs a plan, known before there is one.

    `observers` are told beside whoever shows the run; `news` is what notifications told before. `operating` and `watch`
    as for `RunOptions`; `force_unlock` is the run whose Lease is not waited for.
    """

    settings: Settings
    gates: GatePorts
    observers: tuple[Observer, ...] = ()
    news: News = field(default_factory=News)
    operating: bool = False
    watch: LeaseWatch | None = None
    force_unlock: str = ""

    @property
    def as_json(self) -> bool:
        """Whether programs read it."""
        return self.settings.output.as_json

    @property
    def width(self) -> int | None:
        """Columns that text may take; None: no limit."""
        return self.settings.output.width


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
    conditions: RunSettings
    conceded: tuple[str, ...] = ()
    inherited: Inheritance | None = None

    @property
    def hosts(self) -> Mapping[str, Host]:
        """The planned nodes' hosts."""
        return {node.name: self.targets.hosts[node.name] for node in self.plan.nodes}

    @property
    def deferred(self) -> bool:
        """Whether the node under this process is left for a run from elsewhere, and to be marked so."""
        return any(left.reason is ExclusionReason.DEFERRED for left in self.plan.excluded)


def run_of(
    conditions: RunSettings,
    gathered: Gathered,
    plan: RolloutPlan,
    selected: int,
    conceded: tuple[str, ...],
    inherited: Inheritance | None = None,
) -> Run:
    """A plan of what was gathered, and all that this process runs it with; percentages are of the `selected` nodes."""
    settings, targets = conditions.settings, gathered.targets
    options = RunOptions(
        selected=selected,
        holder=wiring.lease_holder(),
        lease_namespace=settings.lock.namespace,
        lease_seconds=settings.lock.seconds,
        probe_timeout=settings.ssh.probe_timeout,
        unlock=conditions.force_unlock,
        reboot_command=reboot_command(settings),
        wall_command=wall_command_of(settings),
        pods=_pods_on(plan, gathered.snapshot.pods),
        own_node=targets.own_node,
        operating=conditions.operating,
        watch=conditions.watch,
        sentinel=settings.detect.command,
        process=secrets.token_hex(8),
    )
    return Run(plan, targets, gathered.connections, options, conditions, conceded, inherited)


def _pods_on(plan: RolloutPlan, pods: Iterable[Pod]) -> frozenset[str]:
    """The UIDs of those that stand on the planned nodes."""
    names = {node.name for node in plan.nodes}
    return frozenset(pod.uid for pod in pods if pod.node in names)


def execute(run: Run) -> ExitCode:
    """Run the plan and tell its end; what the process ends with."""
    stop = StopRequest(revert=run.conditions.settings.waves.stop is StopMode.REVERT)
    return _exit_code(carry_out(run, stop), stop)


def carry_out(run: Run, stop: StopRequest) -> RunResult:
    """Run the plan and tell its end; what came of it."""
    settings, asked = run.conditions, run.conditions.gates.confirmation is not None
    began = wiring.system_clock().monotonic()
    with watched(as_json=settings.as_json, asked_between=asked, stop=stop) as observer:
        anything = run.plan.waves or run.inherited is not None or run.deferred
        with stage("run") as note:
            result = _executed(run, observer, stop) if anything else _nothing_done(run, observer, stop)
            note(ended(result))
        # a process that was not told of it goes on
        let_go_of_lost_terminals()
    if not settings.as_json and (run.plan.waves or result.not_done or result.left_over):
        width, operating = settings.width, settings.operating
        took = wiring.system_clock().monotonic() - began
        show(f"\n{summary_text(result, took=took, width=width, operating=operating)}")
    return result


def rehearse(run: Run) -> ExitCode:
    """Have the API server judge every write of the plan; nothing is changed. What the process ends with."""
    with shown_meanwhile("asking the API server about each write"):
        rehearsed = ask_server(run.connections.api, run.plan)
    not_started = tuple(NotStarted(node.name, "dry run") for node in run.plan.nodes)
    moves = Moves(run.plan.summary.pods_to_move)
    result = RunResult((), not_started=not_started, excluded=run.plan.excluded, moves=moves)
    if run.conditions.as_json:
        _write_rehearsal(run, rehearsed, result)
    else:
        width = run.conditions.width
        show("\n".join(filter(None, (rehearsal_text(rehearsed, width), rehearsal_ending(result, width)))))
    return ExitCode.PARTIAL if result.not_done else ExitCode.OK


def _write_rehearsal(run: Run, rehearsed: Sequence[Rehearsal], result: RunResult) -> None:
    now = wiring.system_clock().now()
    lines = JsonLines(sys.stdout)
    lines.begin(now)
    _notify_conceded(run, lines, lines)
    lines.notify(PlanReady(now, run.plan))
    lines.rehearsed(now, rehearsed)
    lines.notify(RunFinished(now, result))


def _notify_conceded(run: Run, shown: Observer, observer: Observer) -> None:
    """For the reader of JSON lines, to whom warnings are not shown, and for the journal that has the same lines."""
    for sentence in run.conceded if isinstance(shown, JsonLines) else ():
        observer.notify(Notice(wiring.system_clock().now(), sentence))


def _executed(run: Run, observer: Observer, stop: StopRequest) -> RunResult:
    api, shell, clock = run.connections.api, run.connections.shell, wiring.system_clock()
    with (
        _journalled(run, _all_of(run, Unfailing(observer)), observer) as journal,
        stopped_by_signals(stop, shown=isinstance(observer, LiveProgress)),
        _notified(run, journal, stop) as observers,
    ):
        _notify_conceded(run, observer, journal)
        ports = Ports(api, shell, clock, observers, run.conditions.gates)
        return run_plan(run.plan, run.hosts, ports, run.options, stop, run.inherited)


def _all_of(run: Run, shown: Observer) -> Observer:
    """Whoever shows the run, told last: what fails of it fails after the others have heard."""
    return Observers((*map(Unfailing, (EventLog(), *run.conditions.observers)), shown))


def _command(run: Run) -> Command:
    """The word under which the journal has it."""
    if run.options.operating:
        return "operate"
    return "apply" if run.inherited is None else "resume"


def _journalled(run: Run, observer: Observer, shown: Observer) -> AbstractContextManager[Observer]:
    """An operating process may run in a pod, whose log outlives it and its files: the lines are a journal, too."""
    lines = shown if run.options.operating and isinstance(shown, JsonLines) else None
    file, name = run.conditions.settings.output.journal, run.conditions.settings.cluster.name
    process = run.options.process
    return journalled(observer, run.plan, _command(run), file, cluster_name=name, process=process, lines=lines)


def _notified(run: Run, observer: Observer, stop: StopRequest) -> AbstractContextManager[Observer]:
    subject = Subject(
        run.plan,
        lambda: stop.requested,
        resumed=run.inherited is not None,
        unattended=run.options.operating,
        news=run.conditions.news,
        cluster=run.conditions.settings.cluster.name,
    )
    return notified(observer, run.conditions.settings.notify, subject)


def _nothing_done(run: Run, observer: Observer, stop: StopRequest) -> RunResult:
    """A run without nodes: whoever reads the lines still gets a plan and a summary, and the journal what it owes."""
    now, result = wiring.system_clock().now(), RunResult((), excluded=run.plan.excluded)
    observers = _all_of(run, observer)
    with ExitStack() as owing:
        if result.not_done:
            observers = owing.enter_context(_journalled(run, observers, observer))
            observers = owing.enter_context(_notified(run, observers, stop))
        _notify_conceded(run, observer, observers)
        observers.notify(PlanReady(now, run.plan))
        observers.notify(RunFinished(now, result))
    return result


def notify_end(run: Run, result: RunResult, stop: StopRequest) -> None:
    """Have notifications tell of the end of a run that had no nodes, where something was asked for and not done."""
    if result.not_done:
        with _notified(run, Observers(()), stop) as observer:
            observer.notify(RunFinished(wiring.system_clock().now(), result))


def tell_nothing(*why: str) -> None:
    """Where not even a plan is left: the first line and the last, for whoever reads lines waits for them."""
    with watched(as_json=True) as observer:
        for sentence in why:
            observer.notify(Notice(wiring.system_clock().now(), sentence))
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
