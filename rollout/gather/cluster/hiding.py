"""Hiding names in a cluster's copy: those of nodes become numbers in their order, other names and labels digests.

The key of the digests is thrown away; what Kubernetes itself calls so stays.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from rollout.model.text import natural_key

_OF_KUBERNETES: Final = re.compile(r"([\w.-]+\.)?(kubernetes|k8s)\.io/.+")
_KNOWN_NAMES: Final = frozenset(
    {"default", "kube-system", "kube-public", "kube-node-lease", "system-node-critical", "system-cluster-critical"}
)
_KNOWN_VALUES: Final = re.compile(r"(true|false|linux|amd64|arm64|\d{1,3})?")
_ORDINAL: Final = re.compile(r"(.+)-(\d{1,5})")
MAPS: Final = frozenset({"labels", "matchLabels", "nodeSelector"})
"""Fields whose keys are words of the operator's, too."""
_NAMES: Final = frozenset({"name", "namespace", "nodeName", "claimName", "persistentVolumeName", "priorityClassName"})
_KEYS: Final = frozenset({"topologyKey", "matchLabelKeys", "mismatchLabelKeys"})
_KINDS: Final = frozenset({"ReplicaSet", "StatefulSet", "DaemonSet", "Job", "Node", "ReplicationController"})
_NODE_FIELD: Final = "metadata.name"


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
        return key if _OF_KUBERNETES.fullmatch(key) or key == _NODE_FIELD or not key else self.digest(key)

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
        if field in MAPS:
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
