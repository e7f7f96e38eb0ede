"""The columns that `kubectl get` shows, resource by resource.

A real server renders them itself, so a client that prints tables shows what this module says.
"""

from datetime import datetime

from rollout.lab.api.durations import age, human_duration, parse_time
from rollout.lab.api.pod_columns import POD_COLUMNS
from rollout.lab.api.resources import (
    BUDGETS,
    CONFIGMAPS,
    DAEMONSETS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    REPLICASETS,
    SECRETS,
    SERVICES,
    STATEFULSETS,
    VOLUMEATTACHMENTS,
    Resource,
)
from rollout.lab.api.store import Json
from rollout.lab.api.table_cells import AGE, NAME, NONE, Column, Value, field_of, labels_text, number, text, wide

_ROLE = "node-role.kubernetes.io/"


def _node_status(node: Json, _now: datetime) -> Value:
    conditions = (node.get("status") or {}).get("conditions") or ()
    words = ["Ready" if each["status"] == "True" else "NotReady" for each in conditions if each["type"] == "Ready"]
    cordoned = ["SchedulingDisabled"] if field_of(node, "spec.unschedulable") else []
    return ",".join([*(words or ["Unknown"]), *cordoned])


def _node_roles(node: Json, _now: datetime) -> Value:
    labels = node["metadata"].get("labels") or {}
    roles = {label.removeprefix(_ROLE) for label in labels if label.startswith(_ROLE)}
    return ",".join(sorted(roles - {""})) or NONE


def _node_address(kind: str) -> Column:
    def cell(node: Json, _now: datetime) -> Value:
        addresses = (node.get("status") or {}).get("addresses") or ()
        return next((str(each["address"]) for each in addresses if each["type"] == kind), NONE)

    return wide(Column(kind.replace("IP", "-IP"), cell, f"{kind} of the node."))


def _count(name: str, path: str) -> Column:
    """How many entries a map has."""

    def cell(obj: Json, _now: datetime) -> Value:
        value = field_of(obj, path)
        return len(value) if isinstance(value, dict) else 0

    return Column(name, cell, type="integer")


def _of(have: str, want: str) -> Column:
    """`2/3`, a count of another one."""

    def cell(obj: Json, _now: datetime) -> Value:
        return f"{field_of(obj, have) or 0}/{field_of(obj, want) or 0}"

    return Column("Ready", cell, "Ready pods of all wanted.")


def _containers(name: str, attribute: str) -> Column:
    def cell(obj: Json, _now: datetime) -> Value:
        listed = field_of(obj, "spec.template.spec.containers")
        return ",".join(str(each.get(attribute)) for each in listed) if isinstance(listed, list) else NONE

    return wide(Column(name, cell, f"{name} of the pod template."))


def _map_text(name: str, path: str) -> Column:
    def cell(obj: Json, _now: datetime) -> Value:
        value = field_of(obj, path)
        return labels_text(value if isinstance(value, dict) else None)

    return Column(name, cell)


def _job_status(job: Json, _now: datetime) -> Value:
    held = {each["type"] for each in (job.get("status") or {}).get("conditions") or () if each["status"] == "True"}
    ended = next((word for word in ("Complete", "Failed", "Suspended") if word in held), "")
    return ended or ("Terminating" if job["metadata"].get("deletionTimestamp") else "Running")


def _job_completions(job: Json, _now: datetime) -> Value:
    wanted = field_of(job, "spec.completions") or field_of(job, "spec.parallelism") or 1
    return f"{field_of(job, 'status.succeeded') or 0}/{wanted}"


def _job_duration(job: Json, now: datetime) -> Value:
    status = job.get("status") or {}
    began, ended = parse_time(status.get("startTime")), parse_time(status.get("completionTime"))
    return "" if began is None else human_duration(((ended or now) - began).total_seconds())


def _event_object(event: Json, _now: datetime) -> Value:
    involved = event["involvedObject"]
    return f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}"


def _event_time(name: str, field: str) -> Column:
    def cell(event: Json, now: datetime) -> Value:
        return age(event.get(field) or event.get("eventTime"), now)

    return Column(name, cell)


def _ports(service: Json, _now: datetime) -> Value:
    ports = field_of(service, "spec.ports")
    listed = ports if isinstance(ports, list) else []
    return ",".join(f"{each['port']}/{each.get('protocol', 'TCP')}" for each in listed) or NONE


