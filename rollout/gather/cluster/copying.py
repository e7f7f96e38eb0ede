"""A cluster's copy in a file, to be rehearsed on: what a plan was made of, as the API's objects.

What a plan does not read is not in it: no Secret, no environment, no image. Of annotations there is
only that a pod is the mirror of a static one. Names and labels are hidden where that is wanted:
names of nodes become numbers in their order, other names and labels digests, whose key is thrown
away; what Kubernetes itself calls so stays.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec

from rollout.gather.cluster import snapshot
from rollout.gather.cluster.decode import MIRROR_ANNOTATION
from rollout.model.host import HostFacts, HostObservation
from rollout.model.text import natural_key

FORMAT_VERSION = "1.0"
KIND = "node-rollout-snapshot"
_SECTIONS = {
    "nodes": snapshot.NODES,
    "pods": snapshot.PODS,
    "budgets": snapshot.BUDGETS,
    "daemonSets": snapshot.DAEMON_SETS,
    "volumes": snapshot.VOLUMES,
    "attachments": snapshot.ATTACHMENTS,
    "namespaces": snapshot.NAMESPACES,
}
# Sentences and versions of the server's, in which anything may stand, and addresses.
_LEFT_OUT = frozenset(
    {
        *("annotations", "message", "reason", "resourceVersion", "addresses"),
        *("timeAdded", "finalizers", "bootID", "machineID", "providerID"),
    }
)

Json = dict[str, Any]

_OF_KUBERNETES = re.compile(r"([\w.-]+\.)?(kubernetes|k8s)\.io/.+")
_KNOWN_NAMES = frozenset(
    {
        "default",
        "kube-system",
        "kube-public",
        "kube-node-lease",
        "system-node-critical",
        "system-cluster-critical",
    }
)
_KNOWN_VALUES = re.compile(r"(true|false|linux|amd64|arm64|\d{1,3})?")
_ORDINAL = re.compile(r"(.+)-(\d{1,5})")
_MAPS = frozenset({"labels", "matchLabels", "nodeSelector"})
"""Fields whose keys are words of the operator's, too."""
_NAMES = frozenset(
    {"name", "namespace", "nodeName", "claimName", "persistentVolumeName", "priorityClassName"}
)
_KEYS = frozenset({"topologyKey", "matchLabelKeys", "mismatchLabelKeys"})
_KINDS = frozenset(
    {"ReplicaSet", "StatefulSet", "DaemonSet", "Job", "Node", "ReplicationController"}
)
_NODE_FIELD = "metadata.name"


@dataclass(frozen=True, slots=True)
class Hidden:
    """Names and labels as they are shown; the same word is always shown the same."""

    nodes: Mapping[str, str]
    digest: Callable[[str], str]

    @classmethod
    def of(cls, nodes: Iterable[str], key: bytes) -> "Hidden":
        """Hide the names of these nodes, and all other words by this key."""
        ordered = sorted(nodes, key=natural_key)

        @cache
        def digest(word: str) -> str:
            return "x" + hashlib.blake2b(word.encode(), key=key, digest_size=6).hexdigest()

        return cls({name: f"node-{number}" for number, name in enumerate(ordered, 1)}, digest)

    def name(self, name: str) -> str:
        """Return how an object's name is shown; ordinals stay."""
        if name in _KNOWN_NAMES or not name:
            return name
        if name in self.nodes:
            return self.nodes[name]
        if match := _ORDINAL.fullmatch(name):
            return f"{self.digest(match[1])}-{match[2]}"
        return self.digest(name)

    def key(self, key: str) -> str:
        """Return how the key of a label, a taint or a resource is shown."""
        return (
            key
            if _OF_KUBERNETES.fullmatch(key) or key == _NODE_FIELD or not key
            else self.digest(key)
        )

    def value(self, value: str) -> str:
        """Return how the value of a label or a taint is shown."""
        return value if _KNOWN_VALUES.fullmatch(value) else self.name(value)

    def tree(self, value: Any, field: str = "") -> Any:
        """Return how a part of an object is shown, which stands in this field."""
        if isinstance(value, list):
            return [self.tree(item, field) for item in value]
        if isinstance(value, str):
            return self._text(value, field)
        if not isinstance(value, dict):
            return value
        if field in _MAPS:
            return {self.key(key): self.value(text) for key, text in value.items()}
        if field in ("requests", "allocatable", "overhead"):
            return {self.key(key) if "/" in key else key: amount for key, amount in value.items()}
        hidden = {key: self.tree(item, key) for key, item in value.items()}
        if value.get("kind") not in _KINDS and "kind" in value:
            hidden |= {"kind": "Custom", "apiVersion": "custom/v1"}
        return hidden

    def _text(self, text: str, field: str) -> str:
        if field in _NAMES or field == "namespaces":
            return self.name(text)
        if field in _KEYS or field == "key":
            return self.key(text)
        if field in ("value", "values"):
            return self.value(text)
        return self.digest(text) if field in ("uid", "hostIP") else text


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
    kept: snapshot.CachedPages,
    observations: Mapping[str, HostObservation],
    pace: CopiedPace,
    key: bytes = b"",
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
        pace = CopiedPace(
            pace.reboot, {hidden.digest(uid): seconds for uid, seconds in pace.owners.items()}
        )
    head: Json = {"format_version": FORMAT_VERSION, "kind": KIND}
    return msgspec.json.encode({**head, **sections, "hosts": hosts, "pace": pace}) + b"\n"


def _host(seen: HostObservation) -> CopiedHost:
    if not isinstance(seen, HostFacts):
        return CopiedHost(answers=False)
    detection = seen.detection
    return CopiedHost(
        waits=detection.needs_reboot, version=seen.running_version, staged=detection.version
    )


def _shown(value: Any, field: str = "") -> Any:
    """Return what may be told of a part of an object, which stands in this field."""
    if isinstance(value, list):
        return [_shown(item) for item in value]
    if not isinstance(value, dict) or field in _MAPS:
        return value
    shown = {key: _shown(item, key) for key, item in value.items() if key not in _LEFT_OUT}
    if MIRROR_ANNOTATION in (value.get("annotations") or {}):
        shown["annotations"] = {MIRROR_ANNOTATION: ""}
    return shown
