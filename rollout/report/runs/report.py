from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from operator import attrgetter
from statistics import median
from typing import NamedTuple

from rollout.errors import InputError, UsageError
from rollout.model.plan import FORMAT_VERSION, PlannedNode
from rollout.model.policy import Policy
from rollout.model.progress import NodeFinished, Outcome, Phase
from rollout.model.text import counted, grouped, printable
from rollout.model.timestamps import Interval
from rollout.planning.eligibility.windows import Schedule
from rollout.planning.plan.document import read_policy
from rollout.planning.play.pace import PastDurations
from rollout.report.lines import AbortedRecord, JournalHeader, Record, RecordedPlan, parse_records
from rollout.report.run_view import NodeView, RunView, run_view
from rollout.report.runs.model import (
    PART_OF,
    BlockedEviction,
    CommandReport,
    Ending,
    EvictionReport,
    NodeReport,
    Part,
    PartReport,
    RunReport,
)


def report_of(
    journal: Iterable[Record],
    *,
    origin: str,
    damaged_lines: int = 0,
    is_being_written: bool | None = None,
) -> RunReport:
    """Raise `InputError` about `origin` if the journal has no run.

    `is_being_written` is None if unknown.
    """
    view = run_view(parse_records(journal))
    period = _recorded_interval(view, origin)
    nodes = [*_node_reports(view)]
    policy = _recorded_policy(view)
    recorded_plans = (plan for plan in view.plans if isinstance(plan, RecordedPlan))
    first_plan = next(recorded_plans, RecordedPlan())
    openings = _window_openings(policy, period)
    return RunReport(
        format_version=FORMAT_VERSION,
        run=_run_id(view),
        ending=_ending(view, nodes, is_being_written=is_being_written),
        cluster=_api_server(view),
        cluster_name=_first_nonempty(header.cluster_name or "" for header in view.headers),
        begun_at=period.begin,
        heard_at=period.end,
        seconds=round(period.seconds, 3),
        commands=[*map(_command_report, view.commands)],
        policy=policy,
        gaps=[*_gaps(view, damaged_lines, is_running=bool(is_being_written))],
        succeeded=sum(node.outcome == Outcome.SUCCEEDED for node in nodes),
        failed=view.failed_count,
        planned=first_plan.summary,
        estimate=first_plan.estimate,
        parts=_part_reports(period, nodes, openings, view.interruptions),
        waves=view.waves,
        nodes=nodes,
        failures=view.failures,
        holds=sorted(view.blocked_evictions, key=_start_of_hold),
        notices=view.notices,
        openings=openings or (),
        interruptions=view.interruptions,
        not_done=view.summary.why_not_done if view.summary else {},
        not_started=view.summary.why_not_started if view.summary else {},
        aborted=sorted(view.summary.aborted) if view.summary else [],
        skipped=view.summary.why_skipped if view.summary else {},
        left_out=view.summary.left_out if view.summary else {},
        evictions=view.eviction_count,
        evicted=sorted(_eviction_reports(view), key=attrgetter("evicted_at", "node", "pod")),
    )


def _recorded_interval(view: RunView, origin: str) -> Interval:
    if view.begun_at is None or view.last_at is None or not (view.headers or view.plans):
        raise InputError(
            f"no run is recorded in {origin}",
            hint="Is this file a journal? --set output.journal=FILE writes one.",
        )
    return Interval(view.begun_at, view.last_at)


def _run_id(view: RunView) -> str:
    recorded = [header.run for header in view.headers]
    planned = [plan.plan_id for plan in view.plans]
    return _first_nonempty([*recorded, *planned])


def _api_server(view: RunView) -> str:
    recorded = [str(header.cluster.get("server", "")) for header in view.headers]
    planned = [plan.cluster.server for plan in view.plans]
    return _first_nonempty([*recorded, *planned])


def _start_of_hold(hold: BlockedEviction) -> tuple[datetime, str, str]:
    return hold.event.since, hold.event.node, hold.event.pod


def _eviction_reports(view: RunView) -> Iterator[EvictionReport]:
    for event in view.evicted:
        for pod in event.pods:
            yield EvictionReport(
                node=event.node,
                pod=pod.pod,
                owner=pod.owner,
                evicted_at=pod.evicted_at,
                seconds=pod.seconds,
            )


