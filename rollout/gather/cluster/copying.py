"""Copies what planning reads of a cluster, to rehearse on.

An anonymous copy numbers the nodes, and hashes other names and labels.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from rollout.gather.cluster import snapshot
from rollout.gather.cluster.decode import MIRROR_ANNOTATION
from rollout.gather.cluster.rivals import DEPLOYMENTS
from rollout.model.cluster import CONTROL_PLANE_LABELS
from rollout.model.host import HostFacts, HostObservation
from rollout.model.node_lifecycle import Lifecycle
from rollout.model.quantity import Seconds
from rollout.model.text import natural_key

FORMAT_VERSION = "1.0"
KIND = "node-rollout-snapshot"
_LIST_PATH_BY_SECTION = {
    "nodes": snapshot.NODES,
    "pods": snapshot.PODS,
    "budgets": snapshot.BUDGETS,
    "daemonSets": snapshot.DAEMON_SETS,
    "deployments": DEPLOYMENTS,
    "volumes": snapshot.VOLUMES,
    "attachments": snapshot.ATTACHMENTS,
    "namespaces": snapshot.NAMESPACES,
}
_LEFT_OUT = frozenset(
    {
        *("annotations", "message", "reason", "resourceVersion", "addresses"),
        *("timeAdded", "finalizers", "bootID", "machineID", "providerID"),
    }
)

Json = dict[str, Any]

_OF_KUBERNETES = re.compile(r"([\w.-]+\.)?(kubernetes|k8s)\.io/.+")
# Others may be named after objects.
_KNOWN_CONDITIONS = frozenset(
    {"Ready", "PodScheduled", "DisruptionAllowed", "Progressing", *Lifecycle}
)
_ROLE_PREFIX = "node-role.kubernetes.io/"
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
_NAME_AND_ORDINAL = re.compile(r"(.+)-(\d{1,5})")
# A ReplicaSet is named after its Deployment and a hash, which is also a label. Each part is hidden
# by itself.
_NAME_AND_HASH = re.compile(r"(.+)-([4-9bcdf]{6,10})")
_KNOWN_KEYS = frozenset({"job-name", "pod-template-hash"})
# Their keys are the operator's.
_MAPS = frozenset({"labels", "matchLabels", "nodeSelector"})
_AMOUNTS = frozenset({"requests", "allocatable", "overhead"})
_NAMES = frozenset(
    {
        *("name", "namespace", "namespaces", "nodeName"),
        *("claimName", "persistentVolumeName", "priorityClassName"),
    }
)
_KEYS = frozenset({"key", "topologyKey", "matchLabelKeys", "mismatchLabelKeys"})
_VALUES = frozenset({"value", "values"})
_IDENTIFIERS = frozenset({"uid", "hostIP"})
# A custom kind may name a product.
_KINDS = frozenset(
    {"ReplicaSet", "StatefulSet", "DaemonSet", "Job", "Node", "ReplicationController"}
)
_NODE_FIELD = "metadata.name"


class Anonymizer(Struct, frozen=True):
    # By old name.
    nodes: Mapping[str, str]
    digest: Callable[[str], str]

    @classmethod
    def of(cls, nodes: Iterable[str], key: bytes) -> "Anonymizer":
        """Number the nodes; hash other words with the secret `key`."""
        ordered = sorted(nodes, key=natural_key)
        new_names = {name: f"node-{number}" for number, name in enumerate(ordered, 1)}

        @cache
        def digest(word: str) -> str:
            return "x" + hashlib.blake2b(word.encode(), key=key, digest_size=6).hexdigest()

        return cls(new_names, digest)

    def hide_name(self, name: str) -> str:
        """Keep an ordinal, as in `db-0`."""
        if name in _KNOWN_NAMES or not name:
            return name
        if name in self.nodes:
            return self.nodes[name]
        match = _NAME_AND_ORDINAL.fullmatch(name)
        if match:
            base, ordinal = match.groups()
            return f"{self.digest(base)}-{ordinal}"
        match = _NAME_AND_HASH.fullmatch(name)
        if match:
            base, template_hash = match.groups()
            return f"{self.digest(base)}-{self.digest(template_hash)}"
        return self.digest(name)

    def _hide_key(self, key: str) -> str:
        """Keep what Kubernetes defines; hide a role's name."""
        is_role = key.startswith(_ROLE_PREFIX) and key not in CONTROL_PLANE_LABELS
        if is_role:
            return f"{_ROLE_PREFIX}{self.digest(key.removeprefix(_ROLE_PREFIX))}"
        is_known = not key or key == _NODE_FIELD or key in _KNOWN_KEYS
        if is_known or _OF_KUBERNETES.fullmatch(key):
            return key
        return self.digest(key)

    def _hide_value(self, value: str) -> str:
        return value if _KNOWN_VALUES.fullmatch(value) else self.hide_name(value)

    def hide_tree(self, value: Any, field: str = "") -> Any:
        """Hide the words in JSON; `field` is the key of `value`."""
        if isinstance(value, list):
            return [self.hide_tree(item, field) for item in value]
        if isinstance(value, str):
            return self._hide_text(value, field)
        if not isinstance(value, dict):
            return value
        if field in _MAPS:
            return {self._hide_key(key): self._hide_value(text) for key, text in value.items()}
        if field in _AMOUNTS:
            # Only vendors' resources have a slash.
            return {
                self._hide_key(key) if "/" in key else key: amount for key, amount in value.items()
            }
        hidden = {key: self.hide_tree(item, key) for key, item in value.items()}
        if "conditions" in value:
            hidden["conditions"] = [
                item for item in value["conditions"] if item.get("type") in _KNOWN_CONDITIONS
            ]
        has_custom_kind = "kind" in value and value["kind"] not in _KINDS
        if has_custom_kind:
            hidden |= {"kind": "Custom", "apiVersion": "custom/v1"}
        return hidden

    def _hide_text(self, text: str, field: str) -> str:
        if field in _NAMES:
            return self.hide_name(text)
        if field in _KEYS:
            return self._hide_key(text)
        if field in _VALUES:
            return self._hide_value(text)
        return self.digest(text) if field in _IDENTIFIERS else text

    def hide_owners(self, pace: "CopiedPace") -> "CopiedPace":
        return CopiedPace(
            pace.reboot,
            owners={self.digest(uid): seconds for uid, seconds in pace.owners.items()},
            completions={self.digest(uid): seconds for uid, seconds in pace.completions.items()},
        )


