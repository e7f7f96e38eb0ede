"""What a machine's kubelet registers and reports, as pure functions, and how long that takes."""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from rollout.lab.api.store import Json, timestamp
from rollout.lab.hosts.machine import Machine
from rollout.lab.objects import condition, labels_of, status_of, with_condition, with_status

# What a node offers where its settings say nothing else.
_CAPACITY: Final = {"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"}


class Timings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long nodes and pods take to be ready, in simulated seconds; a scenario may say otherwise."""

    kubelet_ready: float = 5
    startup_min: float = 2
    startup_max: float = 4


_NOT_READY = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady"


def new_node(host: Machine) -> Json:
    """Return the Node that a kubelet registers for the first time."""
    settings = host.settings
    spec: Json = {"providerID": f"lab://{host.machine_id}"}
    if settings.taints:
        spec["taints"] = [dict(taint) for taint in settings.taints]
    if settings.cordoned:
        spec["unschedulable"] = True
    labels = {
        "kubernetes.io/arch": "amd64",
        # What a label can hold: of a long name the end, which tells nodes of one group apart.
        "kubernetes.io/hostname": host.name[-63:].lstrip("-."),
        "kubernetes.io/os": "linux",
        **settings.labels,
    }
    metadata: Json = {"name": host.name, "labels": labels}
    if settings.annotations:
        metadata["annotations"] = dict(settings.annotations)
    return {"metadata": metadata, "spec": spec, "status": {}}


def register_node(node: Json, host: Machine, address: str) -> Json:
    """Return the Node with what the kubelet found on its host: identity of the boot, system, capacity, this address."""
    capacity = {**_CAPACITY, **host.settings.capacity}
    return with_status(
        node,
        addresses=[
            {"type": "InternalIP", "address": address},
            {
                "type": "Hostname",
                "address": labels_of(node).get("kubernetes.io/hostname", host.name),
            },
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
    """Return the Node with the condition of a kubelet that is alive."""
    verdict = {
        "type": "Ready",
        "status": "True" if ready else "False",
        "reason": "KubeletReady" if ready else "KubeletNotReady",
        "message": "kubelet is posting ready status" if ready else _NOT_READY,
        "lastHeartbeatTime": timestamp(now),
    }
    return with_condition(node, verdict, now)


def mark_silent(node: Json, now: datetime) -> Json:
    """Return the Node as the lifecycle controller leaves it when its kubelet is no longer heard of."""
    known = condition(node, "Ready")
    reason, word = (
        ("NodeStatusUnknown", "stopped") if known else ("NodeStatusNeverUpdated", "never")
    )
    message = f"Kubelet {word} posting node status."
    return with_condition(
        node, {"type": "Ready", "status": "Unknown", "reason": reason, "message": message}, now
    )


def new_lease(name: str, now: datetime) -> Json:
    """Return the Lease whose renewals are a kubelet's heartbeat."""
    return {
        "metadata": {"name": name, "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": micro_time(now)},
    }


def micro_time(moment: datetime) -> str:
    """Return a time as Leases have it."""
    return f"{moment.isoformat(timespec='microseconds')[:26]}Z"


def start_pod(pod: Json, now: datetime, *, address: str, ready: bool, starting: timedelta) -> Json:
    """Return the pod with its containers running, for the first time or again.

    It has the address of its host: no network is played. It had its node at least as long ago as
    its start took: in a world that is made at rest no time has passed.
    """
    began = status_of(pod).get("startTime") or timestamp(now)
    running = with_status(pod, phase="Running", hostIP=address, podIP=address, startTime=began)
    return with_readiness(_bind_before(running, timestamp(now - starting)), now, ready=ready)


def _bind_before(pod: Json, latest: str) -> Json:
    """Return the pod with a node since then, or longer."""
    conditions = [
        (
            {**condition, "lastTransitionTime": min(condition["lastTransitionTime"], latest)}
            if condition["type"] == "PodScheduled" and condition.get("lastTransitionTime")
            else condition
        )
        for condition in status_of(pod).get("conditions") or ()
    ]
    return with_status(pod, conditions=conditions)


def with_readiness(pod: Json, now: datetime, *, ready: bool) -> Json:
    """Return the pod with the conditions of a running one that is ready, or not yet.

    A hurried reboot lasts less than the second that times are told in: each change is later than
    the one before.
    """
    before = (condition(pod, "Ready") or {}).get("lastTransitionTime")
    if before:
        now = max(now, datetime.fromisoformat(before) + timedelta(seconds=1))
    explained = (
        {}
        if ready
        else {"reason": "ContainersNotReady", "message": "containers with unready status"}
    )
    judged = with_condition(
        pod, {"type": "Ready", "status": "True" if ready else "False", **explained}, now
    )
    return with_condition(judged, {"type": "PodScheduled", "status": "True"}, now)
