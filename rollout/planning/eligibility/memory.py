"""Judges and changes what is remembered of earlier rollouts.

A node that failed, or whose last two reboots changed nothing, backs off for an hour, then for four,
then a day each time. A version that failed on `--max-failures` nodes is held: no node is rebooted
into it.
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

_MOST_HELD_VERSIONS = MOST_VERSIONS - LATEST_VERSIONS
MOST_INEFFECTIVE_REBOOTS = 2
_BACKOFFS = (timedelta(hours=1), timedelta(hours=4), timedelta(days=1))
_LONGEST_NAME = 253
_LONGEST_SENTENCE = 400
_MOST_NODES_OF_OLDER = 3
_NO_FAILURES = frozenset({Outcome.SKIPPED, Outcome.ABORTED, Outcome.FENCED, Outcome.STRANDED})
_VERSION_OUTCOMES = frozenset({Outcome.ROLLED_BACK, Outcome.NOT_BACK, Outcome.NOT_READY})
# Clocks differ by less.
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
    failure_limit: int = MOST_NODES_OF_VERSION
    despite_hold: bool = False


def why_all_paused(memory: Memory, now: datetime | None) -> AllNodesPaused | None:
    pause = memory.pause
    return AllNodesPaused(pause) if pause and not pause.is_over(now) else None


def why_held(
    memory: Memory, version: str, failure_limit: int = MOST_NODES_OF_VERSION
) -> HeldVersion | UncountedVersion | None:
    failures = memory.versions.get(version)
    if failures is None:
        # Without room to count its failures, a version waits as if held.
        has_no_room = bool(version) and _are_too_many_held(memory.versions)
        return UncountedVersion(version, _MOST_HELD_VERSIONS) if has_no_room else None
    has_failed_enough = len(failures.nodes) >= failure_limit
    if not failures.is_held and not has_failed_enough:
        return None
    is_held_by_person = bool(failures.held_by)
    at = failures.held_since if is_held_by_person else failures.at
    return HeldVersion(version, failures.nodes, at, failures.held_by)


def with_hold(memory: Memory, version: str, *, by: str, now: datetime) -> Memory:
    """Add a person's hold; `BlockedError` if too many versions are held."""
    failures = memory.versions.get(version, VersionFailures((), whole_second(now)))
    if failures.held_by:
        return memory
    if not failures.is_held and _are_too_many_held(memory.versions):
        raise BlockedError(
            f"{version} cannot be held: {_MOST_HELD_VERSIONS} other versions are already held",
            hint="End the holds that you no longer need: rollout release VERSION",
        )
    held = replace(failures, held_since=whole_second(now), held_by=by)
    return replace(memory, versions=_keep_recent({**memory.versions, version: held}))


def why_backing_off(memory: Memory, node: str, now: datetime | None) -> NodeBackingOff | None:
    until = backoff_end(memory, node, now)
    return NodeBackingOff(node, memory.nodes[node], until) if until else None


def backoff_end(memory: Memory, node: str, now: datetime | None) -> str:
    """Return the end of the back-off (RFC 3339), or empty."""
    failures = memory.nodes.get(node)
    failed_at = parse_timestamp(failures.at) if failures else None
    if failures is None or failed_at is None or now is None:
        return ""
    until = failed_at + backoff_after(failures.failures)
    is_stamped_by_wrong_clock = failed_at > now + _LATE_CLOCK
    if is_stamped_by_wrong_clock or now >= until:
        return ""
    return whole_second(until)


def backoff_after(failures: int) -> timedelta:
    if failures < 1:
        return timedelta(0)
    return _BACKOFFS[min(failures, len(_BACKOFFS)) - 1]