class CopiedHost(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    answers: bool = True
    # For its reboot.
    waits: bool = False
    # Running and staged; may be empty.
    version: str = ""
    staged: str = ""


class CopiedPace(msgspec.Struct, frozen=True):
    """Seconds by owner UID: to end and start pods, and to complete."""

    reboot: Seconds
    owners: Mapping[str, tuple[Seconds, Seconds]]
    completions: Mapping[str, Seconds] = {}


class ClusterCopy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    format_version: str = msgspec.field(name="format_version")
    kind: str
    nodes: tuple[Json, ...]
    pods: tuple[Json, ...] = ()
    budgets: tuple[Json, ...] = ()
    daemon_sets: tuple[Json, ...] = ()
    deployments: tuple[Json, ...] = ()
    volumes: tuple[Json, ...] = ()
    attachments: tuple[Json, ...] = ()
    namespaces: tuple[Json, ...] = ()
    hosts: Mapping[str, CopiedHost] = {}
    pace: CopiedPace


def encode_copy(
    cache: snapshot.CachedObjects,
    observations: Mapping[str, HostObservation],
    pace: CopiedPace,
    anonymizing_key: bytes,
) -> bytes:
    """Return a `ClusterCopy`; anonymous unless the key is empty."""
    sections = dict[str, list[Json]]()
    for name, path in _LIST_PATH_BY_SECTION.items():
        bodies = cache.get(path, {}).values()
        sections[name] = [_reduce(msgspec.json.decode(body)) for body in bodies]
    hosts = {name: _copied_host(answer) for name, answer in sorted(observations.items())}
    if anonymizing_key:
        names = [node["metadata"]["name"] for node in sections["nodes"]]
        anonymizer = Anonymizer.of(names, anonymizing_key)
        sections = {name: anonymizer.hide_tree(items) for name, items in sections.items()}
        hosts = {anonymizer.hide_name(name): host for name, host in hosts.items()}
        pace = anonymizer.hide_owners(pace)
    head: Json = {"format_version": FORMAT_VERSION, "kind": KIND}
    return msgspec.json.encode({**head, **sections, "hosts": hosts, "pace": pace}) + b"\n"


def _copied_host(observation: HostObservation) -> CopiedHost:
    if not isinstance(observation, HostFacts):
        return CopiedHost(answers=False)
    return CopiedHost(
        waits=observation.detection.needs_reboot,
        version=observation.running_version,
        staged=observation.detection.staged_version,
    )


def _reduce(value: Any, field: str = "") -> Any:
    """Drop the keys that planning does not read; `field` is the key of `value`."""
    if isinstance(value, list):
        return [_reduce(item) for item in value]
    if not isinstance(value, dict) or field in _MAPS:
        return value
    reduced = {key: _reduce(item, key) for key, item in value.items() if key not in _LEFT_OUT}
    # Planning reads only whether it is present.
    if MIRROR_ANNOTATION in (value.get("annotations") or {}):
        reduced["annotations"] = {MIRROR_ANNOTATION: ""}
    return reduced
