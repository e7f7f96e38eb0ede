"""The steps, run by the worker, of a node whose host requests its reboot.

Once the node is marked `drained`, any replica may grant the reboot. A new boot ID and Ready, from
the kubelet of the same machine, prove it. If another replica continues, its waits go on:

    phase      waits for the host to    at most          and then
    drained    request its reboot again  --slot-timeout   returns the node
    rebooting  boot                      --slot-timeout   returns it if up, else keeps it cordoned
    booted     be Ready                  --ready-timeout  keeps the node cordoned
    ready      report steady state       --slot-timeout   goes on without the report

A step that fails first suspends grants. If the host reboots after all, the worker resumes grants
and awaits the boot. Once a reboot is canceled, `check_may_act`, `_await_grant` and `_await_boot`
raise `StoppedError`, and `_await_report` waits no longer.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from rollout.errors import ApiError, ApiNotFoundError, DrainError, FencedError, RolloutError
from rollout.execution.base.deadline import Deadline, Guard
from rollout.execution.node.claim import check_eligible, claim_and_cordon
from rollout.execution.node.context import NodeContext, Progress, with_staged_version
from rollout.execution.node.failures import (
    NO_ANSWER_HINT,
    NodeFailure,
    NodeRemovedError,
    NotStartedError,
    StoppedError,
    not_ready,
    not_ready_in_time,
)
from rollout.execution.node.marking import mark_cordoned_unless_granted, mark_phase
from rollout.execution.node.reboot import (
    RefilledError,
    check_drained_and_detached,
    check_still_drained,
)
from rollout.execution.node.rejoin import MAY_COME_BACK, mark_before_deletion, mark_new_node
from rollout.execution.node.staged import check_version
from rollout.execution.node.steps import (
    Step,
    delay_reboot,
    drain_again,
    drain_or_withhold,
    prepare_drain,
    return_proven_node,
    run_checks_after_reboot,
)
from rollout.gather.hosts.probe import BootFacts
from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.fleetlock import Awaited, Slot, Slots
from rollout.model.node_marks import announced_version, has_grant
from rollout.model.progress import Activity, Edge, Outcome, Phase
from rollout.model.quantity import Duration
from rollout.model.text import joined
from rollout.model.timestamps import parse_timestamp, timestamp
from rollout.server.nodes import (
    AWAITED_IN_REBOOT,
    CREATED_AGAIN,
    await_reregistration,
    facts_of,
    version_of,
)
from rollout.server.slot_host import has_rebooted, has_same_machine_rebooted, is_same_machine
from rollout.server.state import SlotStore

_CANCELED = "its reboot was canceled"
_PAUSE_SECONDS = 1.0
_CHECK_SECONDS = 5.0
_MOST_DRAINS_IN_STEP = 3
# For a host to go down after its grant.
_SHUTDOWN_SECONDS = 60.0


class SlotSteps(Struct, frozen=True):
    """The steps of a slot's node.

    grant      allows the host to reboot: a request thread marks the node `rebooting`
    suspended  grants, while the node may have to be returned: no replica gives one
    canceled   a reboot that its host or the operator no longer wants
    refilled   a drained node to which new pods have come, so that it is drained again
    report     of steady state, by a host after its reboot
    """

    # At the start of this run.
    slot: Slot
    slots: SlotStore
    timeout: Duration
    # Raises `FencedError` if another replica may work on the node. Unlike a step's `check_may_act`,
    # it passes after the reboot was canceled.
    check_not_fenced: Guard

    @property
    def cached_slot(self) -> Slot:
        """About a second old."""
        return self.slots.cached_slot(self.slot)

    def _suspend_grants(self, context: NodeContext) -> None:
        self._change(context, partial(Slots.suspend_grants, run_id=self.slot.run_id))

    def _resume_grants(self, context: NodeContext) -> None:
        self._change(context, partial(Slots.resume_grants, run_id=self.slot.run_id))

    def _change(self, context: NodeContext, change: Callable[[Slots], Slots]) -> Slots:
        return context.cluster.ask(lambda _api: self.slots.change(change))

    def _start_or_continue_wait(self, context: NodeContext, awaited: Awaited) -> float:
        """Return how many seconds all replicas have waited."""
        now = context.cluster.api.server_time() or context.cluster.clock.now()
        change = partial(
            Slots.start_wait, run_id=self.slot.run_id, awaited=awaited, at=timestamp(now)
        )
        slot = self._change(context, change).of_run(self.slot.run_id)
        began = parse_timestamp(slot.awaited_since) if slot is not None else None
        if began is None:
            return 0.0
        return max(0.0, (now - began).total_seconds())

    @property
    def by_phase(self) -> Mapping[Phase, Step]:
        def follow_reboot_on_failure(step: Step) -> Step:
            return partial(self._follow_reboot_on_failure, step)

        return {
            Phase.PENDING: _cordon_if_eligible,
            Phase.CORDONED: follow_reboot_on_failure(self._prepare_drain),
            Phase.DRAINING: follow_reboot_on_failure(self._drain_and_allow_grants),
            Phase.DRAINED: follow_reboot_on_failure(self._await_grant),
            Phase.REBOOTING: follow_reboot_on_failure(self._await_boot),
            # No reboot is granted after the boot.
            Phase.BOOTED: self._await_ready,
            Phase.READY: self._await_report_and_finish,
        }

    def _prepare_drain(self, context: NodeContext, progress: Progress) -> Progress:
        """Replace an earlier replica's mark `drained`, which allows grants, first.

        If it has led to a grant already, no drain follows.
        """
        if context.started_by_earlier_process:
            node_before = mark_cordoned_unless_granted(context)
            if has_grant(node_before):
                return progress.move(Edge.GRANTED_BEFORE_DRAIN)
        return prepare_drain(context, progress)

    def _drain_and_allow_grants(self, context: NodeContext, progress: Progress) -> Progress:
        context_of_drain = replace(
            context, drain_seconds_used=self._seconds_spent_on_drain(context)
        )
        longest_terminations = drain_or_withhold(context_of_drain)
        is_first_drain = progress.repeated_drains == 0
        if is_first_drain:
            # Nothing delays a grant after the mark `drained`.
            delay_reboot(context)
        # Pods may have come meanwhile. Their terminations are not reported.
        _drain_until_empty(context_of_drain)
        mark_phase(context, Phase.DRAINED)
        return replace(progress, longest_terminations=longest_terminations).move(Edge.EVICTED)

    def _seconds_spent_on_drain(self, context: NodeContext) -> float:
        """Return 0 if the node was drained before."""
        was_drained_before = self.cached_slot.awaited not in (Awaited.NOTHING, Awaited.DRAIN)
        if was_drained_before:
            # The slot notes a later wait, whose time must go on.
            return 0.0
        return self._start_or_continue_wait(context, Awaited.DRAIN)

    def _follow_reboot_on_failure(
        self, step: Step, context: NodeContext, progress: Progress
    ) -> Progress:
        try:
            return step(context, progress)
        except FencedError:
            # Another replica continues.
            raise
        except RolloutError as error:
            # A canceled reboot may happen all the same.
            context = replace(context, check_may_act=self.check_not_fenced)
            # Before the Node is read: until then, a replica may grant the reboot.
            self._suspend_grants(context)
            self._require_reboot(context, progress, error)
        _mark_rebooting(context)
        self._resume_grants(context)
        return _move_to_rebooting(progress)

    def _require_reboot(
        self, context: NodeContext, progress: Progress, error: RolloutError
    ) -> None:
        """Raise the step's `error` unless the host reboots after all."""
        if progress.phase is Phase.REBOOTING:
            self._await_late_reboot(context, error)
        elif not self._await_granted_reboot(context, progress):
            raise error

    def _await_granted_reboot(self, context: NodeContext, progress: Progress) -> bool:
        """Return whether the host has a grant, perhaps an earlier one, or has rebooted."""
        node = self._read_or_await_node(context)
        if has_grant(node) or has_same_machine_rebooted(context.planned, node):
            return True
        may_have_earlier_grant = context.started_by_earlier_process or progress.repeated_drains > 0
        if not may_have_earlier_grant:
            return False
        # This wait began after the earlier grant, whose mark the drain may have overwritten.
        wait = Awaited.REQUEST if progress.phase is Phase.DRAINED else Awaited.DRAIN
        node = self._poll_until(
            lambda node: not node.is_ready or has_rebooted(context.planned, node),
            context,
            wait,
            seconds=self._shutdown_seconds,
        )
        is_going_down = not node.is_ready
        return is_going_down or has_grant(node) or has_same_machine_rebooted(context.planned, node)

    def _await_late_reboot(self, context: NodeContext, error: RolloutError) -> None:
        """Raise `error`, or why the host is still down, unless it goes down now or has booted."""
        node = self._read_or_await_node(context)
        was_down_before = self._is_down_for_reboot(node)
        if not was_down_before:
            # The host may have been granted its reboot a moment ago.
            node = self._poll_until(
                lambda node: has_rebooted(context.planned, node) or self._is_down_for_reboot(node),
                context,
                Awaited.LATE_REBOOT,
                seconds=self._shutdown_seconds,
            )
            if self._is_down_for_reboot(node):
                return
        if has_same_machine_rebooted(context.planned, node):
            return
        is_canceled = isinstance(error, StoppedError)
        if is_canceled and not node.is_ready:
            raise _not_rebooted_failure(node, self.timeout) from None
        raise error from None

    @property
    def _shutdown_seconds(self) -> float:
        return min(_SHUTDOWN_SECONDS, self.timeout)

    def _is_down_for_reboot(self, node: Node) -> bool:
        return not (node.is_ready or self.cached_slot.is_canceled)

    def _poll_until(
        self,
        is_met: Callable[[Node], bool],
        context: NodeContext,
        awaited: Awaited,
        *,
        seconds: float,
    ) -> Node:
        """Return the last Node if none meets the condition."""
        for node in self._poll(context, awaited, seconds):
            if is_met(node):
                break
        return node

    def _poll(self, context: NodeContext, awaited: Awaited, seconds: float) -> Iterator[Node]:
        """Yield the Node at least once, until all replicas have waited `seconds`.

        The slot notes the wait only if the caller wants a second Node.
        """
        context.check_may_act()
        yield self._read_or_await_node(context)
        remaining = max(0.0, seconds - self._start_or_continue_wait(context, awaited))
        deadline = context.cluster.deadline(remaining)
        while True:
            deadline.pause(_PAUSE_SECONDS)
            context.check_may_act()
            yield self._read_or_await_node(context)
            if deadline.expired:
                return

    def _read_or_await_node(self, context: NodeContext) -> Node:
        """Adopt the Node that the host registers, if its Node was deleted."""
        try:
            return _read_node_with_uid(context, self.cached_slot.node_uid)
        except NodeFailure:
            if not self._may_be_rebooting(context):
                raise
        context.report_step(Phase.REBOOTING, MAY_COME_BACK)
        node = await_reregistration(
            context.cluster,
            context.check_may_act,
            self.cached_slot,
            self.timeout,
            is_canceled=lambda: self.cached_slot.is_canceled,
        )
        return self._adopt_new_node(context, node)

    def _adopt_new_node(self, context: NodeContext, node: Node) -> Node:
        ready_before = mark_before_deletion(context, marks.READY_BEFORE)
        mark_new_node(context, Phase.REBOOTING, {marks.READY_BEFORE: ready_before})
        # The mark first: after a crash in between, it leads to the node.
        change = partial(Slots.adopt_node, run_id=self.slot.run_id, node_uid=node.uid)
        self._change(context, change)
        return context.read_node()

    def _may_be_rebooting(self, context: NodeContext) -> bool:
        """The host of a deleted Node may be following its grant."""
        if self.cached_slot.awaited in AWAITED_IN_REBOOT:
            return True
        # The grant may be newer than the wait that the slot names.
        last_seen = context.watched.last_seen if context.watched else None
        return last_seen is not None and has_grant(last_seen)

    def _await_grant(self, context: NodeContext, progress: Progress) -> Progress:
        drained_check = _DrainedCheck(context)
        detail = "waiting for its host to request its reboot again"
        context.report_step(Phase.DRAINED, detail, activity=Activity.WAITING)
        for node in self._poll(context, Awaited.REQUEST, self.timeout):
            if self.cached_slot.is_canceled:
                raise StoppedError(_CANCELED)
            if has_grant(node):
                # A request thread has marked the grant already.
                return progress.move(Edge.REBOOT_REQUESTED)
            if has_rebooted(context.planned, node):
                context.report.notice(f"{context.name} has rebooted without waiting for its grant")
                _mark_rebooting(context)
                return progress.move(Edge.REBOOT_REQUESTED)
            try:
                drained_check.run_if_due()
            except RefilledError as error:
                return self._drain_again(context, progress, error)
        raise NodeFailure(
            Outcome.NOT_REBOOTED,
            f"its host did not request its reboot again within --slot-timeout {self.timeout}",
        )

    def _await_boot(self, context: NodeContext, progress: Progress) -> Progress:
        drained_check = _DrainedCheck(context)
        for node in self._poll(context, Awaited.BOOT, self.timeout):
            if has_rebooted(context.planned, node):
                _require_same_machine(context, node)
                mark_phase(context, Phase.BOOTED)
                return replace(progress, boot=_boot_facts(node)).move(Edge.BOOTED)
            if self.cached_slot.is_canceled:
                raise StoppedError(_CANCELED)
            if not node.is_ready:
                continue
            if self.cached_slot.has_reported:
                # A host that reports without a reboot no longer wants it. If only the kubelet is
                # late, `_await_late_reboot` waits for its new boot ID.
                raise StoppedError(_CANCELED)
            if self.cached_slot.is_suspended:
                # An earlier replica ended before it returned the node.
                raise _not_rebooted_failure(node, self.timeout)
            try:
                drained_check.run_if_due()
            except RefilledError as error:
                return self._drain_again(context, progress, error)
            except DrainError as error:
                # The host may know of its grant, so await its boot.
                context.report.notice(
                    f"{context.name}: its drain is no longer complete, but its host already has"
                    f" permission to reboot: {error.message}"
                )
        raise _not_rebooted_failure(node, self.timeout)

    def _drain_again(
        self, context: NodeContext, progress: Progress, refilled: RefilledError
    ) -> Progress:
        draining = drain_again(context, progress, refilled)
        # The host has to request its reboot again.
        self._resume_grants(context)
        return draining

    def _await_ready(self, context: NodeContext, progress: Progress) -> Progress:
        """The host may reboot again while it becomes Ready."""
        timeout = context.policy.ready_timeout
        for node in self._poll(context, Awaited.READY, timeout):
            if node.is_ready and has_same_machine_rebooted(context.planned, node):
                mark_phase(context, Phase.READY)
                return replace(progress, boot=_boot_facts(node)).move(Edge.READY)
            detail = joined(": ", "waiting for Ready", node.ready_message)
            context.report_step(Phase.BOOTED, detail)
        raise not_ready_in_time(context.name, timeout)

    def _await_report_and_finish(self, context: NodeContext, progress: Progress) -> Progress:
        context.report_step(Phase.READY, "waiting for its host to report steady state")
        node = self._await_report(context)
        # The host may have rebooted since it was Ready.
        boot = _boot_facts(node)
        run_checks_after_reboot(context, boot)
        return return_proven_node(context, replace(progress, boot=boot))

    def _await_report(self, context: NodeContext) -> Node:
        """Go on without the host's report after --slot-timeout."""

        def needs_no_wait(node: Node) -> bool:
            slot = self.cached_slot
            return node.is_ready and (slot.has_reported or slot.is_canceled)

        node = self._poll_until(needs_no_wait, context, Awaited.REPORT, seconds=self.timeout)
        if not node.is_ready:
            raise not_ready(context.name, "the Node was Ready after its reboot, and no longer is")
        return node


