"""The pods that belong to their node: static ones, by their name, and DaemonSets', by that of the DaemonSet.

They go down and come back with it. Which were ready when a node was begun is written down on it.
"""

import re
from collections.abc import Iterable, Mapping

import msgspec

from rollout.model import marks
from rollout.model.cluster import DaemonSet, Node, Pod
from rollout.model.json_text import read_json

_LONGEST = 64 * 1024
_LONGEST_MOMENT = 64
_DAEMON = "daemonset/"
_KEY = re.compile(r"(?:pod|daemonset)(?:/[-.0-9a-z]{1,253}){2}")


def ready_of(pods: Iterable[Pod]) -> Mapping[str, str]:
    """Those that are ready, and stay, as kind/namespace/name, with since when (RFC 3339, as the API has it)."""
    own = ((_key(pod), pod.ready_since) for pod in pods if pod.ready and not pod.terminating)
    return {key: since for key, since in own if key}


def _key(pod: Pod) -> str:
    """Empty for a pod that may run elsewhere as well."""
    if pod.mirror:
        return f"pod/{pod.key}"
    is_daemon = pod.owner is not None and pod.owner.kind == "DaemonSet"
    return f"{_DAEMON}{pod.namespace}/{pod.owner.name}" if pod.owner and is_daemon else ""


def pods_due(keys: Iterable[str], node: Node, owners: Iterable[DaemonSet]) -> list[str]:
    """Those of them that are to be on the node: of DaemonSets, which these are, the ones that want it."""
    wanted = {f"{_DAEMON}{owner.namespace}/{owner.name}" for owner in owners if owner.wants(node)}
    return sorted(key for key in keys if key in wanted or not key.startswith(_DAEMON))


def ready_text(ready: Mapping[str, str]) -> str:
    """As it is written on the Node."""
    return msgspec.json.encode(ready, order="sorted").decode()


def ready_before(node: Node) -> Mapping[str, str]:
    """Return what is written on it: of one that failed in an earlier rollout, what was ready then."""
    return read_ready(node.annotations.get(marks.READY_BEFORE, "{}")) or {}


def read_ready(text: str) -> Mapping[str, str] | None:
    """Return what a mark says; None for what no rollout writes."""
    read = read_json(text, dict[str, str]) if len(text) <= _LONGEST else None
    is_sound = read is not None and all(
        _KEY.fullmatch(key) and len(since) <= _LONGEST_MOMENT and since.isprintable()
        for key, since in read.items()
    )
    return read if is_sound else None
