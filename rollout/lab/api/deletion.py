"""How objects go away: grace periods, finalizers, and the moment they are really gone.

The API front and the world's controllers and kubelets delete through the same functions, so that a pod
deleted by a controller terminates exactly like one deleted by a client.
"""

from datetime import UTC, datetime, timedelta

from rollout.lab.api.resources import NAMESPACES, PODS, Resource
from rollout.lab.api.store import Json, ObjectStore, timestamp
from rollout.lab.objects import is_deleting, is_finished, node_name, spec_of

DEFAULT_GRACE_SECONDS = 30


def begin_deletion(
    store: ObjectStore,
    resource: Resource,
    obj: Json,
    *,
    grace_seconds: int | None = None,
) -> Json | None:
    """Delete an object as a server does: the object that remains (terminating), or None when it is gone."""
    after = deleted_form(resource, obj, store.now(), grace_seconds=grace_seconds)
    return settle(store, resource, after)


def settle(store: ObjectStore, resource: Resource, obj: Json) -> Json | None:
    """Store the object, or remove it for good where its deletion is due: None then."""
    if not is_due(resource, obj):
        return store.put(resource, obj)
    metadata = obj["metadata"]
    store.remove(resource, metadata["name"], metadata.get("namespace", ""))
    return None


def is_due(resource: Resource, obj: Json) -> bool:
    """Whether nothing holds the deleted object any more: no grace left, no finalizer."""
    metadata = obj["metadata"]
    if not is_deleting(obj) or metadata.get("deletionGracePeriodSeconds"):
        return False
    held_by_namespace = resource is NAMESPACES and (obj.get("spec") or {}).get("finalizers")
    return not metadata.get("finalizers") and not held_by_namespace


def deleted_form(
    resource: Resource,
    obj: Json,
    now: datetime,
    *,
    grace_seconds: int | None = None,
) -> Json:
    """Return the object as the deletion leaves it; changes nothing."""
    if is_deleting(obj):
        return _shortened(obj, grace_seconds)
    grace = pod_grace(obj, grace_seconds) if resource is PODS else 0
    marked = _marked(obj, now, grace)
    if resource is NAMESPACES:
        marked["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
    else:
        marked["metadata"]["deletionGracePeriodSeconds"] = grace
    return marked


def pod_grace(pod: Json, asked: int | None) -> int:
    """How long the pod may take to terminate, in seconds; one without a node or that has ended, no time."""
    if not node_name(pod) or is_finished(pod):
        return 0
    grace = asked if asked is not None else spec_of(pod).get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS)
    return 1 if grace < 0 else int(grace)


def _marked(obj: Json, now: datetime, grace: int) -> Json:
    metadata = dict(obj["metadata"])
    metadata["deletionTimestamp"] = timestamp(now + timedelta(seconds=grace))
    if metadata.get("generation"):
        metadata["generation"] += 1
    return {**obj, "metadata": metadata}


def _shortened(obj: Json, grace_seconds: int | None) -> Json:
    """Shorten the grace of the first deletion; a second one may do no more."""
    metadata = obj["metadata"]
    granted = metadata.get("deletionGracePeriodSeconds") or 0
    if grace_seconds is None or grace_seconds >= granted:
        return obj
    due = datetime.strptime(metadata["deletionTimestamp"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    earlier = due - timedelta(seconds=granted - grace_seconds)
    return {
        **obj,
        "metadata": {
            **metadata,
            "deletionTimestamp": timestamp(earlier),
            "deletionGracePeriodSeconds": grace_seconds,
        },
    }