_NOT_PLANNED = PlannedNode(
    "", boot_id="", node_uid="", running_version="", staged_version="", evict=0, leave=0
)


def _first_nonempty(texts: Iterable[str]) -> str:
    return next(filter(None, texts), "")


def _recorded_policy(view: RunView) -> Mapping[str, object] | None:
    if view.headers and view.headers[0].policy:
        return view.headers[0].policy
    for plan in view.plans:
        if isinstance(plan, RecordedPlan) and plan.policy:
            return plan.policy
    return None


def _command_report(entry: JournalHeader | AbortedRecord) -> CommandReport:
    if isinstance(entry, AbortedRecord):
        return CommandReport("abort", by=entry.by, version="", format_version="", at=entry.at)
    return CommandReport(
        entry.command, entry.by, entry.version, format_version=entry.format_version, at=entry.at
    )


def _ending(view: RunView, nodes: Iterable[NodeReport], *, is_being_written: bool | None) -> Ending:
    if view.aborted:
        return Ending.ABORTED
    if not view.summary:
        if is_being_written is None:
            return Ending.OPEN
        return Ending.RUNNING if is_being_written else Ending.INTERRUPTED
    skipped = view.summary.why_skipped
    are_all_done = all(node.outcome == Outcome.SUCCEEDED or node.name in skipped for node in nodes)
    has_nodes_left = view.summary.why_not_started or view.summary.why_not_done
    return Ending.COMPLETED if are_all_done and not has_nodes_left else Ending.INCOMPLETE


def _node_reports(view: RunView) -> Iterator[NodeReport]:
    planned = dict[str, PlannedNode]()
    # The first plan with a node counts.
    for plan in reversed(view.plans):
        for wave in plan.waves:
            planned.update((node.name, node) for node in wave.nodes)
    names = dict.fromkeys((*view.nodes, *planned))
    nodes = [view.nodes.get(name) or NodeView(name) for name in names]
    # Nodes that were not started have the wave 0.
    after_all_waves = len(view.waves) + 1
    nodes.sort(key=lambda node: node.wave or after_all_waves)
    return (_node_report(node, planned.get(node.name, _NOT_PLANNED)) for node in nodes)


def _node_report(node: NodeView, planned: PlannedNode) -> NodeReport:
    parts: dict[Part, float] = {}
    for phase in node.ended_phases:
        part = PART_OF[phase.phase]
        parts[part] = round(parts.get(part, 0.0) + (phase.end - phase.begin).total_seconds(), 3)
    return NodeReport(
        node=node.name,
        wave=node.wave,
        outcome=node.end.outcome if node.end else "",
        seconds=round(sum(parts.values()), 3),
        phases=node.ended_phases,
        parts=parts,
        evict=planned.evict,
        version_before=planned.running_version,
        version_staged=node.version_staged or planned.staged_version,
        version_after=node.end.version if node.end else "",
        message=node.end.message if node.end else "",
    )


def _gaps(view: RunView, damaged_lines: int, *, is_running: bool) -> Iterator[str]:
    versions = {header.format_version for header in view.headers if header.format_version}
    for version in sorted(versions - {FORMAT_VERSION}):
        known = f"this report shows only what format {FORMAT_VERSION} contains"
        yield f"The journal has the format {printable(version)}; {known}."
    if not view.headers:
        yield "The journal does not say who started the run: its first line is missing."
    if not view.plans:
        yield "The journal has no plan, so the report cannot show what was planned."
    left_out = damaged_lines + view.unknown_record_count
    if left_out:
        yield (
            f"Left out of the journal: {counted(left_out, 'line')} cut off, damaged or unknown to"
            " this version of rollout."
        )
    if view.summary or view.aborted:
        return
    if is_running:
        yield "The run has not ended. This report shows its progress so far."
    else:
        yield (
            "The journal has no end: the run has not ended, or was interrupted. This report shows"
            " its progress so far."
        )


# A longer run comes from a wrong clock.
_LONGEST_RUN = timedelta(days=400)


