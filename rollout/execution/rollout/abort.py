from collections.abc import Container, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from rollout.errors import ApiError, ApiNotFoundError, RolloutError, StepError
from rollout.execution.base.deadline import GracefulStop, Guard, PatientApi
from rollout.execution.base.reporting import OutageNotice, Reporter
from rollout.execution.drain.task import NodeTask
from rollout.execution.events import NodeEvents
from rollout.execution.lock import LeaseLock, LockOptions
from rollout.execution.node.conditions import NodeConditions
from rollout.execution.node.marking import (
    MarksGoneError,
    find_node_loss,
    is_cordoned_now,
    mark_aborted,
    return_node,
)
from rollout.execution.node.rollback import undo_rollback
from rollout.execution.node.ssh_host import RolloutHosts, SshHost, is_in_old_boot
from rollout.execution.node.tainting import Tainting
from rollout.execution.node.transitions import BEFORE_REBOOT, require_edge
from rollout.execution.record.memory import change_memory
from rollout.execution.record.record import RunRecord, record_document
from rollout.execution.record.slots import change_slots
from rollout.execution.record.unfinished import (
    MarkedNode,
    Unfinished,
    find_stranded,
    read_unfinished,
)
from rollout.execution.rollout.continuation import rules_of
from rollout.execution.rollout.ledger import Aborted
from rollout.model.detection import Source
from rollout.model.fleetlock import NO_SLOTS
from rollout.model.memory import Pause
from rollout.model.policy import Policy
from rollout.model.progress import Edge, NodeResult, Outcome, Phase
from rollout.model.timestamps import whole_second
from rollout.ports import Clock, ClusterApi, Observer
from rollout.wording import text

_AT_ONCE = 8
_PAUSE = 1.0


def abort(
    hosts: RolloutHosts,
    api: ClusterApi,
    *,
    clock: Clock,
    observers: Sequence[Observer],
    lock_options: LockOptions,
    wait: float,
    stop: GracefulStop | None = None,
) -> Aborted:
    """Take the lock, and undo any rollout.

    `wait`: seconds to watch a node that may be rebooting. A `stop` leaves the remaining nodes as
    they are; before the lock is held, it raises `InterruptedRunError`.
    """
    stop = stop or GracefulStop()
    report = Reporter(observers, clock)
    cluster = PatientApi(api, clock, OutageNotice(report))
    unfinished = read_unfinished(api, lock_options.namespace, include_deferred=True)
    run_id = unfinished.run_id if unfinished else ""
    with LeaseLock(
        cluster, options=lock_options, run_id=run_id, stop=stop, notice=report.notice
    ) as lock:
        undoing = _Undoing(
            hosts=hosts,
            observers=observers,
            lock_options=lock_options,
            cluster=cluster,
            check_may_act=lock.check,
            report=report,
            wait=wait,
            stop=stop,
        )
        undoing.release_slots()
        # It may have changed before this process held the lock.
        unfinished = read_unfinished(api, lock_options.namespace, include_deferred=True)
        if unfinished is None:
            return Aborted(run_id, reverted=(), left_cordoned={})
        return undoing.undo(unfinished)


