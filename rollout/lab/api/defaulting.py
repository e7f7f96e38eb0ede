"""What a server adds to the objects it stores: the defaults and admission's additions that readers rely on.

An object that a controller of the lab makes has them just as one that came over the wire.
"""

from collections.abc import Mapping
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
from rollout.lab.api.store import Json, ObjectStore

SYSTEM_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
NOT_READY_TAINT: Final = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}

_TOLERATION_SECONDS: Final = 300
_DEFAULT_TOLERATIONS: Final = [
    {"key": f"node.kubernetes.io/{condition}", "operator": "Exists", "effect": "NoExecute"}
    | {"tolerationSeconds": _TOLERATION_SECONDS}
    for condition in ("not-ready", "unreachable")
]
_POD_SPEC: Final = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
    "priority": 0,
}
_BUDGET_STATUS: Final = {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}
_WITH_GENERATION: Final = frozenset({PODS, DAEMONSETS, DEPLOYMENTS, REPLICASETS, STATEFULSETS, JOBS, BUDGETS})
_REPLICATED: Final = frozenset({DEPLOYMENTS, REPLICASETS, STATEFULSETS})


def has_generation(resource: Resource) -> bool:
    """Whether the server counts the changes of the resource's specs."""
    return resource in _WITH_GENERATION


def with_defaults(resource: Resource, obj: Json, *, creating: bool = True) -> Json:
    """Return the object as a server stores it; `creating` adds what admission adds to new objects only."""
    metadata = {key: value for key, value in obj["metadata"].items() if value not in (None, {}, [])}
    if creating and has_generation(resource):
        metadata["generation"] = 1
    typed: Json = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
    defaulted = {**{key: without_nulls(value) for key, value in obj.items() if key not in typed}, **typed}
    spec = defaulted.get("spec") or {}
    if resource is NODES:
        spec = {key: value for key, value in spec.items() if value not in (False, [])}
        if creating and NOT_READY_TAINT not in spec.get("taints", ()):
            spec["taints"] = [*spec.get("taints", ()), NOT_READY_TAINT]
        defaulted |= {"spec": spec, "status": defaulted.get("status") or {}}
    elif resource is NAMESPACES:
        metadata["labels"] = {**metadata.get("labels", {}), "kubernetes.io/metadata.name": metadata["name"]}
        if creating:
            defaulted |= {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
    elif resource is PODS:
        status = {"phase": "Pending", **(defaulted.get("status") or {})}
        defaulted |= {"spec": admitted(spec) if creating else {**_POD_SPEC, **spec}, "status": status}
    elif resource is BUDGETS:
        defaulted |= {"spec": spec, "status": {**_BUDGET_STATUS, **(defaulted.get("status") or {})}}
    elif resource in _REPLICATED:
        defaulted |= {"spec": {"replicas": 1, **spec}}
    return defaulted


def ensure_namespace(store: ObjectStore, name: str, labels: Mapping[str, str] = MappingProxyType({})) -> None:
    """Create the namespace where it is not there."""
    if store.get(NAMESPACES, name) is None:
        store.create(NAMESPACES, with_defaults(NAMESPACES, {"metadata": {"name": name, "labels": dict(labels)}}))


def without_nulls(value: Any) -> Any:
    """Return the value without the fields that are null: a typed server drops them."""
    if isinstance(value, dict):
        return {key: without_nulls(field) for key, field in value.items() if field is not None}
    if isinstance(value, list):
        return [without_nulls(entry) for entry in value]
    return value


def admitted(spec: Json) -> Json:
    """Return a new pod's spec with its defaults, and with the tolerations that admission adds."""
    own = spec.get("tolerations") or []
    added = [toleration for toleration in _DEFAULT_TOLERATIONS if not _tolerated(toleration, own)]
    return {**_POD_SPEC, **spec, "tolerations": [*own, *added]}


def _tolerated(default: Json, tolerations: list[Json]) -> bool:
    """Whether the pod says itself how long it stays on such a node."""
    return any(
        toleration.get("key") in {None, "", default["key"]} and toleration.get("effect") in {None, "", "NoExecute"}
        for toleration in tolerations
    )
