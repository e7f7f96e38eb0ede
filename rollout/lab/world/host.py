from datetime import datetime, timedelta
from typing import Final

import msgspec

from rollout.lab.api.store import Json, timestamp
from rollout.lab.hosts.machine import Machine
from rollout.lab.objects import condition, labels_of, status_of, with_condition, with_status
from rollout.lab.world.placement import UNSCHEDULABLE
from rollout.model.quantity import Seconds

_CAPACITY: Final = {"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"}


class Timings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All durations are simulated seconds."""

    kubelet_ready: Seconds = 5
    startup_min: Seconds = 2
    startup_max: Seconds = 4


_NOT_READY = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady"


def new_node(host: Machine) -> Json:
    settings = host.settings
    spec: Json = {"providerID": f"lab://{host.machine_id}"}
    taints = [dict(taint) for taint in settings.taints or ()]
    if settings.cordoned:
        spec["unschedulable"] = True
        # A kubelet that registers its Node as unschedulable sets the taint without a time.
        taints.append({"key": UNSCHEDULABLE, "effect": "NoSchedule"})
    if taints:
        spec["taints"] = taints
    labels = {
        "kubernetes.io/arch": "amd64",
        # A label holds 63 characters; the end tells nodes of one group apart.
        "kubernetes.io/hostname": host.name[-63:].lstrip("-."),
        "kubernetes.io/os": "linux",
        **settings.labels,
    }
    metadata: Json = {"name": host.name, "labels": labels}
    if settings.annotations:
        metadata["annotations"] = dict(settings.annotations)
    return {"metadata": metadata, "spec": spec, "status": {}}


def registered_node(node: Json, host: Machine, address: str) -> Json:
    capacity = {**_CAPACITY, **host.settings.capacity}
    hostname = labels_of(node).get("kubernetes.io/hostname", host.name)
    return with_status(
        node,
        addresses=[
            {"type": "InternalIP", "address": address},
            {"type": "Hostname", "address": hostname},
        ],
        capacity=capacity,
        allocatable=capacity,
        nodeInfo={
            "machineID": host.machine_id,
            "bootID": host.boot_id,
            "osImage": host.os_image,
            "containerRuntimeVersion": "containerd://2.1.4",
            "kubeletVersion": "v1.36.0",
            "operatingSystem": "linux",
            "architecture": "amd64",
        },
    )


def report_ready(node: Json, now: datetime, *, ready: bool) -> Json:
    verdict = {
        "type": "Ready",
        "status": "True" if ready else "False",
        "reason": "KubeletReady" if ready else "KubeletNotReady",
        "message": "kubelet is posting ready status" if ready else _NOT_READY,
        "lastHeartbeatTime": timestamp(now),
    }
    return with_condition(node, verdict, now)


def mark_silent(node: Json, now: datetime) -> Json:
    unknown = {
        "type": "Ready",
        "status": "Unknown",
        "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.",
    }
    if condition(node, "Ready") is None:
        unknown["reason"] = "NodeStatusNeverUpdated"
        unknown["message"] = "Kubelet never posted node status."
    return with_condition(node, unknown, now)


def new_lease(name: str, now: datetime) -> Json:
    return {
        "metadata": {"name": name, "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": micro_time(now)},
    }


def micro_time(moment: datetime) -> str:
    return f"{moment.isoformat(timespec='microseconds')[:26]}Z"


def start_pod(pod: Json, now: datetime, *, address: str, ready: bool, starting: timedelta) -> Json:
    """The lab has no pod network, so the pod has its host's address.

    Its binding is dated back by `starting`, as no time passes in `fast_forward`.
    """
    began = status_of(pod).get("startTime") or timestamp(now)
    running = with_status(pod, phase="Running", hostIP=address, podIP=address, startTime=began)
    # A pod that was created on its node has no such condition yet.
    bound = with_condition(running, {"type": "PodScheduled", "status": "True"}, now - starting)
    return with_readiness(_bind_before(bound, timestamp(now - starting)), now, ready=ready)


def _bind_before(pod: Json, latest: str) -> Json:
    scheduled = condition(pod, "PodScheduled")
    if scheduled is None or not scheduled.get("lastTransitionTime"):
        return pod
    moved = {**scheduled, "lastTransitionTime": min(scheduled["lastTransitionTime"], latest)}
    conditions = status_of(pod)["conditions"]
    return with_status(pod, conditions=[moved if old is scheduled else old for old in conditions])


def with_readiness(pod: Json, now: datetime, *, ready: bool) -> Json:
    """Each transition is dated at least a second after the one before."""
    before = (condition(pod, "Ready") or {}).get("lastTransitionTime")
    if before:
        now = max(now, datetime.fromisoformat(before) + timedelta(seconds=1))
    verdict = {"type": "Ready", "status": "True" if ready else "False"}
    if not ready:
        verdict |= {"reason": "ContainersNotReady", "message": "containers with unready status"}
    pod = with_condition(pod, verdict, now)
    return with_condition(pod, {"type": "PodScheduled", "status": "True"}, now)
