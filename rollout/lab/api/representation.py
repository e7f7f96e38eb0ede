"""In which form an answer is wanted, and how it is written: objects, or the tables that `kubectl get` shows.

A real server renders tables itself; what shows a field is a name and a path, and only what is put
together a function.
"""

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
    """A column: a name, and a path or a function; `absent` is shown where there is nothing.

    One of `priority` 1 is shown only in wide output.
    """

    name: str
    source: str | Cell
    absent: str = ""
    priority: int = 0

    def definition(self) -> Json:
        """Return the column as a Table names it."""
        form = "name" if self.name == "Name" else ""
        return {
            "name": self.name,
            "type": "string",
            "format": form,
            "description": "",
            "priority": self.priority,
        }

    def cell(self, obj: Json, now: datetime) -> str:
        """Return what it shows of an object; a map as its size."""
        value = (
            field_of(obj, self.source) if isinstance(self.source, str) else self.source(obj, now)
        )
        value = len(value) if isinstance(value, dict) else value
        return str(value) if value or value == 0 else self.absent


def _since(path: str) -> Cell:
    """Return how long ago that was, in the largest unit of which there are two at least."""

    def age(obj: Json, now: datetime) -> str:
        text = field_of(obj, path)
        if not isinstance(text, str):
            return _UNKNOWN
        seconds = max(0, int((now - datetime.fromisoformat(text)).total_seconds()))
        return next(
            (f"{seconds // unit}{letter}" for letter, unit in _UNITS if seconds >= 2 * unit),
            f"{seconds}s",
        )

    return age


def _of(have: str, want: str) -> Cell:
    """`2/3`, a count of another one."""
    return lambda obj, _now: f"{field_of(obj, have) or 0}/{field_of(obj, want) or 0}"


def _node_status(node: Json, _now: datetime) -> str:
    verdict = "Ready" if is_ready(node) else "NotReady" if condition(node, "Ready") else "Unknown"
    return f"{verdict},SchedulingDisabled" if field_of(node, "spec.unschedulable") else verdict


def _node_roles(node: Json, _now: datetime) -> str:
    return ",".join(
        sorted(
            {label.removeprefix(_ROLE) for label in labels_of(node) if label.startswith(_ROLE)}
            - {""}
        )
    )


def _node_address(node: Json, _now: datetime) -> str:
    addresses = field_of(node, "status.addresses") or ()
    return next(
        (address["address"] for address in addresses if address["type"] == "InternalIP"), ""
    )


def _pod_ready(pod: Json, _now: datetime) -> str:
    """All containers are as ready as their pod."""
    count = len(field_of(pod, "spec.containers") or ())
    return f"{count if is_ready(pod) else 0}/{count}"


def _pod_status(pod: Json, _now: datetime) -> str:
    phase = str(field_of(pod, "status.phase") or "Unknown")
    return "Terminating" if is_deleting(pod) and not is_finished(pod) else phase


def _event_object(event: Json, _now: datetime) -> str:
    involved = event["involvedObject"]
    return f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}"


_NAME: Final = PrinterColumn("Name", "metadata.name")
_AGE: Final = PrinterColumn("Age", _since("metadata.creationTimestamp"))
_READY: Final = PrinterColumn("Ready", _of("status.readyReplicas", "spec.replicas"))

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
        PrinterColumn("Ready", _of("status.numberReady", "status.desiredNumberScheduled")),
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
# Like a real server: smaller answers are not worth the work, larger ones get the cheapest level.
_COMPRESSION_THRESHOLD = 128 * 1024
_COMPRESSION_LEVEL = 1
_GZIP_WINDOW = 31
_META = {"apiVersion": "meta.k8s.io/v1"}


def object_inclusion(call: Call) -> str:
    """Return what a table is to have of its objects; empty where objects are wanted, no table.

    An Accept header of kubectl's names the table first, and takes JSON as well.
    """
    return call.query.get("includeObject", "Metadata") if "as=Table" in call.accept else ""


def object_body(resource: Resource, obj: Json, now: datetime, include: str) -> Json:
    """One object as it is, or as a table that has this much of it beside its cells; a Status stays what it is."""
    if not include or obj.get("kind") == "Status":
        return obj
    return _table(
        resource,
        [obj],
        {"resourceVersion": obj["metadata"].get("resourceVersion", "")},
        now,
        include,
    )


def list_body(
    resource: Resource, objects: Iterable[Json], metadata: Json, now: datetime, include: str
) -> Json:
    """Return a page of a list in the wanted form."""
    if include:
        return _table(resource, objects, metadata, now, include)
    # Items of a list do not repeat what the list says about them.
    items = [
        {key: value for key, value in obj.items() if key not in {"apiVersion", "kind"}}
        for obj in objects
    ]
    typed = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version}
    return {**typed, "metadata": metadata, "items": items}


def _table(
    resource: Resource, objects: Iterable[Json], metadata: Json, now: datetime, include: str
) -> Json:
    columns = _COLUMNS.get(resource, (_NAME, _AGE))
    partial = {"kind": "PartialObjectMetadata", **_META}
    rows = [
        {
            "cells": [column.cell(obj, now) for column in columns],
            "object": obj if include == "Object" else {**partial, "metadata": obj["metadata"]},
        }
        for obj in objects
    ]
    definitions = [column.definition() for column in columns]
    return {
        "kind": "Table",
        **_META,
        "metadata": metadata,
        "columnDefinitions": definitions,
        "rows": rows,
    }


def encode_body(body: Any) -> bytes:
    """Return the body as JSON, ended by a newline as servers do."""
    return msgspec.json.encode(body) + b"\n"


def compress(payload: bytes, accept_encoding: str) -> tuple[bytes, dict[str, str]]:
    """Return the payload, compressed where the client can read that and it is worth it, and the headers that say so."""
    if len(payload) < _COMPRESSION_THRESHOLD or "gzip" not in accept_encoding:
        return payload, {}
    packed = zlib.compress(payload, _COMPRESSION_LEVEL, _GZIP_WINDOW)
    return packed, {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
