"""Judges and changes what is remembered of earlier rollouts.

A node that failed, or whose last two reboots changed nothing, backs off (is not rebooted) for an
hour, then for four, then a day each time. A version that failed on `--max-failures` nodes, over all
rollouts, is held: no node is rebooted into it.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from rollout.errors import BlockedError
from rollout.model.finding import AllNodesPaused, HeldVersion, NodeBackingOff, UncountedVersion
from rollout.model.fleetlock import is_fleetlock_run
from rollout.model.memory import (
    LATEST_VERSIONS,
    MOST_NODES,
    MOST_NODES_OF_VERSION,
    MOST_VERSIONS,
    Memory,
    NodeFailures,
    VersionFailures,
)
from rollout.model.progress import Outcome, Phase
from rollout.model.text import excerpt, is_version
from rollout.model.timestamps import parse_timestamp, whole_second

# The other places are for the latest versions.
_MOST_HELD_VERSIONS = MOST_VERSIONS - LATEST_VERSIONS
# Proved reboots in a row without a change, after which the node backs off.
MOST_INEFFECTIVE_REBOOTS = 2
_BACKOFFS = (timedelta(hours=1), timedelta(hours=4), timedelta(days=1))
_LONGEST_NAME = 253
_LONGEST_SENTENCE = 400
_MOST_NODES_OF_OLDER = 3
_NO_FAILURES = frozenset({Outcome.SKIPPED, Outcome.ABORTED, Outcome.FENCED, Outcome.STRANDED})
_VERSION_OUTCOMES = frozenset({Outcome.ROLLED_BACK, Outcome.NOT_BACK, Outcome.NOT_READY})
# A failure later than this from now was stamped by a wrong clock.
_LATE_CLOCK = timedelta(days=1)
_BOOTED_PHASES = frozenset({Phase.BOOTED, Phase.READY})

T = TypeVar("T")


class NodeEnd(Struct, frozen=True):
    outcome: Outcome
    phase: Phase
    ineffective_reboots: int = 0
    # The failure was not the update's.
    is_update_cleared: bool = False
    pods_still_ran: bool = False


class EndedNode(Struct, frozen=True):
    node: str
    # Empty if the end says nothing about a version.
    version: str
    end: NodeEnd
    run_id: str
    # How many failed nodes hold the version.
    failure_limit: int = MOST_NODES_OF_VERSION
    # The rollout also reboots nodes into held versions.
    despite_hold: bool = False


def why_all_paused(memory: Memory, now: datetime | None) -> AllNodesPaused | None:
    pause = memory.pause
    return AllNodesPaused(pause) if pause and not pause.is_over(now) else None


def why_held(
    memory: Memory, version: str, failure_limit: int = MOST_NODES_OF_VERSION
) -> HeldVersion | UncountedVersion | None:
    """Return why the version waits, or None."""
    failed = memory.versions.get(version)
    if failed is None:
        # Without room to count its failures, a version waits as if held.
        has_no_room = bool(version) and _are_too_many_held(memory.versions)
        return UncountedVersion(version, _MOST_HELD_VERSIONS) if has_no_room else None
    if failed.is_held or len(failed.nodes) >= failure_limit:
        is_held_by_person = bool(failed.held_by)
        at = failed.held_since if is_held_by_person else failed.at
        return HeldVersion(version, failed.nodes, at, failed.held_by)
    return None


def with_hold(memory: Memory, version: str, *, by: str, now: datetime) -> Memory:
    """Return the memory with a hold; `BlockedError` if too many others are held."""
    known = memory.versions.get(version, VersionFailures((), whole_second(now)))
    if known.held_by:
        return memory
    if not known.is_held and _are_too_many_held(memory.versions):
        raise BlockedError(
            f"{version} cannot be held: {_MOST_HELD_VERSIONS} other versions are already held",
            hint="End the holds that you no longer need: rollout release VERSION",
        )
    held = replace(known, held_since=whole_second(now), held_by=by)
    return replace(memory, versions=_keep_recent({**memory.versions, version: held}))


def why_backing_off(memory: Memory, node: str, now: datetime | None) -> NodeBackingOff | None:
    until = backoff_end(memory, node, now)
    return NodeBackingOff(node, memory.nodes[node], until) if until else None


def backoff_end(memory: Memory, node: str, now: datetime | None) -> str:
    """Return until when the node backs off (RFC 3339), or empty."""
    failures = memory.nodes.get(node)
    failed_at = parse_timestamp(failures.at) if failures else None
    if failures is None or failed_at is None or now is None:
        return ""
    until = failed_at + backoff_after(failures.failures)
    return whole_second(until) if failed_at - _LATE_CLOCK <= now < until else ""


def backoff_after(failures: int) -> timedelta:
    if failures < 1:
        return timedelta(0)
    return _BACKOFFS[min(failures, len(_BACKOFFS)) - 1]


def with_node_end(memory: Memory, ended: EndedNode, now: datetime) -> Memory:
    end = ended.end
    is_ineffective = end.ineffective_reboots >= MOST_INEFFECTIVE_REBOOTS
    if end.outcome is Outcome.SUCCEEDED and not is_ineffective:
        return _forget_failures(memory, ended)
    is_failure = end.outcome not in _NO_FAILURES
    # Without a back-off, the node would be drained again and again.
    backs_off_anyway = end.pods_still_ran or _is_canceled_reboot(ended)
    if not (is_failure or backs_off_anyway) or len(ended.node) > _LONGEST_NAME:
        return memory
    before = memory.nodes.get(ended.node)
    is_update_at_fault = _is_update_at_fault(ended)
    version = ended.version if is_update_at_fault else ""
    if before is not None:
        # A failure counts once, even if another version is staged since.
        noted_failure = (before.run, before.outcome, before.version)
        if noted_failure == (ended.run_id, end.outcome, version):
            return memory
    failures = NodeFailures(
        failures=1 + (before.failures if before else 0),
        at=whole_second(now),
        outcome=end.outcome.value,
        run=ended.run_id,
        version=version,
    )
    nodes = _latest_nodes({**memory.nodes, ended.node: failures})
    versions = memory.versions
    if is_update_at_fault:
        versions = _count_against_version(versions, ended, now)
    return replace(memory, nodes=nodes, versions=versions)


def _is_canceled_reboot(ended: EndedNode) -> bool:
    """Whether a reboot that a host requested by FleetLock was canceled."""
    return ended.end.outcome is Outcome.ABORTED and is_fleetlock_run(ended.run_id)


def _is_update_at_fault(ended: EndedNode) -> bool:
    end = ended.end
    if end.is_update_cleared or not is_version(ended.version):
        return False
    is_failed_check = end.outcome is Outcome.CHECK_FAILED and end.phase in _BOOTED_PHASES
    return end.outcome in _VERSION_OUTCOMES or is_failed_check


def _count_against_version(
    versions: Mapping[str, VersionFailures], ended: EndedNode, now: datetime
) -> Mapping[str, VersionFailures]:
    """Add the node's failure to its version, which is held once enough nodes have failed."""
    # There is no room to remember another version.
    if ended.version not in versions and _are_too_many_held(versions):
        return versions
    before = versions.get(ended.version, VersionFailures(nodes=(), at=""))
    nodes = tuple(dict.fromkeys((*before.nodes, ended.node)))[:MOST_NODES_OF_VERSION]
    failures = replace(before, nodes=nodes, at=whole_second(now))
    has_failed_enough = len(nodes) >= min(ended.failure_limit, MOST_NODES_OF_VERSION)
    if has_failed_enough and not before.is_held:
        failures = replace(failures, held_since=whole_second(now))
    return _keep_recent({**versions, ended.version: failures})


