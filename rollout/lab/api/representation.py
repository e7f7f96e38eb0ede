import zlib
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from rollout.lab.api.requests import Call
from rollout.lab.api.resources import (
    BUDGETS,
    CONFIGMAPS,
    DAEMONSETS,
    DEPLOYMENTS,
    EVENTS,
    LEASES,
    NODES,
    PODS,
    REPLICASETS,
    STATEFULSETS,
    Resource,
)
from rollout.lab.api.store import Json
from rollout.lab.objects import condition, field_of, is_deleting, is_finished, is_ready, labels_of

_NONE = "<none>"
_UNKNOWN = "<unknown>"
_ROLE: Final = "node-role.kubernetes.io/"
_UNITS: Final = (("d", 86_400), ("h", 3600), ("m", 60))

Cell = Callable[[Json, datetime], object]


class PrinterColumn(NamedTuple):
    """`absent` is the text for no value, `priority` 1 is for wide output."""

    name: str
    source: str | Cell
    absent: str = ""
    priority: int = 0

    def definition(self) -> Json:
        return {
            "name": self.name,
            "type": "string",
            "format": "name" if self.name == "Name" else "",
            "description": "",
            "priority": self.priority,
        }

    def cell(self, obj: Json, now: datetime) -> str:
        source = self.source
        value = source(obj, now) if callable(source) else field_of(obj, source)
        if isinstance(value, dict):
            value = len(value)
        return str(value) if value or value == 0 else self.absent


def _since(path: str) -> Cell:
    """The age is in the largest unit that it has twice."""

    def age(obj: Json, now: datetime) -> str:
        text = field_of(obj, path)
        if not isinstance(text, str):
            return _UNKNOWN
        seconds = max(0, int((now - datetime.fromisoformat(text)).total_seconds()))
        for letter, unit in _UNITS:
            if seconds >= 2 * unit:
                return f"{seconds // unit}{letter}"
        return f"{seconds}s"

    return age


def _ratio(count: str, total: str) -> Cell:
    return lambda obj, _now: f"{field_of(obj, count) or 0}/{field_of(obj, total) or 0}"


def _node_status(node: Json, _now: datetime) -> str:
    status = "Unknown"
    if condition(node, "Ready") is not None:
        status = "Ready" if is_ready(node) else "NotReady"
    is_cordoned = field_of(node, "spec.unschedulable")
    return f"{status},SchedulingDisabled" if is_cordoned else status


def _node_roles(node: Json, _now: datetime) -> str:
    labels = [label for label in labels_of(node) if label.startswith(_ROLE)]
    roles = {label.removeprefix(_ROLE) for label in labels}
    return ",".join(sorted(roles - {""}))


def _node_address(node: Json, _now: datetime) -> str:
    for address in field_of(node, "status.addresses") or ():
        if address["type"] == "InternalIP":
            return str(address["address"])
    return ""


def _pod_ready(pod: Json, _now: datetime) -> str:
    """Count either all containers as ready or none, like the pod."""
    count = len(field_of(pod, "spec.containers") or ())
    return f"{count if is_ready(pod) else 0}/{count}"


def _pod_status(pod: Json, _now: datetime) -> str:
    if is_deleting(pod) and not is_finished(pod):
        return "Terminating"
    return str(field_of(pod, "status.phase") or "Unknown")


def _event_object(event: Json, _now: datetime) -> str:
    involved = event["involvedObject"]
    return f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}"


_NAME: Final = PrinterColumn("Name", "metadata.name")
_AGE: Final = PrinterColumn("Age", _since("metadata.creationTimestamp"))
_READY: Final = PrinterColumn("Ready", _ratio("status.readyReplicas", "spec.replicas"))

