"""A whole rollout: take the Lease, run the waves, let the cluster settle between them, tell the end."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial

from rollout.errors import ApiError, RolloutError
from rollout.execution.base.patience import PatientApi, patient_api
from rollout.execution.base.reporting import Observers, OutageNotice, Reporter
from rollout.execution.base.stop import Guard, StopRequest
from rollout.execution.drain.task import MovedPods, Precedence
from rollout.execution.events.phases import PhaseEvents
from rollout.execution.events.writer import EventWriter
from rollout.execution.gates.gates import Gates
from rollout.execution.gates.policy_gates import PolicyGates, Surroundings
from rollout.execution.lock import LeaseLock, LeaseTerms
from rollout.execution.node.context import NodeAdmission, NodeContext, NodeTask
from rollout.execution.node.failures import blamed
from rollout.execution.node.host import NodeHost, RememberingShell
from rollout.execution.node.steps import process_node
from rollout.execution.node.tainting import Tainting
from rollout.execution.record.health import Health
from rollout.execution.record.memory import RunMemory, Terms
from rollout.execution.record.no_record import NoRecord, Record
from rollout.execution.record.record import RunRecord, has_begun
from rollout.execution.rollout.admission import Away, RunAdmission
from rollout.execution.rollout.ledger import Inheritance, Ledger
from rollout.execution.rollout.ports import Ports, RunOptions
from rollout.execution.rollout.rolling import RollingAdmission
from rollout.execution.rollout.settle import Settler
from rollout.execution.rollout.waves import Allowance, WaveRunner
from rollout.gather.cluster.snapshot import read_nodes
from rollout.gather.hosts.probe_command import Probe
from rollout.model.host import Host
from rollout.model.plan import ExclusionReason, PlannedNode, RolloutPlan, Wave
from rollout.model.progress import NodeResult, Outcome, Phase, RunResult, excluded_by_trouble
from rollout.planning.away import Room
from rollout.planning.pools import pools_of


@dataclass(frozen=True, slots=True)
class _Run:
    """One rollout under way."""

    plan: RolloutPlan
    hosts: Mapping[str, Host]
    ports: Ports
    options: RunOptions
    stop: StopRequest
    guard: Guard
    report: Reporter
    cluster: PatientApi
    inherited: Inheritance
    gates: Gates
    record: Record
    moved: MovedPods
    memory: RunMemory
    events: EventWriter
    precedence: Precedence = field(default_factory=Precedence)
    is_new: bool = True

    @property
    def tainting(self) -> Tainting:
        """Where the soft taint is set and taken away."""
        return Tainting(self.cluster, self.guard, self.report, self.stop)


def execute(
    plan: RolloutPlan,
    hosts: Mapping[str, Host],
    ports: Ports,
    options: RunOptions,
    stop: StopRequest,
    inherited: Inheritance | None = None,
) -> RunResult:
    """Run a plan, or what is left of it. `hosts` are by Node name.

    Raises `BlockedError` where another rollout holds the Lease, or has left its record unfinished, or where the record
    of what is gone on with is another by now; and `InterruptedRunError` where `stop` is wished for before anything has
    begun.
    """
    report = Reporter(ports.observer, ports.clock)
    cluster = patient_api(ports.api, ports.clock, OutageNotice(report), options.api_patience)
    record = _record(cluster, options, inherited, report)
    lease = LeaseLock(
        ports.api,
        ports.clock,
        _lease_terms(plan, options),
        cluster.notice,
        stop=stop,
        notice=report.notice,
        silence=cluster.silence,
        watch=options.watch,
    )
    with lease as lock, PhaseEvents(ports.api, plan, report) as events:
        report = Reporter(Observers((ports.observer, events)), ports.clock)
        memory = RunMemory(cluster, lock, report, _memory_terms(plan, options, inherited))
        around = Surroundings(plan, cluster, report, stop, memory)
        gates = PolicyGates(around, ports.gates)
        gates.before_rollout()
        record.begin(plan, options.holder) if inherited is None else record.take_up(plan.plan_id)
        if not options.operating:
            memory.begin_by_hand()
        report.plan(plan)
        moved, left = MovedPods(options.pods), inherited or Inheritance()
        at_hand = (gates, record, moved, memory, events.writer)
        run = _Run(plan, hosts, ports, options, stop, lock, report, cluster, left, *at_hand, is_new=inherited is None)
        with _soft_taints(run) as kept:
            ledger = _run_waves(run)
            kept.update(_deferred(run, ledger))
        is_over = False
        if not ledger.fenced and _may_act(lock):
            is_over = _is_over(run, ledger)
            record.end(complete=is_over)
        result = replace(_result(run, ledger), resumable=not is_over)
    report.finished(result)
    return result


def _is_over(run: _Run, ledger: Ledger) -> bool:
    """Whether nothing is left that this rollout could be gone on with: neither here, nor once a trouble has passed."""
    left = {node.node for node in excluded_by_trouble(run.plan.excluded)} & set(run.inherited.left_over)
    return (ledger.complete and not (run.inherited.failed or left)) or not _has_begun(run, ledger)


def _has_begun(run: _Run, ledger: Ledger) -> bool:
    """Whether any node was: a rollout that has begun nothing leaves nothing, and is begun anew."""
    if not run.is_new or ledger.finished:
        return True
    try:
        return has_begun(run.plan.plan_id, run.cluster.ask(read_nodes))
    except ApiError:
        return True


def _result(run: _Run, ledger: Ledger) -> RunResult:
    waiting = {node.node for node in ledger.not_started}
    return RunResult(
        tuple(ledger.finished),
        tuple(ledger.skipped),
        tuple(ledger.not_started),
        run.plan.excluded,
        run.inherited.failed,
        run.moved.of(run.plan.summary.pods_to_move),
        run.inherited.left_over,
        run.memory.held_among(node for node in run.plan.nodes if node.name in waiting),
    )


def _lease_terms(plan: RolloutPlan, options: RunOptions) -> LeaseTerms:
    return LeaseTerms(
        options.lease_namespace,
        options.holder,
        plan.plan_id,
        options.lease_seconds,
        options.api_patience,
        options.unlock,
        options.process,
    )


def _soft_taints(run: _Run) -> AbstractContextManager[set[str]]:
    """The soft taint on the nodes that wait, where the rules ask for it; at the end on none that this run is about."""
    left = {left.node: left.reason for left in run.plan.excluded}
    planned = frozenset(node.name for node in run.plan.nodes)
    if not run.plan.policy.prefer_no_schedule_taint:
        return run.tainting.standing((), planned | left.keys())
    deferred = {name for name, reason in left.items() if reason is ExclusionReason.DEFERRED}
    return run.tainting.standing((planned - run.inherited.begun.keys()) | deferred, left)


def _deferred(run: _Run, ledger: Ledger) -> set[str]:
    """The node under this process, marked for a run from elsewhere now that all others have had their turn, if any."""
    own = run.options.own_node
    reasons = {node.node: node.reason for node in ledger.skipped}
    reasons |= {left.node: left.reason for left in run.plan.excluded}
    if own is None or reasons.get(own.name) is not ExclusionReason.DEFERRED:
        return set()
    run.tainting.defer(own.name, own.marker or run.options.holder, taint=run.plan.policy.prefer_no_schedule_taint)
    return {own.name}


def _memory_terms(plan: RolloutPlan, options: RunOptions, inherited: Inheritance | None) -> Terms:
    policy = plan.policy
    limit = max(1, policy.max_failures.of(options.selected))
    retried = inherited.retried if inherited else frozenset()
    return Terms(plan.plan_id, options.lease_namespace, limit, policy.include_held, retried, options.operating)


def _record(cluster: PatientApi, options: RunOptions, inherited: Inheritance | None, report: Reporter) -> Record:
    if inherited is not None and not inherited.is_recorded:
        return NoRecord()
    return RunRecord(cluster, options.lease_namespace, report.notice, operating=options.operating)


def _may_act(guard: Guard) -> bool:
    try:
        guard.check()
    except RolloutError:
        return False
    return True


def _run_waves(run: _Run) -> Ledger:
    ledger = Ledger(cordoned_before=run.inherited.left_cordoned, failures_before=run.inherited.failures)
    for result in run.inherited.stranded:
        ledger.take(result)
        run.report.node_finished(result)
    runner, settler = _runner(run, ledger), _settler(run)
    why = _settle_first(run, settler, ledger)
    for position, wave in enumerate(run.plan.waves):
        is_begun = any(node.name in run.inherited.begun for node in wave.nodes)
        why = why or (runner.reason_to_halt() if is_begun else runner.reason_to_stop())
        if why:
            ledger.give_up(wave.nodes, why)
            continue
        is_last = position + 1 == len(run.plan.waves)
        try:
            why = _run_wave(run, runner, settler, wave, settle=not is_last)
        except ApiError as error:
            ledger.give_up(_unaccounted(wave, ledger), error.message)
            why = f"the API server is unavailable: {error.message}"
    return ledger


def _settle_first(run: _Run, settler: Settler, ledger: Ledger) -> str:
    """An earlier process was interrupted between two waves: what it had not seen settle is waited for."""
    health, waves = run.inherited.health, run.plan.waves
    if health is None or not waves or run.inherited.begun:
        return ""
    try:
        unsettled = settler.wait(health, waves[0].index, ledger.away, run.stop)
    except ApiError as error:
        return f"the API server is unavailable: {error.message}"
    if not unsettled or run.stop.requested:
        return ""
    return f"since the interruption the cluster has not settled within {run.plan.policy.settle_timeout}: {unsettled}"


def _run_wave(run: _Run, runner: WaveRunner, settler: Settler, wave: Wave, *, settle: bool) -> str:
    """Run one wave and let the cluster settle; why no further one may follow, empty where it may."""
    if why := run.gates.before_wave(wave):
        begun = tuple(node for node in wave.nodes if node.name in run.inherited.begun)
        runner.ledger.give_up([node for node in wave.nodes if node not in begun], why)
        if not begun:
            return why
        wave, settle = replace(wave, nodes=begun), False
    run.report.wave(wave, len(run.plan.waves))
    rolling = _rolling(run, settler, wave, runner.ledger)
    before = Health({}, frozenset()) if rolling else _baseline(run, settler, wave)
    with run.ports.shell.attending(run.hosts[node.name] for node in wave.nodes):
        runner.run(wave, rolling)
    why = why or (rolling.why if rolling else "")
    if why or not settle or runner.reason_to_stop():
        return why
    return rolling.settle(run.stop) if rolling else _settle(run, settler, before, wave, runner.ledger)


def _rolling(run: _Run, settler: Settler, wave: Wave, ledger: Ledger) -> RollingAdmission | None:
    """Who may begin in a wave whose nodes follow one another; None where they are taken side by side."""
    if wave.rolling is None:
        return None
    return RollingAdmission(wave, wave.rolling, settler, ledger, partial(_keep, run))


def _baseline(run: _Run, settler: Settler, wave: Wave) -> Health:
    """What is well before the wave; where it was begun before an interruption, what was well then."""
    health = settler.baseline([node.name for node in wave.nodes])
    if run.inherited.health and any(node.name in run.inherited.begun for node in wave.nodes):
        health = run.inherited.health.joined(health)
    _keep(run, health)
    return health


def _keep(run: _Run, health: Health) -> None:
    if _may_act(run.guard):
        run.record.keep(health)


def _unaccounted(wave: Wave, ledger: Ledger) -> list[PlannedNode]:
    """Nodes of a wave that neither finished nor were given up."""
    accounted = {result.node for result in ledger.finished}
    accounted |= {entry.node for entry in (*ledger.skipped, *ledger.not_started)}
    return [node for node in wave.nodes if node.name not in accounted]


def _settle(run: _Run, settler: Settler, before: Health, wave: Wave, ledger: Ledger) -> str:
    unsettled = settler.wait(before, wave.index, ledger.away, run.stop)
    if not unsettled and _any_finished(wave, ledger) and run.gates.soak(wave):
        unsettled = settler.wait(before, wave.index, ledger.away, run.stop)
    if not unsettled or run.stop.requested:
        return ""
    return f"after wave {wave.index} the cluster did not settle within {run.plan.policy.settle_timeout}: {unsettled}"


def _any_finished(wave: Wave, ledger: Ledger) -> bool:
    names = {node.name for node in wave.nodes}
    return any(result.node in names for result in ledger.finished)


def _runner(run: _Run, ledger: Ledger) -> WaveRunner:
    policy = run.plan.policy
    runner = WaveRunner(
        run_one=lambda node: _run_one(run, node, admission),
        unavailable=Away(run.cluster, {run.plan.plan_id, *run.inherited.begun.values()}, run.report),
        clock=run.ports.clock,
        stop=run.stop,
        allowance=Allowance(
            failures=max(1, policy.max_failures.of(run.options.selected)),
            settle_timeout=policy.settle_timeout,
        ),
        room=Room.of(run.plan, run.options.selected, run.cluster.ask(read_nodes) if policy.pools else ()),
        ledger=ledger,
        notice=run.report.notice,
        begun=frozenset(run.inherited.begun),
        gates=run.gates,
    )
    admission = RunAdmission(run.plan, run.options.selected, run.gates, runner.reason_to_stop)
    return runner


def _settler(run: _Run) -> Settler:
    return Settler(run.cluster, run.report, run.plan.policy)


def _run_one(run: _Run, planned: PlannedNode, admission: NodeAdmission) -> NodeResult:
    context = _context(run, planned, admission)
    result = _run_safely(context)
    if result.waits:
        run.report.notice(f"{planned.name} is not cordoned: {result.message}")
        return result
    waits_no_more = result.outcome is Outcome.SKIPPED and result.reason is not ExclusionReason.DEFERRED
    if waits_no_more and run.plan.policy.prefer_no_schedule_taint:
        run.tainting.clear((planned.name,))
    run.memory.note(
        blamed(planned, result.outcome, result.version, is_refused=context.host.shell.is_refused),
        result.outcome,
        result.phase,
        result.unmoved,
    )
    run.report.node_finished(result)
    run.memory.report_held()
    return result


def _context(run: _Run, planned: PlannedNode, admission: NodeAdmission) -> NodeContext:
    ports, options, begun = run.ports, run.options, run.inherited.begun
    rollout = begun.get(planned.name, run.plan.plan_id)
    courtesy, started = run.plan.policy.courtesy, ports.clock.monotonic()
    host, own = run.hosts[planned.name], options.own_node
    probe = Probe(run.plan.policy.detect, options.sentinel)
    return NodeContext(
        NodeTask(planned, rollout, run.cluster, run.guard, run.report, started, courtesy),
        NodeHost(
            host,
            planned,
            RememberingShell(ports.shell),
            ports.clock,
            options.probe_timeout,
            options.reboot_command,
            probe,
            options.wall_command,
        ),
        pools_of(run.plan.policy).rules(planned.pool),
        run.gates,
        admission,
        run.stop,
        is_taken_up=planned.name in begun,
        precedence=run.precedence,
        moved=run.moved,
        own=own if own and own.name == planned.name else None,
        events=run.events,
        remember=run.memory.note,
    )


def _run_safely(context: NodeContext) -> NodeResult:
    """A defect of this program costs one node its turn, not the other nodes theirs."""
    try:
        return process_node(context)
    except Exception as error:  # noqa: BLE001 - see above
        message = f"internal error, please report it: {error!r}"
        seconds = context.task.seconds
        return NodeResult(context.name, Outcome.FAILED, Phase.FAILED, seconds, message, left_cordoned=True)
