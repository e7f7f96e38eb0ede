"""The tables of a report, for pages and Markdown alike: headings and rows of text, which whoever shows them escapes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from rollout.model.progress import Moves, Outcome
from rollout.model.text import NOTHING, counted, elapsed, shortened, version_step
from rollout.report.rule_words import changed_rules
from rollout.report.runs.model import Ending, FailureReport, HoldReport, NodeReport, Part, RunReport, WaveReport
from rollout.report.sentences import demand
from rollout.report.summary import moves_text, tallied
from rollout.report.timeline import named_cluster

MOST_SLOWEST, MOST_HOLDS = 10, 50

PART_NAMES = {
    Part.PREPARE: "Prepare",
    Part.DRAIN: "Drain",
    Part.REBOOT: "Reboot",
    Part.READY: "Ready",
    Part.GIVE_BACK: "Give back",
    Part.SETTLE: "Settle",
    Part.WINDOW: "Outside the window",
    Part.INTERRUPTED: "Interrupted",
}
_MEANINGS = {
    Part.PREPARE: "last look at the host, gates, cordon",
    Part.DRAIN: "evictions, budgets, pods that end, volumes that detach",
    Part.REBOOT: "until the host answered with a new boot id",
    Part.READY: "until the kubelet of the new boot was Ready",
    Part.GIVE_BACK: "checks after the reboot, uncordon",
    Part.SETTLE: "between waves: moved pods available again, soak, gates",
    Part.WINDOW: "no node was in flight, and the window was closed",
    Part.INTERRUPTED: "no process worked on the run",
}
_ENDINGS = {
    Ending.COMPLETED: "completed",
    Ending.INCOMPLETE: "incomplete",
    Ending.ABORTED: "aborted",
    Ending.OPEN: "running or interrupted",
}


@dataclass(frozen=True, slots=True)
class Table:
    """A table under its heading; `note` says what the reader has to know of it."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def clock(at: datetime) -> str:
    """The time of the day, by the reader's clock."""
    return f"{at.astimezone():%H:%M:%S}"


def day(at: datetime) -> str:
    """Day, time and timezone, by the reader's clock."""
    return f"{at.astimezone():%a %Y-%m-%d %H:%M:%S %Z}"


def headline(report: RunReport) -> str:
    """How it ended, in a line."""
    return f"{_ENDINGS[report.ending]}: {outcome(report)}"


def outcome(report: RunReport) -> str:
    """How many nodes ended how."""
    figures = [f"{report.succeeded} of {counted(len(report.nodes), 'node')} succeeded"]
    figures += [f"{report.failed} failed"] if report.failed else []
    figures += [f"{len(report.not_done)} not done"] if report.not_done else []
    figures += [f"{len(report.not_started)} not started"] if report.not_started else []
    return ", ".join(figures)


def facts(report: RunReport) -> Iterator[tuple[str, str]]:
    """What the head says: who did what, when, by which rules, and what came of it."""
    yield "Cluster", named_cluster(report.cluster_name, report.cluster.removeprefix("https://"))
    yield "Begun", day(report.begun_at)
    word = "Last heard of" if report.ending is Ending.OPEN else "Ended"
    yield word, f"{day(report.heard_at)}, after {elapsed(report.seconds)}"
    for entry in report.commands:
        version = f", rollout {entry.version}" if entry.version else ""
        yield entry.command.capitalize() or "Command", f"by {entry.by} at {clock(entry.at)}{version}"
    yield "Nodes", outcome(report) + (f"; left out: {tallied(report.left_out)}" if report.left_out else "")
    if moves := moves_text(Moves(report.forecast.pods_to_move, report.evictions, report.moved_twice)):
        yield "Pods", moves
    yield "Rules", changed_rules(report.policy)


def part_table(report: RunReport) -> Table:
    """Where the time went."""
    rows = tuple(
        (
            PART_NAMES[part.part],
            elapsed(part.seconds),
            f"{share(part.seconds, report.seconds):.0f} %",
            elapsed(part.median) if part.node else NOTHING,
            f"{elapsed(part.longest)} ({part.node})" if part.node else NOTHING,
            _MEANINGS[part.part],
        )
        for part in report.parts
    )
    note = "Where nodes did several things at once, each has its share of that time."
    headings = ("Part", "Of the run", "Share", "Median of a node", "Longest", "What it is")
    return Table("Where the time went", headings, rows, note)


