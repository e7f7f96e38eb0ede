"""What journals tell of how long things took: drains, reboots, and until a wave had settled.

Moments are a wall clock's, which is set back or on at times, and goes on while a machine sleeps. What spans such a step
teaches nothing: phases that begin before those that they follow, a turn that took longer than its process has counted,
a wave that settled for longer than it may.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from itertools import pairwise

from rollout.model.progress import NodeFinished, Phase
from rollout.planning.plan.document import read_policy
from rollout.planning.play.pace import Past
from rollout.report.lines import Record, entries
from rollout.report.run_view import NodeView, RunView, run_view
from rollout.report.sentences import grouped


class _Span(StrEnum):
    """What takes time, in the order of `Past`; whatever else does is a pod, by its owner."""

    DRAIN = "drain"
    REBOOT = "reboot"
    SETTLE = "settle"
    ENDING = "ending"


# In seconds: how far apart threads may write what they see at one moment, and how late an end may be told of.
_SLACK = 5.0


def past_of(journals: Iterable[Iterable[Record]], cluster: str) -> Past:
    """Read what the journals of runs on a cluster tell; `cluster` is its UID. Those of others add nothing."""
    owners = grouped(pair for records in journals for pair in _of_one(tuple(records), cluster))
    drains, reboots, settles, endings = (tuple(owners.pop(what, ())) for what in _Span)
    return Past(drains, reboots, settles, endings, owners)


def _of_one(records: Sequence[Record], cluster: str) -> Iterator[tuple[str, float]]:
    """Yield how long each thing took, and each pod to end, by its owner."""
    first = records[0] if records else {}
    policy = read_policy(first.get("policy") or {})
    if policy is None or first.get("type") != "run" or (first.get("cluster") or {}).get("uid") != cluster:
        return
    view, gates = run_view(entries(records)), policy.gates
    waits_between_waves = gates.soak or gates.windows.windows or gates.windows.freezes
    freed = {(_process_at(view, entry.at), entry.node): entry.at for entry in view.releases if entry.budget}
    succeeded = ((node, node.end) for node in view.nodes.values() if node.end and node.end.succeeded)
    for node, end in sorted(succeeded, key=lambda pair: pair[1].at):
        process = _process_at(view, end.at)
        moments = _moments(node, end, process)
        if moments is None:
            continue
        begun, empty, asked = moments
        yield _Span.DRAIN, _seconds(begun, empty)
        yield _Span.REBOOT, _seconds(asked if policy.courtesy.reboot_delay else empty, end.at)
        if node.has_moved_pods:
            yield _Span.ENDING, _seconds(freed.get((process, node.name), begun), empty)
    if not waits_between_waves:
        yield from ((_Span.SETTLE, seconds) for seconds in _settles(view, policy.settle_timeout))
    yield from ((owner, seconds) for owner, times in view.pod_endings.items() for seconds in times)


def _moments(node: NodeView, end: NodeFinished, process: datetime) -> tuple[datetime, datetime, datetime] | None:
    """When it was begun, empty, and its host asked to reboot, under this one process; None where a clock lies."""
    phases = [phase for phase in node.phases if phase.begin >= process]
    # waits between cordon and drain are reckoned by their flags
    begun = next((phase.begin for phase in phases if phase.phase not in (Phase.CORDONED, Phase.DRAINED)), None)
    empty = next((phase.begin for phase in phases if phase.phase is Phase.DRAINED), None)
    moments = [*(phase.begin for phase in phases), end.at]
    is_in_order = all(_seconds(earlier, later) >= -_SLACK for earlier, later in pairwise(moments))
    if begun is None or empty is None or begun >= empty or not is_in_order:
        return None
    if end.seconds and _seconds(begun, end.at) > end.seconds + _SLACK:
        return None
    return begun, empty, next((phase.begin for phase in phases if phase.phase is Phase.REBOOTING), empty)


def _process_at(view: RunView, at: datetime) -> datetime:
    """When the process began that was at work then: what an earlier one has begun is not seen whole."""
    return max((record.at for record in view.records if record.at <= at), default=view.begun_at or at)


def _seconds(begin: datetime, end: datetime) -> float:
    return (end - begin).total_seconds()


def _settles(view: RunView, longest: float) -> Iterator[float]:
    """From the last end of a wave's nodes to the wave that followed it in one process."""
    for wave, following in pairwise(view.waves):
        seconds = _seconds(wave.ended_at, following.begun_at)
        is_whole = wave.ended_at > max(wave.begun_at, _process_at(view, following.begun_at))
        if is_whole and 0 <= seconds <= longest + _SLACK:
            yield seconds
