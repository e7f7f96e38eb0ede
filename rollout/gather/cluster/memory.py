"""What is remembered of earlier rollouts, as it stands on the cluster: a ConfigMap beside the record.

It is understood as a whole or counts as nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from rollout.errors import ApiError
from rollout.gather.cluster.documents import Document, NotUnderstoodError
from rollout.model import marks
from rollout.model.memory import (
    MOST_NODES,
    MOST_NODES_OF_VERSION,
    MOST_VERSIONS,
    NO_MEMORY,
    Memory,
    NodeFailures,
    Pause,
    Slip,
    VersionFailures,
    moment,
)
from rollout.model.text import is_object_name, is_version
from rollout.ports import ClusterApi

_KEY = "memory.json"
_FORBIDDEN = 403


class StandingMemory(NamedTuple):
    """The memory, and the whole ConfigMap that it was read from, to be written back; None where there is none."""

    memory: Memory
    body: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class _Document:
    """As it is written."""

    nodes: dict[str, NodeFailures] = field(default_factory=dict)
    versions: dict[str, VersionFailures] = field(default_factory=dict)
    pause: Pause | None = None
    aborted: Pause | None = None
    waited_for: str = ""
    evidence: dict[str, str] = field(default_factory=dict)
    slip: Slip | None = None


def memory_of(namespace: str) -> Document:
    """Where it stands."""
    return Document(namespace, marks.MEMORY_NAME, _KEY)


def read_memory(api: ClusterApi, namespace: str) -> Memory:
    """Read the memory; one with a `problem` where it is not understood, or may not be seen; `ApiError` else."""
    try:
        return read_standing(api, namespace).memory
    except ApiError as error:
        if error.status != _FORBIDDEN:
            raise
        return replace(
            NO_MEMORY, problem=f"what earlier rollouts have left to remember cannot be read: {error.message}"
        )


def read_standing(api: ClusterApi, namespace: str) -> StandingMemory:
    """Return the memory with what it stands in; `ApiError` where the API server does not give it."""
    text, whole = memory_of(namespace).read(api)
    return StandingMemory(NO_MEMORY if text is None else _memory(text, memory_of(namespace)), whole)


def written_memory(namespace: str, memory: Memory, whole: dict[str, Any] | None) -> dict[str, Any]:
    """Return the ConfigMap with this memory, in the version that was read."""
    standing = (memory.pause, memory.aborted, memory.waited_for, dict(memory.evidence), memory.slip)
    document = _Document(dict(memory.nodes), dict(memory.versions), *standing)
    return memory_of(namespace).written(document, whole)


def _memory(text: str, document: Document) -> Memory:
    try:
        content = document.parsed(text, _Document, lambda content: next(_impossible(content), ""))
    except NotUnderstoodError as error:
        return replace(NO_MEMORY, problem=error.message, is_newer=error.is_newer)
    standing = (content.pause, content.aborted, content.waited_for, content.evidence, content.slip)
    return Memory(content.nodes, content.versions, *standing)


def _impossible(document: _Document) -> Iterator[str]:
    """Name what this program writes in no memory."""
    if len(document.nodes) > MOST_NODES or len(document.versions) > MOST_VERSIONS:
        yield f"it has {len(document.nodes)} nodes and {len(document.versions)} versions"
    yield from _impossible_nodes(document.nodes)
    for version, failed in document.versions.items():
        if not is_version(version) or len(failed.nodes) > MOST_NODES_OF_VERSION:
            yield f"the version {version!r} with {len(failed.nodes)} nodes"
        yield from (f"{name!r} is not a Node name" for name in failed.nodes if not is_object_name(name))
    if len(document.evidence) > MOST_VERSIONS or not all(map(moment, document.evidence.values())):
        yield f"it has evidence of {len(document.evidence)} versions, or of no time"
    if document.pause and document.pause.until and moment(document.pause.until) is None:
        yield f"its pause ends at {document.pause.until!r}"
    if (slip := document.slip) and not all(map(moment, (slip.by, slip.finish or slip.by, slip.since))):
        yield f"it slips from {slip.by!r} to {slip.finish!r}"


def _impossible_nodes(nodes: Mapping[str, NodeFailures]) -> Iterator[str]:
    for name, failures in nodes.items():
        if not is_object_name(name):
            yield f"{name!r} is not a Node name"
        if failures.failures < 1 or moment(failures.at) is None:
            yield f"{name} failed {failures.failures} times, last at {failures.at!r}"