def _part_reports(
    period: Interval,
    nodes: Sequence[NodeReport],
    openings: Sequence[Interval] | None,
    interruptions: Sequence[Interval],
) -> Sequence[PartReport]:
    """Nodes in several parts at once share the time."""
    changes = _changes_by_time(nodes)
    times = set(changes)
    for interval in (period, *(openings or ()), *interruptions):
        times |= {interval.begin, interval.end}
    times_in_run = sorted(at for at in times if period.begin <= at <= period.end)
    seconds_by_part = defaultdict[Part, float](float)
    nodes_by_part = Counter[Part]()
    # Since the last interruption.
    has_worked = False
    for begin, end in pairwise(times_in_run):
        nodes_by_part.update(changes[begin])
        seconds = _seconds(begin, end)
        # `+` drops parts without nodes.
        active_parts = +nodes_by_part
        if active_parts:
            for part, count in active_parts.items():
                seconds_by_part[part] += seconds * count / active_parts.total()
            has_worked = True
        else:
            idle_part = _idle_part(begin, openings, interruptions, has_worked=has_worked)
            seconds_by_part[idle_part] += seconds
            has_worked = has_worked and idle_part is not Part.INTERRUPTED
    return [
        _part_report(part, round(seconds_by_part[part], 3), nodes)
        for part in Part
        if seconds_by_part[part]
    ]


def _changes_by_time(nodes: Iterable[NodeReport]) -> defaultdict[datetime, Counter[Part]]:
    changes = defaultdict[datetime, Counter[Part]](Counter)
    for node in nodes:
        for phase in node.phases:
            part = PART_OF[phase.phase]
            changes[phase.begin][part] += 1
            changes[phase.end][part] -= 1
    return changes


def _idle_part(
    at: datetime,
    openings: Sequence[Interval] | None,
    interruptions: Sequence[Interval],
    *,
    has_worked: bool,
) -> Part:
    if any(interruption.begin <= at < interruption.end for interruption in interruptions):
        return Part.INTERRUPTED
    are_openings_known = openings is not None
    is_open = any(opening.begin <= at < opening.end for opening in openings or ())
    if are_openings_known and not is_open:
        return Part.WINDOW
    return Part.SETTLE if has_worked else Part.PREPARE


def _part_report(part: Part, seconds_of_run: float, nodes: Sequence[NodeReport]) -> PartReport:
    seconds_by_node = {node.name: node.parts[part] for node in nodes if part in node.parts}
    if not seconds_by_node:
        return PartReport(part, seconds_of_run)
    slowest_node, longest = max(seconds_by_node.items(), key=lambda entry: entry[1])
    return PartReport(
        part,
        seconds_of_run,
        median=round(median(seconds_by_node.values()), 3),
        longest=longest,
        node=slowest_node,
    )


def _window_openings(policy_document: object, period: Interval) -> Sequence[Interval] | None:
    policy = read_policy(policy_document)
    if policy is None:
        return None
    try:
        schedule = Schedule.of(policy.gates.windows)
    except UsageError:
        # Another version may know more kinds of windows.
        return None
    if not schedule or period.end - period.begin > _LONGEST_RUN:
        return None
    openings_in_run = list[Interval]()
    for opening in schedule.openings(period.begin, period.end):
        begin = max(opening.begin, period.begin)
        end = min(opening.end, period.end)
        if begin < end:
            openings_in_run.append(Interval(begin, end))
    return openings_in_run


class _DurationKind(StrEnum):
    """An ending is the time in which evicted pods terminate."""

    DRAIN = "drain"
    REBOOT = "reboot"
    SETTLE = "settle"
    ENDING = "ending"
    ENDING_OF_OWNER = "ending-of-owner"


class _PastDuration(NamedTuple):
    kind: _DurationKind
    seconds: float
    # The owner of the pods that ended; only with `ENDING_OF_OWNER`.
    owner: str = ""


# Threads may report one moment this many seconds apart.
_SLACK = 5.0


def read_past(journals: Iterable[Iterable[Record]], cluster_uid: str) -> PastDurations:
    durations = list[_PastDuration]()
    for records in journals:
        durations += _run_durations(tuple(records), cluster_uid)
    by_kind = grouped((duration.kind, duration.seconds) for duration in durations)
    by_owner = grouped(
        (duration.owner, duration.seconds)
        for duration in durations
        if duration.kind is _DurationKind.ENDING_OF_OWNER
    )
    return PastDurations(
        drains=tuple(by_kind.get(_DurationKind.DRAIN, ())),
        reboots=tuple(by_kind.get(_DurationKind.REBOOT, ())),
        settles=tuple(by_kind.get(_DurationKind.SETTLE, ())),
        endings=tuple(by_kind.get(_DurationKind.ENDING, ())),
        endings_by_owner=by_owner,
    )


