"""What is remembered of earlier rollouts, as it stands on the cluster: a ConfigMap beside the record.

Anybody who may write ConfigMaps may have written it, or another version of this program. Reading it takes bounded
memory, and it is understood as a whole or counts as nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from rollout.errors import ApiError, ApiNotFoundError
from rollout.model import marks
from rollout.model.memory import (
    MOST_NODES,
    MOST_NODES_OF_VERSION,
    MOST_VERSIONS,
    NO_MEMORY,
    Memory,
    NodeFailures,
    Pause,
    VersionFailures,
    moment,
)
from rollout.model.names import is_object_name
from rollout.model.text import excerpt
from rollout.ports import ClusterApi

_FORMAT = "1.0"
_KEY = "memory.json"
# In bytes: a ConfigMap holds a mebibyte, and who wrote which field stands beside it.
_LARGEST_BODY = 4 << 20
_NOT_READ = (msgspec.MsgspecError, UnicodeError, RecursionError)
_FORBIDDEN = 403


@dataclass(frozen=True, slots=True)
class StandingMemory:
    """The memory, and the whole ConfigMap that it was read from, to be written back; None where there is none."""

    memory: Memory
    body: dict[str, Any] | None


class _Header(msgspec.Struct):
    format_version: str


class _Document(msgspec.Struct):
    """As it is written."""

    format_version: str
    nodes: dict[str, NodeFailures] = msgspec.field(default_factory=dict)
    versions: dict[str, VersionFailures] = msgspec.field(default_factory=dict)
    pause: Pause | None = None
    aborted: Pause | None = None


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] | None = None


def memory_path(namespace: str) -> str:
    """Where it stands."""
    return f"/api/v1/namespaces/{namespace}/configmaps/{marks.MEMORY_NAME}"


def read_memory(api: ClusterApi, namespace: str) -> Memory:
    """The memory; one with a `problem` where it is not understood, or this user may not see it; `ApiError` else."""
    try:
        return read_standing(api, namespace).memory
    except ApiError as error:
        if error.status != _FORBIDDEN:
            raise
        return replace(
            NO_MEMORY, problem=f"what earlier rollouts have left to remember cannot be read: {error.message}"
        )


def read_standing(api: ClusterApi, namespace: str) -> StandingMemory:
    """The memory with what it stands in; `ApiError` where the API server does not give it."""
    try:
        body = api.get(memory_path(namespace))
    except ApiNotFoundError:
        return StandingMemory(NO_MEMORY, None)
    origin = f"ConfigMap {namespace}/{marks.MEMORY_NAME}"
    if len(body) > _LARGEST_BODY:
        raise ApiError(f"{origin} is larger than {_LARGEST_BODY >> 20} MiB")
    try:
        whole = msgspec.json.decode(body, type=dict[str, Any])
        text = (msgspec.convert(whole, type=_ConfigMap).data or {}).get(_KEY)
    except _NOT_READ as error:
        raise ApiError(f"{origin} is not understood: {excerpt(str(error))}") from error
    return StandingMemory(_memory(text, origin) if text is not None else NO_MEMORY, whole)


def written_memory(memory: Memory, standing: StandingMemory, namespace: str) -> dict[str, Any]:
    """The ConfigMap with this memory; whatever else stands in it stays, and so does the version that was read."""
    document = _Document(_FORMAT, dict(memory.nodes), dict(memory.versions), memory.pause, memory.aborted)
    base = standing.body or {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": marks.MEMORY_NAME, "namespace": namespace},
    }
    return {**base, "data": {**(base.get("data") or {}), _KEY: msgspec.json.encode(document).decode()}}


def _memory(text: str, origin: str) -> Memory:
    try:
        version = msgspec.json.decode(text, type=_Header).format_version
        if version.partition(".")[0] != _FORMAT.partition(".")[0]:
            problem = f"{origin} has the format {excerpt(version, 20)}, of another version of rollout"
            return replace(NO_MEMORY, problem=problem, is_newer=True)
        document = msgspec.json.decode(text, type=_Document)
    except _NOT_READ as error:
        return replace(NO_MEMORY, problem=f"{origin} is not understood: {excerpt(str(error))}")
    if wrong := next(_impossible(document), ""):
        return replace(NO_MEMORY, problem=f"{origin} is not understood: {excerpt(wrong)}")
    return Memory(document.nodes, document.versions, document.pause, document.aborted)


def _impossible(document: _Document) -> Iterator[str]:
    """What this program writes in no memory."""
    if len(document.nodes) > MOST_NODES or len(document.versions) > MOST_VERSIONS:
        yield f"it has {len(document.nodes)} nodes and {len(document.versions)} versions"
    yield from _impossible_nodes(document.nodes)
    for version, failed in document.versions.items():
        if not version.isprintable() or len(failed.nodes) > MOST_NODES_OF_VERSION:
            yield f"the version {version!r} with {len(failed.nodes)} nodes"
        yield from (f"{name!r} is not a Node name" for name in failed.nodes if not is_object_name(name))
    if document.pause and document.pause.until and moment(document.pause.until) is None:
        yield f"its pause ends at {document.pause.until!r}"


def _impossible_nodes(nodes: Mapping[str, NodeFailures]) -> Iterator[str]:
    for name, failures in nodes.items():
        if not is_object_name(name):
            yield f"{name!r} is not a Node name"
        if failures.failures < 1 or moment(failures.at) is None:
            yield f"{name} failed {failures.failures} times, last at {failures.at!r}"
