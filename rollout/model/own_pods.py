"""Static and DaemonSet pods, which belong to their node."""

import re
from collections.abc import Iterable, Mapping

import msgspec

from rollout.model import marks
from rollout.model.cluster import DaemonSet, Node, Pod
from rollout.model.json_text import read_json

_LONGEST = 64 * 1024
_LONGEST_SINCE = 64
_DAEMON = "daemonset/"
_KEY = re.compile(r"(?:pod|daemonset)(?:/[-.0-9a-z]{1,253}){2}")


def ready_of(pods: Iterable[Pod]) -> Mapping[str, str]:
    """Return when own pods became ready, by kind/namespace/name."""
    ready = dict[str, str]()
    for pod in pods:
        key = _own_pod_key(pod)
        if key is not None and pod.ready and not pod.terminating:
            ready[key] = pod.ready_since
    return ready


def _own_pod_key(pod: Pod) -> str | None:
    if pod.mirror:
        return f"pod/{pod.key}"
    if pod.owner is not None and pod.owner.kind == "DaemonSet":
        return f"{_DAEMON}{pod.namespace}/{pod.owner.name}"
    return None


def pods_due(keys: Iterable[str], node: Node, owners: Iterable[DaemonSet]) -> list[str]:
    """Return static pods, and DaemonSets that want the node."""
    wanted = {f"{_DAEMON}{owner.namespace}/{owner.name}" for owner in owners if owner.wants(node)}
    return sorted(key for key in keys if key in wanted or not key.startswith(_DAEMON))


def ready_text(ready: Mapping[str, str]) -> str:
    """Return the annotation."""
    return msgspec.json.encode(ready, order="sorted").decode()


def ready_before(node: Node) -> Mapping[str, str]:
    """Return the annotation's pods, perhaps of a failed rollout."""
    return read_ready(node.annotations.get(marks.READY_BEFORE, "{}")) or {}


def read_ready(text: str) -> Mapping[str, str] | None:
    """Return the pods, or None if invalid."""
    if len(text) > _LONGEST:
        return None
    ready = read_json(text, dict[str, str])
    if ready is None:
        return None
    for key, since in ready.items():
        if not _KEY.fullmatch(key):
            return None
        if len(since) > _LONGEST_SINCE or not since.isprintable():
            return None
    return ready
