"""Stored objects are shared and never changed."""

from datetime import datetime
from typing import Any

from rollout.lab.api.store import Json, timestamp

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
LAB_PREFIX = "lab.node-rollout.dev/"

Key = tuple[str, str]


def key(obj: Json) -> Key:
    return namespace_of(obj), name_of(obj)


def name_of(obj: Json) -> str:
    return str(obj["metadata"]["name"])


def namespace_of(obj: Json) -> str:
    return str(obj["metadata"].get("namespace", ""))


def uid(obj: Json) -> str:
    return str(obj["metadata"]["uid"])


def labels_of(obj: Json) -> dict[str, str]:
    return obj["metadata"].get("labels") or {}


def annotations_of(obj: Json) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def spec_of(obj: Json) -> Json:
    return obj.get("spec") or {}


def status_of(obj: Json) -> Json:
    return obj.get("status") or {}


def field_of(obj: Json, path: str) -> Any:
    """Return None if any part of the path is missing."""
    value: Any = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def setting(pod: Json, name: str) -> str | None:
    return annotations_of(pod).get(LAB_PREFIX + name)


def phase(pod: Json) -> str:
    return str(status_of(pod).get("phase") or "Pending")


def is_finished(pod: Json) -> bool:
    return phase(pod) in {"Succeeded", "Failed"}


def is_deleting(obj: Json) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))


def is_active(pod: Json) -> bool:
    return not is_finished(pod) and not is_deleting(pod)


def is_mirror(pod: Json) -> bool:
    return MIRROR_ANNOTATION in annotations_of(pod)


def node_name(pod: Json) -> str:
    return str(spec_of(pod).get("nodeName") or "")


def controller_of(obj: Json) -> Json | None:
    references = obj["metadata"].get("ownerReferences") or ()
    return next((reference for reference in references if reference.get("controller")), None)


def is_daemon(pod: Json) -> bool:
    owner = controller_of(pod)
    return owner is not None and owner.get("kind") == "DaemonSet"


def condition(obj: Json, kind: str) -> Json | None:
    conditions = status_of(obj).get("conditions") or ()
    return next((entry for entry in conditions if entry["type"] == kind), None)


def is_ready(obj: Json) -> bool:
    ready = condition(obj, "Ready")
    return ready is not None and ready["status"] == "True"


def with_status(obj: Json, **fields: Any) -> Json:
    return {**obj, "status": {**status_of(obj), **fields}}


def with_metadata(obj: Json, **fields: Any) -> Json:
    return {**obj, "metadata": {**obj["metadata"], **fields}}


def with_spec(obj: Json, **fields: Any) -> Json:
    """The generation counts the change."""
    spec = {**spec_of(obj), **fields}
    changed = {**obj, "spec": spec}
    generation = obj["metadata"].get("generation")
    if generation is None or spec == spec_of(obj):
        return changed
    return with_metadata(changed, generation=generation + 1)


def with_condition(obj: Json, new: Json, now: datetime) -> Json:
    """The transition time moves only with the status."""
    old = condition(obj, new["type"])
    conditions = status_of(obj).get("conditions") or []
    if old is None:
        added = {"lastTransitionTime": timestamp(now), **new}
        return with_status(obj, conditions=[*conditions, added])
    # A client's condition may have no time.
    since = old.get("lastTransitionTime") if old["status"] == new["status"] else None
    changed = {"lastTransitionTime": since or timestamp(now), **new}
    return with_status(obj, conditions=[changed if entry is old else entry for entry in conditions])