class _Undoing(Struct, frozen=True):
    """A node stays cordoned if its host may be rebooting, or a stop is due."""

    hosts: RolloutHosts
    observers: Sequence[Observer]
    lock_options: LockOptions
    cluster: PatientApi
    check_may_act: Guard
    report: Reporter
    wait: float
    stop: GracefulStop

    def undo(self, unfinished: Unfinished) -> Aborted:
        results = [*self._report_stranded(unfinished), *self._undo_nodes(unfinished)]
        cordoned = {result.node: result.message for result in results if result.left_cordoned}
        reverted = tuple(result.node for result in results if not result.left_cordoned)
        if self.stop.is_due and cordoned:
            # Another abort needs the record.
            return Aborted(unfinished.run_id, reverted, cordoned, stopped=True)
        tainting = Tainting(self.cluster, self.check_may_act, self.report, GracefulStop())
        left_tainted = tainting.clear() if unfinished.tainted else {}
        conditions = NodeConditions(
            self.cluster, self.check_may_act, self.report, run_id="", sets_conditions=False
        )
        conditions.remove_all()
        self._mark_aborted(unfinished, cordoned)
        record = RunRecord(
            self.cluster, record_document(self.lock_options.namespace), self.report.notice
        )
        # The lock's new holder needs the record.
        self.check_may_act()
        record.end(complete=True)
        was_rollout = not unfinished.is_only_taints
        if was_rollout:
            self._pause_unattended_passes(unfinished.run_id)
        untainted = tuple(name for name in unfinished.tainted if name not in left_tainted)
        return Aborted(
            run_id=unfinished.run_id,
            reverted=reverted,
            left_cordoned=cordoned,
            untainted=untainted,
            left_tainted=left_tainted,
            stops_passes=was_rollout,
            versions={result.node: result.version for result in results if result.version},
        )

    def release_slots(self) -> None:
        try:
            self.cluster.ask(
                lambda api: change_slots(api, self.lock_options.namespace, lambda _slots: NO_SLOTS)
            )
        except ApiError as error:
            self.report.notice(f"warning: the FleetLock slots cannot be released: {error.message}")

    def _report_stranded(self, unfinished: Unfinished) -> Iterator[NodeResult]:
        # Only nodes with unreadable marks cannot be undone.
        for result in find_stranded(unfinished, marked=(), nodes_with_host=()):
            self.report.node_finished(result)
            yield replace(result, message=f"{result.message}. {result.hint}")

    def _undo_nodes(self, unfinished: Unfinished) -> list[NodeResult]:
        nodes = unfinished.marked_nodes
        policy = rules_of(unfinished)
        planned = [marked.node for marked in nodes]
        clock = self.cluster.clock
        with (
            NodeEvents(
                self.cluster.api,
                unfinished.run_id,
                nodes=planned,
                observers=self.observers,
                clock=clock,
            ) as events,
            self.hosts.attending(planned),
            ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="abort") as pool,
        ):
            return list(
                pool.map(lambda marked: self._undo_node(marked, events.report, policy), nodes)
            )

    def _mark_aborted(self, unfinished: Unfinished, left_cordoned: Container[str]) -> None:
        """Only marks can show the abort once the record is removed."""
        for marked in unfinished.marked_nodes:
            if marked.node.name not in left_cordoned:
                continue
            task = self._task_of(marked, self.report, rules_of(unfinished))
            try:
                mark_aborted(task)
            except RolloutError as error:
                self.report.notice(
                    f"warning: {task.name} does not show that it was aborted: {error.message}"
                )

    def _pause_unattended_passes(self, run_id: str) -> None:
        """`rollout operate` starts nothing until a person starts a rollout."""
        at = whole_second(self.cluster.api.server_time() or self.report.now)
        aborted = Pause(by=self.lock_options.holder, at=at, reason=run_id)
        try:
            change_memory(
                self.cluster.api, self.lock_options.namespace, partial(replace, aborted=aborted)
            )
        except ApiError as error:
            self.report.notice(
                "warning: the abort could not be recorded, so `rollout operate` might start another"
                f" rollout by itself: {error.message}"
            )

    def _undo_node(self, marked: MarkedNode, report: Reporter, policy: Policy) -> NodeResult:
        task = self._task_of(marked, report, policy)
        result = NodeResult(
            node=task.name,
            outcome=Outcome.ABORTED,
            phase=marked.phase,
            seconds=0.0,
            left_cordoned=True,
        )
        try:
            self._check_stop()
            if marked.phase not in BEFORE_REBOOT:
                self._wait_until_safe(task)
                self._undo_rollback(task)
            result = replace(result, version=self._read_version(task))
            require_edge(marked.phase, Edge.RETURNED)
            return_node(task, Outcome.ABORTED, result.version)
            result = replace(result, left_cordoned=False, edge=Edge.RETURNED)
        except (ApiNotFoundError, MarksGoneError) as error:
            # With the Node or its marks, the cordon may be gone, too.
            is_node_there = find_node_loss(task) is None
            is_cordoned = is_node_there and is_cordoned_now(task)
            message = error.message if is_cordoned else ""
            result = replace(result, left_cordoned=is_cordoned, message=message)
        except RolloutError as error:
            result = replace(result, message=error.message)
        result = replace(result, seconds=task.seconds)
        report.node_finished(result)
        return result

    def _task_of(self, marked: MarkedNode, report: Reporter, policy: Policy) -> NodeTask:
        return NodeTask(
            planned=marked.node,
            run_id=marked.run_id,
            cluster=self.cluster,
            check_may_act=self.check_may_act,
            report=report,
            started=self.cluster.clock.monotonic(),
            policy=policy,
        )

    def _read_version(self, task: NodeTask) -> str:
        if task.read_node().boot_id == task.planned.boot_id:
            return task.planned.running_version
        if task.name not in self.hosts:
            return ""
        boot = self._host_of(task).boot_now()
        return boot.running_version if boot else ""

    def _wait_until_safe(self, task: NodeTask) -> None:
        """Wait until the node is Ready in another boot, or has stayed in the old one."""
        deadline = self.cluster.deadline(self.wait)
        was_host_silent = False
        is_time_over = False
        while True:
            node = task.read_node(deadline)
            is_in_new_boot = node.boot_id != task.planned.boot_id
            if node.is_ready and is_in_new_boot:
                return
            if is_time_over:
                has_stayed_in_old_boot = node.is_ready and not was_host_silent
                if has_stayed_in_old_boot:
                    return
                readiness = "Ready" if node.is_ready else "not Ready"
                raise StepError(f"it may be rebooting right now, and is {readiness}")
            if not self._answers_in_old_boot(task):
                was_host_silent = True
            # The answer may have taken long, so the Node is read once more.
            is_time_over = deadline.expired
            if not is_time_over:
                self.report.step(
                    task.name, Phase.REBOOTING, "its reboot may have been requested: watching it"
                )
                self.cluster.clock.wait(self.stop, min(_PAUSE, deadline.remaining))
                self._check_stop()

    def _undo_rollback(self, task: NodeTask) -> None:
        was_rollback = Source.ROLLBACK in task.planned.detected_by
        if not was_rollback or task.name not in self.hosts:
            return
        task.check_may_act()
        problem = undo_rollback(self._host_of(task))
        if problem:
            raise StepError(problem)

    def _check_stop(self) -> None:
        if self.stop.is_due:
            raise StepError(text(self.stop.reason))

    def _answers_in_old_boot(self, task: NodeTask) -> bool:
        if task.name not in self.hosts:
            return False
        host = self._host_of(task)
        facts = host.boot_now()
        return facts is not None and is_in_old_boot(host, facts)

    def _host_of(self, task: NodeTask) -> SshHost:
        return self.hosts.host(task.planned, task.policy)
