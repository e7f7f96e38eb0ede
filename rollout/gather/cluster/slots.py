"""The slots of FleetLock as they stand on the cluster: a ConfigMap beside the record.

What is not understood is no free slot: nothing is granted by it.
"""

from rollout.gather.cluster.documents import Document, Stored
from rollout.model import marks
from rollout.model.fleetlock import NO_SLOTS, Slots, is_fleetlock_run, is_group
from rollout.model.text import is_object_name, is_run_id
from rollout.ports import ClusterApi

_KEY = "slots.json"


def slots_of(namespace: str) -> Document:
    """Where they stand."""
    return Document(namespace, marks.SLOTS_NAME, _KEY)


def read_slots(api: ClusterApi, namespace: str) -> Slots:
    """Return the slots; `ApiError` where they cannot be read, or are not understood."""
    return read_stored_slots(api, namespace).content


def read_stored_slots(api: ClusterApi, namespace: str) -> Stored[Slots]:
    """Return the slots with what they stand in; raises the same."""
    text, body = slots_of(namespace).read(api)
    return Stored(NO_SLOTS if text is None else slots_of(namespace).parsed(text, Slots, _impossible), body)


def _impossible(slots: Slots) -> str:
    """Return what this program writes in no such document; empty where there is nothing of the kind."""
    for slot in slots.held:
        if not (is_object_name(slot.node) and is_run_id(slot.run) and is_fleetlock_run(slot.run)):
            return f"a slot of {slot.node!r}, for the rollout {slot.run!r}"
        if not (is_group(slot.group) and slot.node_uid and slot.boot_id):
            return f"a slot of {slot.node!r} in the group {slot.group!r}"
    return "one node holds two slots" if len(slots.held) != len({slot.node for slot in slots.held}) else ""
