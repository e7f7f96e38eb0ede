"""A report made of a journal's records: all that it tells, what it does not, and where the time went."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median

from rollout.errors import InputError, UsageError
from rollout.model.plan import FORMAT_VERSION, PlannedNode
from rollout.model.progress import Outcome
from rollout.model.text import counted, printable
from rollout.planning.eligibility.schedule import Schedule
from rollout.planning.plan.document import read_policy
from rollout.report.lines import AbortedRecord, Record, RunRecord, ToldPlan, entries
from rollout.report.run_view import NodeView, RunView, run_view
from rollout.report.runs.model import (
    PART_OF,
    CommandReport,
    Ending,
    NodeReport,
    Part,
    PartReport,
    PhaseReport,
    RunReport,
    Stretch,
)


def report_of(
    journal: Iterable[Record], *, origin: str, unreadable: int = 0, is_being_written: bool | None = None
) -> RunReport:
    """Report on one run's records; `InputError` where they tell nothing. `origin` names them in errors.

    `unreadable` is how many lines of the journal were no whole objects; `is_being_written` is whether a process has it
    open, None where that is not known.
    """
    view = run_view(entries(journal))
    if view.begun_at is None or view.heard_at is None or not (view.records or view.plans):
        raise InputError(
            f"no run is recorded in {origin}", hint="Is it a journal? --set output.journal=FILE writes one."
        )
    whole = Stretch(view.begun_at, view.heard_at)
    nodes, policy = [*_nodes(view)], _policy(view)
    first = next((plan for plan in view.plans if isinstance(plan, ToldPlan)), ToldPlan())
    openings, servers = _openings_in(policy, whole), (plan.cluster.server for plan in view.plans)
    return RunReport(
        format_version=FORMAT_VERSION,
        run=_first((*(entry.run for entry in view.records), *(plan.plan_id for plan in view.plans))),
        ending=_ending(view, nodes, is_being_written=is_being_written),
        cluster=_first((*(str(entry.cluster.get("server", "")) for entry in view.records), *servers)),
        cluster_name=_first(entry.cluster_name or "" for entry in view.records),
        begun_at=whole.begin,
        heard_at=whole.end,
        seconds=round(whole.seconds, 3),
        commands=[*map(_command, view.commands)],
        policy=policy,
        gaps=[*_gaps(view, unreadable)],
        succeeded=sum(node.outcome == Outcome.SUCCEEDED for node in nodes),
        failed=view.failed,
        planned=first.summary,
        estimate=first.estimate,
        parts=_parts(whole, nodes, openings, view.interruptions),
        waves=view.waves,
        nodes=nodes,
        failures=view.failures,
        holds=sorted(view.holds, key=lambda hold: (hold.event.since, hold.event.node, hold.event.pod)),
        notices=view.notices,
        openings=openings or (),
        interruptions=view.interruptions,
        not_done=view.summary.why_not_done if view.summary else {},
        not_started=view.summary.why_not_started if view.summary else {},
        left_out=view.summary.left_out if view.summary else {},
        evictions=view.evictions,
    )


_NOT_PLANNED = PlannedNode("", "", "", "", "", 0, 0)


def _first(words: Iterable[str]) -> str:
    return next(filter(None, words), "")


def _policy(view: RunView) -> Mapping[str, object] | None:
    own = (entry.policy for entry in view.records[:1])
    return next(filter(None, (*own, *(plan.policy for plan in view.plans if isinstance(plan, ToldPlan)))), None)


def _command(entry: RunRecord | AbortedRecord) -> CommandReport:
    if isinstance(entry, AbortedRecord):
        return CommandReport("abort", entry.by, "", "", entry.at)
    return CommandReport(entry.command, entry.by, entry.version, entry.format_version, entry.at)


def _ending(view: RunView, nodes: Iterable[NodeReport], *, is_being_written: bool | None) -> Ending:
    if view.aborted:
        return Ending.ABORTED
    if not view.summary:
        if is_being_written is None:
            return Ending.OPEN
        return Ending.RUNNING if is_being_written else Ending.INTERRUPTED
    left = (
        view.summary.why_not_started
        or view.summary.why_not_done
        or any(node.outcome != Outcome.SUCCEEDED for node in nodes)
    )
    return Ending.INCOMPLETE if left else Ending.COMPLETED


def _nodes(view: RunView) -> Iterator[NodeReport]:
    """Those that were begun, in the order of their waves, then those that were only planned."""
    planned = {node.name: node for plan in reversed(view.plans) for wave in plan.waves for node in wave.nodes}
    ways = [view.nodes.get(name) or NodeView(name) for name in dict.fromkeys((*view.nodes, *planned))]
    by_wave = sorted(ways, key=lambda way: way.wave or len(view.waves) + 1)
    return (_node(way, planned.get(way.name, _NOT_PLANNED)) for way in by_wave)


def _node(way: NodeView, planned: PlannedNode) -> NodeReport:
    parts = _parts_of(way.phases)
    return NodeReport(
        node=way.name,
        wave=way.wave,
        outcome=way.end.outcome if way.end else "",
        seconds=round(sum(parts.values()), 3),
        phases=way.phases,
        parts=parts,
        evict=planned.evict,
        version_before=planned.running_version,
        version_staged=planned.staged_version,
        version_after=way.end.version if way.end else "",
        message=way.end.message if way.end else "",
    )


def _gaps(view: RunView, unreadable: int) -> Iterator[str]:
    """Yield what the journal does not tell, a sentence each."""
    versions = {entry.format_version for entry in view.records if entry.format_version}
    for version in sorted(versions - {FORMAT_VERSION}):
        shown = f"this program knows {FORMAT_VERSION}, and shows that much"
        yield f"The journal has the format {printable(version)}; {shown}."
    if not view.records:
        yield "The journal does not say who began the run: its first line is missing."
    if not view.plans:
        yield "The journal has no plan: what was to be done is not known."
    if damaged := unreadable + view.misunderstood:
        yield f"Left out of the journal: {counted(damaged, 'line')} cut off, damaged or not understood."
    if not (view.summary or view.aborted):
        yield "The journal has no end: the run goes on, or was interrupted. This is how far it had come."


def _parts_of(phases: Iterable[PhaseReport]) -> Mapping[Part, float]:
    """Seconds by part."""
    parts: dict[Part, float] = {}
    for phase in phases:
        part = PART_OF[phase.phase]
        parts[part] = round(parts.get(part, 0.0) + (phase.end - phase.begin).total_seconds(), 3)
    return parts


# What is longer than any rollout has clocks that lie.
_LONGEST = timedelta(days=400)


def _parts(
    whole: Stretch, nodes: Sequence[NodeReport], openings: Sequence[Stretch] | None, interruptions: Sequence[Stretch]
) -> Sequence[PartReport]:
    """Each part that took any time, in the order of a node's way; `openings` is None without windows.

    The run is cut at every moment at which anything changes; nodes that do several things at once share that time.
    """
    changes = defaultdict[datetime, Counter[Part]](Counter)
    for phase in (phase for node in nodes for phase in node.phases):
        changes[phase.begin][PART_OF[phase.phase]] += 1
        changes[phase.end][PART_OF[phase.phase]] -= 1
    stretches = (whole, *(openings or ()), *interruptions)
    edges = {at for stretch in stretches for at in (stretch.begin, stretch.end)}
    moments = sorted(at for at in edges | changes.keys() if whole.begin <= at <= whole.end)
    spent = defaultdict[Part, float](float)
    doing, has_worked = Counter[Part](), False
    for begin, end in pairwise(moments):
        doing.update(changes[begin])
        active, seconds = +doing, (end - begin).total_seconds()
        idle = None if active else _idle(begin, openings, interruptions, has_worked=has_worked)
        for part, count in active.items() if idle is None else ((idle, 1),):
            spent[part] += seconds * count / (active.total() or 1)
        has_worked = bool(active) or (has_worked and idle is not Part.INTERRUPTED)
    return [_part_report(part, round(spent[part], 3), nodes) for part in Part if spent[part]]


def _idle(
    at: datetime, openings: Sequence[Stretch] | None, interruptions: Sequence[Stretch], *, has_worked: bool
) -> Part:
    """Return what goes on while no node is in flight."""
    if any(stretch.begin <= at < stretch.end for stretch in interruptions):
        return Part.INTERRUPTED
    if openings is not None and not any(stretch.begin <= at < stretch.end for stretch in openings):
        return Part.WINDOW
    return Part.SETTLE if has_worked else Part.PREPARE


def _part_report(part: Part, seconds: float, nodes: Sequence[NodeReport]) -> PartReport:
    took = [(node.parts[part], node.node) for node in nodes if part in node.parts]
    if not took:
        return PartReport(part, seconds)
    longest, slowest = max(took, key=lambda pair: pair[0])
    return PartReport(part, seconds, round(median(seconds for seconds, _node in took), 3), longest, slowest)


def _openings_in(document: object, whole: Stretch) -> Sequence[Stretch] | None:
    """When the windows of these rules were open in the run; None where there are none to be read."""
    policy = read_policy(document)
    try:
        schedule = Schedule.of(policy.gates.windows) if policy else None
    except UsageError:
        return None
    if not schedule or whole.end - whole.begin > _LONGEST:
        return None
    openings = schedule.openings(whole.begin, whole.end)
    clipped = (Stretch(max(item.begin, whole.begin), min(item.end, whole.end)) for item in openings)
    return [stretch for stretch in clipped if stretch.begin < stretch.end]
