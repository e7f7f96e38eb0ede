"""What outlives a rollout, as it stands on the cluster: the memory, and the slots of FleetLock, a ConfigMap each.

A memory is understood as a whole or counts as nothing; slots that are not understood are no free ones.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from rollout.errors import ApiError
from rollout.gather.cluster.documents import Document, NotUnderstoodError, Stored
from rollout.model import marks
from rollout.model.fleetlock import NO_SLOTS, Slots, is_fleetlock_run, is_group
from rollout.model.memory import (
    MOST_NODES,
    MOST_NODES_OF_VERSION,
    MOST_VERSIONS,
    NO_MEMORY,
    Memory,
    NodeFailures,
    moment,
)
from rollout.model.text import is_object_name, is_run_id, is_version
from rollout.ports import ClusterApi

_KEY, _SLOTS_KEY = "memory.json", "slots.json"
_FORBIDDEN = 403


def memory_of(namespace: str) -> Document:
    """Where it stands."""
    return Document(namespace, marks.MEMORY_NAME, _KEY)


def read_memory(api: ClusterApi, namespace: str) -> Memory:
    """Read the memory; one with a `problem` where it is not understood, or may not be seen; `ApiError` else."""
    try:
        return read_stored_memory(api, namespace).content
    except ApiError as error:
        if error.status != _FORBIDDEN:
            raise
        return replace(
            NO_MEMORY, problem=f"what earlier rollouts have left to remember cannot be read: {error.message}"
        )


def read_stored_memory(api: ClusterApi, namespace: str) -> Stored[Memory]:
    """Return the memory with what it stands in; `ApiError` where the API server does not give it."""
    document = memory_of(namespace)
    text, body = document.read(api)
    try:
        memory = NO_MEMORY if text is None else document.parsed(text, Memory, lambda read: next(_impossible(read), ""))
    except NotUnderstoodError as error:
        memory = replace(NO_MEMORY, problem=error.message, is_newer=error.is_newer)
    return Stored(memory, body)


def _impossible(memory: Memory) -> Iterator[str]:
    """Name what this program writes in no memory."""
    if memory.problem or memory.is_newer:
        yield "it says of itself that it is not understood"
    if len(memory.nodes) > MOST_NODES or len(memory.versions) > MOST_VERSIONS:
        yield f"it has {len(memory.nodes)} nodes and {len(memory.versions)} versions"
    yield from _impossible_nodes(memory.nodes)
    for version, failed in memory.versions.items():
        if not is_version(version) or len(failed.nodes) > MOST_NODES_OF_VERSION:
            yield f"the version {version!r} with {len(failed.nodes)} nodes"
        yield from (f"{name!r} is not a Node name" for name in failed.nodes if not is_object_name(name))
    if len(memory.evidence) > MOST_VERSIONS or not all(map(moment, memory.evidence.values())):
        yield f"it has evidence of {len(memory.evidence)} versions, or of no time"
    if memory.pause and memory.pause.until and moment(memory.pause.until) is None:
        yield f"its pause ends at {memory.pause.until!r}"
    if (slip := memory.slip) and not all(map(moment, (slip.by, slip.finish or slip.by, slip.since))):
        yield f"it slips from {slip.by!r} to {slip.finish!r}"


def _impossible_nodes(nodes: Mapping[str, NodeFailures]) -> Iterator[str]:
    for name, failures in nodes.items():
        if not is_object_name(name):
            yield f"{name!r} is not a Node name"
        if failures.failures < 1 or moment(failures.at) is None:
            yield f"{name} failed {failures.failures} times, last at {failures.at!r}"


def slots_of(namespace: str) -> Document:
    """Where the slots of FleetLock stand."""
    return Document(namespace, marks.SLOTS_NAME, _SLOTS_KEY)


def read_slots(api: ClusterApi, namespace: str) -> Slots:
    """Return the slots; `ApiError` where they cannot be read, or are not understood."""
    return read_stored_slots(api, namespace).content


def read_stored_slots(api: ClusterApi, namespace: str) -> Stored[Slots]:
    """Return the slots with what they stand in; raises the same."""
    text, body = slots_of(namespace).read(api)
    return Stored(NO_SLOTS if text is None else slots_of(namespace).parsed(text, Slots, _impossible_slots), body)


def _impossible_slots(slots: Slots) -> str:
    """Return what this program writes in no such document; empty where there is nothing of the kind."""
    for slot in slots.held:
        if not (is_object_name(slot.node) and is_run_id(slot.run) and is_fleetlock_run(slot.run)):
            return f"a slot of {slot.node!r}, for the rollout {slot.run!r}"
        if not (is_group(slot.group) and slot.node_uid and slot.boot_id):
            return f"a slot of {slot.node!r} in the group {slot.group!r}"
    return "one node holds two slots" if len(slots.held) != len({slot.node for slot in slots.held}) else ""
