"""A cluster's copy in a file, to be rehearsed on: what a plan was made of, as the API's objects.

What a plan does not read is not in it: no Secret, no environment, no image. Of annotations there is only that a pod is
the mirror of a static one. Names and labels are hidden where that is wanted.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from rollout.gather.cluster import snapshot
from rollout.gather.cluster.decode import MIRROR_ANNOTATION
from rollout.gather.cluster.hiding import MAPS, Hidden
from rollout.model.host import HostFacts, HostObservation

FORMAT_VERSION: Final = "1.0"
KIND: Final = "node-rollout-snapshot"
_SECTIONS: Final = {
    "nodes": snapshot.NODES,
    "pods": snapshot.PODS,
    "budgets": snapshot.BUDGETS,
    "daemonSets": snapshot.DAEMON_SETS,
    "volumes": snapshot.VOLUMES,
    "attachments": snapshot.ATTACHMENTS,
    "namespaces": snapshot.NAMESPACES,
}
# Sentences and versions of the server's, in which anything may stand, and addresses.
_LEFT_OUT: Final = frozenset(
    {
        *("annotations", "message", "reason", "resourceVersion", "addresses"),
        *("timeAdded", "finalizers", "bootID", "machineID", "providerID"),
    }
)

Json = dict[str, Any]


class CopiedHost(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a host has said."""

    answers: bool = True
    waits: bool = False
    version: str = ""
    staged: str = ""


class CopiedPace(msgspec.Struct, frozen=True):
    """What the forecast reckons with, in seconds: a reboot; by an owner's UID, its pods' end and start."""

    reboot: float
    owners: Mapping[str, tuple[float, float]]


class ClusterCopy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The file."""

    format_version: str = msgspec.field(name="format_version")
    kind: str
    nodes: tuple[Json, ...]
    pods: tuple[Json, ...] = ()
    budgets: tuple[Json, ...] = ()
    daemon_sets: tuple[Json, ...] = ()
    volumes: tuple[Json, ...] = ()
    attachments: tuple[Json, ...] = ()
    namespaces: tuple[Json, ...] = ()
    hosts: Mapping[str, CopiedHost] = {}
    pace: CopiedPace


def copy_document(
    kept: snapshot.Kept, observations: Mapping[str, HostObservation], pace: CopiedPace, key: bytes = b""
) -> bytes:
    """Return the document; with a `key` its names are hidden."""
    sections = {
        name: [_shown(msgspec.json.decode(body)) for body in kept.get(path, {}).values()]
        for name, path in _SECTIONS.items()
    }
    hosts = {name: _host(seen) for name, seen in sorted(observations.items())}
    if key:
        hidden = Hidden.of((node["metadata"]["name"] for node in sections["nodes"]), key)
        sections = {name: [hidden.tree(item) for item in items] for name, items in sections.items()}
        hosts = {hidden.name(name): host for name, host in hosts.items()}
        pace = CopiedPace(pace.reboot, {hidden.digest(uid): seconds for uid, seconds in pace.owners.items()})
    head: Json = {"format_version": FORMAT_VERSION, "kind": KIND}
    return msgspec.json.encode({**head, **sections, "hosts": hosts, "pace": pace}) + b"\n"


def _host(seen: HostObservation) -> CopiedHost:
    if not isinstance(seen, HostFacts):
        return CopiedHost(answers=False)
    detection = seen.detection
    return CopiedHost(waits=detection.needs_reboot, version=seen.running_version, staged=detection.version)


def _shown(value: Any, field: str = "") -> Any:
    """Return what may be told of a part of an object, which stands in this field."""
    if isinstance(value, list):
        return [_shown(item) for item in value]
    if not isinstance(value, dict) or field in MAPS:
        return value
    shown = {key: _shown(item, key) for key, item in value.items() if key not in _LEFT_OUT}
    if MIRROR_ANNOTATION in (value.get("annotations") or {}):
        shown["annotations"] = {MIRROR_ANNOTATION: ""}
    return shown
