"""Works on the nodes of all slots, on the replica that holds the lock.

If that replica dies, another one continues from the marks.
"""

import threading
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial

from msgspec import Struct

from rollout.errors import ApiError, BlockedError, FencedError, RolloutError
from rollout.execution.base.deadline import Deadline, GracefulStop, Guard, PatientApi
from rollout.execution.base.reporting import OutageNotice, Reporter
from rollout.execution.drain.task import Precedence
from rollout.execution.events import NodeEvents
from rollout.execution.gates import PolicyGates
from rollout.execution.lease import HolderState
from rollout.execution.lock import LeaseLock, LockOptions
from rollout.execution.node.conditions import NodeConditions
from rollout.execution.node.failures import NodeFailure
from rollout.execution.node.rejoin import mark_new_node
from rollout.execution.record.memory import RunMemory, change_memory
from rollout.execution.record.record import Health
from rollout.execution.rollout.engine import Engine
from rollout.execution.rollout.health_monitor import HealthMonitor, NodeBaseline
from rollout.execution.rollout.ledger import Ledger
from rollout.gather.cluster.snapshot import read_identity, read_nodes
from rollout.model import marks
from rollout.model.cluster import ClusterIdentity, ConditionStatus, Node
from rollout.model.finding import Unsettled
from rollout.model.fleetlock import Slot, Slots, SlotState
from rollout.model.node_marks import is_returned_by
from rollout.model.plan import RolloutPlan
from rollout.model.progress import NodeResult, NodeStep, Outcome, Phase, RunResult, StepEvent
from rollout.planning.eligibility.memory import EndedNode, NodeEnd, with_node_end
from rollout.server.admission import away_limit
from rollout.server.nodes import AWAITED_IN_REBOOT, await_reregistration, plan_of, read_slot_node
from rollout.server.slot_host import SlotHost
from rollout.server.slot_steps import SlotSteps
from rollout.server.state import ServerContext, Troubles
from rollout.threads import in_background
from rollout.wording import text
from rollout.wording.words import defect

_BUSY_SECONDS = 1.0
_IDLE_SECONDS = 3.0
_STOP_SECONDS = 2.0
_RETRY_SECONDS = 10.0
_SLOTS = "the slots of FleetLock"


class _DetailObserver(Struct, frozen=True):
    run_id: str
    # By run ID.
    details: dict[str, str]

    def notify(self, event: StepEvent) -> None:
        if isinstance(event, NodeStep):
            self.details[self.run_id] = event.detail


