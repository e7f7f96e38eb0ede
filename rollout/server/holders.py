"""Answers to hosts that hold a slot: a grant of their reboot, and the release of their slot.

A grant takes a last look at the node, in an order that makes it safe beside a server that gives
nodes back: the grant is written on the Node first; then the node is looked at, then the slot and
the Lease. Whoever gives a node back has closed the slot before, and reads the Node's phase after
that: one of the two sees the other.

A slot is free once its reboot is proven, which the server that holds the Lease sees. It is told
here that the host has reported; the answer waits a little for what comes of it.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from rollout.errors import BlockedError, DrainError
from rollout.execution.base.deadline import Deadline, PatientApi
from rollout.execution.drain.task import NodeTask
from rollout.execution.node.marking import mark_granted
from rollout.execution.node.reboot import look_again
from rollout.execution.record.memory import require_memory
from rollout.gather.cluster.documents import read_memory
from rollout.gather.cluster.snapshot import read_node, read_nodes
from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.fleetlock import Slot, Slots, SlotState, is_fleetlock_run
from rollout.model.node_marks import annotation_problem, last_result
from rollout.model.progress import Phase
from rollout.model.timestamps import timestamp
from rollout.planning.eligibility.judgement import EligibilityInputs, boot_objection
from rollout.planning.eligibility.pools import pools_of
from rollout.server.nodes import (
    UNGRANTED,
    name_of,
    node_of,
    plan_node,
    select_nodes,
    staged_version_of,
)
from rollout.server.protocol import AnswerKind, Ask, Denied, FleetLockAnswer
from rollout.server.state import PATIENCE, ServerContext
from rollout.wording import text

_GRANTABLE = (Phase.DRAINED, Phase.REBOOTING)
# Seconds that an answer may wait for the proof.
_WAIT = 10.0
_PAUSE = 0.5
NOT_HELD = FleetLockAnswer(AnswerKind.NOT_HELD, "no slot is held by this host")


def grant(world: ServerContext, slot: Slot, detail: str) -> FleetLockAnswer:
    """Grant, or raise `Denied`; `detail` tells of the drain. `ApiError`, `FencedError`: never a grant."""
    api = world.patient_api
    node = read_node(api, slot.node)
    _check_slot(slot, node)
    phase = node.annotations.get(marks.PHASE, "")
    if node.annotations.get(marks.RUN) != slot.run or phase not in _GRANTABLE:
        raise Denied(
            AnswerKind.WAITING_FOR_DRAIN,
            f"{slot.node} is {phase or 'waiting for its drain'}{detail}",
        )
    if name_of(slot.id, read_nodes(api)) != slot.node:
        raise Denied(
            AnswerKind.WAITING_FOR_PROOF, f"another Node than {slot.node} has its machine id by now"
        )
    # A denial before the grant is written leaves no grant that others would have to wait for.
    _check_version(world, slot, node)
    _look(world, slot, node)
    return FleetLockAnswer(
        AnswerKind.GRANTED, f"{slot.node} is cordoned and drained", _hold_deadline(world, slot)
    )


def _hold_deadline(world: ServerContext, slot: Slot) -> float:
    """Until when both are known to be held: read at once, so that one read in time for the Lease is enough."""
    until = world.leadership.safe_until
    with ThreadPoolExecutor(1, thread_name_prefix="lease") as beside:
        lease = beside.submit(world.leadership.check)
        held = world.book.read().of_run(slot.run)
        if held is None or _is_ending(held) or held.state is not slot.state:
            raise _about_to_be_freed(slot)
        lease.result()
    return until


def _look(world: ServerContext, slot: Slot, node: Node) -> None:
    """Write the grant, and look at the node; what is seen to be wrong now is mended by whoever drains."""
    policy = world.settings.policy
    cluster = PatientApi(world.patient_api, world.clock, seconds=PATIENCE)
    report = world.quiet
    entry = plan_node(node, slot, policy)
    rules = pools_of(policy).rules(entry.pool)
    try:
        task = NodeTask(entry, slot.run, cluster, world.leadership.check, report, policy=rules)
        mark_granted(task)
        node = look_again(task, cluster.deadline())
    except DrainError as error:
        raise Denied(AnswerKind.WAITING_FOR_DRAIN, error.message) from error
    _check_version(world, slot, node)


def _check_version(world: ServerContext, slot: Slot, node: Node) -> None:
    """`Denied` if the version that the node would boot into is held."""
    memory = read_memory(world.patient_api, world.settings.namespace)
    settings = world.settings
    try:
        require_memory(memory)
    except BlockedError as error:
        raise Denied(AnswerKind.API_ERROR, error.message) from error
    limit = settings.policy.failures_allowed(
        len(select_nodes(world.machines.nodes.values(), settings.selection))
    )
    inputs = EligibilityInputs(
        memory=memory, limit=limit, include_held=settings.policy.include_held
    )
    if found := boot_objection(node.name, slot.version, staged_version_of(node) or None, inputs):
        raise Denied(AnswerKind.VERSION_HELD, f"{node.name}: {text(found)}")


def _check_slot(slot: Slot, node: Node) -> None:
    """`Denied` where the slot is none by which this node could be granted a reboot now."""
    if node.uid != slot.node_uid:
        raise Denied(
            AnswerKind.WAITING_FOR_PROOF,
            f"{slot.node} was deleted and created again; its slot is about to be free",
        )
    if is_given_back(slot, node):
        raise Denied(
            AnswerKind.WAITING_FOR_SETTLING,
            f"{slot.node} is back, and the cluster settles from its last reboot",
        )
    if node.boot_id != slot.boot_id:
        raise Denied(
            AnswerKind.WAITING_FOR_PROOF,
            f"{slot.node} has rebooted, and is not proven to be back yet",
        )
    if slot.state is not SlotState.HELD:
        raise Denied(
            AnswerKind.NODE_FAILED,
            f"{slot.node} ended badly: {last_result(node).get('outcome', 'unknown')}",
        )
    if _is_ending(slot):
        raise _about_to_be_freed(slot)


def _about_to_be_freed(slot: Slot) -> Denied:
    return Denied(AnswerKind.WAITING_FOR_DRAIN, f"the slot of {slot.node} is about to be freed")


def _is_ending(slot: Slot) -> bool:
    """Whether a node in the boot from before is about to be given back."""
    return slot.closing or slot.released or slot.returned


def is_given_back(slot: Slot, node: Node) -> bool:
    """Whether this slot's reboot is over and done with on the Node itself."""
    return marks.RUN not in node.annotations and last_result(node).get("run") == slot.run


