"""Answers reboot requests and steady-state reports of hosts that hold a slot.

A grant is written on the Node before the slot and the lock are checked. A worker that returns a
node suspends grants before it reads the Node's phase. So at least one sees what the other has done.
"""

from functools import partial

from rollout.errors import BlockedError, FencedError, StepError
from rollout.execution.base.deadline import Deadline
from rollout.execution.node.marking import mark_granted
from rollout.execution.node.reboot import check_still_drained
from rollout.execution.record.memory import require_readable_memory
from rollout.gather.cluster.documents import read_memory
from rollout.gather.cluster.snapshot import read_node, read_nodes
from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.fleetlock import Slot, Slots, SlotState, is_fleetlock_run, zincati_id
from rollout.model.node_marks import (
    annotation_problem,
    announced_version,
    has_grant,
    is_returned_by,
    last_result,
)
from rollout.model.progress import Phase
from rollout.model.text import joined
from rollout.model.timestamps import timestamp
from rollout.planning.eligibility.judgement import EligibilityInputs, why_not_bootable
from rollout.server.nodes import PHASES_WITHOUT_GRANT, node_of_host, read_slot_node
from rollout.server.protocol import AnswerKind, Denied, FleetLockAnswer, HostRequest
from rollout.server.state import ServerContext
from rollout.threads import in_background
from rollout.wording import text

_WAIT_SECONDS = 10.0
_PAUSE_SECONDS = 0.5


def grant_reboot(server: ServerContext, slot: Slot, drain_progress: str) -> FleetLockAnswer:
    # 1. Checks before the grant, because the worker awaits a boot after every grant.
    api = server.api_for_host
    node = read_node(api, slot.node)
    _check_run_not_over(slot, node)
    if not node.boot_id:
        message = f"the kubelet of {slot.node} reports no boot ID"
        raise Denied(AnswerKind.WAITING_FOR_PROOF, message)
    if node.boot_id != slot.boot_id:
        _record_request_as_report(server, slot, node)
        raise Denied(
            AnswerKind.WAITING_FOR_PROOF,
            f"{slot.node} has rebooted, but the reboot is not verified yet",
        )
    _check_grantable(slot, node)
    phase = node.annotations.get(marks.PHASE, "")
    is_marked = node.annotations.get(marks.RUN) == slot.run_id
    is_drained = is_marked and phase in (Phase.DRAINED, Phase.REBOOTING)
    if not is_drained:
        message = f"{slot.node} is {phase or 'waiting for its drain'}"
        if drain_progress:
            message += f": {drain_progress}"
        raise Denied(AnswerKind.WAITING_FOR_DRAIN, message)
    node_with_id = node_of_host(slot.id, read_nodes(api))
    if node_with_id.name != slot.node:
        message = f"a Node other than {slot.node} now has its machine ID"
        raise Denied(AnswerKind.WAITING_FOR_PROOF, message)
    _check_version(server, slot, node)

    # 2. The grant, then the Node's checks again.
    _write_grant(server, slot, node)

    # 3. The slot and the lock, which have to be checked after the grant.
    valid_until = _check_slot_and_lock(server, slot)
    return FleetLockAnswer(AnswerKind.GRANTED, f"{slot.node} is cordoned and drained", valid_until)


def _check_slot_and_lock(server: ServerContext, slot: Slot) -> float:
    """Return until when (monotonic) both are sure to be held, or raise `Denied`."""
    # Before the requests: an answer is as old as its request.
    valid_until = server.leadership.safe_until
    lock_check = in_background(server.leadership.require_server, "lock")
    stored = server.slots.read_now().of_run(slot.run_id)
    is_held = stored is not None and stored.state is SlotState.HELD
    if stored is None or not is_held or _may_be_returned(stored):
        raise _denial_before_release(slot)
    lock_check.result()
    return valid_until


def _write_grant(server: ServerContext, slot: Slot, node: Node) -> None:
    """Write the grant, then check the node again, or raise `Denied`.

    If the second check fails, the grant stays on the Node. That is safe: the host repeats all
    checks, and the worker sees the grant and drains the node again or returns it.
    """
    cluster = server.cluster_for_host
    # Any live FleetLock server may hold the lock.
    task = server.task_for_marking(slot, node, cluster, server.leadership.require_server)
    try:
        mark_granted(task)
        check_still_drained(task, cluster.deadline())
    except FencedError:
        raise
    except StepError as error:
        raise Denied(AnswerKind.WAITING_FOR_DRAIN, error.message) from error
    # Last: the worker may have overwritten the grant with `draining`, for pods that arrived
    # meanwhile.
    node = task.read_node(cluster.deadline())
    if not has_grant(node):
        raise Denied(AnswerKind.WAITING_FOR_DRAIN, f"{slot.node} is drained again")
    _check_version(server, slot, node)


def _check_version(server: ServerContext, slot: Slot, node: Node) -> None:
    settings = server.settings
    memory = read_memory(server.api_for_host, settings.namespace)
    try:
        require_readable_memory(memory)
    except BlockedError as error:
        raise Denied(AnswerKind.API_ERROR, error.message) from error
    inputs = EligibilityInputs(
        memory=memory,
        failure_limit=settings.failure_limit(server.nodes.require_all().values()),
        include_held=settings.policy.include_held,
    )
    staged_version = announced_version(node) or None
    objection = why_not_bootable(node.name, slot.version, staged_version, inputs)
    if objection:
        raise Denied(AnswerKind.VERSION_HELD, f"{node.name}: {text(objection)}")


def _check_run_not_over(slot: Slot, node: Node) -> None:
    if node.uid != slot.node_uid:
        raise Denied(
            AnswerKind.WAITING_FOR_PROOF,
            f"{slot.node} was deleted and created again; its slot will be released soon",
        )
    if is_returned_by(node, slot.run_id):
        # The cluster has to settle first.
        raise Denied(
            AnswerKind.WAITING_FOR_SETTLING,
            f"{slot.node} is back in service, but the cluster has not settled yet",
        )