_COLUMNS: Final[dict[Resource, tuple[PrinterColumn, ...]]] = {
    PODS: (
        _NAME,
        PrinterColumn("Ready", _pod_ready),
        PrinterColumn("Status", _pod_status),
        PrinterColumn("Restarts", lambda _pod, _now: 0),
        _AGE,
        PrinterColumn("IP", "status.podIP", _NONE, priority=1),
        PrinterColumn("Node", "spec.nodeName", _NONE, priority=1),
        PrinterColumn("Nominated Node", "status.nominatedNodeName", _NONE, priority=1),
        PrinterColumn("Readiness Gates", "spec.readinessGates", _NONE, priority=1),
    ),
    NODES: (
        _NAME,
        PrinterColumn("Status", _node_status),
        PrinterColumn("Roles", _node_roles, _NONE),
        _AGE,
        PrinterColumn("Version", "status.nodeInfo.kubeletVersion"),
        PrinterColumn("Internal-IP", _node_address, _NONE, priority=1),
        PrinterColumn("OS-Image", "status.nodeInfo.osImage", _UNKNOWN, priority=1),
    ),
    **dict.fromkeys((DEPLOYMENTS, REPLICASETS, STATEFULSETS), (_NAME, _READY, _AGE)),
    DAEMONSETS: (
        _NAME,
        PrinterColumn("Ready", _ratio("status.numberReady", "status.desiredNumberScheduled")),
        _AGE,
    ),
    BUDGETS: (
        _NAME,
        PrinterColumn("Min Available", "spec.minAvailable", "N/A"),
        PrinterColumn("Max Unavailable", "spec.maxUnavailable", "N/A"),
        PrinterColumn("Allowed Disruptions", "status.disruptionsAllowed", "0"),
        _AGE,
    ),
    LEASES: (_NAME, PrinterColumn("Holder", "spec.holderIdentity"), _AGE),
    CONFIGMAPS: (_NAME, PrinterColumn("Data", "data", "0"), _AGE),
    EVENTS: (
        PrinterColumn("Last Seen", _since("lastTimestamp")),
        PrinterColumn("Type", "type"),
        PrinterColumn("Reason", "reason"),
        PrinterColumn("Object", _event_object),
        PrinterColumn("Message", "message"),
    ),
}


JSON = "application/json"
_COMPRESSION_THRESHOLD = 128 * 1024
_COMPRESSION_LEVEL = 1
_GZIP_WINDOW = 31
_META = {"apiVersion": "meta.k8s.io/v1"}


def object_inclusion(call: Call) -> str:
    """Return what the table includes of objects; empty for no table."""
    return call.query.get("includeObject", "Metadata") if "as=Table" in call.accept else ""


def object_body(resource: Resource, obj: Json, now: datetime, include: str) -> Json:
    """A Status stays a Status."""
    if not include or obj.get("kind") == "Status":
        return obj
    metadata = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
    return _table(resource, [obj], metadata=metadata, now=now, include=include)


def list_body(
    resource: Resource, objects: Iterable[Json], metadata: Json, now: datetime, include: str
) -> Json:
    if include:
        return _table(resource, objects, metadata=metadata, now=now, include=include)
    return {
        "kind": f"{resource.kind}List",
        "apiVersion": resource.api_version,
        "metadata": metadata,
        "items": [_list_item(obj) for obj in objects],
    }


def _list_item(obj: Json) -> Json:
    return {key: value for key, value in obj.items() if key not in {"apiVersion", "kind"}}


def _table(
    resource: Resource, objects: Iterable[Json], *, metadata: Json, now: datetime, include: str
) -> Json:
    columns = _COLUMNS.get(resource, (_NAME, _AGE))
    rows = []
    for obj in objects:
        included = obj
        if include != "Object":
            included = {"kind": "PartialObjectMetadata", **_META, "metadata": obj["metadata"]}
        cells = [column.cell(obj, now) for column in columns]
        rows.append({"cells": cells, "object": included})
    return {
        "kind": "Table",
        **_META,
        "metadata": metadata,
        "columnDefinitions": [column.definition() for column in columns],
        "rows": rows,
    }


def encode_body(body: Any) -> bytes:
    return msgspec.json.encode(body) + b"\n"


def compress(payload: bytes, accept_encoding: str) -> tuple[bytes, dict[str, str]]:
    if len(payload) < _COMPRESSION_THRESHOLD or "gzip" not in accept_encoding:
        return payload, {}
    packed = zlib.compress(payload, _COMPRESSION_LEVEL, _GZIP_WINDOW)
    return packed, {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
