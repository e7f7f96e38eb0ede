from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

from rollout.lab.api.resources import (
    BUDGETS,
    CLUSTERS,
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
WITH_GENERATION: Final = frozenset(
    {PODS, DAEMONSETS, DEPLOYMENTS, REPLICASETS, STATEFULSETS, JOBS, BUDGETS, CLUSTERS}
)
_REPLICATED: Final = frozenset({DEPLOYMENTS, REPLICASETS, STATEFULSETS})


def with_defaults(resource: Resource, obj: Json, *, creating: bool = True) -> Json:
    fields = without_nulls(obj["metadata"])
    metadata = {key: value for key, value in fields.items() if value not in ({}, [])}
    if creating and resource in WITH_GENERATION:
        metadata["generation"] = 1
    typed = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
    defaulted: Json = {
        **{key: without_nulls(value) for key, value in obj.items() if key not in typed},
        **typed,
    }
    spec = spec_of(defaulted)
    status = status_of(defaulted)
    if resource is NODES:
        defaulted |= {"spec": _node_spec(spec, creating=creating), "status": status}
    elif resource is NAMESPACES:
        name_label = {"kubernetes.io/metadata.name": metadata["name"]}
        metadata["labels"] = {**metadata.get("labels", {}), **name_label}
        if creating:
            defaulted["status"] = {"phase": "Active"}
    elif resource is PODS:
        defaulted["spec"] = admit(spec) if creating else {**_POD_SPEC, **spec}
        defaulted["status"] = {"phase": "Pending", **status}
    elif resource is BUDGETS:
        defaulted |= {"spec": spec, "status": {**_BUDGET_STATUS, **status}}
    elif resource in _REPLICATED:
        defaulted["spec"] = {"replicas": 1, **spec}
    elif resource is DAEMONSETS:
        defaulted["spec"] = {"updateStrategy": {"type": "RollingUpdate"}, **spec}
    return defaulted


def _node_spec(spec: Json, *, creating: bool) -> Json:
    spec = {key: value for key, value in spec.items() if value not in (False, [])}
    taints = spec.get("taints", ())
    if creating and NOT_READY_TAINT not in taints:
        spec["taints"] = [*taints, NOT_READY_TAINT]
    return spec


def ensure_namespace(
    store: ObjectStore, name: str, labels: Mapping[str, str] = MappingProxyType({})
) -> None:
    if store.get(NAMESPACES, name) is None:
        namespace = {"metadata": {"name": name, "labels": dict(labels)}}
        store.create(NAMESPACES, with_defaults(NAMESPACES, namespace))


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(field) for key, field in value.items() if field is not None}
    if isinstance(value, list):
        return [without_nulls(entry) for entry in value]
    return value


def admit(spec: Json) -> Json:
    own = spec.get("tolerations") or []
    added = [toleration for toleration in _DEFAULT_TOLERATIONS if not _tolerates(toleration, own)]
    return {**_POD_SPEC, **spec, "tolerations": [*own, *added]}


def _tolerates(default: Json, tolerations: list[Json]) -> bool:
    for toleration in tolerations:
        has_key = toleration.get("key") in {None, "", default["key"]}
        if has_key and toleration.get("effect") in {None, "", "NoExecute"}:
            return True
    return False


def begin_deletion(
    store: ObjectStore, resource: Resource, obj: Json, *, grace_seconds: int | None = None
) -> Json | None:
    """Return the object while it terminates, or None once it is gone."""
    terminating = deleted_form(resource, obj, store.now(), grace_seconds=grace_seconds)
    return put_or_remove(store, resource, terminating)


def put_or_remove(store: ObjectStore, resource: Resource, obj: Json) -> Json | None:
    metadata = obj["metadata"]
    is_kept = metadata.get("deletionGracePeriodSeconds") or metadata.get("finalizers")
    # The garbage collector removes a namespace once it is empty.
    if is_kept or resource is NAMESPACES or not is_deleting(obj):
        return store.put(resource, obj)
    store.remove(resource, metadata["name"], metadata.get("namespace", ""))
    return None


def deleted_form(
    resource: Resource, obj: Json, now: datetime, *, grace_seconds: int | None
) -> Json:
    """A second deletion may only shorten the grace."""
    metadata = obj["metadata"]
    if is_deleting(obj):
        granted = metadata.get("deletionGracePeriodSeconds") or 0
        if grace_seconds is None or grace_seconds >= granted:
            return obj
        due = datetime.fromisoformat(metadata["deletionTimestamp"])
        due -= timedelta(seconds=granted - grace_seconds)
        return with_metadata(
            obj, deletionTimestamp=timestamp(due), deletionGracePeriodSeconds=grace_seconds
        )
    grace = pod_grace(obj, grace_seconds) if resource is PODS else 0
    marked = with_metadata(obj, deletionTimestamp=timestamp(now + timedelta(seconds=grace)))
    if metadata.get("generation"):
        marked = with_metadata(marked, generation=metadata["generation"] + 1)
    if resource is NAMESPACES:
        return with_status(marked, phase="Terminating")
    return with_metadata(marked, deletionGracePeriodSeconds=grace)


def pod_grace(pod: Json, requested: int | None) -> int:
    """In seconds; 0 if the pod has no node or has finished."""
    if not node_name(pod) or is_finished(pod):
        return 0
    grace = requested
    if grace is None:
        grace = spec_of(pod).get("terminationGracePeriodSeconds", 30)
    return 1 if grace < 0 else int(grace)