def _check_grantable(slot: Slot, node: Node) -> None:
    has_failed = slot.state is not SlotState.HELD
    if has_failed:
        raise Denied(
            AnswerKind.NODE_FAILED,
            f"{slot.node} failed: {last_result(node).get('outcome', 'unknown')}",
        )
    if _may_be_returned(slot):
        raise _denial_before_release(slot)


def _record_request_as_report(server: ServerContext, slot: Slot, node: Node) -> None:
    """A host that requests its next reboot has reached steady state."""
    is_same_machine = zincati_id(node.machine_id) == slot.id
    awaits_report = slot.state is SlotState.HELD and not slot.has_reported
    if is_same_machine and awaits_report:
        server.slots.change(partial(Slots.report, run_id=slot.run_id))


def _denial_before_release(slot: Slot) -> Denied:
    return Denied(AnswerKind.WAITING_FOR_DRAIN, f"the slot of {slot.node} is about to be released")


def _may_be_returned(slot: Slot) -> bool:
    return slot.is_suspended or slot.is_canceled or slot.has_reported


def record_report(server: ServerContext, request: HostRequest) -> Slot | None:
    slot = _find_or_restore_slot(server, request)
    if slot is None:
        return None
    node = read_slot_node(server.api_for_host, slot)
    if node is not None and not is_returned_by(node, slot.run_id):
        _write_report(server, slot, node)
    return slot


def await_return(server: ServerContext, slot: Slot) -> FleetLockAnswer:
    deadline = Deadline(server.clock, _WAIT_SECONDS)
    while not deadline.expired:
        node = server.nodes.require_all().get(slot.node)
        if node is not None and is_returned_by(node, slot.run_id):
            return FleetLockAnswer(AnswerKind.RELEASED, f"{slot.node} is in service")
        if server.slots.read_unless_fresh().of_run(slot.run_id) is None:
            # Also after an abort, or when the Node was deleted.
            return FleetLockAnswer(AnswerKind.RELEASED, f"the slot of {slot.node} is released")
        server.clock.sleep(_PAUSE_SECONDS)
    why = _why_not_returned(slot, read_slot_node(server.api_for_host, slot))
    raise Denied(AnswerKind.WAITING_FOR_PROOF, f"{slot.node}: {why}")


def _find_or_restore_slot(server: ServerContext, request: HostRequest) -> Slot | None:
    try:
        node = server.nodes.of_host(request.id)
    except Denied as denied:
        if denied.answer.kind not in (AnswerKind.UNKNOWN_ID, AnswerKind.DOUBLED_ID):
            raise
        return server.slots.read_unless_fresh().of_id(request.id)
    slot = _find_slot(server.slots.read_unless_fresh(), request, node.name)
    if slot is None:
        # Only fresh slots can show that there is none.
        slot = _find_slot(server.slots.read_now(), request, node.name)
    return slot or _restore_slot(server, request, node)


def _find_slot(slots: Slots, request: HostRequest, node_name: str) -> Slot | None:
    """Prefer the slot of the host's node: a disk takes its ID along to another machine."""
    slot = slots.of_node(node_name)
    if slot is not None and slot.id == request.id:
        return slot
    return slots.of_id(request.id)


def _restore_slot(server: ServerContext, request: HostRequest, watched_node: Node) -> Slot | None:
    """Restore the slot of marks that have none, so that the node is returned.

    None without such marks. The slot counts toward no group, and its reboot is canceled.
    """
    if not is_fleetlock_run(watched_node.annotations.get(marks.RUN, "")):
        return None
    # The watch may be late.
    node = read_node(server.api_for_host, watched_node.name)
    run_id = node.annotations.get(marks.RUN, "")
    if not is_fleetlock_run(run_id) or annotation_problem(node):
        return None
    slot = Slot(
        group=request.group,
        node=node.name,
        node_uid=node.uid,
        id=request.id,
        run_id=run_id,
        since=timestamp(server.now),
        boot_id=node.annotations[marks.BOOT_ID_BEFORE],
        state=SlotState.ABSENT,
        is_canceled=True,
    )
    # This keeps a slot that another replica added meanwhile.
    stored = server.slots.change(partial(Slots.add, slot=slot)).of_node(node.name)
    if stored is not None and stored.id != request.id:
        raise Denied(
            AnswerKind.WAITING_FOR_PROOF,
            f"{node.name} was a different machine when its slot was reserved:"
            f" rollout fleetlock release {node.name}",
        )
    return stored


def _write_report(server: ServerContext, slot: Slot, node: Node) -> None:
    if slot.is_canceled:
        return
    is_marked = node.annotations.get(marks.RUN) == slot.run_id
    phase = node.annotations.get(marks.PHASE, "") if is_marked else ""
    has_rebooted = node.boot_id != slot.boot_id
    has_grant_now = phase not in PHASES_WITHOUT_GRANT
    if has_rebooted or has_grant_now:
        server.slots.change(partial(Slots.report, run_id=slot.run_id))
    else:
        # There was neither a reboot nor a grant that the host could follow.
        server.slots.change(partial(Slots.cancel, run_id=slot.run_id))


def _why_not_returned(slot: Slot, node: Node | None) -> str:
    if node is None:
        return "its Node is gone, and its slot will be released soon"
    if node.boot_id == slot.boot_id:
        return (
            "its kubelet still reports the old boot ID:"
            " without a reboot, it returns to service in a minute"
        )
    if node.is_ready:
        return "its checks have not passed yet"
    return joined(": ", "it is not Ready", node.ready_message)