def share(seconds: float, whole: float) -> float:
    """Percent; 0 of nothing."""
    return 100 * seconds / whole if whole else 0.0


def forecast_table(report: RunReport) -> Table:
    """What the plan foresaw beside what came of it."""
    foreseen = report.forecast
    waits = sum(part.seconds for part in report.parts if part.part in (Part.WINDOW, Part.INTERRUPTED))
    rows = (
        ("Time", _if(foreseen.seconds, elapsed(foreseen.seconds)), elapsed(report.seconds - waits)),
        ("Nodes", str(foreseen.nodes), f"{report.succeeded} succeeded"),
        ("Waves", str(foreseen.waves), f"{len(report.waves)} begun"),
        ("Pods to move", str(foreseen.pods_to_move), NOTHING),
        ("Evictions", str(foreseen.evictions), _if(report.evictions, str(report.evictions))),
        ("Moved twice", str(max(0, foreseen.evictions - foreseen.pods_to_move)), str(report.moved_twice)),
    )
    basis = f"The forecast: {'; '.join(foreseen.basis)}. " if foreseen.basis else ""
    note = f"{basis}The time leaves out interruptions and closed windows."
    return Table("Forecast and result", ("", "Foreseen", "Result"), rows, note)


def _if(number: float, text: str) -> str:
    return text if number else NOTHING


def wave_table(report: RunReport) -> Table:
    """Each wave beside its forecast."""
    failed = {failure.node for failure in report.failures}
    rows = tuple(_wave_row(wave, failed) for wave in report.waves)
    headings = ("Wave", "Nodes", "Begun", "Took", "Foreseen", "Settled in", "Waited for", "Why together")
    return Table("Waves", headings, rows)


def _wave_row(wave: WaveReport, failed: set[str]) -> tuple[str, ...]:
    failures = sum(node in failed for node in wave.nodes)
    return (
        f"{wave.index} of {wave.of}",
        str(len(wave.nodes)) + (f", {failures} failed" if failures else ""),
        clock(wave.begun_at),
        elapsed(wave.seconds),
        elapsed(wave.estimate_seconds) if wave.estimate_seconds else NOTHING,
        elapsed(wave.settle_seconds) if wave.settle_seconds else NOTHING,
        shortened(wave.waited_for, 2, "; ") or NOTHING,
        wave.because,
    )


def budget_table(report: RunReport) -> Table:
    """What held evictions back, the longest first."""
    groups: dict[str, list[HoldReport]] = {}
    for hold in report.holds:
        groups.setdefault(hold.budget or "the API server", []).append(hold)
    ordered = sorted(groups.items(), key=lambda group: -max(hold.seconds for hold in group[1]))
    headings = ("Held by", "Pods", "Nodes", "Longest", "Together", "Not released")
    return Table("Held evictions, by budget", headings, tuple(_budget_row(name, holds) for name, holds in ordered))


def _budget_row(name: str, holds: Sequence[HoldReport]) -> tuple[str, ...]:
    left = sum(not hold.released for hold in holds)
    return (
        name,
        str(len({hold.pod for hold in holds})),
        shortened(list(dict.fromkeys(hold.node for hold in holds)), 3),
        elapsed(max(hold.seconds for hold in holds)),
        elapsed(sum(hold.seconds for hold in holds)),
        str(left) if left else NOTHING,
    )


def hold_table(report: RunReport) -> Table:
    """Each held pod, the longest first."""
    longest = sorted(report.holds, key=lambda hold: -hold.seconds)[:MOST_HOLDS]
    rows = tuple(_hold_row(hold) for hold in longest)
    left = len(report.holds) - len(rows)
    note = f"{left} shorter holds are left out here; --format json has them." if left else ""
    return Table("Held pods", ("Pod", "Node", "Since", "Waited", "Why", "Then"), rows, note)


