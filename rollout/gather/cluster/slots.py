"""The slots of FleetLock as they stand on the cluster: a ConfigMap beside the record.

What is not understood is no free slot: nothing is granted by it.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from rollout.errors import ApiError
from rollout.gather.cluster.documents import NOT_READ, Document
from rollout.model import marks
from rollout.model.fleetlock import NO_SLOTS, Slot, Slots, UnaskedReboot, is_fleetlock_run, is_group
from rollout.model.text import excerpt, is_object_name, is_run_id
from rollout.ports import ClusterApi

_FORMAT = "1.0"
_KEY = "slots.json"


class StandingSlots(NamedTuple):
    """The slots, and the whole ConfigMap that they were read from, to be written back; None where there is none."""

    slots: Slots
    body: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class _Document:
    format_version: str
    held: tuple[Slot, ...] = ()
    unasked: tuple[UnaskedReboot, ...] = ()


class _Header(msgspec.Struct):
    format_version: str = _FORMAT


def slots_of(namespace: str) -> Document:
    """Where they stand."""
    return Document(namespace, marks.SLOTS_NAME, _KEY)


def read_slots(api: ClusterApi, namespace: str) -> StandingSlots:
    """Return the slots; `ApiError` where they cannot be read, or are not understood."""
    origin = slots_of(namespace).origin
    text, whole = slots_of(namespace).read(api)
    if text is None:
        return StandingSlots(NO_SLOTS, whole)
    try:
        if not _is_known(version := msgspec.json.decode(text, type=_Header).format_version):
            raise ApiError(f"{origin} has the format {excerpt(version, 20)}, of another version of rollout")
        document = msgspec.json.decode(text, type=_Document)
    except NOT_READ as error:
        raise ApiError(f"{origin} is not understood: {excerpt(str(error))}") from error
    if wrong := _impossible(document):
        raise ApiError(f"{origin} is not understood: {excerpt(wrong)}")
    return StandingSlots(Slots(document.held, document.unasked), whole)


def _is_known(version: str) -> bool:
    return version.partition(".")[0] == _FORMAT.partition(".")[0]


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
    return slots_of(namespace).written(_Document(_FORMAT, slots.held, slots.unasked), whole)
