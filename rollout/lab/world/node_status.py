"""What a kubelet registers and reports about its node, as pure functions."""

from datetime import datetime
from uuid import UUID

from rollout.lab.api.store import Json, timestamp
from rollout.lab.world.host import HostState, NodeSetting
from rollout.lab.world.objects import labels_of, status_of, with_condition, with_status

_PRESSURES = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)
_CONDITIONS = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
_NOT_READY = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady"


def new_node(host: HostState, setting: NodeSetting) -> Json:
    """The Node that a kubelet registers for the first time."""
    spec: Json = {"providerID": f"lab://{host.machine_id}"}
    if setting.taints:
        spec["taints"] = [dict(taint) for taint in setting.taints]
    if setting.unschedulable:
        spec["unschedulable"] = True
    labels = {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": host.name,
        "kubernetes.io/os": "linux",
        **setting.labels,
    }
    metadata: Json = {"name": host.name, "labels": labels}
    if setting.annotations:
        metadata["annotations"] = dict(setting.annotations)
    return {"metadata": metadata, "spec": spec, "status": {}}


def registered(node: Json, host: HostState, setting: NodeSetting) -> Json:
    """The Node with what the kubelet found on its host: identity of the boot, system, addresses, capacity."""
    hostname = labels_of(node).get("kubernetes.io/hostname", host.name)
    return with_status(
        node,
        addresses=[
            {"type": "InternalIP", "address": setting.address or host.address},
            {"type": "Hostname", "address": hostname},
        ],
        capacity=dict(setting.capacity),
        allocatable=dict(setting.capacity),
        daemonEndpoints={"kubeletEndpoint": {"Port": 10250}},
        nodeInfo={
            "machineID": host.machine_id,
            "systemUUID": _system_uuid(host.machine_id),
            "bootID": host.boot_id,
            "kernelVersion": host.kernel_version,
            "osImage": host.os_image,
            "containerRuntimeVersion": setting.container_runtime,
            "kubeletVersion": setting.kubelet_version,
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": "amd64",
        },
    )


def reported(node: Json, now: datetime, *, ready: bool) -> Json:
    """The Node with the conditions of a kubelet that is alive."""
    heartbeat = {"lastHeartbeatTime": timestamp(now)}
    for kind, reason, message in _PRESSURES:
        new = {"type": kind, "status": "False", "reason": reason, "message": message, **heartbeat}
        node = with_condition(node, new, now)
    verdict = {
        "type": "Ready",
        "status": "True" if ready else "False",
        "reason": "KubeletReady" if ready else "KubeletNotReady",
        "message": "kubelet is posting ready status" if ready else _NOT_READY,
        **heartbeat,
    }
    return with_condition(node, verdict, now)


def silenced(node: Json, now: datetime) -> Json:
    """The Node as the lifecycle controller leaves it when its kubelet is no longer heard of."""
    known = {condition["type"]: condition for condition in status_of(node).get("conditions") or ()}
    for kind in _CONDITIONS:
        new = {
            "type": kind,
            "status": "Unknown",
            "reason": "NodeStatusUnknown" if kind in known else "NodeStatusNeverUpdated",
            "message": "Kubelet stopped posting node status." if kind in known else "Kubelet never posted node status.",
            "lastHeartbeatTime": known.get(kind, {}).get("lastHeartbeatTime"),
        }
        node = with_condition(node, new, now)
    return node


def new_lease(name: str, now: datetime) -> Json:
    """The Lease whose renewals are a kubelet's heartbeat."""
    return {
        "metadata": {"name": name, "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": micro_time(now)},
    }


def micro_time(moment: datetime) -> str:
    """A time as Leases have it."""
    return f"{moment.isoformat(timespec='microseconds')[:26]}Z"


def _system_uuid(machine_id: str) -> str:
    try:
        return str(UUID(machine_id))
    except ValueError:
        return machine_id