_WORKLOAD = (
    _containers("Containers", "name"),
    _containers("Images", "image"),
    wide(_map_text("Selector", "spec.selector.matchLabels")),
)

_COLUMNS: dict[Resource, tuple[Column, ...]] = {
    PODS: POD_COLUMNS,
    NODES: (
        NAME,
        Column("Status", _node_status, "Whether the node is ready, and whether it takes pods."),
        Column("Roles", _node_roles, "Roles of the node."),
        AGE,
        text("Version", "status.nodeInfo.kubeletVersion", "Version of the kubelet."),
        _node_address("InternalIP"),
        _node_address("ExternalIP"),
        wide(text("OS-Image", "status.nodeInfo.osImage", absent="<unknown>")),
        wide(text("Kernel-Version", "status.nodeInfo.kernelVersion", absent="<unknown>")),
        wide(text("Container-Runtime", "status.nodeInfo.containerRuntimeVersion", absent="<unknown>")),
    ),
    NAMESPACES: (NAME, text("Status", "status.phase"), AGE),
    DEPLOYMENTS: (
        NAME,
        _of("status.readyReplicas", "spec.replicas"),
        number("Up-to-date", "status.updatedReplicas"),
        number("Available", "status.availableReplicas"),
        AGE,
        *_WORKLOAD,
    ),
    REPLICASETS: (
        NAME,
        number("Desired", "spec.replicas"),
        number("Current", "status.replicas"),
        number("Ready", "status.readyReplicas"),
        AGE,
        *_WORKLOAD,
    ),
    STATEFULSETS: (NAME, _of("status.readyReplicas", "spec.replicas"), AGE, *_WORKLOAD[:2]),
    DAEMONSETS: (
        NAME,
        number("Desired", "status.desiredNumberScheduled"),
        number("Current", "status.currentNumberScheduled"),
        number("Ready", "status.numberReady"),
        number("Up-to-date", "status.updatedNumberScheduled"),
        number("Available", "status.numberAvailable"),
        _map_text("Node Selector", "spec.template.spec.nodeSelector"),
        AGE,
        *_WORKLOAD,
    ),
    JOBS: (
        NAME,
        Column("Status", _job_status),
        Column("Completions", _job_completions),
        Column("Duration", _job_duration),
        AGE,
        *_WORKLOAD,
    ),
    BUDGETS: (
        NAME,
        text("Min Available", "spec.minAvailable", absent="N/A"),
        text("Max Unavailable", "spec.maxUnavailable", absent="N/A"),
        number("Allowed Disruptions", "status.disruptionsAllowed"),
        AGE,
    ),
    LEASES: (NAME, text("Holder", "spec.holderIdentity"), AGE),
    CONFIGMAPS: (NAME, _count("Data", "data"), AGE),
    SECRETS: (NAME, text("Type", "type"), _count("Data", "data"), AGE),
    SERVICES: (
        NAME,
        text("Type", "spec.type"),
        text("Cluster-IP", "spec.clusterIP", absent=NONE),
        text("External-IP", "spec.externalName", absent=NONE),
        Column("Port(s)", _ports),
        AGE,
        wide(_map_text("Selector", "spec.selector")),
    ),
    EVENTS: (
        _event_time("Last Seen", "lastTimestamp"),
        text("Type", "type"),
        text("Reason", "reason"),
        Column("Object", _event_object),
        wide(text("Subobject", "involvedObject.fieldPath")),
        wide(text("Source", "source.component")),
        text("Message", "message"),
        wide(_event_time("First Seen", "firstTimestamp")),
        wide(number("Count", "count")),
        wide(NAME),
    ),
    VOLUMEATTACHMENTS: (
        NAME,
        text("Attacher", "spec.attacher"),
        text("PV", "spec.source.persistentVolumeName"),
        text("Node", "spec.nodeName"),
        Column("Attached", lambda obj, _now: bool(field_of(obj, "status.attached")), type="boolean"),
        AGE,
    ),
}


def columns_of(resource: Resource) -> tuple[Column, ...]:
    """The columns of a resource's table."""
    return _COLUMNS.get(resource, (NAME, AGE))
