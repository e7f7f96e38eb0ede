"""The end of a run: what became of each planned node, what to look at, and last what was not done."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rollout.model.plan import ExclusionReason, PlannedNode, RolloutPlan
from rollout.model.progress import Findings, Moves, NodeCondition, NodeResult, NotDone, NotStarted, Outcome, RunResult
from rollout.model.text import NOTHING, counted, elapsed, or_nothing, printable, shell_word, shortened, version_step
from rollout.planning.memory import held_version
from rollout.report.columns import Column, table_text, wrapped

_COLUMNS = (Column("NODE", wraps=True), Column("OUTCOME"), Column("VERSION", leaves=2), Column("TOOK", leaves=3))
_POOL = Column("POOL", leaves=1)
_MOST_NODES, _MOST_ROWS = 5, 10
CANNOT_BE_REBOOTED = "cannot be rebooted"


def summary_text(
    plan: RolloutPlan, result: RunResult, *, width: int | None = None, operating: bool = False, signs: bool = False
) -> str:
    """The failures with their hints, the table, and the ending; `operating`: a next pass goes on by itself.

    `width` in columns; None: no limit, and every node. With `signs` a glance is enough.
    """
    table = (
        [_table(plan, result, width, signs=signs)] if result.finished or result.skipped or result.not_started else []
    )
    ending = wrapped("\n".join(_ending(result, operating=operating)), width)
    failures, absences = (
        (wrapped(text, width) for text in part) for part in (_failures(result.failed), _absences(result))
    )
    return "\n\n".join((*failures, *table, *absences, ending))


def _table(plan: RolloutPlan, result: RunResult, width: int | None, *, signs: bool) -> str:
    """What did not succeed first; of many nodes that ended alike, one row."""
    planned = {node.name: node for node in plan.nodes}
    ends = [_end(node, planned) for node in sorted(result.finished, key=lambda node: node.succeeded)]
    ends += [_absence(node, "skipped", planned) for node in result.skipped]
    ends += [_absence(node, "not started", planned) for node in result.not_started]
    if signs:
        ends = [replace(end, outcome=f"{_sign(end)} {end.outcome}") for end in ends]
    rows = [row for alike in _folded(ends, every=width is None) for row in alike]
    has_pools = any(node.pool for node in plan.nodes)
    columns = (_COLUMNS[0], _POOL, *_COLUMNS[1:]) if has_pools else _COLUMNS
    return table_text(columns, rows if has_pools else [(row[0], *row[2:]) for row in rows], width)


def _folded(ends: Sequence["_End"], *, every: bool) -> Iterable[Sequence[tuple[str, ...]]]:
    alike: dict[tuple[str, str, str], list[_End]] = {}
    for end in ends:
        alike.setdefault((end.outcome, end.version, end.pool), []).append(end)
    for (outcome, version, pool), group in alike.items():
        if every or len(group) <= _MOST_ROWS:
            yield [(printable(end.node), pool, outcome, version, _took([end])) for end in group]
        else:
            names = f"{len(group)} nodes: {shortened([end.node for end in group], most=3)}"
            yield [(names, pool, outcome, version, _took(group))]


def _sign(end: "_End") -> str:
    if end.seconds is None:
        return "!"
    return "✔" if end.outcome == Outcome.SUCCEEDED else "✘"


def _took(ends: Sequence["_End"]) -> str:
    """How long it took, or from the shortest to the longest."""
    seconds = [end.seconds for end in ends if end.seconds is not None]
    if not seconds:
        return NOTHING
    return " to ".join(dict.fromkeys((elapsed(min(seconds)), elapsed(max(seconds)))))


@dataclass(frozen=True, slots=True)
class _End:
    """How a planned node ended; `seconds` is None where it was not begun."""

    node: str
    pool: str
    outcome: str
    version: str
    seconds: float | None = None


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
    """A line for each node, or for all that one version's hold keeps back."""
    groups: dict[tuple[str, str], list[str]] = {}
    for node in not_done:
        own = "" if node.reason is ExclusionReason.VERSION_HELD else node.node
        groups.setdefault((own, f"{node.reason}, {printable(node.message)}"), []).append(node.node)
    for (_, why), names in list(groups.items())[:_MOST_NODES]:
        yield f"  {shortened(names)}: {why}"
    if left := sum(map(len, list(groups.values())[_MOST_NODES:])):
        yield f"  and {left} more: rollout status"


