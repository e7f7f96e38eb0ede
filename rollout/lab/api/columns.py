"""The columns that `kubectl get` shows, resource by resource.

A real server renders them itself, so a client that prints tables shows what this module says. What shows a field is a
name and a path; only what is put together is a function.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from rollout.lab.api import pod_columns
from rollout.lab.api.durations import age, human_duration, parse_time
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

_NONE, _UNKNOWN = "<none>", "<unknown>"
_ROLE = "node-role.kubernetes.io/"
_TYPES = {bool: "boolean", int: "integer", str: "string"}

Value = str | int | bool
Cell = Callable[[Json, datetime], object]


@dataclass(frozen=True, slots=True)
class Column:
    """A column; `source` is a path or a function, what it shows where there is nothing is `absent`, of its type.

    One of `priority` 1 is shown only in wide output.
    """

    name: str
    source: str | Cell
    absent: Value = ""
    priority: int = 0

    def definition(self) -> Json:
        """The column as a Table names it."""
        form = "name" if self.name == "Name" else ""
        kind = _TYPES[type(self.absent)]
        return {"name": self.name, "type": kind, "format": form, "description": "", "priority": self.priority}

    def cell(self, obj: Json, now: datetime) -> Value:
        """What it shows of an object; a map as its size or its pairs."""
        value = field_of(obj, self.source) if isinstance(self.source, str) else self.source(obj, now)
        if isinstance(value, dict) and value:
            pairs = ",".join(f"{key}={part}" for key, part in sorted(value.items()))
            return pairs if isinstance(self.absent, str) else len(value)
        if isinstance(self.absent, str):
            return str(value) if value or value == 0 else self.absent
        return value if isinstance(value, int) else self.absent


def field_of(obj: Json, path: str) -> object:
    """A field by its dotted path, None where anything on the way is missing."""
    value: object = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _wide(name: str, source: str | Cell, absent: Value = "") -> Column:
    return Column(name, source, absent, priority=1)


def _since(path: str, otherwise: str = "") -> Cell:
    return lambda obj, now: age(str(field_of(obj, path) or field_of(obj, otherwise) or ""), now)


def _of(have: str, want: str) -> Cell:
    """`2/3`, a count of another one."""
    return lambda obj, _now: f"{field_of(obj, have) or 0}/{field_of(obj, want) or 0}"


def _listed(path: str, attribute: str) -> Cell:
    return lambda obj, _now: ",".join(str(entry.get(attribute)) for entry in _entries(obj, path))


def _entries(obj: Json, path: str) -> list[Json]:
    value = field_of(obj, path)
    return value if isinstance(value, list) else []


def _node_status(node: Json, _now: datetime) -> str:
    conditions = _entries(node, "status.conditions")
    words = [
        "Ready" if condition["status"] == "True" else "NotReady"
        for condition in conditions
        if condition["type"] == "Ready"
    ]
    cordoned = ["SchedulingDisabled"] if field_of(node, "spec.unschedulable") else []
    return ",".join([*(words or ["Unknown"]), *cordoned])


def _node_roles(node: Json, _now: datetime) -> str:
    labels = node["metadata"].get("labels") or {}
    return ",".join(sorted({label.removeprefix(_ROLE) for label in labels if label.startswith(_ROLE)} - {""}))


def _node_address(kind: str) -> Cell:
    addresses = "status.addresses"
    return lambda node, _now: next(
        (address["address"] for address in _entries(node, addresses) if address["type"] == kind), ""
    )


def _job_status(job: Json, _now: datetime) -> str:
    held = {condition["type"] for condition in _entries(job, "status.conditions") if condition["status"] == "True"}
    ended = next((word for word in ("Complete", "Failed", "Suspended") if word in held), "")
    return ended or ("Terminating" if job["metadata"].get("deletionTimestamp") else "Running")


def _job_completions(job: Json, _now: datetime) -> str:
    wanted = field_of(job, "spec.completions") or field_of(job, "spec.parallelism") or 1
    return f"{field_of(job, 'status.succeeded') or 0}/{wanted}"


def _job_duration(job: Json, now: datetime) -> str:
    status = job.get("status") or {}
    began, ended = parse_time(status.get("startTime")), parse_time(status.get("completionTime"))
    return "" if began is None else human_duration(((ended or now) - began).total_seconds())


def _event_object(event: Json, _now: datetime) -> str:
    involved = event["involvedObject"]
    return f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}"


def _ports(service: Json, _now: datetime) -> str:
    return ",".join(f"{port['port']}/{port.get('protocol', 'TCP')}" for port in _entries(service, "spec.ports"))


_NAME = Column("Name", "metadata.name")
_AGE = Column("Age", _since("metadata.creationTimestamp"))
_READY = Column("Ready", _of("status.readyReplicas", "spec.replicas"))
_CONTAINERS = (
    _wide("Containers", _listed("spec.template.spec.containers", "name"), _NONE),
    _wide("Images", _listed("spec.template.spec.containers", "image"), _NONE),
)
_WORKLOAD = (*_CONTAINERS, _wide("Selector", "spec.selector.matchLabels", _NONE))

_COLUMNS: dict[Resource, tuple[Column, ...]] = {
    PODS: (
        _NAME,
        Column("Ready", pod_columns.ready),
        Column("Status", pod_columns.status),
        Column("Restarts", pod_columns.restarts),
        _AGE,
        _wide("IP", "status.podIP", _NONE),
        _wide("Node", "spec.nodeName", _NONE),
        _wide("Nominated Node", "status.nominatedNodeName", _NONE),
        _wide("Readiness Gates", pod_columns.gates, _NONE),
    ),
    NODES: (
        _NAME,
        Column("Status", _node_status),
        Column("Roles", _node_roles, _NONE),
        _AGE,
        Column("Version", "status.nodeInfo.kubeletVersion"),
        _wide("Internal-IP", _node_address("InternalIP"), _NONE),
        _wide("External-IP", _node_address("ExternalIP"), _NONE),
        _wide("OS-Image", "status.nodeInfo.osImage", _UNKNOWN),
        _wide("Kernel-Version", "status.nodeInfo.kernelVersion", _UNKNOWN),
        _wide("Container-Runtime", "status.nodeInfo.containerRuntimeVersion", _UNKNOWN),
    ),
    NAMESPACES: (_NAME, Column("Status", "status.phase"), _AGE),
    DEPLOYMENTS: (
        _NAME,
        _READY,
        Column("Up-to-date", "status.updatedReplicas", 0),
        Column("Available", "status.availableReplicas", 0),
        _AGE,
        *_WORKLOAD,
    ),
    REPLICASETS: (
        _NAME,
        Column("Desired", "spec.replicas", 0),
        Column("Current", "status.replicas", 0),
        Column("Ready", "status.readyReplicas", 0),
        _AGE,
        *_WORKLOAD,
    ),
    STATEFULSETS: (_NAME, _READY, _AGE, *_CONTAINERS),
    DAEMONSETS: (
        _NAME,
        Column("Desired", "status.desiredNumberScheduled", 0),
        Column("Current", "status.currentNumberScheduled", 0),
        Column("Ready", "status.numberReady", 0),
        Column("Up-to-date", "status.updatedNumberScheduled", 0),
        Column("Available", "status.numberAvailable", 0),
        Column("Node Selector", "spec.template.spec.nodeSelector", _NONE),
        _AGE,
        *_WORKLOAD,
    ),
    JOBS: (
        _NAME,
        Column("Status", _job_status),
        Column("Completions", _job_completions),
        Column("Duration", _job_duration),
        _AGE,
        *_WORKLOAD,
    ),
    BUDGETS: (
        _NAME,
        Column("Min Available", "spec.minAvailable", "N/A"),
        Column("Max Unavailable", "spec.maxUnavailable", "N/A"),
        Column("Allowed Disruptions", "status.disruptionsAllowed", 0),
        _AGE,
    ),
    LEASES: (_NAME, Column("Holder", "spec.holderIdentity"), _AGE),
    CONFIGMAPS: (_NAME, Column("Data", "data", 0), _AGE),
    SECRETS: (_NAME, Column("Type", "type"), Column("Data", "data", 0), _AGE),
    SERVICES: (
        _NAME,
        Column("Type", "spec.type"),
        Column("Cluster-IP", "spec.clusterIP", _NONE),
        Column("External-IP", "spec.externalName", _NONE),
        Column("Port(s)", _ports, _NONE),
        _AGE,
        _wide("Selector", "spec.selector", _NONE),
    ),
    EVENTS: (
        Column("Last Seen", _since("lastTimestamp", "eventTime")),
        Column("Type", "type"),
        Column("Reason", "reason"),
        Column("Object", _event_object),
        _wide("Subobject", "involvedObject.fieldPath"),
        _wide("Source", "source.component"),
        Column("Message", "message"),
        _wide("First Seen", _since("firstTimestamp", "eventTime")),
        _wide("Count", "count", 0),
        _wide("Name", "metadata.name"),
    ),
    VOLUMEATTACHMENTS: (
        _NAME,
        Column("Attacher", "spec.attacher"),
        Column("PV", "spec.source.persistentVolumeName"),
        Column("Node", "spec.nodeName"),
        Column("Attached", "status.attached", absent=False),
        _AGE,
    ),
}


def columns_of(resource: Resource) -> tuple[Column, ...]:
    """The columns of a resource's table."""
    return _COLUMNS.get(resource, (_NAME, _AGE))
