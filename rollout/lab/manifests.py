"""The API objects of workloads. Controllers create most of their pods."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from rollout.lab.api.resources import BUDGETS, NODES, PODS, SERVED, VOLUMES, Resource
from rollout.lab.api.store import Json
from rollout.lab.hostplan import CONTROL_PLANE_LABEL, HostPlan
from rollout.lab.objects import LAB_PREFIX, MIRROR_ANNOTATION
from rollout.lab.scenario import Role, ScenarioBudget, ScenarioWorkload, WorkloadKind
from rollout.lab.world.volumes import CSI_DRIVER

_TOLERATE_CONTROL_PLANE: Final = {
    "key": CONTROL_PLANE_LABEL,
    "operator": "Exists",
    "effect": "NoSchedule",
}


def workload_objects(
    workload: ScenarioWorkload, hosts: Sequence[HostPlan], node_uids: Mapping[str, str]
) -> Iterator[tuple[Resource, Json]]:
    if workload.budget:
        yield BUDGETS, _budget(workload, workload.budget, workload.name)
    if workload.second_budget:
        yield BUDGETS, _budget(workload, workload.second_budget, f"{workload.name}-too")
    if workload.volume_in:
        yield VOLUMES, _volume(workload)
    if workload.kind is WorkloadKind.STATIC_POD:
        for host in hosts:
            if workload.role in (None, host.role):
                yield PODS, _mirror(workload, host.name, node_uids[host.name])
    elif workload.kind is WorkloadKind.POD:
        for pod in _bare_pods(workload, hosts):
            yield PODS, pod
    else:
        resource = next(resource for resource in SERVED if resource.kind == workload.kind)
        yield resource, _controller(workload, replicas_of(workload, hosts))


def _volume(workload: ScenarioWorkload) -> Json:
    """The volume attaches to certain nodes only; its claim is not stored."""
    expressions = [
        {"key": label, "operator": "In", "values": [value]}
        for label, value in workload.volume_in.items()
    ]
    claim = {
        "kind": "PersistentVolumeClaim",
        "namespace": workload.namespace,
        "name": workload.name,
    }
    spec = {
        "csi": {"driver": CSI_DRIVER, "volumeHandle": workload.name},
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "10Gi"},
        "claimRef": claim,
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}},
    }
    return {"metadata": {"name": workload.name}, "spec": spec, "status": {"phase": "Bound"}}


def copies_of(workload: ScenarioWorkload, hosts: Sequence[HostPlan]) -> list[ScenarioWorkload]:
    if workload.copies_per_worker is None:
        return [workload]
    count = _per_worker(workload.copies_per_worker, hosts)
    names = [f"{workload.name}-{number}" for number in range(1, count + 1)]
    return [msgspec.structs.replace(workload, name=name) for name in names]


def replicas_of(workload: ScenarioWorkload, hosts: Sequence[HostPlan]) -> int:
    if workload.replicas_per_worker is None:
        return workload.replicas
    return _per_worker(workload.replicas_per_worker, hosts)


def _per_worker(share: float, hosts: Sequence[HostPlan]) -> int:
    workers = sum(host.role is Role.WORKER for host in hosts)
    return max(1, math.ceil(share * workers))


def _labels(workload: ScenarioWorkload) -> dict[str, str]:
    return {"app": workload.name, **workload.labels}


def _controller(workload: ScenarioWorkload, replicas: int) -> Json:
    spec: Json = {
        "template": _template(workload),
        "selector": {"matchLabels": {"app": workload.name}},
    }
    if workload.kind is WorkloadKind.DATABASE:
        spec["instances"] = replicas
    elif workload.kind is not WorkloadKind.DAEMON_SET:
        spec["replicas"] = replicas
    metadata = {
        "name": workload.name,
        "namespace": workload.namespace,
        "labels": _labels(workload),
        "annotations": dict(workload.marks),
    }
    return {"metadata": metadata, "spec": spec}


def _template(workload: ScenarioWorkload) -> Json:
    metadata = {"labels": _labels(workload), "annotations": _annotations(workload)}
    return {"metadata": metadata, "spec": _pod_spec(workload)}


def _annotations(workload: ScenarioWorkload) -> dict[str, str]:
    lab_annotations = {LAB_PREFIX + name: value for name, value in workload.lab.items()}
    return {**workload.annotations, **lab_annotations}


def _pod_spec(workload: ScenarioWorkload) -> Json:
    resources = {"requests": dict(workload.requests)}
    container = {"name": workload.name, "image": workload.image, "resources": resources}
    spec: Json = {"containers": [container]}
    if workload.volume_in:
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": workload.name}}]
    return {**spec, **_placement(workload), **workload.spec}


def _placement(workload: ScenarioWorkload) -> Json:
    placement: Json = {}
    if workload.role is Role.CONTROL_PLANE:
        placement["tolerations"] = [_TOLERATE_CONTROL_PLANE]
        placement["nodeSelector"] = {CONTROL_PLANE_LABEL: ""}
    if workload.node_selector:
        placement["nodeSelector"] = {**placement.get("nodeSelector", {}), **workload.node_selector}
    if workload.spread:
        spread = {
            "maxSkew": 1,
            "topologyKey": workload.spread,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": workload.name}},
        }
        placement["topologySpreadConstraints"] = [spread]
    return placement


def _budget(workload: ScenarioWorkload, budget: ScenarioBudget, name: str) -> Json:
    spec: Json = {"selector": {"matchLabels": {"app": workload.name}}}
    if budget.min_available is not None:
        spec["minAvailable"] = budget.min_available
    if budget.max_unavailable is not None:
        spec["maxUnavailable"] = budget.max_unavailable
    if budget.always_allow_unhealthy:
        spec["unhealthyPodEvictionPolicy"] = "AlwaysAllow"
    return {"metadata": {"name": name, "namespace": workload.namespace}, "spec": spec}


def _bare_pods(workload: ScenarioWorkload, hosts: Sequence[HostPlan]) -> Iterator[Json]:
    spec = _pod_spec(workload)
    if workload.node:
        spec["nodeName"] = workload.node
    metadata = {**_template(workload)["metadata"], "namespace": workload.namespace}
    if workload.owner:
        uid = f"uid-of-{workload.owner['name']}"
        owner = {"apiVersion": "apps/v1", "uid": uid, "controller": True, **workload.owner}
        metadata["ownerReferences"] = [owner]
    replicas = replicas_of(workload, hosts)
    for number in range(1, replicas + 1):
        name = workload.name if replicas == 1 else f"{workload.name}-{number}"
        yield {"metadata": {**metadata, "name": name}, "spec": spec}


def _mirror(workload: ScenarioWorkload, node: str, node_uid: str) -> Json:
    """Return the pod that a kubelet creates for a static pod."""
    owner = {
        "apiVersion": "v1",
        "kind": NODES.kind,
        "name": node,
        "uid": node_uid,
        "controller": True,
    }
    return {
        "metadata": {
            "name": f"{workload.name}-{node}",
            "namespace": workload.namespace,
            "labels": {"component": workload.name, "tier": "control-plane", **workload.labels},
            "annotations": {MIRROR_ANNOTATION: f"{workload.name}/{node}", **_annotations(workload)},
            "ownerReferences": [owner],
        },
        "spec": {
            **_pod_spec(workload),
            "nodeName": node,
            "hostNetwork": True,
            "priorityClassName": "system-node-critical",
            "tolerations": [{"effect": "NoExecute", "operator": "Exists"}],
        },
    }