def _run_durations(records: Sequence[Record], cluster_uid: str) -> Iterator[_PastDuration]:
    header = records[0] if records else {}
    if header.get("type") != "run":
        return
    policy = read_policy(header.get("policy") or {})
    cluster = header.get("cluster") or {}
    if policy is None or cluster.get("uid") != cluster_uid:
        return
    view = run_view(parse_records(records))
    yield from _node_durations(view, policy)
    gates = policy.gates
    # These rules add to the time between waves.
    waits_between_waves = gates.soak or gates.windows.windows or gates.windows.freezes
    if not waits_between_waves:
        for seconds in _settle_seconds(view, policy.settle_timeout):
            yield _PastDuration(_DurationKind.SETTLE, seconds)
    for owner, endings in view.pod_endings.items():
        for seconds in endings:
            yield _PastDuration(_DurationKind.ENDING_OF_OWNER, seconds, owner)


def _node_durations(view: RunView, policy: Policy) -> Iterator[_PastDuration]:
    released_at = {
        (_process_start(view, entry.at), entry.node): entry.at
        for entry in view.releases
        if entry.budget
    }
    for node in view.nodes.values():
        end = node.end
        if end is None or not end.succeeded:
            continue
        process_start = _process_start(view, end.at)
        times = _node_times(node, end, process_start)
        if times is None:
            continue
        # Other drains do not wait for pods to complete.
        if not node.has_awaited_pods:
            drain = _seconds(times.drain_begun, times.drained)
            yield _PastDuration(_DurationKind.DRAIN, drain)
        # A configured delay after the drain is no part of the reboot.
        reboot_begun = times.reboot_requested if policy.courtesy.reboot_delay else times.drained
        yield _PastDuration(_DurationKind.REBOOT, _seconds(reboot_begun, end.at))
        if node.has_evicted_pods and not node.has_awaited_pods:
            last_eviction = released_at.get((process_start, node.name), times.drain_begun)
            ending = _seconds(last_eviction, times.drained)
            yield _PastDuration(_DurationKind.ENDING, ending)


class _NodeTimes(NamedTuple):
    drain_begun: datetime
    drained: datetime
    reboot_requested: datetime


def _node_times(node: NodeView, end: NodeFinished, process_start: datetime) -> _NodeTimes | None:
    """Return None if the times are uncertain, as after a change of the clock."""
    phases = [phase for phase in node.ended_phases if phase.begin >= process_start]
    # A delay after the cordon is no part of the drain.
    drain_begun = next(
        (phase.begin for phase in phases if phase.phase not in (Phase.CORDONED, Phase.DRAINED)),
        None,
    )
    drained = next((phase.begin for phase in phases if phase.phase is Phase.DRAINED), None)
    if drain_begun is None or drained is None or drain_begun >= drained:
        return None
    moments = [*(phase.begin for phase in phases), end.at]
    is_in_order = all(_seconds(earlier, later) >= -_SLACK for earlier, later in pairwise(moments))
    if not is_in_order:
        return None
    # `end.seconds` is 0 if unknown.
    if end.seconds and _seconds(drain_begun, end.at) > end.seconds + _SLACK:
        return None
    reboots = [phase.begin for phase in phases if phase.phase is Phase.REBOOTING]
    return _NodeTimes(drain_begun, drained, reboot_requested=reboots[0] if reboots else drained)


def _process_start(view: RunView, at: datetime) -> datetime:
    return max(
        (header.at for header in view.headers if header.at <= at), default=view.begun_at or at
    )


def _seconds(begin: datetime, end: datetime) -> float:
    return (end - begin).total_seconds()


def _settle_seconds(view: RunView, settle_timeout: float) -> Iterator[float]:
    for wave, next_wave in pairwise(view.waves):
        seconds = _seconds(wave.ended_at, next_wave.begun_at)
        # Without an ended node, `ended_at` is when the wave began.
        has_ended_node = wave.ended_at > wave.begun_at
        is_same_process = wave.ended_at > _process_start(view, next_wave.begun_at)
        is_plausible = 0 <= seconds <= settle_timeout + _SLACK
        if has_ended_node and is_same_process and is_plausible:
            yield seconds
