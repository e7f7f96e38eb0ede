"""Tables of a report. Callers escape the text."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from rollout.model.progress import Outcome
from rollout.model.text import (
    NOTHING,
    counted,
    grouped,
    joined,
    printable,
    shortened,
    version_change,
)
from rollout.model.timestamps import elapsed
from rollout.report.rules import changed_rules
from rollout.report.runs.model import Ending, NodeReport, Part, RunReport
from rollout.report.sentences import diagnosis_text, outcome_counts, reason_counts, why_blocked

NODE_PARTS = (Part.PREPARE, Part.DRAIN, Part.REBOOT, Part.READY, Part.GIVE_BACK)


class ReportTable(NamedTuple):
    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


def clock(at: datetime) -> str:
    return f"{at.astimezone():%H:%M:%S}"


def date_and_time(at: datetime) -> str:
    return f"{at.astimezone():%a %Y-%m-%d %H:%M:%S %Z}"


def title(report: RunReport) -> str:
    cluster = report.cluster_name or report.cluster.removeprefix("https://") or "an unknown cluster"
    return f"{cluster}, {report.begun_at.astimezone():%a %Y-%m-%d}"


def ending_text(report: RunReport) -> str:
    return "running or interrupted" if report.ending is Ending.OPEN else report.ending


def headline(report: RunReport) -> str:
    if report.ending is Ending.COMPLETED:
        nodes = counted(report.requested_count, "node")
        return f"completed: {nodes} done in {elapsed(report.seconds)}"
    counts = outcome_counts(
        str(report.succeeded),
        failed=report.failed,
        not_rebootable=len(report.not_done),
        aborted=len(report.aborted),
        not_started=len(report.not_started) - len(report.aborted),
    )
    return f"{ending_text(report)}: of {counted(report.requested_count, 'planned node')}, {counts}"


def facts(report: RunReport) -> Iterator[tuple[str, str]]:
    server = report.cluster.removeprefix("https://")
    cluster = f"{printable(report.cluster_name)} ({server})" if report.cluster_name else server
    yield "Cluster", cluster
    yield "Started", date_and_time(report.begun_at)
    has_ended = report.ending in (Ending.COMPLETED, Ending.INCOMPLETE, Ending.ABORTED)
    label = "Ended" if has_ended else "Last entry"
    yield label, f"{date_and_time(report.heard_at)}, after {elapsed(report.seconds)}"
    for entry in report.commands:
        version = f", rollout {entry.version}" if entry.version else ""
        yield (
            entry.command.capitalize() or "Command",
            f"by {entry.by} at {clock(entry.at)}{version}",
        )
    if report.left_out:
        yield "Left out", reason_counts(report.left_out)
    yield "Versions", _versions(report)
    estimated = report.estimate.seconds
    if estimated:
        wait_seconds = sum(
            share.seconds for share in report.parts if share.part in (Part.WINDOW, Part.INTERRUPTED)
        )
        exception = " (excluding closed windows and interruptions)" if wait_seconds else ""
        took = elapsed(report.seconds - wait_seconds)
        yield "Duration", f"estimated {elapsed(estimated)}, took {took}{exception}"
    if report.evictions:
        moved = counted(report.planned.pods_to_move, "pod")
        yield (
            "Pods",
            joined(
                "; ",
                f"{moved} had to be evicted: {counted(report.evictions, 'eviction')}",
                *_eviction_differences(report),
            ),
        )
    yield "Rules", changed_rules(report.policy or {}) or "all defaults"
    yield "Run", report.run


def _eviction_differences(report: RunReport) -> Iterator[str]:
    if not report.evicted:
        return
    evicted_by_node = Counter(pod.node for pod in report.evicted)
    on_undrained = 0
    on_failed = 0
    gone_before = 0
    arrived_later = 0
    for node in report.nodes:
        evicted = evicted_by_node[node.name]
        not_evicted = node.evict - evicted
        if evicted > node.evict:
            arrived_later += evicted - node.evict
        elif Part.DRAIN not in node.parts:
            on_undrained += not_evicted
        elif node.outcome == Outcome.DRAIN_FAILED:
            on_failed += not_evicted
        else:
            gone_before += not_evicted
    differences = (
        (on_undrained, "on nodes that were not drained"),
        (on_failed, "on nodes whose drain failed"),
        (gone_before, "gone before the drain reached them"),
        (arrived_later, "of the evicted pods were scheduled after the plan was made"),
    )
    for pods, clause in differences:
        if pods:
            yield f"{pods} {clause}"


def _versions(report: RunReport) -> str:
    number_by_change = Counter[tuple[str, str]]()
    for node in report.nodes:
        is_unchanged = not node.version_after and Part.REBOOT not in node.parts
        after = node.version_before if is_unchanged else node.version_after
        number_by_change[node.version_before, after] += 1
    texts = list[str]()
    for (before, after), number in number_by_change.items():
        change = f"{before or '?'} unchanged" if before == after else version_change(before, after)
        texts.append(f"{change} ({counted(number, 'node')})")
    return ", ".join(texts)


def part_table(report: RunReport) -> ReportTable:
    rows = [
        (
            share.part.heading,
            elapsed(share.seconds),
            f"{100 * share.seconds / report.seconds:.0f}%" if report.seconds else NOTHING,
            elapsed(share.median) if share.is_of_nodes else NOTHING,
            f"{elapsed(share.longest)} ({share.node})" if share.is_of_nodes else NOTHING,
        )
        for share in report.parts
    ]
    note = "If nodes did several things at the same time, each part gets its share of that time."
    headings = ("Part", "Time in the run", "Share", "Median per node", "Longest")
    return ReportTable("Where the time went", headings, rows, note)


def wave_table(report: RunReport) -> ReportTable:
    failed = {failure.node for failure in report.failures}
    rows = list[Sequence[str]]()
    for wave in report.waves:
        failed_count = sum(node in failed for node in wave.nodes)
        failures = f", {failed_count} failed" if failed_count else ""
        rows.append(
            (
                f"{wave.index} of {wave.of}",
                f"{len(wave.nodes)}{failures}",
                clock(wave.begun_at),
                elapsed(wave.seconds),
                elapsed(wave.estimate_seconds) if wave.estimate_seconds else NOTHING,
                elapsed(wave.settle_seconds) if wave.settle_seconds else NOTHING,
                shortened(wave.waited_for, most=2, separator="; ") or NOTHING,
                wave.because,
            )
        )
    headings = (
        "Wave",
        "Nodes",
        "Started",
        "Took",
        "Estimated",
        "Settled in",
        "Waited for",
        "Reason",
    )
    return ReportTable("Waves", headings, rows)


def hold_table(report: RunReport) -> ReportTable:
    longest_first = sorted(report.holds, key=lambda hold: -hold.seconds)
    holds_by_blocker = grouped((hold.event.blocker_text, hold) for hold in longest_first)
    headings = ("Blocked by", "Pods", "Nodes", "Longest", "Why", "Not evicted")
    rows = list[Sequence[str]]()
    for blocker, holds in holds_by_blocker.items():
        longest = holds[0]
        pods = list(dict.fromkeys(hold.event.pod for hold in holds))
        nodes = list(dict.fromkeys(hold.event.node for hold in holds))
        not_evicted = sum(not hold.released for hold in holds)
        rows.append(
            (
                blocker,
                shortened(pods, most=3),
                shortened(nodes, most=3),
                elapsed(longest.seconds),
                why_blocked(longest.event),
                str(not_evicted) if not_evicted else NOTHING,
            )
        )
    note = "For each eviction, use -o json."
    return ReportTable("Blocked evictions", headings, rows, note)


def figure_tables(report: RunReport) -> Iterator[ReportTable]:
    if report.holds:
        yield hold_table(report)
    if len(report.waves) > 1:
        yield wave_table(report)


def eviction_table(report: RunReport, most_rows: int) -> ReportTable:
    rows = [
        (
            pod.node,
            pod.pod,
            pod.owner or NOTHING,
            clock(pod.evicted_at),
            NOTHING if pod.seconds is None else elapsed(pod.seconds),
        )
        for pod in report.evicted[:most_rows]
    ]
    headings = ("Node", "Pod", "Owner", "Evicted at", "Gone after")
    hidden_count = len(report.evicted) - most_rows
    note = ""
    if hidden_count > 0:
        note = f"{counted(hidden_count, 'more pod')} in the JSON, and in rollout history -v."
    return ReportTable("Evicted pods", headings, rows, note)


def node_table(report: RunReport) -> ReportTable:
    headings = (
        "Node",
        "Wave",
        "Outcome",
        "Took",
        *(part.heading for part in NODE_PARTS),
        "Pods to evict",
        "Version",
    )
    rows = [_node_row(node, report) for node in report.nodes]
    return ReportTable("Nodes", headings, rows)


def _node_row(node: NodeReport, report: RunReport) -> Sequence[str]:
    wave = report.wave_at(node.wave)
    parts = list[str]()
    for part in NODE_PARTS:
        parts.append(elapsed(node.parts[part]) if part in node.parts else NOTHING)
    version = node.version_before
    if node.version_after:
        version = version_change(node.version_before, node.version_after)
    return (
        node.name,
        str(wave.index) if wave else NOTHING,
        outcome_text(node),
        elapsed(node.seconds) if node.seconds else NOTHING,
        *parts,
        str(node.evict),
        version,
    )


def outcome_text(node: NodeReport) -> str:
    if node.outcome:
        return node.outcome
    return f"in phase {node.phases[-1].phase}" if node.phases else "not started"


def failure_table(report: RunReport) -> ReportTable:
    recovered = {node.name for node in report.nodes if node.outcome == Outcome.SUCCEEDED}
    rows = list[Sequence[str]]()
    for failure in report.failures:
        end = "left cordoned" if failure.left_cordoned else ""
        if failure.node in recovered:
            end = "succeeded later"
        reason = "; ".join((failure.message, *diagnosis_text(failure.diagnosis)))
        outcome = joined(", ", f"{failure.outcome} in phase {failure.phase}", end)
        rows.append((failure.node, clock(failure.at), outcome, reason, failure.hint or NOTHING))
    other_nodes = [(("not done", reason), node) for node, reason in report.not_done.items()]
    aborted = report.aborted
    for node, reason in report.not_started.items():
        state = Outcome.ABORTED if node in aborted else "not started"
        other_nodes.append(((state, reason), node))
    for (state, reason), names in grouped(other_nodes).items():
        rows.append((shortened(names), NOTHING, state, reason, NOTHING))
    return ReportTable("Failures", ("Node", "At", "Outcome", "Why", "What to do"), rows)
