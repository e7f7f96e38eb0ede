"""The slots of FleetLock as they stand on the cluster: a ConfigMap beside the record.

Anybody who may write ConfigMaps may have written it. What is not understood is no free slot: nothing is granted by it.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from rollout.errors import ApiError, ApiNotFoundError
from rollout.model import marks
from rollout.model.fleetlock import NO_SLOTS, Slot, Slots, UnaskedReboot, is_fleetlock_run, is_group
from rollout.model.names import is_object_name, is_run_id
from rollout.model.text import excerpt
from rollout.ports import ClusterApi

_FORMAT = "1.0"
_KEY = "slots.json"
_LARGEST_BODY = 4 << 20
_NOT_READ = (msgspec.MsgspecError, UnicodeError, RecursionError)


@dataclass(frozen=True, slots=True)
class StandingSlots:
    """The slots, and the whole ConfigMap that they were read from, to be written back; None where there is none."""

    slots: Slots
    body: dict[str, Any] | None


class _Document(msgspec.Struct):
    format_version: str
    held: tuple[Slot, ...] = ()
    unasked: tuple[UnaskedReboot, ...] = ()


class _Header(msgspec.Struct):
    format_version: str = _FORMAT


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] | None = None


def slots_path(namespace: str) -> str:
    """Where they stand."""
    return f"/api/v1/namespaces/{namespace}/configmaps/{marks.SLOTS_NAME}"


def read_slots(api: ClusterApi, namespace: str) -> StandingSlots:
    """The slots; `ApiError` where they cannot be read, or are not understood."""
    try:
        body = api.get(slots_path(namespace))
    except ApiNotFoundError:
        return StandingSlots(NO_SLOTS, None)
    origin = f"ConfigMap {namespace}/{marks.SLOTS_NAME}"
    if len(body) > _LARGEST_BODY:
        raise ApiError(f"{origin} is larger than {_LARGEST_BODY >> 20} MiB")
    try:
        whole = msgspec.json.decode(body, type=dict[str, Any])
        text = (msgspec.convert(whole, type=_ConfigMap).data or {}).get(_KEY)
        if text is not None and not _is_known(written := msgspec.json.decode(text, type=_Header).format_version):
            raise ApiError(f"{origin} has the format {excerpt(written, 20)}, of another version of rollout")
        document = msgspec.json.decode(text, type=_Document) if text is not None else _Document(_FORMAT)
    except _NOT_READ as error:
        raise ApiError(f"{origin} is not understood: {excerpt(str(error))}") from error
    if wrong := _impossible(document):
        raise ApiError(f"{origin} is not understood: {excerpt(wrong)}")
    return StandingSlots(Slots(document.held, document.unasked), whole)


def _is_known(version: str) -> bool:
    return version.partition(".")[0] == _FORMAT.partition(".")[0]


def _impossible(document: _Document) -> str:
    """What this program writes in no such document; empty where there is nothing of the kind."""
    for slot in document.held:
        if not (is_object_name(slot.node) and is_run_id(slot.run) and is_fleetlock_run(slot.run)):
            return f"a slot of {slot.node!r}, for the rollout {slot.run!r}"
        if not (is_group(slot.group) and slot.node_uid and slot.boot_id):
            return f"a slot of {slot.node!r} in the group {slot.group!r}"
    return "one node holds two slots" if len(document.held) != len({slot.node for slot in document.held}) else ""


def written_slots(slots: Slots, standing: StandingSlots, namespace: str) -> dict[str, Any]:
    """The ConfigMap with these slots, in the version that was read."""
    document = _Document(_FORMAT, slots.held, slots.unasked)
    base = standing.body or {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": marks.SLOTS_NAME, "namespace": namespace},
    }
    return {**base, "data": {**(base.get("data") or {}), _KEY: msgspec.json.encode(document).decode()}}
