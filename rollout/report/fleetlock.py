import re
from collections.abc import Mapping, Sequence
from typing import TypedDict

from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.fleetlock import Awaited, Slot, Slots, SlotState
from rollout.model.node_marks import last_result
from rollout.model.progress import Phase
from rollout.model.text import name_excerpt, or_dash
from rollout.report.columns import Column, table_text

_COLUMNS = (
    Column("GROUP"),
    Column("NODE"),
    Column("SLOT"),
    Column("PHASE"),
    Column("SINCE", drop_order=2),
    Column("RUN", drop_order=1),
    Column("NOTE", note=True),
)

_WAIT_NOTES = {
    Awaited.REQUEST: "drained: waiting for its host to request its reboot again",
    Awaited.BOOT: "granted: waiting for its host to reboot",
    Awaited.READY: "rebooted: waiting for Ready",
    Awaited.REPORT: "back: waiting for its host to report steady state",
    Awaited.LATE_REBOOT: (
        "no longer expected to reboot: the node is uncordoned after its host has stayed up for a"
        " minute"
    ),
}


def slots_text(slots: Slots, nodes: Mapping[str, Node], lock_holder: str, width: int | None) -> str:
    rows = [_row(slot, nodes.get(slot.node)) for slot in slots.all]
    lines = [table_text(_COLUMNS, rows, width) if rows else "No slot is held."]
    if lock_holder:
        lines.append(f"Served by: {name_excerpt(lock_holder)}")
    elif any(slot.state is SlotState.HELD for slot in slots.all):
        lines.append(
            "No FleetLock server holds the lock. The next one that starts continues."
            " To release the slots instead, run: rollout abort"
        )
    return "\n".join(lines)


def _row(slot: Slot, node: Node | None) -> Sequence[str]:
    texts = (
        slot.group,
        slot.node,
        slot.state.value,
        phase_of(slot, node),
        _without_fraction(slot.since),
        slot.run_id,
        _note_of(slot, node),
    )
    return [or_dash(text) for text in texts]


def _without_fraction(stamp: str) -> str:
    return re.sub(r"\.\d+", "", stamp)


def phase_of(slot: Slot, node: Node | None) -> str:
    if node is None:
        return ""
    if node.annotations.get(marks.RUN) == slot.run_id:
        return node.annotations.get(marks.PHASE, "")
    if last_result(node).get("run") == slot.run_id:
        return Phase.DONE.value
    # The worker has not started the node.
    return Phase.PENDING.value


def _note_of(slot: Slot, node: Node | None) -> str:
    if node is None or node.uid != slot.node_uid:
        return "its Node is gone: the slot will be released soon"
    if slot.is_canceled:
        return "its reboot is canceled: the slot will be released soon"
    match slot.state:
        case SlotState.FAILED:
            outcome = last_result(node).get("outcome", "failed")
            return (
                f"{outcome}: it stays cordoned. To release its slot, run: rollout fleetlock release"
                f" {slot.node}"
            )
        case SlotState.ABSENT:
            return (
                "it did not come back: another host can reserve a slot in its place, but it counts"
                " as unavailable"
            )
        case SlotState.HELD:
            note = _wait_note(slot)
            return f"{note}, since {_without_fraction(slot.awaited_since)}" if note else ""


def _wait_note(slot: Slot) -> str:
    awaits_reboot = slot.awaited in (Awaited.BOOT, Awaited.LATE_REBOOT)
    # A host that reports before its reboot no longer wants it.
    if slot.has_reported and awaits_reboot:
        return (
            "its host canceled its reboot: the node is uncordoned after its host has stayed up for"
            " a minute"
        )
    return _WAIT_NOTES.get(slot.awaited, "")


class SlotsReport(TypedDict):
    """The slots, and the server that works on them."""

    server: str
    held: Sequence[Slot]
    phases: Mapping[str, str]


class SlotReleaseReport(TypedDict):
    """The result of a release."""

    node: str
    released: bool


def fleetlock_document(slots: Slots, nodes: Mapping[str, Node], lock_holder: str) -> SlotsReport:
    phases = {slot.node: phase_of(slot, nodes.get(slot.node)) for slot in slots.all}
    return {"server": lock_holder, "held": slots.all, "phases": phases}
