"""What a server adds to the objects it stores: defaults, admission's additions, and zero values.

Clients read these fields without asking whether they exist, so an object that a controller of the lab makes
goes through `with_defaults` just as one that came over the wire.
"""

from collections.abc import Callable
from typing import Any

from rollout.lab.api.resources import (
    BUDGETS,
    DAEMONSETS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICASETS,
    STATEFULSETS,
    Resource,
)
from rollout.lab.api.store import Json, ObjectStore

SYSTEM_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
NOT_READY_TAINT = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}

_TOLERATION_SECONDS = 300
_DEFAULT_TOLERATIONS = [
    {
        "key": f"node.kubernetes.io/{condition}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": _TOLERATION_SECONDS,
    }
    for condition in ("not-ready", "unreachable")
]
_POD_SPEC = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
}
# What only pods get, not the templates they are made from.
_ADMITTED_POD_SPEC = {"priority": 0, "enableServiceLinks": True, "preemptionPolicy": "PreemptLowerPriority"}
_CONTAINER = {
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_NODE_INFO = dict.fromkeys(
    (
        "machineID",
        "systemUUID",
        "bootID",
        "kernelVersion",
        "osImage",
        "containerRuntimeVersion",
        "kubeletVersion",
        "kubeProxyVersion",
        "operatingSystem",
        "architecture",
    ),
    "",
)
_BUDGET_STATUS = {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}
_EVENT: Json = {
    "firstTimestamp": None,
    "lastTimestamp": None,
    "eventTime": None,
    "source": {},
    "reportingComponent": "",
    "reportingInstance": "",
}
_WITH_GENERATION = frozenset({PODS, DAEMONSETS, DEPLOYMENTS, REPLICASETS, STATEFULSETS, JOBS, BUDGETS})
_TEMPLATED = frozenset({DAEMONSETS, DEPLOYMENTS, REPLICASETS, STATEFULSETS, JOBS})
_REPLICATED = frozenset({DEPLOYMENTS, REPLICASETS, STATEFULSETS})


def has_generation(resource: Resource) -> bool:
    """Whether the server counts the changes of the resource's specs."""
    return resource in _WITH_GENERATION


def with_defaults(resource: Resource, obj: Json, *, creating: bool = True) -> Json:
    """The object as a server stores it; `creating` adds what admission adds to new objects only."""
    metadata = {key: value for key, value in obj["metadata"].items() if value not in (None, {}, [])}
    if creating and has_generation(resource):
        metadata["generation"] = 1
    typed = {"apiVersion": resource.api_version, "kind": resource.kind}
    pruned = {key: without_nulls(value) for key, value in obj.items() if key not in {"metadata", *typed}}
    defaulted = {**typed, "metadata": metadata, **pruned}
    rule = _RULES.get(resource)
    if rule is not None:
        rule(defaulted, creating)
    elif resource in _TEMPLATED:
        _default_workload(resource, defaulted)
    return defaulted


def ensure_namespaces(store: ObjectStore) -> None:
    """Create the namespaces that every cluster has."""
    for name in SYSTEM_NAMESPACES:
        if store.get(NAMESPACES, name) is None:
            store.create(NAMESPACES, with_defaults(NAMESPACES, {"metadata": {"name": name}}))


def without_nulls(value: Any) -> Any:
    """The value without the fields that are null: a typed server drops them."""
    if isinstance(value, dict):
        return {key: without_nulls(field) for key, field in value.items() if field is not None}
    if isinstance(value, list):
        return [without_nulls(entry) for entry in value]
    return value


def _default_node(node: Json, creating: bool) -> None:  # noqa: FBT001 - one signature for all rules
    spec = {key: value for key, value in (node.get("spec") or {}).items() if value not in (False, [])}
    if creating and NOT_READY_TAINT not in spec.get("taints", ()):
        spec["taints"] = [*spec.get("taints", ()), NOT_READY_TAINT]
    node["spec"] = spec
    status = dict(node.get("status") or {})
    status.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 0}})
    status["nodeInfo"] = {**_NODE_INFO, **(status.get("nodeInfo") or {})}
    _null_times(status, ("lastHeartbeatTime", "lastTransitionTime"))
    node["status"] = status