@dataclass
class SlotRunner:
    """Takes slots' nodes through their steps; for many threads.

    A run is taken up if another replica has started it, as the Node's marks show.
    """

    server: ServerContext
    server_stop: GracefulStop
    # By run ID.
    details: dict[str, str] = field(default_factory=dict)
    # The drains of all slots compete for the same budgets.
    _precedence: Precedence = field(default_factory=Precedence)
    # The health before each node in flight, by its name.
    _baselines: dict[str, NodeBaseline] = field(default_factory=dict)

    @cached_property
    def _cluster_identity(self) -> ClusterIdentity:
        return read_identity(self.server.api)

    def run_slot(self, slot: Slot, check_may_act: Guard, stop: GracefulStop) -> NodeResult | None:
        server = self.server
        node = read_slot_node(server.api, slot)
        if node is None and slot.awaited in AWAITED_IN_REBOOT:
            node = self._await_new_node(slot, check_may_act)
            slot = server.slots.cached_slot(slot)
        if node is None:
            return None
        is_taken_up = node.annotations.get(marks.RUN) == slot.run_id
        if is_returned_by(node, slot.run_id):
            return None
        has_rebooted = bool(node.boot_id) and node.boot_id != slot.boot_id
        if has_rebooted and not is_taken_up:
            # The host rebooted without a drain.
            return None
        if slot.is_canceled and not is_taken_up:
            # The node was never cordoned.
            self._remember_as_canceled(slot)
            return None
        plan = plan_of(
            node=node,
            slot=slot,
            selection=server.settings.selection,
            policy=server.settings.policy,
            now=server.clock.now(),
            cluster=self._cluster_identity,
        )
        try:
            with self._reporter_of(plan) as report:
                engine = self._make_engine(plan, report, check_may_act, stop)
                return self._run_with_engine(slot, engine, is_taken_up=is_taken_up)
        finally:
            self.details.pop(slot.run_id, None)

    @contextmanager
    def _reporter_of(self, plan: RolloutPlan) -> Iterator[Reporter]:
        server = self.server
        with server.observers_of(plan) as server_observers:
            observers = (*server_observers, _DetailObserver(plan.plan_id, self.details))
            with NodeEvents(
                server.api,
                run_id=plan.plan_id,
                nodes=plan.nodes,
                observers=observers,
                clock=server.clock,
            ) as events:
                yield events.report

    def _make_engine(
        self, plan: RolloutPlan, report: Reporter, check_may_act: Guard, stop: GracefulStop
    ) -> Engine:
        server = self.server
        settings = server.settings
        cluster = PatientApi(server.api, server.clock, OutageNotice(report))
        memory = RunMemory(
            cluster,
            check_may_act,
            report,
            run_id=plan.plan_id,
            namespace=settings.namespace,
            failure_limit=settings.failure_limit(cluster.ask(read_nodes)),
            include_held=plan.policy.include_held,
        )
        gates = PolicyGates(plan, cluster, report, stop=stop, ports=server.gates, memory=memory)
        return Engine(
            plan=plan,
            cluster=cluster,
            check_may_act=check_may_act,
            report=report,
            stop=stop,
            gates=gates,
            memory=memory,
            ledger=Ledger(),
            health_monitor=HealthMonitor(cluster, report, plan.policy, gates.health.find_problem),
            conditions=NodeConditions.of_plan(plan, cluster, check_may_act, report),
            away_limit_of=partial(away_limit, selection=settings.selection, policy=settings.policy),
            why_none_starts=lambda: None,
            precedence=self._precedence,
        )

    def _await_new_node(self, slot: Slot, check_may_act: Guard) -> Node | None:
        """Continue for a replica that ended while the Node was gone.

        None if no Node comes in time, or if the reboot is canceled.
        """
        server = self.server
        cluster = PatientApi(server.api, server.clock)
        try:
            node = await_reregistration(
                cluster,
                check_may_act,
                slot,
                server.settings.slot_timeout,
                is_canceled=lambda: server.slots.cached_slot(slot).is_canceled,
            )
        except NodeFailure:
            return None
        task = server.task_for_marking(slot, node, cluster, check_may_act)
        mark_new_node(task, Phase.REBOOTING, {})
        server.slots.change(partial(Slots.adopt_node, run_id=slot.run_id, node_uid=node.uid))
        return read_slot_node(server.api, server.slots.cached_slot(slot))

    def _remember_as_canceled(self, slot: Slot) -> None:
        # Memory counts a FleetLock run's abort as a canceled reboot.
        end = NodeEnd(Outcome.ABORTED, Phase.PENDING)
        ended = EndedNode(slot.node, version="", end=end, run_id=slot.run_id)
        change = partial(with_node_end, ended=ended, now=self.server.now)
        with suppress(ApiError):
            change_memory(self.server.api, self.server.settings.namespace, change)

    def _run_with_engine(self, slot: Slot, engine: Engine, *, is_taken_up: bool) -> NodeResult:
        report = engine.report
        ledger = engine.ledger
        plan = engine.plan
        planned = plan.nodes[0]
        report.plan(plan)
        report.wave(plan.waves[0], 1)
        if not is_taken_up:
            self._baselines.update(
                engine.health_monitor.measure([slot.node], dict(self._baselines))
            )
        host = SlotHost(slot, planned, self.server.api, self.server.slots)
        steps = SlotSteps(
            slot=slot,
            slots=self.server.slots,
            timeout=self.server.settings.slot_timeout,
            check_not_fenced=engine.check_may_act,
        )
        taken_up_run_id = slot.run_id if is_taken_up else None
        try:
            result = engine.run_node(planned, host, steps.by_phase, taken_up_run_id=taken_up_run_id)
        finally:
            # Without a baseline, nothing shows whether the cluster has settled.
            baseline = self._baselines.pop(slot.node, None)
        engine.memory.report_held()
        if result.outcome is Outcome.FENCED:
            return result
        report.node_finished(result)
        if result.succeeded and baseline is not None:
            self._await_settled(slot, engine, baseline.health)
        ledger.add(result)
        report.finished(
            RunResult(tuple(ledger.finished), tuple(ledger.skipped), tuple(ledger.not_started))
        )
        return result

    def _await_settled(self, slot: Slot, engine: Engine, health_before: Health) -> None:
        stop = engine.stop.with_process_stop(self.server_stop)
        try:
            why_unsettled = engine.health_monitor.wait_until_settled(
                health_before,
                wave=1,
                stop=stop,
                # Other hosts may reboot meanwhile.
                expected_away=lambda: self.server.slots.cached.nodes - {slot.node},
                in_flight=lambda: dict(self._baselines),
            )
        except ApiError as error:
            why_unsettled = error.message
        if why_unsettled and not stop.is_due:
            timeout = engine.plan.policy.settle_timeout
            engine.report.notice(text(Unsettled(timeout, why_unsettled, node=slot.node)))
        soak = engine.cluster.deadline(engine.plan.policy.gates.soak)
        while not (soak.expired or stop.is_due):
            # The server's stop does not end a wait, so steps are short.
            engine.cluster.clock.wait(stop, min(_BUSY_SECONDS, soak.remaining))


