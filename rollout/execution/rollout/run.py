"""A whole rollout: take the Lease, begin the record, run the waves, the cluster settling between them, tell the end."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from rollout.errors import ApiError, RolloutError
from rollout.execution.base.deadline import Guard, PatientApi, StopRequest
from rollout.execution.base.reporting import OutageNotice, Reporter
from rollout.execution.drain.task import Precedence
from rollout.execution.events import NodeEvents
from rollout.execution.gates import PolicyGates
from rollout.execution.node.context import NodeContext, NodeHost, RememberingShell
from rollout.execution.node.steps import process_node
from rollout.execution.node.tainting import Tainting
from rollout.execution.record.memory import RunMemory
from rollout.execution.record.record import Health, RunRecord, has_begun, record_of
from rollout.execution.rollout.ledger import Inheritance, Ledger
from rollout.execution.rollout.ports import Ports, RunOptions, lease_lock
from rollout.execution.rollout.settle import Settler
from rollout.execution.rollout.waves import WaveAdmission, WaveRunner
from rollout.gather.cluster.snapshot import read_nodes
from rollout.gather.hosts.probe_command import Probe
from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.host import Host
from rollout.model.plan import ExclusionReason, PlannedNode, RolloutPlan, Wave
from rollout.model.progress import NodeResult, Outcome, Phase, RunResult, excluded_by_trouble
from rollout.planning.eligibility.away import AwayLimit, is_away
from rollout.planning.eligibility.candidates import asked_for
from rollout.planning.eligibility.memory import NodeEnd
from rollout.planning.eligibility.pools import pools_of


@dataclass
class Run:
    """One rollout under way: what is given for it, what stands on the cluster for it, and its results so far."""

    plan: RolloutPlan
    hosts: Mapping[str, Host]
    ports: Ports
    options: RunOptions
    stop: StopRequest
    inherited: Inheritance
    check: Guard
    report: Reporter
    cluster: PatientApi

    def __post_init__(self) -> None:
        plan = self.plan
        options = self.options
        inherited = self.inherited
        cluster = self.cluster
        namespace = options.lease_namespace
        limit = plan.policy.failures_allowed(options.selected)
        run = (
            plan.plan_id,
            namespace,
            limit,
            plan.policy.include_held,
            inherited.retried,
            options.unattended,
        )
        self.memory = RunMemory(cluster, self.check, self.report, *run, proven=options.proven)
        self.gates = PolicyGates(
            plan, cluster, self.report, self.stop, self.ports.gates, self.memory
        )
        self.record = RunRecord(
            cluster, record_of(namespace), self.report.notice, options.unattended
        )
        self.ledger = Ledger(
            cordoned_before=inherited.left_cordoned, failures_before=inherited.failures
        )
        self.tainting = Tainting(cluster, self.check, self.report, self.stop)
        self.settler = Settler(cluster, self.report, plan.policy)
        self.precedence = Precedence()
        self.moved = set[str]()
        self._strangers = set[str]()

    def carry_out(self, *, is_new: bool) -> RunResult:
        """Begin it, run its waves, and leave its record as its end wants it."""
        self.begin(is_new=is_new)
        with self._soft_taints() as kept:
            self.run_waves()
            kept.update(self._deferred())
        is_over = False
        if not self.ledger.fenced and self.may_act():
            is_over = self._is_over(is_new=is_new)
            self.record.end(complete=is_over, stopped=self.stop.requested)
        return self._result(resumable=not is_over)

    def begin(self, *, is_new: bool) -> None:
        """Put the plan on record once the gates let it begin, or take up what stands there, and tell of it."""
        self.gates.before_rollout()
        if is_new:
            self.record.begin(self.plan, self.options.holder)
        else:
            self.record.take_up(self.plan.plan_id, self.plan.policy)
        if not self.options.unattended:
            self.memory.begin_by_hand()
        self.report.plan(self.plan)

    def may_act(self) -> bool:
        """Tell whether the Lease is still ours."""
        try:
            self.check()
        except RolloutError:
            return False
        return True

    def run_waves(self) -> None:
        """Run one wave after another; what is not begun is given up with its reason."""
        for result in self.inherited.stranded:
            self.ledger.take(result)
            self.report.node_finished(result)
        runner = self.runner = self._wave_runner()
        why = self._settle_first()
        for wave in self.plan.waves:
            others = self.inherited.blocked or runner.reason_to_stop()
            why = why or (runner.reason_to_halt() if self._is_begun(wave) else others)
            if why:
                self.ledger.give_up(wave.nodes, why)
                continue
            try:
                why = self._run_wave(wave)
            except ApiError as error:
                self.ledger.give_up(
                    [node for node in wave.nodes if not self.ledger.has(node.name)], error.message
                )
                why = _unavailable(error)

    def _is_begun(self, wave: Wave) -> bool:
        return any(node.name in self.inherited.begun for node in wave.nodes)

    def _settle_first(self) -> str:
        """Wait for what an earlier process, interrupted between two waves, had not seen settle."""
        health = self.inherited.health
        waves = self.plan.waves
        if health is None or not waves or self.inherited.begun:
            return ""
        try:
            return self._unsettled(
                health, waves[0].index, "since the interruption the cluster has not settled"
            )
        except ApiError as error:
            return _unavailable(error)

    def _run_wave(self, wave: Wave) -> str:
        """Run one wave and let the cluster settle; why no further one may follow, empty where it may."""
        settle = wave is not self.plan.waves[-1]
        if why := self.gates.before_wave(wave):
            begun = tuple(node for node in wave.nodes if node.name in self.inherited.begun)
            self.ledger.give_up([node for node in wave.nodes if node not in begun], why)
            if not begun:
                return why
            wave = replace(wave, nodes=begun)
            settle = False
        if self.may_act():
            self.record.replace_older(self.plan.plan_id)
        self.report.wave(wave, self.plan.last_wave)
        admission = WaveAdmission(wave, self.settler, self.ledger, self._keep)
        before = None if wave.rolling else self._baseline(wave)
        with self.ports.shell.attending(self.hosts[node.name] for node in wave.nodes):
            self.runner.run(admission)
        why = why or admission.why
        if why or not settle or self.runner.reason_to_stop():
            return why
        return self._settle(before, wave) if before else admission.settle(self.stop)

    def _baseline(self, wave: Wave) -> Health:
        """Measure what is well before the wave; where it was begun before an interruption, add what was well then."""
        health = self.settler.baseline([node.name for node in wave.nodes])
        if self.inherited.health and self._is_begun(wave):
            health = Health.of_all((self.inherited.health, health))
        self._keep(health)
        return health

    def _keep(self, health: Health) -> None:
        if self.may_act():
            self.record.keep(health)

    def _settle(self, before: Health, wave: Wave) -> str:
        why = f"after wave {wave.index} the cluster did not settle"
        unsettled = self._unsettled(before, wave.index, why)
        finished = {result.node for result in self.ledger.finished}
        soak = self.plan.policy.gates.soak
        if unsettled or not soak or not any(node.name in finished for node in wave.nodes):
            return unsettled
        self.report.notice(f"wave {wave.index} is done; soaking for {soak}")
        self.cluster.deadline(soak).wait_for(self.stop)
        return self._unsettled(before, wave.index, why)

    def _unsettled(self, before: Health, index: int, why: str) -> str:
        """Wait for the cluster to be as well as before; that and why it is not, empty where it is."""
        missing = self.settler.wait(before, index, self.ledger.away, self.stop)
        is_well = not missing or self.stop.requested
        return "" if is_well else f"{why} within {self.plan.policy.settle_timeout}: {missing}"

    def _wave_runner(self) -> WaveRunner:
        policy = self.plan.policy
        selected = self.options.selected
        return WaveRunner(
            run_one=self._run_one,
            unavailable=self._away,
            clock=self.ports.clock,
            stop=self.stop,
            most_failures=policy.failures_allowed(selected),
            settle_timeout=policy.settle_timeout,
            limit=self.limit(self.cluster.ask(read_nodes) if policy.pools else ()),
            ledger=self.ledger,
            notice=self.report.notice,
            begun=frozenset(self.inherited.begun),
            hold=self.gates.hold,
        )

    def _away(self) -> frozenset[str]:
        """Name those that count as away, in the hands of whatever rollout.

        Another than this one, with those that it goes on with, holds a lock that this one cannot
        see: it is told once.
        """
        nodes = self.cluster.ask(read_nodes)
        own = {self.plan.plan_id, *self.inherited.begun.values()}
        for node in nodes:
            run = node.annotations.get(marks.RUN, "")
            is_failed = node.annotations.get(marks.PHASE) == Phase.FAILED
            if run and not is_failed and run not in own | self._strangers:
                self._strangers.add(run)
                self.report.notice(
                    f"warning: the rollout {run} has {node.name} in flight, under a lock in another"
                    " lock.namespace: its nodes count as unavailable here. Give every command the"
                    " same lock.namespace"
                )
        return frozenset(node.name for node in nodes if is_away(node))

    def refusal(self, planned: PlannedNode) -> str:
        """Why a node may not be begun now; the gates first, which may be slow."""
        return self.gates.refusal(planned) or self.runner.reason_to_stop()

    def limit(self, nodes: Iterable[Node]) -> AwayLimit:
        """How many of these may be away."""
        return AwayLimit.of(self.plan.policy, self.options.selected, asked_for(self.plan), nodes)

    def _run_one(self, planned: PlannedNode) -> NodeResult:
        context = self.context(planned)
        try:
            result = process_node(context)
        except Exception as error:  # noqa: BLE001 - a defect of this program costs one node its turn, not all of them
            message = f"internal error, please report it: {error!r}"
            phase = Phase.FAILED
            result = NodeResult(
                context.name, Outcome.FAILED, phase, context.seconds, message, left_cordoned=True
            )
            self.memory.note(planned, NodeEnd(result.outcome, phase))
        if result.waits:
            self.report.notice(f"{planned.name} is not cordoned: {result.message}")
            return result
        waits_no_more = (
            result.outcome is Outcome.SKIPPED and result.reason is not ExclusionReason.DEFERRED
        )
        if waits_no_more and self.plan.policy.prefer_no_schedule_taint:
            self.tainting.clear((planned.name,))
        self.report.node_finished(result)
        self.memory.report_held()
        return result

    def context(self, planned: PlannedNode) -> NodeContext:
        """Return what the steps of a node have at hand."""
        ports = self.ports
        options = self.options
        begun = self.inherited.begun
        policy = self.plan.policy
        own = options.own_node
        return NodeContext(
            planned,
            begun.get(planned.name, self.plan.plan_id),
            self.cluster,
            self.check,
            self.report,
            ports.clock.monotonic(),
            pools_of(policy).rules(planned.pool),
            precedence=self.precedence,
            moved=self.moved,
            host=NodeHost(
                self.hosts[planned.name],
                planned,
                RememberingShell(ports.shell),
                options.probe_timeout,
                options.reboot_command,
                Probe(policy.detect, options.detect_command),
            ),
            gates=self.gates,
            refusal=self.refusal,
            limit=self.limit,
            stop=self.stop,
            is_taken_up=planned.name in begun,
            playbooks=ports.gates.playbooks,
            own=own if own and own.name == planned.name else None,
            remember=self.memory.note,
            objection=self.memory.objection,
        )

    def _soft_taints(self) -> AbstractContextManager[set[str]]:
        """Keep the soft taint on the nodes that wait, where the rules ask for it; at the end on none of this self."""
        left = {left.node: left.reason for left in self.plan.excluded}
        planned = frozenset(node.name for node in self.plan.nodes)
        if not self.plan.policy.prefer_no_schedule_taint:
            return self.tainting.while_waiting((), planned | left.keys())
        deferred = {name for name, reason in left.items() if reason is ExclusionReason.DEFERRED}
        return self.tainting.while_waiting((planned - self.inherited.begun.keys()) | deferred, left)

    def _deferred(self) -> set[str]:
        """Mark the node under this process for a run from elsewhere, now that all others have had their turn."""
        own = self.options.own_node
        reasons = {node.node: node.reason for node in self.ledger.skipped}
        reasons |= {left.node: left.reason for left in self.plan.excluded}
        if own is None or reasons.get(own.name) is not ExclusionReason.DEFERRED:
            return set()
        is_tainted = self.plan.policy.prefer_no_schedule_taint
        self.tainting.defer(own.name, own.marker or self.options.holder, taint=is_tainted)
        return {own.name}

    def _is_over(self, *, is_new: bool) -> bool:
        """Tell whether nothing is left to go on with: neither here, nor once a trouble has passed.

        A new rollout that has begun no node leaves nothing, and is begun anew.
        """
        left = {node.node for node in excluded_by_trouble(self.plan.excluded)} & set(
            self.inherited.left_over
        )
        if self.ledger.complete and not (self.inherited.failed or left):
            return True
        if not is_new or self.ledger.finished:
            return False
        try:
            return not has_begun(self.plan.plan_id, self.cluster.ask(read_nodes))
        except ApiError:
            return False

    def _result(self, *, resumable: bool) -> RunResult:
        ledger = self.ledger
        inherited = self.inherited
        waiting = {node.node for node in ledger.not_started}
        return RunResult(
            tuple(ledger.finished),
            tuple(ledger.skipped),
            tuple(ledger.not_started),
            self.plan.excluded,
            inherited.failed,
            self.plan.summary.pods_to_move,
            len(self.moved),
            inherited.left_over,
            self.memory.held_among(node for node in self.plan.nodes if node.name in waiting),
            self.memory.newly_held,
            resumable=resumable,
        )


def _unavailable(error: ApiError) -> str:
    return f"the API server is unavailable: {error.message}"


def run_plan(
    plan: RolloutPlan,
    hosts: Mapping[str, Host],
    ports: Ports,
    options: RunOptions,
    stop: StopRequest,
    inherited: Inheritance | None = None,
) -> RunResult:
    """Run a plan, or what is left of it. `hosts` are by Node name.

    Raises `BlockedError` where another rollout holds the Lease, or has left its record unfinished,
    or where the record of what is gone on with is another by now; and `InterruptedRunError` where
    `stop` is wished for before anything has begun.
    """
    events = NodeEvents(ports.api, plan.plan_id, plan.nodes, ports.observers, ports.clock)
    cluster = PatientApi(ports.api, ports.clock, OutageNotice(events.report))
    with lease_lock(cluster, options, plan.plan_id, events.report, stop) as lock, events:
        run = Run(
            plan,
            hosts,
            ports,
            options,
            stop,
            inherited or Inheritance(),
            lock.check,
            events.report,
            cluster,
        )
        result = run.carry_out(is_new=inherited is None)
    events.report.finished(result)
    return result
