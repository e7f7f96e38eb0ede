"""The end of a run: what became of each planned node, what to look at, and last what was not done."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tabulate import tabulate

from rollout.model.plan import ExclusionReason, PlannedNode, RolloutPlan
from rollout.model.progress import Findings, Moves, NodeCondition, NodeResult, NotDone, NotStarted, Outcome, RunResult
from rollout.model.text import NOTHING, counted, elapsed, or_nothing, printable, version_step

_HEADERS = ("NODE", "OUTCOME", "VERSION", "TOOK")
_MOST_NODES = 5
CANNOT_BE_REBOOTED = "cannot be rebooted"


def summary_text(plan: RolloutPlan, result: RunResult, *, operating: bool = False) -> str:
    """The table, the failures with their hints, and the ending; `operating`: a next pass goes on by itself."""
    planned = {node.name: node for node in plan.nodes}
    rows = [_finished_row(node, planned) for node in result.finished]
    rows += [_absent_row(node, "skipped") for node in result.skipped]
    rows += [_absent_row(node, "not started") for node in result.not_started]
    headers: Sequence[str] = _HEADERS
    if any(node.pool for node in plan.nodes):
        headers, rows = _with_pools(rows, plan)
    table = [tabulate(rows, headers=headers, tablefmt="plain", disable_numparse=True)] if rows else []
    parts = [*table, *_failures(result.failed), *_absences(result)]
    return "\n\n".join((*parts, "\n".join(_ending(result, operating=operating))))


def _with_pools(rows: Sequence[tuple[str, ...]], plan: RolloutPlan) -> tuple[Sequence[str], list[tuple[str, ...]]]:
    """Headers and rows with the nodes' pools."""
    pools = {printable(node.name): printable(node.pool) for node in plan.nodes}
    named = [(node, or_nothing(pools.get(node, "")), *rest) for node, *rest in rows]
    return (_HEADERS[0], "POOL", *_HEADERS[1:]), named


def _ending(result: RunResult, *, operating: bool) -> Iterable[str]:
    """What moved, the figures, the nodes that nobody could take, and the next step."""
    if text := moves_text(result.moves):
        yield f"{text}."
    yield f"{counts(result)}."
    yield from _not_done_lines(result.not_done)
    if step := next_step(result, operating=operating):
        yield step


def moves_text(moves: Moves) -> str:
    """How many evictions there were for how many pods, without a full stop; empty where there were none."""
    if not moves.evictions:
        return ""
    twice = f", {moves.moved_twice} of them of pods that came during the run" if moves.moved_twice else ""
    return f"{counted(moves.pods_to_move, 'pod')} had to move: {counted(moves.evictions, 'eviction')}{twice}"


def counts(result: RunResult) -> str:
    """The figures, without a full stop."""
    figures = [f"{counted(len(result.succeeded), 'node')} succeeded"]
    figures += [f"{len(result.failed)} failed"] if result.failed else []
    figures += [not_done_count(result.not_done)] if result.not_done else []
    figures += [f"{len(result.not_started)} not started"] if result.not_started else []
    return ", ".join(figures) + (f"; left out: {tallied(result.left_out)}" if result.left_out else "")


def not_done_count(not_done: Sequence[NotDone], words: str = "not done") -> str:
    """How many nodes were not done, and how many of them for which reason; before a run: `cannot be rebooted`."""
    return f"{len(not_done)} {words} ({tallied(Counter(node.reason for node in not_done))})"


def tallied(reasons: Mapping[str, int]) -> str:
    """`1 paused, 3 no-update`."""
    return ", ".join(f"{number} {printable(reason)}" for reason, number in reasons.items())


def rehearsal_ending(result: RunResult) -> str:
    """What would be left after the real run; empty where that is nothing."""
    absences = [not_done_count(result.not_done, CANNOT_BE_REBOOTED)] if result.not_done else []
    absences += [f"left out: {tallied(result.left_out)}"] if result.left_out else []
    lines = [f"Of the requested nodes: {'; '.join(absences)}."] if absences else []
    step = ["See: rollout doctor"] if result.not_done else []
    return "\n".join((*lines, *_not_done_lines(result.not_done), *step))


def _not_done_lines(not_done: Sequence[NotDone]) -> Iterable[str]:
    for node in not_done[:_MOST_NODES]:
        yield f"  {printable(node.node)}: {node.reason}, {printable(node.message)}"
    if len(not_done) > _MOST_NODES:
        yield f"  and {len(not_done) - _MOST_NODES} more: rollout status"