class SlotThread(Struct, frozen=True):
    future: Future[None]
    # Requested if the reboot is canceled.
    stop: GracefulStop


class Worker:
    """Holds the lock while slots need work, with a thread for each.

    A thread ends early if `server_stop` is requested, or `lead_end` once the lock is lost.

    A slot is failed if its node stays cordoned, or absent if its host did not come back either:
    then it waits for a report of its host.
    """

    def __init__(self, server: ServerContext, server_stop: GracefulStop) -> None:
        self._settings = server.settings
        self._server = server
        self._leadership = server.leadership
        self._server_stop = server_stop
        self._woken = threading.Event()
        # By run ID. A failed run starts again once its pause has expired.
        self._threads: dict[str, SlotThread] = {}
        self._retry_pauses: dict[str, Deadline] = {}
        self._slots = Slots()
        self._troubles = Troubles(server.notice)
        self._runner = SlotRunner(server, server_stop)

    def wake(self) -> None:
        self._woken.set()

    def detail(self, slot: Slot) -> str:
        return self._runner.details.get(slot.run_id, "")

    @property
    def thread_count(self) -> int:
        return len(self._threads)

    def work_until_stopped(self) -> None:
        while not self._server_stop.is_due:
            try:
                self._read_slots()
                slots = self._slots_to_work_on()
                if slots:
                    # The Lease names one slot's run, which shows that a FleetLock server holds the
                    # lock.
                    self._lead_if_nobody_does(run_on_lease=slots[0].run_id)
            except RolloutError as error:
                self._troubles.report(_SLOTS, error.message)
            except Exception as error:  # noqa: BLE001 - a defect must not end this thread
                self._troubles.report(_SLOTS, defect(error))
            else:
                self._troubles.end(_SLOTS)
            self._pause(_BUSY_SECONDS if self._slots_to_work_on() else _IDLE_SECONDS)

    def _pause(self, seconds: float) -> None:
        self._server.clock.wait(self._woken, seconds)
        self._woken.clear()

    def _read_slots(self) -> None:
        self._slots = self._server.slots.read_now()
        if self._slots.all:
            # Only repeated reads show whether the holder is alive.
            self._leadership.read_holder_state()

    def _slots_to_work_on(self) -> list[Slot]:
        return [slot for slot in self._slots.all if self._needs_work(slot)]

    def _needs_work(self, slot: Slot) -> bool:
        if slot.state is SlotState.HELD or slot.is_canceled:
            return True
        return self._is_node_gone(slot)

    def _is_node_gone(self, slot: Slot) -> bool:
        try:
            node = self._server.nodes.require_all().get(slot.node)
            if node is not None and node.uid == slot.node_uid:
                return False
            # The watch may be late.
            return read_slot_node(self._server.api, slot) is None
        except ApiError:
            return False

    def _lead_if_nobody_does(self, run_on_lease: str) -> None:
        is_free = self._leadership.read_holder_state() in (HolderState.NOBODY, HolderState.GONE)
        if not is_free:
            return
        cluster = PatientApi(self._server.api, self._server.clock)
        options = LockOptions(
            holder=self._settings.holder,
            namespace=self._settings.namespace,
            seconds=self._settings.lease_seconds,
            watch=self._leadership.watch,
        )
        lock = LeaseLock(cluster, options, run_on_lease, self._server_stop)
        lead_end = GracefulStop()
        # Blocked if another replica or a rollout was faster.
        with suppress(BlockedError), lock:
            self._leadership.own_lock = lock
            try:
                self._work_while_leading(lock, lead_end)
            finally:
                lead_end.request()
                self._leadership.own_lock = None

    def _work_while_leading(self, lock: LeaseLock, lead_end: GracefulStop) -> None:
        while not self._server_stop.is_due and (self._slots_to_work_on() or self._threads):
            # First, so that the read shows what the ended threads have written.
            self._drop_ended_threads()
            with suppress(ApiError):
                self._read_slots()
            # If the read failed, the cache still has what they have written.
            self._slots = self._server.slots.cached
            self._stop_canceled_threads()
            try:
                lock.check()
            except FencedError as error:
                self._server.notice(error.message)
                break
            for slot in self._slots_to_work_on():
                retry_pause = self._retry_pauses.get(slot.run_id)
                is_due = retry_pause is None or retry_pause.expired
                if is_due and slot.run_id not in self._threads:
                    self._start_thread(slot, lock, lead_end)
            self._pause(_BUSY_SECONDS)
        lead_end.request()
        wait([thread.future for thread in self._threads.values()], timeout=_STOP_SECONDS)
        self._threads.clear()

    def _start_thread(self, slot: Slot, lock: LeaseLock, lead_end: GracefulStop) -> None:
        stop = GracefulStop(revert=True)

        def check_may_act() -> None:
            # A thread may outlive its lock.
            if self._server_stop.is_due or lead_end.is_due:
                raise FencedError("this server no longer holds the lock: another one continues")
            if self._slots.of_run(slot.run_id) is None:
                raise FencedError("its slot was released: the node is left unchanged")
            lock.check()

        self._retry_pauses.pop(slot.run_id, None)
        future = in_background(
            partial(self._work_on_slot, slot, check_may_act, stop), f"slot-{slot.node}"
        )
        self._threads[slot.run_id] = SlotThread(future, stop)

    def _stop_canceled_threads(self) -> None:
        for run_id, thread in self._threads.items():
            slot = self._slots.of_run(run_id)
            if slot is not None and slot.is_canceled:
                thread.stop.request()

    def _drop_ended_threads(self) -> None:
        for run_id, thread in list(self._threads.items()):
            if thread.future.done():
                del self._threads[run_id]

    def _work_on_slot(self, slot: Slot, check_may_act: Guard, stop: GracefulStop) -> None:
        try:
            result = self._runner.run_slot(slot, check_may_act, stop)
            self._release_or_fail_slot(slot, result, check_may_act)
            self._troubles.end(slot.node)
        except RolloutError as error:
            self._retry_later(slot, error.message)
        except Exception as error:  # noqa: BLE001 - the slot stays held, and is retried
            self._retry_later(slot, defect(error))
        self.wake()

    def _retry_later(self, slot: Slot, why: str) -> None:
        self._retry_pauses[slot.run_id] = Deadline(self._server.clock, _RETRY_SECONDS)
        self._troubles.report(slot.node, why)

    def _release_or_fail_slot(
        self, slot: Slot, result: NodeResult | None, check_may_act: Guard
    ) -> None:
        if result is not None and result.outcome is Outcome.FENCED:
            # Another replica continues with the slot.
            return
        stays_cordoned = result is not None and result.left_cordoned
        is_end_written = result is not None and result.edge is not None
        if stays_cordoned and not is_end_written:
            # In an outage, another replica may have taken the lock and the slot.
            check_may_act()
        cordoned_node: Node | None = None
        # A canceled slot is released even if its node stays cordoned.
        if stays_cordoned and not slot.is_canceled:
            latest = self._server.slots.cached_slot(slot)
            cordoned_node = read_slot_node(self._server.api, latest)
        if cordoned_node is None:
            self._server.slots.change(partial(Slots.release, run_id=slot.run_id))
            return
        # A kubelet that reports NotReady is back. UNKNOWN means that it reports nothing.
        is_host_back = cordoned_node.ready is not ConditionStatus.UNKNOWN
        state = SlotState.FAILED if is_host_back else SlotState.ABSENT
        self._server.slots.change(partial(Slots.fail, run_id=slot.run_id, state=state))
