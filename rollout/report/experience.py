"""What journals tell of how long things took: drains, reboots, and until a wave had settled.

Moments are a wall clock's, which is set back or on at times, and goes on while a machine sleeps. What spans such a step
teaches nothing: phases that begin before those that they follow, a turn that took longer than its process has counted,
a wave that settled for longer than it may.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from rollout.errors import UsageError
from rollout.model.progress import NodeFinished, Phase
from rollout.model.quantity import Duration
from rollout.planning.play.pace import Past
from rollout.report.lines import Record, entries
from rollout.report.run_view import NodeView, RunView, run_view

# In seconds: how far apart threads may write what they see at one moment, and how late an end may be told of.
_SLACK = 5.0


def past_of(journals: Iterable[Iterable[Record]], cluster: str) -> Past:
    """What the journals of runs on a cluster tell; `cluster` is its UID. Those of others add nothing."""
    pasts = [past for records in journals if (past := _of_one(tuple(records), cluster))]
    owners: dict[str, tuple[float, ...]] = {}
    for past in pasts:
        owners |= {owner: (*owners.get(owner, ()), *seconds) for owner, seconds in past.owners.items()}
    return Past(
        tuple(seconds for past in pasts for seconds in past.drains),
        tuple(seconds for past in pasts for seconds in past.reboots),
        tuple(seconds for past in pasts for seconds in past.settles),
        tuple(seconds for past in pasts for seconds in past.endings),
        owners,
    )


def _of_one(records: Sequence[Record], cluster: str) -> Past | None:
    first = records[0] if records else {}
    if first.get("type") != "run" or (first.get("cluster") or {}).get("uid") != cluster:
        return None
    policy, view = first.get("policy") or {}, run_view(entries(records))
    is_delayed, freed = _waits_before_reboots(policy), _freed(view)
    ways = sorted(_ways(view), key=lambda way: way.end.at)
    return Past(
        drains=tuple(_seconds(way.begun, way.empty) for way in ways),
        reboots=tuple(_seconds(way.asked if is_delayed else way.empty, way.end.at) for way in ways),
        settles=() if _waits_between_waves(policy) else tuple(_settles(view, _longest_settle(policy))),
        endings=tuple(
            _seconds(freed.get((way.process, way.node.name), way.begun), way.empty)
            for way in ways
            if way.node.has_moved_pods
        ),
        owners=view.pod_endings,
    )


@dataclass(frozen=True, slots=True)
class _Way:
    """A node's way to its success under one process: when it was begun, empty, and its host asked to reboot."""

    node: NodeView
    process: datetime
    begun: datetime
    empty: datetime
    asked: datetime
    end: NodeFinished


def _ways(view: RunView) -> Iterator[_Way]:
    for node in view.nodes.values():
        if node.end is None or not node.end.succeeded:
            continue
        process = _process_at(view, node.end.at)
        phases = [phase for phase in node.phases if phase.begin >= process]
        # waits between cordon and drain are reckoned by their flags
        begins = [phase.begin for phase in phases if phase.phase not in (Phase.CORDONED, Phase.DRAINED)]
        empty = next((phase.begin for phase in phases if phase.phase is Phase.DRAINED), None)
        moments = [*(phase.begin for phase in phases), node.end.at]
        is_in_order = all(_seconds(earlier, later) >= -_SLACK for earlier, later in pairwise(moments))
        if not begins or empty is None or begins[0] >= empty or not is_in_order:
            continue
        if node.end.seconds and _seconds(begins[0], node.end.at) > node.end.seconds + _SLACK:
            continue
        asked = next((phase.begin for phase in phases if phase.phase is Phase.REBOOTING), empty)
        yield _Way(node, process, begins[0], empty, asked, node.end)


def _process_at(view: RunView, at: datetime) -> datetime:
    """When the process began that was at work then: what an earlier one has begun is not seen whole."""
    return max((record.at for record in view.records if record.at <= at), default=view.begun_at or at)


def _seconds(begin: datetime, end: datetime) -> float:
    return (end - begin).total_seconds()


def _freed(view: RunView) -> Mapping[tuple[datetime, str], datetime]:
    """When a budget last let a pod of a node go, by process and node."""
    return {(_process_at(view, entry.at), entry.node): entry.at for entry in view.releases if entry.budget}


def _settles(view: RunView, longest: float) -> Iterator[float]:
    """From the last end of a node to the wave that followed it."""
    since, ends = view.begun_at, sorted(end.at for end in view.ended)
    for wave in view.waves:
        before = bisect_right(ends, wave.begun_at)
        if before and since and ends[before - 1] >= max(since, _process_at(view, wave.begun_at)):
            seconds = _seconds(ends[before - 1], wave.begun_at)
            yield from (seconds,) if seconds <= longest + _SLACK else ()
        since = wave.begun_at


def _longest_settle(policy: Record) -> float:
    """In seconds; no limit where the journal does not say."""
    try:
        return Duration.parse(str(policy.get("settle_timeout")))
    except UsageError:
        return float("inf")


def _waits_between_waves(policy: Record) -> bool:
    """Whether the run waited for more than that waves settled."""
    gates = policy.get("gates") or {}
    windows = gates.get("windows") or {}
    return gates.get("soak", "0s") != "0s" or bool(windows.get("windows") or windows.get("freezes"))


def _waits_before_reboots(policy: Record) -> bool:
    """Whether drained nodes waited for a while, which is reckoned by the flag."""
    return str((policy.get("courtesy") or {}).get("reboot_delay", "0s")) != "0s"