def _mark_rebooting(context: NodeContext) -> None:
    """The host has a grant already, or has gone down by itself."""
    mark_phase(context, Phase.REBOOTING)


def _move_to_rebooting(progress: Progress) -> Progress:
    if progress.phase is Phase.REBOOTING:
        # This step runs again.
        return replace(progress, edge=None)
    if progress.phase is Phase.DRAINED:
        return progress.move(Edge.REBOOT_REQUESTED)
    return progress.move(Edge.GRANTED_BEFORE_DRAIN)


def _cordon_if_eligible(context: NodeContext, progress: Progress) -> Progress:
    context.check_may_act()
    node = _read_node_with_uid(context, context.planned.node_uid)
    facts = check_eligible(context, node, facts_of(node))
    staged_version = announced_version(node)
    objection = context.engine.objection_to_version(context.planned, staged_version or None)
    if objection:
        raise NotStartedError(finding=objection)
    context.engine.run_gate_command(with_staged_version(context, staged_version))
    # The host may stage another version until its reboot.
    claim_and_cordon(context, staged_version="", facts=facts)
    return replace(progress, marked=True).move(Edge.CORDONED)


def _drain_until_empty(context: NodeContext) -> None:
    """Drain again while pods come; `RefilledError` if they keep coming."""
    for _ in range(_MOST_DRAINS_IN_STEP - 1):
        try:
            check_drained_and_detached(context)
        except RefilledError:
            drain_or_withhold(context)
        else:
            return
    check_drained_and_detached(context)