def _default_namespace(namespace: Json, creating: bool) -> None:  # noqa: FBT001
    metadata = namespace["metadata"]
    metadata["labels"] = {**metadata.get("labels", {}), "kubernetes.io/metadata.name": metadata["name"]}
    if creating:
        namespace["spec"] = {"finalizers": ["kubernetes"]}
        namespace["status"] = {"phase": "Active"}


def _default_pod(pod: Json, creating: bool) -> None:  # noqa: FBT001
    spec = pod.get("spec") or {}
    pod["spec"] = spec = admitted(spec) if creating else pod_spec({**_ADMITTED_POD_SPEC, **spec})
    status = dict(pod.get("status") or {})
    status.setdefault("phase", "Pending")
    status["qosClass"] = quality_class(spec)
    _null_times(status, ("lastProbeTime", "lastTransitionTime"))
    pod["status"] = status


def _default_event(event: Json, _creating: bool) -> None:  # noqa: FBT001
    event.update({key: value for key, value in _EVENT.items() if key not in event})


def _default_budget(budget: Json, _creating: bool) -> None:  # noqa: FBT001
    budget.setdefault("spec", {})
    budget["status"] = {**_BUDGET_STATUS, **(budget.get("status") or {})}


def _default_workload(resource: Resource, obj: Json) -> None:
    spec = dict(obj.get("spec") or {})
    if resource in _REPLICATED:
        spec.setdefault("replicas", 1)
    template = spec.get("template")
    if template:
        spec["template"] = {"metadata": {}, **template, "spec": pod_spec(template.get("spec") or {})}
    obj["spec"] = spec
    obj.setdefault("status", {})


_RULES: dict[Resource, Callable[[Json, bool], None]] = {
    NODES: _default_node,
    NAMESPACES: _default_namespace,
    PODS: _default_pod,
    EVENTS: _default_event,
    BUDGETS: _default_budget,
}


def admitted(spec: Json) -> Json:
    """A new pod's spec with its defaults, and with what admission adds."""
    complete = pod_spec({**_ADMITTED_POD_SPEC, **spec})
    return {**complete, "tolerations": _tolerations(complete.get("tolerations") or [])}


def pod_spec(spec: Json) -> Json:
    """A pod's or a template's spec with its defaults."""
    defaulted = {**_POD_SPEC, **spec}
    for containers in ("containers", "initContainers"):
        if spec.get(containers):
            defaulted[containers] = [_container(container) for container in spec[containers]]
    return defaulted


def _container(container: Json) -> Json:
    image = container.get("image", "")
    tag = image.rpartition("/")[2].partition(":")[2]
    policy = "Always" if tag in {"", "latest"} and "@" not in image else "IfNotPresent"
    return {"imagePullPolicy": policy, **_CONTAINER, **container}


def _tolerations(tolerations: list[Json]) -> list[Json]:
    return [
        *tolerations,
        *(toleration for toleration in _DEFAULT_TOLERATIONS if not _tolerated(toleration, tolerations)),
    ]


def _tolerated(default: Json, tolerations: list[Json]) -> bool:
    """Whether the pod says itself how long it stays on such a node."""
    return any(
        toleration.get("key") in {None, "", default["key"]} and toleration.get("effect") in {None, "", "NoExecute"}
        for toleration in tolerations
    )


def _null_times(status: Json, names: tuple[str, ...]) -> None:
    """Times of conditions are written out even where they are not set."""
    if status.get("conditions"):
        blank = dict.fromkeys(names)
        status["conditions"] = [{**blank, **condition} for condition in status["conditions"]]


def quality_class(spec: Json) -> str:
    """Guaranteed, Burstable or BestEffort, by the containers' requests and limits of CPU and memory."""
    resources = [container.get("resources") or {} for container in spec.get("containers") or ()]
    named = [(resource.get("requests") or {}, resource.get("limits") or {}) for resource in resources]
    if not any(requests or limits for requests, limits in named):
        return "BestEffort"
    guaranteed = all(
        limits.get(name) and requests.get(name, limits[name]) == limits[name]
        for requests, limits in named
        for name in ("cpu", "memory")
    )
    return "Guaranteed" if guaranteed else "Burstable"