def with_node_end(memory: Memory, ended: EndedNode, now: datetime) -> Memory:
    end = ended.end
    is_ineffective = end.ineffective_reboots >= MOST_INEFFECTIVE_REBOOTS
    if end.outcome is Outcome.SUCCEEDED and not is_ineffective:
        return _forget_failures(memory, ended)
    is_node_name = len(ended.node) <= _LONGEST_NAME
    if not _has_to_back_off(ended) or not is_node_name:
        return memory
    previous = memory.nodes.get(ended.node)
    is_update_at_fault = _is_update_at_fault(ended)
    version = ended.version if is_update_at_fault else ""
    if previous is not None:
        # A failure counts once, even if another version was staged meanwhile.
        noted_failure = (previous.run, previous.outcome, previous.version)
        if noted_failure == (ended.run_id, end.outcome, version):
            return memory
    failures = NodeFailures(
        failures=1 + (previous.failures if previous else 0),
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


def _has_to_back_off(ended: EndedNode) -> bool:
    is_failure = ended.end.outcome not in _NO_FAILURES
    return is_failure or ended.end.pods_still_ran or _is_canceled_reboot(ended)


def _is_canceled_reboot(ended: EndedNode) -> bool:
    return ended.end.outcome is Outcome.ABORTED and is_fleetlock_run(ended.run_id)


def _is_update_at_fault(ended: EndedNode) -> bool:
    end = ended.end
    if end.is_update_cleared or not is_version(ended.version):
        return False
    # A check may fail before the reboot, when the old version still runs.
    has_booted = end.phase in _BOOTED_PHASES
    is_failed_check = end.outcome is Outcome.CHECK_FAILED and has_booted
    return is_failed_check or end.outcome in _VERSION_OUTCOMES


def _count_against_version(
    versions: Mapping[str, VersionFailures], ended: EndedNode, now: datetime
) -> Mapping[str, VersionFailures]:
    if ended.version not in versions and _are_too_many_held(versions):
        return versions
    previous = versions.get(ended.version, VersionFailures(nodes=(), at=""))
    failed_nodes = tuple(dict.fromkeys((*previous.nodes, ended.node)))[:MOST_NODES_OF_VERSION]
    failures = replace(previous, nodes=failed_nodes, at=whole_second(now))
    has_failed_enough = len(failed_nodes) >= min(ended.failure_limit, MOST_NODES_OF_VERSION)
    if has_failed_enough and not previous.is_held:
        failures = replace(failures, held_since=whole_second(now))
    return _keep_recent({**versions, ended.version: failures})


def _are_too_many_held(versions: Mapping[str, VersionFailures]) -> bool:
    held = sum(failed.is_held for failed in versions.values())
    return held >= _MOST_HELD_VERSIONS


def _keep_recent(versions: Mapping[str, VersionFailures]) -> Mapping[str, VersionFailures]:
    """Keep the latest versions, and older ones that are held, with few nodes."""
    by_time = sorted(versions.items(), key=lambda item: item[1].at)
    older = by_time[:-LATEST_VERSIONS]
    latest = by_time[-LATEST_VERSIONS:]
    kept = dict[str, VersionFailures]()
    for version, failures in older:
        if failures.is_held:
            kept[version] = replace(failures, nodes=failures.nodes[:_MOST_NODES_OF_OLDER])
    return kept | dict(latest)


def _forget_failures(memory: Memory, ended: EndedNode) -> Memory:
    memory = replace(memory, nodes=_without(memory.nodes, ended.node))
    failed = memory.versions.get(ended.version)
    if failed is None:
        return memory
    # Only a person ends a person's hold.
    if ended.despite_hold and failed.is_held and not failed.held_by:
        return without_version_failures(memory, ended.version)
    other_failed_nodes = tuple(node for node in failed.nodes if node != ended.node)
    if not other_failed_nodes and not failed.is_held:
        return replace(memory, versions=_without(memory.versions, ended.version))
    versions = {**memory.versions, ended.version: replace(failed, nodes=other_failed_nodes)}
    return replace(memory, versions=versions)


def without_version_failures(memory: Memory, version: str) -> Memory:
    """Also forget its nodes' back-offs."""
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
    aborted = memory.aborted
    if aborted is None:
        return ""
    # An abort's pause has the rollout's ID as reason.
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