def _hold_row(hold: HoldReport) -> tuple[str, ...]:
    owner = f" ({hold.owner})" if hold.owner else ""
    reason = hold.message if hold.needs is None or hold.has is None else demand(hold.needs, hold.has)
    return (
        f"{hold.pod}{owner}",
        hold.node,
        clock(hold.since),
        elapsed(hold.seconds),
        ": ".join(filter(None, (hold.budget, reason))),
        "could go" if hold.released else "was still held",
    )


def slowest_table(report: RunReport) -> Table:
    """The nodes that took longest, and what of it was more than usual."""
    usual = {part.part: part.median for part in report.parts}
    slowest = sorted((node for node in report.nodes if node.phases), key=lambda node: -node.seconds)[:MOST_SLOWEST]
    rows = tuple((node.node, elapsed(node.seconds), _because(node, usual, report)) for node in slowest)
    return Table("Slowest nodes", ("Node", "Took", "Most beyond the median"), rows)


def _because(node: NodeReport, usual: dict[Part, float], report: RunReport) -> str:
    part = max(node.parts, key=lambda part: (node.parts[part] - usual.get(part, 0.0), node.parts[part]))
    text = f"{PART_NAMES[part]} {elapsed(node.parts[part])}, median {elapsed(usual.get(part, 0.0))}"
    holds = [hold for hold in report.holds if hold.node == node.node] if part is Part.DRAIN else []
    if not holds:
        return text
    longest = max(holds, key=lambda hold: hold.seconds)
    return f"{text}; {longest.pod} held {elapsed(longest.seconds)} by {longest.budget or 'the API server'}"


def version_table(report: RunReport) -> Table:
    """Which versions the nodes had, and have."""
    groups: dict[tuple[str, str], list[str]] = {}
    for node in report.nodes:
        after = node.version_after or ("not known" if _has_rebooted(node) else node.version_before)
        groups.setdefault((node.version_before, after), []).append(node.node)
    rows = tuple(
        (before or "?", after or "?", str(len(names)), shortened(names, 3)) for (before, after), names in groups.items()
    )
    return Table("Versions", ("Before", "After", "Nodes", "Which"), rows)


def _has_rebooted(node: NodeReport) -> bool:
    """Whether its reboot was asked for."""
    return Part.REBOOT in node.parts


def node_table(report: RunReport) -> Table:
    """Every node in figures: the same as the timeline."""
    parts = (Part.PREPARE, Part.DRAIN, Part.REBOOT, Part.READY, Part.GIVE_BACK)
    headings = ("Node", "Wave", "Outcome", "Took", *(PART_NAMES[part] for part in parts), "Pods to evict", "Version")
    rows = tuple(
        (
            node.node,
            str(report.waves[node.wave - 1].index) if node.wave else NOTHING,
            said_outcome(node),
            _if(node.seconds, elapsed(node.seconds)),
            *(elapsed(node.parts[part]) if part in node.parts else NOTHING for part in parts),
            str(node.evict),
            version_step(node.version_before, node.version_after) if node.version_after else node.version_before,
        )
        for node in report.nodes
    )
    return Table("Nodes", headings, rows)


def said_outcome(node: NodeReport) -> str:
    """How a node ended, or where it stands."""
    if node.outcome:
        return node.outcome
    return f"in phase {node.phases[-1].phase}" if node.phases else "not started"


def failure_table(failures: Sequence[FailureReport]) -> Table:
    """Failures in a row each, where they are too many to tell all of each."""
    rows = tuple((item.node, clock(item.at), item.outcome, item.phase, item.message) for item in failures)
    return Table("More failures", ("Node", "At", "Outcome", "In phase", "Message"), rows)


def absences(report: RunReport) -> Table:
    """Nodes that were asked for and not done, and those whose turn did not come, by reason."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for word, nodes in (("not done", report.not_done), ("not started", report.not_started)):
        for node, why in nodes.items():
            reasons.setdefault((word, why), []).append(node)
    rows = tuple((shortened(names), str(len(names)), word, why) for (word, why), names in reasons.items())
    return Table("Not done", ("Nodes", "How many", "", "Why"), rows)


def is_success(node: NodeReport) -> bool:
    """Whether it is rebooted, proven and back."""
    return node.outcome == Outcome.SUCCEEDED