def release(world: ServerContext, ask: Ask) -> FleetLockAnswer:
    """Tell that the slot is free, or was never held; `Denied` while the node is not proven to be back."""
    # empty where that cannot be any node
    name = ""
    try:
        name = world.machines.name_of(ask.id)
    except Denied as denied:
        if denied.answer.kind not in (AnswerKind.UNKNOWN_ID, AnswerKind.DOUBLED_ID):
            raise
    slot = _slot_of(world.book.seen(1.0), ask, name)
    if slot is None and name:
        # that a host which is known holds none is a yes, and told by none but a fresh look
        slot = _slot_of(world.book.read(), ask, name) or _leftover_slot(world, ask, name)
    if slot is None:
        return NOT_HELD
    if slot.id != ask.id:
        way_out = f"rollout fleetlock release {slot.node}"
        raise Denied(
            AnswerKind.WAITING_FOR_PROOF,
            f"{slot.node} was another machine when it took its slot: {way_out}",
        )
    node = node_of(world.patient_api, slot)
    if node is not None and not is_given_back(slot, node):
        _note(world, slot, node)
    return _awaited(world, slot)


def _leftover_slot(world: ServerContext, ask: Ask, name: str) -> Slot | None:
    """Return a slot for a node that carries the marks of one that is gone: by it the node is proven and given back.

    It takes nobody's place, and nothing is ever granted by it.
    """
    if not is_fleetlock_run(world.machines.nodes[name].annotations.get(marks.RUN, "")):
        return None
    node = read_node(world.patient_api, name)
    run = node.annotations.get(marks.RUN, "")
    if not is_fleetlock_run(run) or annotation_problem(node):
        return None
    at = timestamp(world.now)
    boot_id = node.annotations[marks.BOOT_ID_BEFORE]
    slot = Slot(
        ask.group, name, node.uid, ask.id, run, at, boot_id, "", SlotState.ABSENT, released=True
    )
    return world.book.change(lambda slots: slots.with_slot(slot)).of_node(name)


def _note(world: ServerContext, slot: Slot, node: Node) -> None:
    """Have it seen to: a host in the boot from before that was granted nothing has given its wish up."""
    phase = (
        node.annotations.get(marks.PHASE, "") if node.annotations.get(marks.RUN) == slot.run else ""
    )
    if slot.released:
        return
    if node.boot_id == slot.boot_id and phase in UNGRANTED:
        news: Mapping[str, bool | str] = {"released": True}
    elif slot.state is SlotState.ABSENT:
        # its place may be another's by now: it is proven and given back without one
        news = {"returned": True, "released": True}
    else:
        news = {"returned": True, "state": SlotState.HELD}
    world.book.change(lambda slots: slots.changed(slot.run, **news))


def _awaited(world: ServerContext, slot: Slot) -> FleetLockAnswer:
    end = Deadline(world.clock, _WAIT)
    while not end.expired:
        node = world.machines.nodes.get(slot.node)
        if world.book.seen(_PAUSE).of_run(slot.run) is None or (
            node is not None and is_given_back(slot, node)
        ):
            return FleetLockAnswer(AnswerKind.RELEASED, f"{slot.node} is in service")
        world.clock.sleep(_PAUSE)
    raise Denied(
        AnswerKind.WAITING_FOR_PROOF,
        f"{slot.node}: {_missing(slot, node_of(world.patient_api, slot))}",
    )


def _slot_of(slots: Slots, ask: Ask, name: str) -> Slot | None:
    """Return the slot that the host has taken; of several, as after a move of its disk, that of its Node now."""
    slot = slots.of_node(name) if name else None
    return slot if slot is not None and slot.id == ask.id else slots.of_id(ask.id)


def _missing(slot: Slot, node: Node | None) -> str:
    if node is None:
        return "its Node is gone, and its slot is about to be free"
    if node.boot_id == slot.boot_id:
        return (
            "its kubelet still reports the boot from before: without a reboot it is given back in a"
            " minute"
        )
    return (
        "its checks have not passed yet"
        if node.is_ready
        else f"it is not Ready {node.ready_message}".rstrip()
    )
