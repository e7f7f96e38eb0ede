"""The API objects of a scenario's workloads. Pure.

They are what an operator would have applied; the world's controllers make pods of them. Only bare
pods and the mirrors of static pods are pods already here.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

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
    """Return the objects of one workload, its budget included.

    Args:
        workload: what the scenario says.
        hosts: all hosts of the lab, to count replicas and to place static pods.
        node_uids: the Nodes' UIDs by name, which mirrors of static pods refer to.
    """
    for budget, name in (
        (workload.budget, workload.name),
        (workload.second_budget, f"{workload.name}-too"),
    ):
        if budget:
            yield BUDGETS, _budget(workload, budget, name)
    if workload.volume_in:
        yield VOLUMES, _volume(workload)
    if workload.kind is WorkloadKind.STATIC_POD:
        for host in hosts:
            if workload.role in (None, host.role):
                yield PODS, _mirror(workload, host.name, node_uids[host.name])
    elif workload.kind is WorkloadKind.POD:
        yield from ((PODS, pod) for pod in _bare_pods(workload, hosts))
    else:
        resource = next(resource for resource in SERVED if resource.kind == workload.kind)
        yield resource, _controller(workload, replicas_of(workload, hosts))


def _volume(workload: ScenarioWorkload) -> Json:
    """Return the volume that attaches to certain nodes only, by a driver; its claim is but a name."""
    where = [
        {"key": key, "operator": "In", "values": [value]}
        for key, value in workload.volume_in.items()
    ]
    spec = {
        "csi": {"driver": CSI_DRIVER, "volumeHandle": workload.name},
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "10Gi"},
        "claimRef": {
            "kind": "PersistentVolumeClaim",
            "namespace": workload.namespace,
            "name": workload.name,
        },
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": where}]}},
    }
    return {"metadata": {"name": workload.name}, "spec": spec, "status": {"phase": "Bound"}}


def copies_of(workload: ScenarioWorkload, hosts: Sequence[HostPlan]) -> list[ScenarioWorkload]:
    """Return the workload itself, or its numbered copies."""
    if workload.copies_per_worker is None:
        return [workload]
    numbers = range(1, _per_worker(workload.copies_per_worker, hosts) + 1)
    return [
        msgspec.structs.replace(workload, name=f"{workload.name}-{number}") for number in numbers
    ]


def replicas_of(workload: ScenarioWorkload, hosts: Sequence[HostPlan]) -> int:
    """How many pods the workload is to have."""
    if workload.replicas_per_worker is None:
        return workload.replicas
    return _per_worker(workload.replicas_per_worker, hosts)


def _per_worker(share: float, hosts: Sequence[HostPlan]) -> int:
    """Never none because of few workers."""
    return max(1, math.ceil(share * sum(host.role is Role.WORKER for host in hosts)))


def _labels(workload: ScenarioWorkload) -> dict[str, str]:
    return {"app": workload.name, **workload.labels}


def _controller(workload: ScenarioWorkload, replicas: int) -> Json:
    spec: Json = {
        "template": _template(workload),
        "selector": {"matchLabels": {"app": workload.name}},
    }
    if workload.kind is not WorkloadKind.DAEMON_SET:
        spec["replicas"] = replicas
    named = {"name": workload.name, "namespace": workload.namespace}
    return {
        "metadata": {**named, "labels": _labels(workload), "annotations": dict(workload.marks)},
        "spec": spec,
    }


def _template(workload: ScenarioWorkload) -> Json:
    metadata = {"labels": _labels(workload), "annotations": _annotations(workload)}
    return {"metadata": metadata, "spec": _pod_spec(workload)}


def _annotations(workload: ScenarioWorkload) -> dict[str, str]:
    return {
        **workload.annotations,
        **{LAB_PREFIX + name: value for name, value in workload.lab.items()},
    }


def _pod_spec(workload: ScenarioWorkload) -> Json:
    resources = {"requests": dict(workload.requests)}
    spec: Json = {
        "containers": [{"name": workload.name, "image": workload.image, "resources": resources}]
    }
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
        softly = {
            "maxSkew": 1,
            "topologyKey": workload.spread,
            "whenUnsatisfiable": "ScheduleAnyway",
        }
        own = {"matchLabels": {"app": workload.name}}
        placement["topologySpreadConstraints"] = [{**softly, "labelSelector": own}]
    return placement


def _budget(workload: ScenarioWorkload, budget: ScenarioBudget, name: str) -> Json:
    limits: dict[str, Any] = {
        "minAvailable": budget.min_available,
        "maxUnavailable": budget.max_unavailable,
    }
    return {
        "metadata": {"name": name, "namespace": workload.namespace},
        "spec": {
            **{name: value for name, value in limits.items() if value is not None},
            **(
                {"unhealthyPodEvictionPolicy": "AlwaysAllow"}
                if budget.always_allow_unhealthy
                else {}
            ),
            "selector": {"matchLabels": {"app": workload.name}},
        },
    }


def _bare_pods(workload: ScenarioWorkload, hosts: Sequence[HostPlan]) -> list[Json]:
    replicas = replicas_of(workload, hosts)
    names = [
        workload.name if replicas == 1 else f"{workload.name}-{index + 1}"
        for index in range(replicas)
    ]
    spec = _pod_spec(workload) | ({"nodeName": workload.node} if workload.node else {})
    metadata = {**_template(workload)["metadata"], "namespace": workload.namespace}
    if workload.owner:
        uid = f"uid-of-{workload.owner['name']}"
        metadata["ownerReferences"] = [
            {"apiVersion": "apps/v1", "uid": uid, "controller": True, **workload.owner}
        ]
    return [{"metadata": {**metadata, "name": name}, "spec": spec} for name in names]


def _mirror(workload: ScenarioWorkload, node: str, node_uid: str) -> Json:
    """Return the API's picture of a static pod, as its kubelet makes it."""
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
