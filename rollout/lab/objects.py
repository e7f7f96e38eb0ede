"""Reading and rebuilding stored objects: pure, because stored dictionaries are shared and never changed."""

from datetime import datetime
from typing import Any

from rollout.lab.api.store import Json, timestamp

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
LAB_PREFIX = "lab.node-rollout.dev/"

Key = tuple[str, str]


def key(obj: Json) -> Key:
    """Namespace and name."""
    return namespace_of(obj), name_of(obj)


def name_of(obj: Json) -> str:
    """Return its name."""
    return str(obj["metadata"]["name"])


def namespace_of(obj: Json) -> str:
    """Return its namespace; empty where it is in none."""
    return str(obj["metadata"].get("namespace", ""))


def uid(obj: Json) -> str:
    """Return the identity that no second object of the same name shares."""
    return str(obj["metadata"]["uid"])


def labels_of(obj: Json) -> dict[str, str]:
    """Return the labels; empty where there are none."""
    return obj["metadata"].get("labels") or {}


def annotations_of(obj: Json) -> dict[str, str]:
    """Return the annotations; empty where there are none."""
    return obj["metadata"].get("annotations") or {}


def spec_of(obj: Json) -> Json:
    """Return the spec; empty where there is none."""
    return obj.get("spec") or {}


def status_of(obj: Json) -> Json:
    """Return the status; empty where there is none."""
    return obj.get("status") or {}


def field_of(obj: Json, path: str) -> Any:
    """Return a field by its dotted path, None where anything on the way is missing."""
    value: Any = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def setting(pod: Json, name: str) -> str | None:
    """Return the value of one of the lab's own annotations."""
    return annotations_of(pod).get(LAB_PREFIX + name)


def phase(pod: Json) -> str:
    """Return the pod's phase; a new one is Pending."""
    return str(status_of(pod).get("phase") or "Pending")


def is_finished(pod: Json) -> bool:
    """Whether its containers have ended for good."""
    return phase(pod) in {"Succeeded", "Failed"}


def is_deleting(obj: Json) -> bool:
    """Whether its deletion has begun."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def is_active(pod: Json) -> bool:
    """Whether controllers count it as one of theirs that works or will work."""
    return not is_finished(pod) and not is_deleting(pod)


def is_mirror(pod: Json) -> bool:
    """Whether it only mirrors a static pod of its kubelet."""
    return MIRROR_ANNOTATION in annotations_of(pod)


def node_name(pod: Json) -> str:
    """Return the node it is bound to; empty where it is not."""
    return str(spec_of(pod).get("nodeName") or "")


def controller_of(obj: Json) -> Json | None:
    """Return the owner reference that says controller=true."""
    references = obj["metadata"].get("ownerReferences") or ()
    return next((reference for reference in references if reference.get("controller")), None)


def is_daemon(pod: Json) -> bool:
    """Whether a DaemonSet runs it."""
    owner = controller_of(pod)
    return owner is not None and owner.get("kind") == "DaemonSet"


def condition(obj: Json, kind: str) -> Json | None:
    """One of its conditions."""
    return next(
        (
            condition
            for condition in status_of(obj).get("conditions") or ()
            if condition["type"] == kind
        ),
        None,
    )


def is_ready(obj: Json) -> bool:
    """Whether a pod or node is Ready."""
    standing = condition(obj, "Ready")
    return standing is not None and standing["status"] == "True"


def with_status(obj: Json, **fields: Any) -> Json:
    """Return the object with these fields of its status replaced."""
    return {**obj, "status": {**status_of(obj), **fields}}


def with_metadata(obj: Json, **fields: Any) -> Json:
    """Return the object with these fields of its metadata replaced."""
    return {**obj, "metadata": {**obj["metadata"], **fields}}


def with_spec(obj: Json, **fields: Any) -> Json:
    """Return the object with these fields of its spec replaced; its generation counts the change."""
    generation = obj["metadata"].get("generation")
    changed = {**obj, "spec": {**spec_of(obj), **fields}}
    if generation is None or changed["spec"] == spec_of(obj):
        return changed
    return with_metadata(changed, generation=generation + 1)


def with_condition(obj: Json, new: Json, now: datetime) -> Json:
    """Return the object with a condition set; the transition time moves only with the status.

    One that a client wrote may have no time.
    """
    old = condition(obj, new["type"])
    same = old is not None and old["status"] == new["status"]
    since = old.get("lastTransitionTime") if same and old is not None else None
    full = {"lastTransitionTime": since or timestamp(now), **new}
    others = status_of(obj).get("conditions") or []
    if old is None:
        return with_status(obj, conditions=[*others, full])
    return with_status(obj, conditions=[full if other is old else other for other in others])
