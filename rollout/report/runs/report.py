"""A report made of a journal's records: all that it tells, and what it does not."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rollout.errors import InputError
from rollout.model.plan import FORMAT_VERSION
from rollout.model.progress import Outcome
from rollout.model.text import counted, printable
from rollout.report.history import RunHistory, replay
from rollout.report.lines import Record, ToldNode, entries
from rollout.report.runs.model import Ending, FailureReport, Forecast, NodeReport, RunReport, Stretch
from rollout.report.runs.trace import Trace, openings_in, part_reports, parts_of, pieces, traced
from rollout.report.summary import findings_text


def report_of(journal: Sequence[Record], *, origin: str, unreadable: int = 0) -> RunReport:
    """The report of one run's records; `InputError` where they tell nothing. `origin` names them in errors.

    `unreadable` is how many lines of the journal were no whole objects.
    """
    trace, history = traced(entries(journal)), replay(journal)
    if trace.begun_at is None or trace.heard_at is None or not (trace.commands or trace.plans):
        raise InputError(
            f"no run is recorded in {origin}", hint="Is it a journal? --set output.journal=FILE writes one."
        )
    whole = Stretch(trace.begun_at, trace.heard_at)
    nodes, policy = tuple(_nodes(trace)), _policy(trace, history)
    openings = openings_in(_windows(policy), whole)
    cut = pieces(whole, nodes, openings, trace.interruptions)
    return RunReport(
        format_version=FORMAT_VERSION,
        run=_run(trace, history),
        ending=_ending(history, nodes),
        cluster=history.cluster or next((plan.cluster.server for plan in trace.plans), ""),
        cluster_name=history.cluster_name,
        begun_at=whole.begin,
        heard_at=whole.end,
        seconds=round(whole.seconds, 3),
        commands=tuple(trace.commands),
        policy=policy,
        gaps=tuple(_gaps(trace, history, unreadable)),
        succeeded=sum(node.outcome == Outcome.SUCCEEDED for node in nodes),
        failed=sum(_has_failed(node) for node in nodes),
        forecast=_forecast(trace),
        parts=part_reports(cut, nodes),
        waves=tuple(trace.waves),
        nodes=nodes,
        failures=tuple(_failures(trace)),
        holds=tuple(sorted(trace.holds.values(), key=lambda hold: (hold.since, hold.node, hold.pod))),
        notices=tuple(trace.notices),
        openings=openings or (),
        interruptions=tuple(trace.interruptions),
        not_done=history.not_done,
        not_started=history.not_started,
        left_out=history.left_out,
        evictions=history.evictions,
        moved_twice=history.moved_twice,
    )


def _run(trace: Trace, history: RunHistory) -> str:
    return history.run or next((plan.plan_id for plan in trace.plans), "")


def _policy(trace: Trace, history: RunHistory) -> Mapping[str, object] | None:
    policy = history.policy or next((plan.policy for plan in trace.plans if plan.policy), None)
    return policy if isinstance(policy, dict) else None


def _windows(policy: Mapping[str, object] | None) -> object:
    """With the freezes, as the policy writes them, whatever that is."""
    value: object = policy
    for name in ("gates", "windows"):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _has_failed(node: NodeReport) -> bool:
    return node.outcome not in ("", Outcome.SUCCEEDED, Outcome.SKIPPED)


def _ending(history: RunHistory, nodes: Iterable[NodeReport]) -> Ending:
    if history.aborted:
        return Ending.ABORTED
    if not history.ended:
        return Ending.OPEN
    left = history.not_started or history.not_done or any(node.outcome != Outcome.SUCCEEDED for node in nodes)
    return Ending.INCOMPLETE if left else Ending.COMPLETED


def _nodes(trace: Trace) -> Iterator[NodeReport]:
    """Those that were begun, in the order of their waves, then those that were only planned."""
    names = dict.fromkeys((*trace.wave_of, *trace.phases, *trace.finished, *trace.planned))
    by_wave = sorted(names, key=lambda name: trace.wave_of.get(name) or len(trace.waves) + 1)
    return (_node(trace, name) for name in by_wave)


def _node(trace: Trace, name: str) -> NodeReport:
    phases, end = tuple(trace.phases.get(name, ())), trace.finished.get(name)
    planned = trace.planned.get(name) or ToldNode(name)
    parts = parts_of(phases)
    return NodeReport(
        node=name,
        wave=trace.wave_of.get(name, 0),
        outcome=end.outcome if end else "",
        seconds=round(sum(parts.values()), 3),
        phases=phases,
        parts=parts,
        evict=planned.evict,
        version_before=planned.running_version,
        version_staged=planned.staged_version,
        version_after=end.version if end else "",
        message=end.message if end else "",
    )


def _failures(trace: Trace) -> Iterator[FailureReport]:
    for end in trace.failures:
        last = trace.finished.get(end.node)
        yield FailureReport(
            *(end.at, end.node, end.outcome, end.phase, end.message, end.hint, end.left_cordoned),
            seen=tuple(findings_text(end.findings)),
            recovered=last is not None and last.outcome == Outcome.SUCCEEDED,
        )


def _forecast(trace: Trace) -> Forecast:
    if not trace.plans:
        return Forecast()
    first = trace.plans[0]
    estimate, summary = first.estimate, first.summary
    return Forecast(
        *(estimate.seconds, estimate.basis, summary.nodes, summary.waves),
        pods_to_move=summary.pods_to_move,
        evictions=summary.expected_evictions,
    )


def _gaps(trace: Trace, history: RunHistory, unreadable: int) -> Iterator[str]:
    """What the journal does not tell, a sentence each."""
    versions = {entry.format_version for entry in trace.commands if entry.format_version}
    for version in sorted(versions - {FORMAT_VERSION}):
        shown = f"this program knows {FORMAT_VERSION}, and shows that much"
        yield f"The journal has the format {printable(version)}; {shown}."
    if not trace.commands:
        yield "The journal does not say who began the run: its first line is missing."
    if not trace.plans:
        yield "The journal has no plan: what was to be done is not known."
    if unreadable:
        verb = "is" if unreadable == 1 else "are"
        yield f"{counted(unreadable, 'line')} of the journal {verb} cut off or damaged, and left out."
    if trace.misunderstood:
        yield f"{counted(trace.misunderstood, 'record')} of the journal could not be understood, and left out."
    if not (history.ended or history.aborted):
        yield "The journal has no end: the run goes on, or was interrupted. This is how far it had come."