def next_step(result: RunResult, *, operating: bool) -> str:
    """What to look at, and what goes on then; empty where nothing is left."""
    return _next_pass(result) if operating else _next_step(result)


def _next_pass(result: RunResult) -> str:
    """What is left for persons to look at, and what is not; empty where nothing is left."""
    steps = ["See: rollout doctor."] if len(result.not_done) > len(result.deferred) else []
    steps += ["See: rollout status --run."] if result.failed else []
    steps += ["The next pass takes up what is left."] if result.not_started or result.deferred else []
    return " ".join(steps)


def _next_step(result: RunResult) -> str:
    """What to look at, and what goes on once that is mended; empty where nothing is left."""
    if any(node.outcome is Outcome.FENCED for node in result.failed):
        return "See: rollout status --run; then: rollout resume"
    if any(node.outcome is not Outcome.STRANDED for node in result.failed) or result.failed_before:
        go_on = "rollout resume --retry-failed"
    elif result.failed:
        go_on = "rollout resume"
    else:
        go_on = "rollout resume" if result.not_started else "rollout apply"
    if result.deferred and len(result.not_done) == len(result.failed_before) + len(result.deferred):
        return f"Go on from another node: {go_on}"
    if result.not_done and all(node.reason is ExclusionReason.VERSION_HELD for node in result.not_done):
        return "See: rollout status; once you know the cause: rollout release VERSION"
    if len(result.not_done) > len(result.failed_before):
        return f"See: rollout doctor; then: {go_on}"
    return "" if result.complete else f"Go on: {go_on}"


def _finished_row(result: NodeResult, planned: Mapping[str, PlannedNode]) -> tuple[str, ...]:
    node = planned.get(result.node)
    return (printable(result.node), result.outcome, _version(result, node), elapsed(result.seconds))


def _version(result: NodeResult, planned: PlannedNode | None) -> str:
    before = planned.running_version if planned else ""
    if result.version and before and result.version != before:
        return version_step(before, result.version)
    return or_nothing(result.version or before)


def _absent_row(node: NotStarted, word: str) -> tuple[str, ...]:
    return (printable(node.node), word, NOTHING, NOTHING)


def _failures(failed: Iterable[NodeResult]) -> Iterable[str]:
    return ("\n".join(_failure_lines(result)) for result in failed)


def _failure_lines(result: NodeResult) -> Iterable[str]:
    yield f"{printable(result.node)} {_verb(result)}: {printable(result.message)}"
    yield from (f"  {text}" for text in findings_text(result.findings))
    if result.hint:
        yield f"  hint: {printable(result.hint)}"
    if result.left_cordoned and result.outcome is not Outcome.STRANDED:
        yield (
            "  It was left cordoned. Once it is fixed: rollout resume --retry-failed, "
            f"or kubectl uncordon {printable(result.node)}"
        )


def findings_text(findings: Findings) -> Iterable[str]:
    """What was seen of a node that failed, a line each."""
    if findings.ssh_error:
        yield f"last SSH error: {printable(findings.ssh_error)}"
    yield from _conditions(findings.conditions)
    if findings.console:
        yield f"console: {printable(findings.console)}"


def _conditions(conditions: Iterable[NodeCondition]) -> Iterable[str]:
    """Bad conditions, those that say the same of the Node in one line: a silent kubelet leaves them all alike."""
    alike: dict[NodeCondition, list[str]] = {}
    for condition in conditions:
        alike.setdefault(replace(condition, type=""), []).append(printable(condition.type))
    for condition, types in alike.items():
        why = ": ".join(printable(part) for part in (condition.reason, condition.message) if part)
        since = f" since {printable(condition.since)}" if condition.since else ""
        subject = f"Node condition {types[0]} is" if len(types) == 1 else f"Node conditions {', '.join(types)} are"
        yield f"{subject} {printable(condition.status)}{since}" + (f": {why}" if why else "")


def _verb(result: NodeResult) -> str:
    if result.outcome is Outcome.SKIPPED:
        return "was skipped"
    return f"failed ({result.outcome}, last phase {result.phase})"


def _absences(result: RunResult) -> Iterable[str]:
    """Planned nodes that were not begun, by reason, but for those that the ending names."""
    in_ending = {node.node for node in result.not_done}
    by_reason: dict[str, list[str]] = {}
    for node in (*result.skipped, *result.not_started):
        if node.node in in_ending:
            continue
        by_reason.setdefault(node.message, []).append(printable(node.node))
    return (f"Not started, {printable(reason)}: {', '.join(names)}" for reason, names in by_reason.items())
