"""Carries out a plan: takes the lock, writes the record, runs the waves.

From a plan to the result of a node:

    Rollout.run               takes the lock, and releases it at the end
    Rollout._carry_out        writes the record, and keeps the soft taints
    Rollout._run_wave         asks the gates, and lets the cluster settle afterwards
    WaveRunner.run            starts a thread per node once the limit has room
    Rollout._run_node         finds the node's host and steps
    Engine.run_node           adds what all nodes share
    process_node              takes the steps, each in its phase:
      _check_and_cordon         PENDING: checks the node again, marks it, and cordons it
      prepare_drain             CORDONED: runs the checks before the drain
      _drain_and_mark           DRAINING: evicts pods until none is left
      _reboot                   DRAINED: runs the playbook, checks once more, requests the reboot
      _prove_boot               REBOOTING: waits for a new boot ID
      _prove_ready              BOOTED: waits until the Node is Ready
      _finish                   READY: waits for proof of the update, and uncordons the node
    Ledger.add                counts the result

Marks on a Node say where to continue it, and the record in a ConfigMap how to continue the rollout.
The memory in another ConfigMap outlives rollouts; the ledger only counts in this process.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial

from msgspec import Struct, field
from msgspec.structs import replace

from rollout.errors import ApiError, BlockedError, RolloutError
from rollout.execution.events import NodeEvents
from rollout.execution.lock import LeaseLock
from rollout.execution.node.ssh_host import RolloutHosts
from rollout.execution.node.steps import ssh_steps
from rollout.execution.node.tainting import Tainting
from rollout.execution.record.record import Health, RunRecord, may_have_begun
from rollout.execution.rollout.engine import Engine
from rollout.execution.rollout.ledger import Inheritance, Ledger
from rollout.execution.rollout.waves import Room, StopRule, WaveRunner, WaveState
from rollout.gather.cluster.snapshot import read_nodes
from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.finding import ApiUnavailable, Finding, Unsettled
from rollout.model.own_node import OwnNode
from rollout.model.plan import ExclusionReason, PlannedNode, RolloutPlan, Wave
from rollout.model.progress import NodeResult, Outcome, Phase, RunResult, wrongly_left_out
from rollout.planning.eligibility.away import away_reasons
from rollout.planning.eligibility.memory import NodeEnd
from rollout.wording.words import defect


class Rollout(Struct, frozen=True):
    """This process's part of a rollout, which another process can continue.

    inherited  what an earlier process left of this rollout; empty without one
    taken up   a node in flight that an earlier process started, and this one continues
    stranded   a node that an earlier process started, and that cannot be continued
    left over  a node that only an earlier process planned
    refused    a node that a check held right before its cordon: without marks, it waits again
    deferred   the node on which this process runs, if it is left to a later run
    """

    hosts: RolloutHosts
    engine: Engine
    stop_rule: StopRule
    lock: LeaseLock
    events: NodeEvents
    record: RunRecord
    tainting: Tainting
    is_resumed: bool
    inherited: Inheritance
    holder: str
    own_node: OwnNode | None
    unattended: bool
    # The IDs of rollouts under another lock.
    _reported_rollouts: set[str] = field(default_factory=set)
    # Without their marks, refused nodes cannot be taken up any more.
    _unmarked: set[str] = field(default_factory=set)

    @property
    def plan(self) -> RolloutPlan:
        return self.engine.plan

    @property
    def ledger(self) -> Ledger:
        return self.engine.ledger

    def run(self) -> RunResult:
        """Run the plan, or the rest of one.

        Raises `LockedError` if another rollout holds the lock or is unfinished, or the inherited
        record has changed; another `BlockedError` if the gate command refuses or a record is not
        understood; `InterruptedRunError` if stopped. No node has started then.
        """
        with self.lock, self.events:
            result = self._carry_out()
        self.engine.report.finished(result)
        return result

    def _carry_out(self) -> RunResult:
        self.engine.gates.run_command_for_rollout()
        version_to_leave = self.plan.policy.rollback
        if version_to_leave:
            self._hold_version(version_to_leave)
        self._begin_record()
        if not self.unattended:
            # After an abort, `rollout operate` starts nothing until a person starts a rollout.
            self.engine.memory.end_abort_pause()
        self.engine.report.plan(self.plan)
        in_flight = self.inherited.taken_up.keys()
        waiting = {node.name for node in self.plan.nodes} - in_flight
        conditions = self.engine.conditions.while_running(waiting, in_flight)
        with conditions, self._soft_taints() as nodes_that_stay_tainted:
            self._run_waves()
            own_node = self._deferred_own_node()
            if own_node:
                self._mark_for_later_run(own_node)
                nodes_that_stay_tainted.add(own_node.name)
        is_record_removed = self._end_record()
        return self._run_result(resumable=not is_record_removed)

    def _end_record(self) -> bool:
        """Return whether nothing is left, which removes the record."""
        if self.ledger.is_fenced or not self._may_act():
            # Another process may be using the record.
            return False
        is_complete = self._has_nothing_left()
        self.record.end(complete=is_complete, stopped=self.engine.stop.is_due)
        return is_complete

    def _hold_version(self, version: str) -> None:
        """No node may boot the version that a rollback leaves."""
        try:
            self.engine.memory.hold(version, self.holder)
        except (ApiError, BlockedError) as error:
            is_node_in_flight = bool(self.inherited.taken_up)
            if not is_node_in_flight:
                raise
            self.engine.report.notice(f"warning: {version} cannot be held: {error.message}")

    def _begin_record(self) -> None:
        if self.is_resumed:
            self.record.take_up(self.plan.plan_id, self.plan.policy)
        else:
            self.record.write_or_defer(self.plan, self.holder)

    def _may_act(self) -> bool:
        try:
            self.engine.check_may_act()
        except RolloutError:
            return False
        return True

    def _run_waves(self) -> None:
        for stranded_result in self.inherited.stranded:
            self.ledger.add(stranded_result)
            self.engine.report.node_finished(stranded_result)
        runner = self._wave_runner()
        why_none_follows = self._wait_after_interruption()
        for wave in self.plan.waves:
            if why_none_follows is None:
                why_none_follows = self._why_not_to_run(wave)
            if why_none_follows:
                self.ledger.add_not_started(wave.nodes, why_none_follows)
                continue
            try:
                why_none_follows = self._run_wave(wave, runner)
            except ApiError as error:
                why_none_follows = ApiUnavailable(error.message)
                not_ended = [node for node in wave.nodes if not self.ledger.has_entry_of(node.name)]
                self.ledger.add_not_started(not_ended, why_none_follows)

    def _why_not_to_run(self, wave: Wave) -> Finding | None:
        if self._has_taken_up_node(wave):
            # Nodes in flight are finished even if too many nodes have failed.
            return self.stop_rule.why_none_continues()
        return self.inherited.why_none_starts or self.stop_rule.why_none_starts()

    def _has_taken_up_node(self, wave: Wave) -> bool:
        return any(node.name in self.inherited.taken_up for node in wave.nodes)

    def _wait_after_interruption(self) -> Finding | None:
        health_before = self.inherited.health
        waves = self.plan.waves
        if health_before is None or not waves:
            return None
        if self.inherited.taken_up:
            # `_run_wave` continues that wave, and waits then.
            return None
        try:
            return self._wait_until_settled(health_before, waves[0].index)
        except ApiError as error:
            return ApiUnavailable(error.message)

    def _run_wave(self, wave: Wave, runner: WaveRunner) -> Finding | None:
        """None if a stop is due: `_run_waves` checks that before each wave."""
        is_last = wave is self.plan.waves[-1]
        refusal = self.engine.gates.ask_to_start_wave(wave)
        if refusal:
            wave = self._reduce_to_taken_up(wave, refusal)
            if not wave.nodes:
                return refusal
        self._begin_wave(wave)
        health_before = None if wave.rolling else self._measure_before(wave)
        store_health = partial(self._store_health, wave.index)
        state = WaveState(wave, self.engine.health_monitor, self.ledger, store_health)
        with self.hosts.attending(wave.nodes):
            runner.run(state)
        why_none_follows = refusal or state.why_none_follows
        if why_none_follows or is_last or self.stop_rule.why_none_starts():
            return why_none_follows
        if health_before is None:
            # In a rolling part, the cluster has to settle after each node.
            return state.wait_until_settled(self.engine.stop)
        return self._wait_and_soak(wave, health_before)

    def _begin_wave(self, wave: Wave) -> None:
        if self._may_act():
            self.record.write_deferred(self.plan.plan_id)
        self.engine.report.wave(wave, self.plan.last_wave)

    def _reduce_to_taken_up(self, wave: Wave, refusal: Finding) -> Wave:
        taken_up = tuple(node for node in wave.nodes if node.name in self.inherited.taken_up)
        not_started = [node for node in wave.nodes if node not in taken_up]
        self.ledger.add_not_started(not_started, refusal)
        return replace(wave, nodes=taken_up)

    def _measure_before(self, wave: Wave) -> Health:
        health = self.engine.health_monitor.measure_together([node.name for node in wave.nodes])
        if self.inherited.health and self._has_taken_up_node(wave):
            # Measured before these nodes were started, so it comes first.
            health = Health.of_all((self.inherited.health, health))
        self._store_health(wave.index, health)
        return health

    def _store_health(self, wave: int, health: Health) -> None:
        if self._may_act():
            self.record.store_health(wave, health)

    def _wait_and_soak(self, wave: Wave, health_before: Health) -> Finding | None:
        finished = {result.node for result in self.ledger.finished}
        has_started_node = any(node.name in finished for node in wave.nodes)
        if not has_started_node:
            return None

        def wait_until_settled() -> Unsettled | None:
            return self._wait_until_settled(
                health_before,
                wave.index,
                blamed_wave=wave.index,
                prepare_next=lambda: self._look_early_at_wave_after(wave),
            )

        unsettled = wait_until_settled()
        soak = self.plan.policy.gates.soak
        if unsettled or not soak:
            return unsettled
        self.engine.report.notice(f"wave {wave.index} is done; soaking for {soak}")
        self.engine.cluster.deadline(soak).sleep_unless(self.engine.stop)
        return wait_until_settled()

    def _look_early_at_wave_after(self, wave: Wave) -> None:
        later_waves = [later for later in self.plan.waves if later.index > wave.index]
        # A rolling part starts few of its nodes at once.
        if later_waves and later_waves[0].rolling is None:
            now = self.engine.cluster.clock.monotonic()
            self.hosts.start_early_observations(later_waves[0].nodes, self.plan.policy, now)

    def _wait_until_settled(
        self,
        health_before: Health,
        wave_index: int,
        *,
        blamed_wave: int = 0,
        prepare_next: Callable[[], None] = lambda: None,
    ) -> Unsettled | None:
        """`blamed_wave` is 0 if unknown."""
        missing = self.engine.health_monitor.wait_until_settled(
            health_before,
            wave_index,
            self.engine.stop,
            lambda: self.ledger.left_cordoned,
            prepare_next=prepare_next,
        )
        if not missing or self.engine.stop.is_due:
            return None
        return Unsettled(self.plan.policy.settle_timeout, missing, wave=blamed_wave)

    def _wave_runner(self) -> WaveRunner:
        engine = self.engine
        return WaveRunner(
            run_and_report=self._run_and_report,
            read_room=self._read_room,
            clock=engine.cluster.clock,
            stop_rule=self.stop_rule,
            settle_timeout=self.plan.policy.settle_timeout,
            ledger=self.ledger,
            notice=engine.report.notice,
            taken_up=frozenset(self.inherited.taken_up),
            ask_gates=engine.gates.ask,
        )

    def _read_room(self) -> Room:
        nodes = self.engine.cluster.ask(read_nodes)
        self._warn_of_other_rollouts(nodes)
        now = self.engine.cluster.api.server_time()
        away = frozenset(away_reasons(nodes, self.plan.policy, now))
        return Room(self.engine.away_limit_of(nodes), away)

    def _warn_of_other_rollouts(self, nodes: Iterable[Node]) -> None:
        own_run_ids = {self.plan.plan_id, *self.inherited.taken_up.values()}
        for node in nodes:
            run_id = node.annotations.get(marks.RUN, "")
            is_failed = node.annotations.get(marks.PHASE) == Phase.FAILED
            is_in_flight = bool(run_id) and not is_failed
            is_expected = run_id in own_run_ids or run_id in self._reported_rollouts
            if is_in_flight and not is_expected:
                self._reported_rollouts.add(run_id)
                self.engine.report.notice(
                    f"warning: rollout {run_id} has {node.name} in flight, under a lock in another"
                    " lock.namespace: its nodes count as unavailable here. Use the same"
                    " lock.namespace in every command"
                )

    def _run_and_report(self, planned: PlannedNode) -> NodeResult:
        result = self._run_node(planned)
        if result.is_refused:
            self._note_refused(result)
            return result
        is_deferred = result.reason is ExclusionReason.DEFERRED
        no_longer_waits = result.outcome is Outcome.SKIPPED and not is_deferred
        if no_longer_waits and self.plan.policy.prefer_no_schedule_taint:
            self.tainting.clear((planned.name,))
        self.engine.report.node_finished(result)
        self.engine.memory.report_held()
        return result

    def _run_node(self, planned: PlannedNode) -> NodeResult:
        """A defect fails only this node."""
        engine = self.engine
        host = self.hosts.host(planned, self.plan.policy)
        began = engine.cluster.clock.monotonic()
        taken_up_run_id = self.inherited.taken_up.get(planned.name)
        if planned.name in self._unmarked:
            # It was refused once, so it starts like a new node.
            taken_up_run_id = None
        try:
            return engine.run_node(
                planned,
                host,
                ssh_steps(host),
                taken_up_run_id=taken_up_run_id,
                own_node=self.own_node,
            )
        except Exception as error:  # noqa: BLE001 - a defect costs one node
            seconds = engine.cluster.clock.monotonic() - began
            result = _defect_result(planned, error, seconds)
            engine.remember(planned, NodeEnd(result.outcome, result.phase))
            return result

    def _note_refused(self, result: NodeResult) -> None:
        # A retried node has the marks of its failure again.
        if result.node not in self.inherited.retried:
            self._unmarked.add(result.node)
        self.engine.report.notice(f"{result.node} is not cordoned: {result.message}")

    def _soft_taints(self) -> AbstractContextManager[set[str]]:
        excluded = {node.node: node.reason for node in self.plan.excluded}
        planned = {node.name for node in self.plan.nodes}
        if not self.plan.policy.prefer_no_schedule_taint:
            # This only removes an earlier process's taints.
            return self.tainting.while_waiting(waiting=(), others=planned | excluded.keys())
        waiting = planned - self.inherited.taken_up.keys()
        for name, reason in excluded.items():
            if reason is ExclusionReason.DEFERRED:
                waiting.add(name)
        return self.tainting.while_waiting(waiting=waiting, others=excluded)

    def _deferred_own_node(self) -> OwnNode | None:
        own_node = self.own_node
        if own_node is None:
            return None
        # The plan or a later check may have deferred the node.
        reasons = {node.node: node.reason for node in self.ledger.skipped}
        reasons |= {node.node: node.reason for node in self.plan.excluded}
        is_deferred = reasons.get(own_node.name) is ExclusionReason.DEFERRED
        return own_node if is_deferred else None

    def _mark_for_later_run(self, own_node: OwnNode) -> None:
        is_tainted = self.plan.policy.prefer_no_schedule_taint
        deferred_by = own_node.marker or self.holder
        self.tainting.mark_deferred(own_node.name, deferred_by, taint=is_tainted)

    def _has_nothing_left(self) -> bool:
        should_be_planned = {node.node for node in wrongly_left_out(self.plan.excluded)}
        is_left_over_node_pending = any(
            name in should_be_planned for name in self.inherited.left_over
        )
        has_inherited_work = bool(self.inherited.failed) or is_left_over_node_pending
        if self.ledger.is_complete and not has_inherited_work:
            return True
        if self.is_resumed or self.ledger.finished:
            return False
        try:
            return not may_have_begun(self.plan.plan_id, self.engine.cluster.ask(read_nodes))
        except ApiError:
            return False

    def _run_result(self, *, resumable: bool) -> RunResult:
        ledger = self.ledger
        inherited = self.inherited
        memory = self.engine.memory
        not_started = {node.node for node in ledger.not_started}
        still_waiting = [node for node in self.plan.nodes if node.name in not_started]
        return RunResult(
            finished=tuple(ledger.finished),
            skipped=tuple(ledger.skipped),
            not_started=tuple(ledger.not_started),
            excluded=self.plan.excluded,
            failed_before=inherited.failed,
            pods_to_move=self.plan.summary.pods_to_move,
            evictions=len(self.engine.moved_pods),
            left_over=inherited.left_over,
            held=memory.held_among(still_waiting),
            newly_held=memory.newly_held,
            resumable=resumable,
            rollback=self.plan.policy.rollback,
        )


def _defect_result(planned: PlannedNode, error: Exception, seconds: float) -> NodeResult:
    return NodeResult(
        node=planned.name,
        outcome=Outcome.FAILED,
        phase=Phase.FAILED,
        seconds=seconds,
        message=defect(error),
        left_cordoned=True,
    )
