"""The slots of FleetLock as they stand on the cluster: a ConfigMap beside the record.

What is not understood is no free slot: nothing is granted by it.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from rollout.gather.cluster.documents import Document
from rollout.model import marks
from rollout.model.fleetlock import NO_SLOTS, Slot, Slots, UnaskedReboot, is_fleetlock_run, is_group
from rollout.model.text import is_object_name, is_run_id
from rollout.ports import ClusterApi

_KEY = "slots.json"


class StandingSlots(NamedTuple):
    """The slots, and the whole ConfigMap that they were read from, to be written back; None where there is none."""

    slots: Slots
    body: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class _Document:
    held: tuple[Slot, ...] = ()
    unasked: tuple[UnaskedReboot, ...] = ()


def slots_of(namespace: str) -> Document:
    """Where they stand."""
    return Document(namespace, marks.SLOTS_NAME, _KEY)


def read_slots(api: ClusterApi, namespace: str) -> StandingSlots:
    """Return the slots; `ApiError` where they cannot be read, or are not understood."""
    text, whole = slots_of(namespace).read(api)
    if text is None:
        return StandingSlots(NO_SLOTS, whole)
    document = slots_of(namespace).parsed(text, _Document, _impossible)
    return StandingSlots(Slots(document.held, document.unasked), whole)


def _impossible(document: _Document) -> str:
    """Return what this program writes in no such document; empty where there is nothing of the kind."""
    for slot in document.held:
        if not (is_object_name(slot.node) and is_run_id(slot.run) and is_fleetlock_run(slot.run)):
            return f"a slot of {slot.node!r}, for the rollout {slot.run!r}"
        if not (is_group(slot.group) and slot.node_uid and slot.boot_id):
            return f"a slot of {slot.node!r} in the group {slot.group!r}"
    return "one node holds two slots" if len(document.held) != len({slot.node for slot in document.held}) else ""


def written_slots(namespace: str, slots: Slots, whole: dict[str, Any] | None) -> dict[str, Any]:
    """Return the ConfigMap with these slots, in the version that was read."""
    return slots_of(namespace).written(_Document(slots.held, slots.unasked), whole)