def _are_too_many_held(versions: Mapping[str, VersionFailures]) -> bool:
    held = sum(failed.is_held for failed in versions.values())
    return held >= _MOST_HELD_VERSIONS


def _keep_recent(versions: Mapping[str, VersionFailures]) -> Mapping[str, VersionFailures]:
    """Return the latest versions; of older ones, those held, with a few of their nodes."""
    ordered = sorted(versions.items(), key=lambda item: item[1].at)
    kept = dict[str, VersionFailures]()
    for version, failed in ordered[:-LATEST_VERSIONS]:
        if failed.is_held:
            kept[version] = replace(failed, nodes=failed.nodes[:_MOST_NODES_OF_OLDER])
    return kept | dict(ordered[-LATEST_VERSIONS:])


def _forget_failures(memory: Memory, ended: EndedNode) -> Memory:
    memory = replace(memory, nodes=_without(memory.nodes, ended.node))
    failed = memory.versions.get(ended.version)
    if failed is None:
        return memory
    # The version works after all, but only a person ends a person's hold.
    if ended.despite_hold and failed.is_held and not failed.held_by:
        return without_version_failures(memory, ended.version)
    nodes = tuple(node for node in failed.nodes if node != ended.node)
    if not nodes and not failed.is_held:
        return replace(memory, versions=_without(memory.versions, ended.version))
    versions = {**memory.versions, ended.version: replace(failed, nodes=nodes)}
    return replace(memory, versions=versions)


def without_version_failures(memory: Memory, version: str) -> Memory:
    nodes = {
        name: failures for name, failures in memory.nodes.items() if failures.version != version
    }
    return replace(memory, nodes=nodes, versions=_without(memory.versions, version))


def without_failures(
    memory: Memory, *, versions: Sequence[str], nodes: Sequence[str], everything: bool
) -> Memory:
    if everything:
        return replace(memory, nodes={}, versions={})
    for version in versions:
        memory = without_version_failures(memory, version)
    for node in nodes:
        memory = replace(memory, nodes=_without(memory.nodes, node))
    return memory


def why_aborted(memory: Memory) -> str:
    """Return why unattended passes are stopped, or empty."""
    aborted = memory.aborted
    if aborted is None:
        return ""
    # The abort's pause has the rollout's ID as reason.
    abort = excerpt(
        f"rollout {aborted.reason} was aborted by {aborted.by} at {aborted.at}",
        _LONGEST_SENTENCE,
    )
    return (
        f"{abort}; unattended passes stay stopped until you run `rollout unpause --unattended` or"
        " `rollout apply`"
    )


def _without(entries: Mapping[str, T], name: str) -> Mapping[str, T]:
    if name not in entries:
        return entries
    return {key: entry for key, entry in entries.items() if key != name}


def _latest_nodes(nodes: Mapping[str, NodeFailures]) -> Mapping[str, NodeFailures]:
    return dict(sorted(nodes.items(), key=lambda item: item[1].at)[-MOST_NODES:])
