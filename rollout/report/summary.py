"""The end of a run as a table: what became of each planned node, and what to look at."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tabulate import tabulate

from rollout.model.plan import PlannedNode, RolloutPlan
from rollout.model.progress import Findings, NodeCondition, NodeResult, NotStarted, Outcome, RunResult
from rollout.report.text import NOTHING, counted, elapsed, or_nothing, printable, version_step

_HEADERS = ("NODE", "OUTCOME", "VERSION", "TOOK")


def summary_text(plan: RolloutPlan, result: RunResult) -> str:
    """The table, the failures with their hints, and the counts."""
    planned = {node.name: node for node in plan.nodes}
    rows = [_finished_row(node, planned) for node in result.finished]
    rows += [_absent_row(node, "skipped") for node in result.skipped]
    rows += [_absent_row(node, "not started") for node in result.not_started]
    table = tabulate(rows, headers=_HEADERS, tablefmt="plain", disable_numparse=True)
    parts = [table, *_failures(result.failed), *_absences((*result.skipped, *result.not_started)), counts(result)]
    return "\n\n".join(parts)


def counts(result: RunResult) -> str:
    """One sentence of figures."""
    told = [f"{counted(len(result.succeeded), 'node')} succeeded"]
    told += [f"{len(group)} {word}" for word, group in _groups(result) if group]
    return ", ".join(told) + "."


def _groups(result: RunResult) -> Iterable[tuple[str, Sequence[object]]]:
    return (("failed", result.failed), ("skipped", result.skipped), ("not started", result.not_started))


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
            "  It was left cordoned; once it is well: rollout resume --retry-failed, "
            f"or kubectl uncordon {printable(result.node)}"
        )


def findings_text(found: Findings) -> Iterable[str]:
    """What was seen of a node that failed, a line each."""
    if found.ssh_error:
        yield f"last SSH error: {printable(found.ssh_error)}"
    yield from _conditions(found.conditions)
    if found.console:
        yield f"console: {printable(found.console)}"


def _conditions(found: Iterable[NodeCondition]) -> Iterable[str]:
    """Bad conditions, those that say the same of the Node in one line: a silent kubelet leaves them all alike."""
    alike: dict[NodeCondition, list[str]] = {}
    for each in found:
        alike.setdefault(replace(each, type=""), []).append(printable(each.type))
    for each, types in alike.items():
        why = ": ".join(printable(part) for part in (each.reason, each.message) if part)
        since = f" since {printable(each.since)}" if each.since else ""
        subject = f"Node condition {types[0]} is" if len(types) == 1 else f"Node conditions {', '.join(types)} are"
        yield f"{subject} {printable(each.status)}{since}" + (f": {why}" if why else "")


def _verb(result: NodeResult) -> str:
    if result.outcome is Outcome.SKIPPED:
        return "was skipped"
    return f"failed ({result.outcome}, last phase {result.phase})"


def _absences(nodes: Sequence[NotStarted]) -> Iterable[str]:
    by_reason: dict[str, list[str]] = {}
    for node in nodes:
        by_reason.setdefault(node.message, []).append(printable(node.node))
    return (f"Not started, {printable(reason)}: {', '.join(names)}" for reason, names in by_reason.items())