def _require_same_machine(context: NodeContext, node: Node) -> None:
    if not is_same_machine(context.planned, node):
        machine_id = node.machine_id or "none"
        message = f"a different machine reports as this Node: machine ID {machine_id}"
        raise NodeFailure(Outcome.NOT_BACK, message)


def _not_rebooted_failure(node: Node, timeout: Duration) -> NodeFailure:
    if node.is_ready:
        message = "its host was granted a reboot, but is up with its old boot ID"
        return NodeFailure(Outcome.NOT_REBOOTED, f"{message} (--slot-timeout {timeout})")
    message = f"the host did not come back within --slot-timeout {timeout}"
    return NodeFailure(Outcome.NOT_BACK, message, hint=NO_ANSWER_HINT)


def _boot_facts(node: Node) -> BootFacts:
    return BootFacts(node.boot_id, node.machine_id, version_of(node))


def _read_node_with_uid(context: NodeContext, uid: str) -> Node:
    try:
        node = context.read_node()
    except ApiNotFoundError:
        raise NodeRemovedError("its Node was deleted") from None
    if node.uid != uid:
        raise NodeFailure(Outcome.SKIPPED, CREATED_AGAIN)
    return node


@dataclass(slots=True)
class _DrainedCheck:
    """Checks at intervals that a drained node may reboot. Ignores failing API calls."""

    context: NodeContext
    next_check: Deadline | None = None

    def run_if_due(self) -> None:
        is_due = self.next_check is None or self.next_check.expired
        if not is_due:
            return
        self.next_check = self.context.cluster.deadline(_CHECK_SECONDS)
        try:
            node = check_still_drained(self.context, self.context.cluster.deadline(_CHECK_SECONDS))
        except ApiError as error:
            self.context.cluster.notice(error)
            return
        check_version(self.context, announced_version(node) or None)
