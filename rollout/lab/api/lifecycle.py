"""How objects come and go: what a server adds to those it stores, and grace periods, finalizers and the end.

The API front and the world's controllers and kubelets make and delete through the same functions,
so that a pod deleted by a controller terminates exactly like one deleted by a client. Added are the
defaults and admission's additions that readers rely on.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

from rollout.lab.api.resources import (
    BUDGETS,
    DAEMONSETS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICASETS,
    STATEFULSETS,
    Resource,
)
from rollout.lab.api.store import Json, ObjectStore, timestamp
from rollout.lab.objects import (
    is_deleting,
    is_finished,
    node_name,
    spec_of,
    status_of,
    with_metadata,
    with_status,
)

SYSTEM_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
NOT_READY_TAINT: Final = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}

_TOLERATION_SECONDS: Final = 300
_DEFAULT_TOLERATIONS: Final = [
    {"key": f"node.kubernetes.io/{condition}", "operator": "Exists", "effect": "NoExecute"}
    | {"tolerationSeconds": _TOLERATION_SECONDS}
    for condition in ("not-ready", "unreachable")
]
_POD_SPEC: Final = {"restartPolicy": "Always", "terminationGracePeriodSeconds": 30}
_BUDGET_STATUS: Final = {
    "disruptionsAllowed": 0,
    "currentHealthy": 0,
    "desiredHealthy": 0,
    "expectedPods": 0,
}
# The server counts the changes of their specs.
WITH_GENERATION: Final = frozenset(
    {PODS, DAEMONSETS, DEPLOYMENTS, REPLICASETS, STATEFULSETS, JOBS, BUDGETS}
)
_REPLICATED: Final = frozenset({DEPLOYMENTS, REPLICASETS, STATEFULSETS})


def with_defaults(resource: Resource, obj: Json, *, creating: bool = True) -> Json:
    """Return the object as a server stores it; `creating` adds what admission adds to new objects only."""
    metadata = {
        key: value for key, value in without_nulls(obj["metadata"]).items() if value not in ({}, [])
    }
    if creating and resource in WITH_GENERATION:
        metadata["generation"] = 1
    typed: Json = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
    defaulted = {
        **{key: without_nulls(value) for key, value in obj.items() if key not in typed},
        **typed,
    }
    spec = spec_of(defaulted)
    if resource is NODES:
        spec = {key: value for key, value in spec.items() if value not in (False, [])}
        if creating and NOT_READY_TAINT not in spec.get("taints", ()):
            spec["taints"] = [*spec.get("taints", ()), NOT_READY_TAINT]
        defaulted |= {"spec": spec, "status": status_of(defaulted)}
    elif resource is NAMESPACES:
        metadata["labels"] = {
            **metadata.get("labels", {}),
            "kubernetes.io/metadata.name": metadata["name"],
        }
        if creating:
            defaulted |= {"status": {"phase": "Active"}}
    elif resource is PODS:
        status = {"phase": "Pending", **status_of(defaulted)}
        defaulted |= {
            "spec": admit(spec) if creating else {**_POD_SPEC, **spec},
            "status": status,
        }
    elif resource is BUDGETS:
        defaulted |= {"spec": spec, "status": {**_BUDGET_STATUS, **status_of(defaulted)}}
    elif resource in _REPLICATED:
        defaulted |= {"spec": {"replicas": 1, **spec}}
    return defaulted


def ensure_namespace(
    store: ObjectStore, name: str, labels: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Create the namespace where it is not there."""
    if store.get(NAMESPACES, name) is None:
        store.create(
            NAMESPACES,
            with_defaults(NAMESPACES, {"metadata": {"name": name, "labels": dict(labels)}}),
        )


def without_nulls(value: Any) -> Any:
    """Return the value without the fields that are null: a typed server drops them."""
    if isinstance(value, dict):
        return {key: without_nulls(field) for key, field in value.items() if field is not None}
    if isinstance(value, list):
        return [without_nulls(entry) for entry in value]
    return value


def admit(spec: Json) -> Json:
    """Return a new pod's spec with its defaults, and with the tolerations that admission adds."""
    own = spec.get("tolerations") or []
    added = [toleration for toleration in _DEFAULT_TOLERATIONS if not _tolerates(toleration, own)]
    return {**_POD_SPEC, **spec, "tolerations": [*own, *added]}


def _tolerates(default: Json, tolerations: list[Json]) -> bool:
    """Whether the pod says itself how long it stays on such a node."""
    return any(
        toleration.get("key") in {None, "", default["key"]}
        and toleration.get("effect") in {None, "", "NoExecute"}
        for toleration in tolerations
    )


def begin_deletion(
    store: ObjectStore, resource: Resource, obj: Json, *, grace_seconds: int | None = None
) -> Json | None:
    """Delete an object as a server does: the object that remains (terminating), or None when it is gone."""
    return settle(
        store, resource, deleted_form(resource, obj, store.now(), grace_seconds=grace_seconds)
    )


def settle(store: ObjectStore, resource: Resource, obj: Json) -> Json | None:
    """Store the object, or remove it for good where nothing holds the deleted object any more: None then."""
    metadata = obj["metadata"]
    # A namespace goes when the collector has emptied it.
    stays = (
        metadata.get("deletionGracePeriodSeconds")
        or metadata.get("finalizers")
        or resource is NAMESPACES
    )
    if stays or not is_deleting(obj):
        return store.put(resource, obj)
    store.remove(resource, metadata["name"], metadata.get("namespace", ""))
    return None


def deleted_form(
    resource: Resource, obj: Json, now: datetime, *, grace_seconds: int | None
) -> Json:
    """Return the object as the deletion leaves it; changes nothing. A second deletion may only shorten the grace."""
    metadata = obj["metadata"]
    if is_deleting(obj):
        granted = metadata.get("deletionGracePeriodSeconds") or 0
        if grace_seconds is None or grace_seconds >= granted:
            return obj
        due = datetime.fromisoformat(metadata["deletionTimestamp"]) - timedelta(
            seconds=granted - grace_seconds
        )
        return with_metadata(
            obj, deletionTimestamp=timestamp(due), deletionGracePeriodSeconds=grace_seconds
        )
    grace = pod_grace(obj, grace_seconds) if resource is PODS else 0
    counted = {"generation": metadata["generation"] + 1} if metadata.get("generation") else {}
    marked = with_metadata(
        obj, deletionTimestamp=timestamp(now + timedelta(seconds=grace)), **counted
    )
    if resource is NAMESPACES:
        return with_status(marked, phase="Terminating")
    return with_metadata(marked, deletionGracePeriodSeconds=grace)


def pod_grace(pod: Json, asked: int | None) -> int:
    """How long the pod may take to terminate, in seconds; one without a node or that has ended, no time."""
    if not node_name(pod) or is_finished(pod):
        return 0
    grace = asked if asked is not None else spec_of(pod).get("terminationGracePeriodSeconds", 30)
    return 1 if grace < 0 else int(grace)
