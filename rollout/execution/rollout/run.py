"""Carries out a plan: takes the lock, writes the record, runs the waves, reports the result.

From a plan to the result of a node:

    Rollout.run               takes the lock, and releases it at the end
    Rollout._carry_out        writes the record, and keeps the soft taints
    Rollout._run_waves        runs each wave that may follow
    Rollout._run_wave         asks the gates, and lets the cluster settle afterwards
    WaveRunner.run            starts a thread per node once the limit has room
    Rollout._run_and_report   finds the node's host and steps, and reports the result
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
    """This process's run of a rollout, which another process can continue with the same run ID."""

    hosts: RolloutHosts
    engine: Engine
    stop_rule: StopRule
    lock: LeaseLock
    events: NodeEvents
    record: RunRecord
    tainting: Tainting
    inheritance: Inheritance | None
    holder: str
    own_node: OwnNode | None
    # Whether a later pass of `rollout operate` continues.
    unattended: bool
    # The IDs of rollouts under another lock. Each is reported once.
    _reported_rollouts: set[str] = field(default_factory=set)
    # Refused nodes, whose first marks are gone: they are not taken up any more.
    _unmarked: set[str] = field(default_factory=set)

    @property
    def plan(self) -> RolloutPlan:
        return self.engine.plan

    @property
    def ledger(self) -> Ledger:
        return self.engine.ledger

    @property
    def inherited(self) -> Inheritance:
        return self.inheritance or Inheritance()

    def run(self) -> RunResult:
        """Run the plan, or the rest of one.

        Before it starts a node, `LockedError` if another rollout holds the lock or is unfinished,
        or the inherited record has changed; another `BlockedError` if the gate command refuses or a
        record is not understood; `ApiError` if Lease or record cannot be written;
        `InterruptedRunError` if stopped.
        """
        with self.lock, self.events:
            result = self._carry_out()
        self.engine.report.finished(result)
        return result

    def _carry_out(self) -> RunResult:
        """Run all waves; the record stays if anything is left to continue."""
        self.engine.gates.run_command_for_rollout()
        if self.plan.policy.rollback:
            self._hold_version(self.plan.policy.rollback)
        self._begin_record()
        if not self.unattended:
            self.engine.memory.end_abort_pause()
        self.engine.report.plan(self.plan)
        in_flight = self.inherited.taken_up.keys()
        waiting = {node.name for node in self.plan.nodes} - in_flight
        conditions = self.engine.conditions.while_running(waiting, in_flight)
        with conditions, self._soft_taints() as kept:
            self._run_waves()
            own = self._deferred_own_node()
            if own:
                self._mark_for_later(own)
                kept.add(own.name)
        is_complete = False
        if not self.ledger.is_fenced and self._may_act():
            is_complete = self._has_nothing_left()
            self.record.end(complete=is_complete, stopped=self.engine.stop.is_due)
        return self._run_result(resumable=not is_complete)

    def _hold_version(self, version: str) -> None:
        """Hold the version that the rollback leaves."""
        try:
            self.engine.memory.hold(version, self.holder)
        except (ApiError, BlockedError) as error:
            # Nodes that an earlier process has started are finished in any case.
            if not self.inherited.taken_up:
                raise
            self.engine.report.notice(f"warning: {version} cannot be held: {error.message}")

    def _begin_record(self) -> None:
        """Write or take up the record; another rollout's ended one stays until a node starts."""
        if self.inheritance is None:
            self.record.write_or_defer(self.plan, self.holder)
        else:
            self.record.take_up(self.plan.plan_id, self.plan.policy)

    def _may_act(self) -> bool:
        try:
            self.engine.check_may_act()
        except RolloutError:
            return False
        return True

    def _run_waves(self) -> None:
        for result in self.inherited.stranded:
            self.ledger.add(result)
            self.engine.report.node_finished(result)
        runner = self._wave_runner()
        why = self._wait_after_interruption()
        for wave in self.plan.waves:
            why = why or self._why_not_to_run(wave)
            if why:
                self.ledger.add_not_started(wave.nodes, why)
                continue
            try:
                why = self._run_wave(wave, runner)
            except ApiError as error:
                why = ApiUnavailable(error.message)
                not_ended = [node for node in wave.nodes if not self.ledger.has_entry_of(node.name)]
                self.ledger.add_not_started(not_ended, why)

    def _why_not_to_run(self, wave: Wave) -> Finding | None:
        if self._has_taken_up_node(wave):
            return self.stop_rule.why_none_continues()
        return self.inherited.blocked or self.stop_rule.why_none_starts()

    def _has_taken_up_node(self, wave: Wave) -> bool:
        return any(node.name in self.inherited.taken_up for node in wave.nodes)

    def _wait_after_interruption(self) -> Finding | None:
        """Wait until the cluster has settled after an earlier process's wave.

        Return why no wave may follow.
        """
        health = self.inherited.health
        waves = self.plan.waves
        if health is None or not waves or self.inherited.taken_up:
            return None
        try:
            return self._wait_until_settled(health, waves[0].index)
        except ApiError as error:
            return ApiUnavailable(error.message)

    def _run_wave(self, wave: Wave, runner: WaveRunner) -> Finding | None:
        """Run a wave, and wait until the cluster has settled; return why no other wave may follow.

        None also if a stop is due: `_run_waves` asks again.
        """
        refusal = self.engine.gates.ask_to_start_wave(wave)
        allowed = self._reduce_to_taken_up(wave, refusal) if refusal else wave
        if refusal and not allowed.nodes:
            return refusal
        self._begin_wave(allowed)
        before = None if wave.rolling else self._measure_before(allowed)
        store_health = partial(self._store_health, wave.index)
        state = WaveState(allowed, self.engine.health_monitor, self.ledger, store_health)
        with self.hosts.attending(allowed.nodes):
            runner.run(state)
        why_none_follows = refusal or state.why_none_follows
        is_last = wave is self.plan.waves[-1]
        # Nothing follows, so do not wait.
        if why_none_follows or is_last or self.stop_rule.why_none_starts():
            return why_none_follows
        if before is not None:
            return self._wait_and_soak(allowed, before)
        # In a rolling part, the cluster settles after each node.
        return state.wait_until_settled(self.engine.stop)

    def _begin_wave(self, wave: Wave) -> None:
        if self._may_act():
            # Another rollout's record goes only now that a node starts.
            self.record.replace_older(self.plan.plan_id)
        self.engine.report.wave(wave, self.plan.last_wave)

    def _reduce_to_taken_up(self, wave: Wave, why: Finding) -> Wave:
        """Drop nodes that no earlier process started; return the wave with the others."""
        taken_up = tuple(node for node in wave.nodes if node.name in self.inherited.taken_up)
        self.ledger.add_not_started([node for node in wave.nodes if node not in taken_up], why)
        return replace(wave, nodes=taken_up)

    def _measure_before(self, wave: Wave) -> Health:
        health = self.engine.health_monitor.measure_together([node.name for node in wave.nodes])
        if self.inherited.health and self._has_taken_up_node(wave):
            health = Health.of_all((self.inherited.health, health))
        self._store_health(wave.index, health)
        return health

    def _store_health(self, wave: int, health: Health) -> None:
        if self._may_act():
            self.record.store_health(wave, health)

    def _wait_and_soak(self, wave: Wave, before: Health) -> Finding | None:
        """If a node was started, wait until the cluster has settled, and soak.

        Return why no wave may follow.
        """
        finished = {result.node for result in self.ledger.finished}
        if not any(node.name in finished for node in wave.nodes):
            return None
        look_early = partial(self._look_early_at_wave_after, wave)
        unsettled = self._wait_until_settled(
            before, wave.index, blamed_wave=wave.index, prepare_next=look_early
        )
        soak = self.plan.policy.gates.soak
        if unsettled or not soak:
            return unsettled
        self.engine.report.notice(f"wave {wave.index} is done; soaking for {soak}")
        self.engine.cluster.deadline(soak).sleep_unless(self.engine.stop)
        return self._wait_until_settled(
            before, wave.index, blamed_wave=wave.index, prepare_next=look_early
        )

    def _look_early_at_wave_after(self, wave: Wave) -> None:
        """Begin to observe the hosts of the next wave, while the cluster settles."""
        for following in self.plan.waves:
            if following.index > wave.index:
                # A rolling part starts few of its nodes at once.
                if following.rolling is None:
                    now = self.engine.cluster.clock.monotonic()
                    self.hosts.start_early_observations(following.nodes, self.plan.policy, now)
                return

    def _wait_until_settled(
        self,
        before: Health,
        index: int,
        *,
        blamed_wave: int = 0,
        prepare_next: Callable[[], None] = lambda: None,
    ) -> Unsettled | None:
        """Return why no wave may follow. `blamed_wave`: 0 if unknown."""
        missing = self.engine.health_monitor.wait_until_settled(
            before,
            index,
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
        own = {self.plan.plan_id, *self.inherited.taken_up.values()}
        for node in nodes:
            run_id = node.annotations.get(marks.RUN, "")
            is_failed = node.annotations.get(marks.PHASE) == Phase.FAILED
            if run_id and not is_failed and run_id not in own | self._reported_rollouts:
                self._reported_rollouts.add(run_id)
                self.engine.report.notice(
                    f"warning: rollout {run_id} has {node.name} in flight, under a lock in another"
                    " lock.namespace: its nodes count as unavailable here. Use the same"
                    " lock.namespace in every command"
                )

    def _run_and_report(self, planned: PlannedNode) -> NodeResult:
        engine = self.engine
        host = self.hosts.host(planned, self.plan.policy)
        began = engine.cluster.clock.monotonic()
        is_unmarked = planned.name in self._unmarked
        try:
            result = engine.run_node(
                planned,
                host,
                ssh_steps(host),
                taken_up_run_id=None if is_unmarked else self.inherited.taken_up.get(planned.name),
                own=self.own_node,
            )
        except Exception as error:  # noqa: BLE001 - a defect costs one node
            result = _defect_result(planned, error, engine.cluster.clock.monotonic() - began)
            engine.remember(planned, NodeEnd(result.outcome, result.phase))
        if result.is_refused:
            # Without marks, it cannot be taken up again. A failed node got its earlier marks back.
            if planned.name not in self.inherited.retried:
                self._unmarked.add(planned.name)
            engine.report.notice(f"{planned.name} is not cordoned: {result.message}")
            return result
        is_skipped = result.outcome is Outcome.SKIPPED
        is_deferred = result.reason is ExclusionReason.DEFERRED
        if is_skipped and not is_deferred and self.plan.policy.prefer_no_schedule_taint:
            self.tainting.clear((planned.name,))
        engine.report.node_finished(result)
        engine.memory.report_held()
        return result

    def _soft_taints(self) -> AbstractContextManager[set[str]]:
        """Keep the soft taint on waiting nodes until the exit, or longer if added to the set."""
        excluded = {node.node: node.reason for node in self.plan.excluded}
        planned = {node.name for node in self.plan.nodes}
        if not self.plan.policy.prefer_no_schedule_taint:
            # Removes an earlier process's taints.
            return self.tainting.while_waiting(waiting=(), others=planned | excluded.keys())
        waiting = planned - self.inherited.taken_up.keys()
        for name, reason in excluded.items():
            if reason is ExclusionReason.DEFERRED:
                waiting.add(name)
        return self.tainting.while_waiting(waiting=waiting, others=excluded)

    def _deferred_own_node(self) -> OwnNode | None:
        """Return the node of this process if it is left to another, or None."""
        own = self.own_node
        reasons = {node.node: node.reason for node in self.ledger.skipped}
        reasons |= {node.node: node.reason for node in self.plan.excluded}
        if own is None or reasons.get(own.name) is not ExclusionReason.DEFERRED:
            return None
        return own

    def _mark_for_later(self, own: OwnNode) -> None:
        is_tainted = self.plan.policy.prefer_no_schedule_taint
        self.tainting.mark_deferred(own.name, own.marker or self.holder, taint=is_tainted)

    def _has_nothing_left(self) -> bool:
        left_out = {node.node for node in wrongly_left_out(self.plan.excluded)}
        is_anything_left = self.inherited.failed or left_out.intersection(self.inherited.left_over)
        if self.ledger.is_complete and not is_anything_left:
            return True
        if self.inheritance is not None or self.ledger.finished:
            return False
        # A rollout that has started no node leaves nothing to continue.
        try:
            return not may_have_begun(self.plan.plan_id, self.engine.cluster.ask(read_nodes))
        except ApiError:
            return False

    def _run_result(self, *, resumable: bool) -> RunResult:
        ledger = self.ledger
        inherited = self.inherited
        memory = self.engine.memory
        not_started = {node.node for node in ledger.not_started}
        waiting = [node for node in self.plan.nodes if node.name in not_started]
        return RunResult(
            finished=tuple(ledger.finished),
            skipped=tuple(ledger.skipped),
            not_started=tuple(ledger.not_started),
            excluded=self.plan.excluded,
            failed_before=inherited.failed,
            pods_to_move=self.plan.summary.pods_to_move,
            evictions=len(self.engine.moved_pods),
            left_over=inherited.left_over,
            held=memory.held_among(waiting),
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