def next_step(result: RunResult, *, operating: bool) -> str:
    """What to look at, and what goes on then; empty where nothing is left."""
    return _next_pass(result) if operating else _next_step(result)


def _next_pass(result: RunResult) -> str:
    """What is left for persons to look at, and what is not; empty where nothing is left."""
    held = sum(node.reason is ExclusionReason.VERSION_HELD for node in result.not_done)
    steps = ["See: rollout doctor."] if len(result.not_done) > len(result.deferred) + held else []
    steps += ["See: rollout status --run."] if result.failed else []
    steps += [f"Once you know the cause: {release}."] if (release := _release(result)) else []
    but = ", but for versions that are held" if result.failed else ""
    steps += [f"The next pass takes up what is left{but}."] if result.not_started or result.deferred else []
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
        left = result.resumable and (result.not_started or result.left_over)
        go_on = "rollout resume" if left else "rollout apply"
    if result.deferred and len(result.not_done) == len(result.failed_before) + len(result.deferred):
        return f"Go on from another node: {go_on}"
    others = [node for node in result.not_done if node.reason is not ExclusionReason.VERSION_HELD]
    is_trouble = len(others) > len([node for node in others if node in result.failed_before])
    if release := _release(result):
        look = "rollout doctor" if is_trouble else "rollout status"
        return f"See: {look}; once you know the cause: {release}; then: {go_on}"
    if is_trouble:
        return f"See: rollout doctor; then: {go_on}"
    if stuck := [node for node in result.failed if node.outcome is Outcome.DRAIN_FAILED]:
        hint = next((printable(node.hint).rstrip(".") for node in stuck if node.hint), "")
        return f"{hint}; once nothing holds its pods: {go_on}" if hint else f"Once its pods can leave: {go_on}"
    return _over(result) if result.complete else f"Go on: {go_on}"


def _release(result: RunResult) -> str:
    """The command that ends the holds which keep nodes from being started; empty where none does."""
    held = [held_version(node.message) for node in result.not_done if node.reason is ExclusionReason.VERSION_HELD]
    versions = dict.fromkeys(filter(None, (*result.held, *held)))
    return " ".join(("rollout release", *map(shell_word, versions))) if versions else ""


def _over(result: RunResult) -> str:
    """That nothing is gone on with any more, where nodes of the rollout were left out; empty where none was."""
    if not result.left_over:
        return ""
    nodes = counted(len(result.left_over), "node")
    return f"The rollout is over, without {nodes} of it that may not be started now. Later: rollout apply"


def _end(result: NodeResult, planned: Mapping[str, PlannedNode]) -> _End:
    version = _version(result, planned.get(result.node))
    return _End(result.node, _pool(result.node, planned), result.outcome, version, result.seconds)


def _absence(node: NotStarted, word: str, planned: Mapping[str, PlannedNode]) -> _End:
    return _End(node.node, _pool(node.node, planned), word, NOTHING)


def _pool(name: str, planned: Mapping[str, PlannedNode]) -> str:
    return or_nothing(planned[name].pool) if name in planned else NOTHING


def _version(result: NodeResult, planned: PlannedNode | None) -> str:
    before = planned.running_version if planned else ""
    if result.version and before and result.version != before:
        return version_step(before, result.version)
    return or_nothing(result.version or before)


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
        by_reason.setdefault(node.message.removeprefix("not started: "), []).append(node.node)
    return (f"Not started, {printable(reason)}: {shortened(names)}" for reason, names in by_reason.items())
