"""The end of a run: how many nodes are done, then each one that is not, with its cause and its fix, then what to do."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from rollout.model.plan import ExclusionReason
from rollout.model.progress import NotDone, NotStarted, Outcome, RunResult
from rollout.model.quantity import Duration
from rollout.model.text import counted, grouped, joined, printable, shell_word, shortened
from rollout.model.timestamps import elapsed
from rollout.report.columns import is_command, wrap
from rollout.report.sentences import absence_counts, capitalize, what_failed

_MOST_ROWS = 18
_MOST_NOT_DONE = 5
_INDENT = "    "
# Leads of commands that say enough alone.
_GOES_ON = ("go on",)


# What to do next: the words before a command, or a sentence alone; and the command.
Step = tuple[str, str]


class _FindingRow(NamedTuple):
    """A finding: its node, or how many there are, what is wrong, and the fix where there is one."""

    sign: str
    node: str
    text: str
    fixes: Sequence[str] = ()


def summary_text(
    result: RunResult,
    *,
    took: float,
    width: int | None,
    unattended: bool = False,
    repeated: Callable[[str], str] = str,
) -> str:
    """Show the end of a run that `took` so many seconds; `unattended`: a next pass goes on by itself.

    `width` in columns; None: no limit, and every node. No command is ever wrapped. `repeated` makes
    of a command the one about the same cluster.
    """
    rows = (
        *_failures(result, width),
        *_not_done(result.not_done, width),
        *_not_started(result, width),
    )
    steps = _next_pass(result) if unattended else (*_next_steps(result), *_without_failed(result))
    pasted = ((lead, command and repeated(command)) for lead, command in steps)
    return "\n".join(
        (
            wrap(_headline(result, took), width),
            *_rows_text(rows, width),
            *_steps_text(pasted, width),
        )
    )


def _headline(result: RunResult, took: float) -> str:
    """`9 of 12 nodes done in 24m10s, on 4152.2.0.`."""
    ended = {node.node for node in result.finished}
    asked = (
        ended | {node.node for node in result.not_started} | {node.node for node in result.not_done}
    )
    done = f"{len(result.succeeded)} of {counted(len(asked), 'node')} done" + (
        f" in {elapsed(took)}" if took else ""
    )
    versions = sorted({node.version for node in result.succeeded if node.version})
    done += f", on {shortened(versions)}" if versions else ""
    return f"{joined('; ', done, absence_counts((), result.left_out))}."


def _failures(result: RunResult, width: int | None) -> Iterator[_FindingRow]:
    most = _MOST_ROWS if width else len(result.failed)
    for failed in result.failed[:most]:
        console = failed.findings.console
        fixes = [printable(fix) for fix in (*(failed.fixes or (failed.hint,)), console) if fix]
        yield _FindingRow("✘", printable(failed.node), what_failed(failed), fixes)
    if left := len(result.failed[most:]):
        yield _FindingRow("✘", counted(left, "other node"), "failed too", ("rollout history",))


def _not_done(not_done: Sequence[NotDone], width: int | None) -> Iterator[_FindingRow]:
    """Yield a row a cause."""
    groups = grouped((f"{node.reason}: {printable(node.message)}", node.node) for node in not_done)
    most = _MOST_NOT_DONE if width else len(groups)
    yield from (
        _FindingRow("!", shortened(names), why) for why, names in list(groups.items())[:most]
    )
    if left := sum(map(len, list(groups.values())[most:])):
        yield _FindingRow("!", f"and {left} more", "not done either", ("rollout status",))


def _not_started(result: RunResult, width: int | None) -> Iterator[_FindingRow]:
    """Yield rows of planned nodes that were not started, or were left without a failure.

    Nodes in the rows of `_not_done` are left out.
    """
    not_done = {node.node for node in result.not_done}
    left = [
        (_why_left(node, "skipped"), node.node)
        for node in result.skipped
        if node.node not in not_done
    ]
    left += [
        (_why_left(node, "not started"), node.node)
        for node in result.not_started
        if node.node not in not_done
    ]
    for text, names in grouped(left).items():
        yield _FindingRow("·", shortened(names, most=3 if width else len(names)), text)


def _why_left(node: NotStarted, word: str) -> str:
    message = printable(node.message)
    return message if node.was_begun else f"{word}: {message}"


def _rows_text(rows: Sequence[_FindingRow], width: int | None) -> Iterator[str]:
    names = [len(row.node) for row in rows if len(row.node) <= _MOST_ROWS]
    room = max(names, default=0)
    for row in rows:
        line = f"{row.sign} {row.node:<{room}}  {row.text}"
        beside = f"{line}   → {row.fixes[0]}" if len(row.fixes) == 1 else ""
        if beside and len(beside) <= (width or len(beside)):
            yield beside
            continue
        yield wrap(line, width, hang=len(_INDENT))
        for fix in row.fixes:
            yield f"{_INDENT}{fix}" if is_command(fix) else wrap(f"{_INDENT}→ {fix}", width)


def _steps_text(steps: Iterable[Step], width: int | None) -> Iterator[str]:
    """Each command alone on its line, below what is to be known before it."""
    before = ""
    for lead, command in steps:
        if lead in ("see", "go on"):
            yield from () if lead == before else ("Next:",)
        elif lead != "then":
            yield wrap(capitalize(lead) + (":" if command else ""), width)
        yield from (f"{_INDENT}{command}",) if command else ()
        before = lead


def rehearsal_ending(result: RunResult, width: int | None = None) -> str:
    """Tell what would be left after the real run; empty where that is nothing."""
    absent = absence_counts(result.not_done, result.left_out)
    lines = [wrap(f"Of the requested nodes: {absent}.", width)] if absent else []
    steps = [("see", "rollout doctor")] if result.not_done else []
    return "\n".join(
        (
            *lines,
            *_rows_text(tuple(_not_done(result.not_done, width)), width),
            *_steps_text(steps, width),
        )
    )


def next_step(result: RunResult, *, unattended: bool) -> str:
    """Tell what to look at, and what goes on then, as one line; empty where nothing is left."""
    steps = tuple(_next_pass(result) if unattended else _next_steps(result))
    if len(steps) == 1 and steps[0][0] in _GOES_ON:
        return steps[0][1]
    return capitalize("; ".join(joined(": ", *step) for step in steps))


def _next_pass(result: RunResult) -> Iterator[Step]:
    """Yield what is left for persons to look at, and what is not; nothing where nothing is left."""
    held = sum(node.reason is ExclusionReason.VERSION_HELD for node in result.not_done)
    if len(result.not_done) > len(result.deferred) + held:
        yield ("see", "rollout doctor")
    if result.failed:
        yield ("see", "rollout status --run")
    if release := _release(result):
        yield (_after_fixing(result), release)
    if result.not_started or result.deferred:
        but = ", but for held versions" if result.failed else ""
        yield (f"the next pass takes up what is left{but}.", "")


def _next_steps(result: RunResult) -> Iterator[Step]:
    """Yield what to look at, and what goes on after that is fixed; nothing where nothing is left."""
    if any(node.outcome is Outcome.FENCED for node in result.failed):
        yield from (("see", "rollout status --run"), ("then", "rollout resume"))
        return
    go_on = _go_on(result)
    if result.deferred and len(result.not_done) == len(result.failed_before) + len(result.deferred):
        yield ("go on from another node", go_on)
        return
    others = [node for node in result.not_done if node.reason is not ExclusionReason.VERSION_HELD]
    is_trouble = len(others) > len([node for node in others if node in result.failed_before])
    release = _release(result)
    if release or is_trouble:
        yield ("see", "rollout doctor" if is_trouble else "rollout status")
    if release:
        yield from ((_after_fixing(result), release), ("then", go_on))
    elif failed := _failed_names(result):
        yield (_after_fixing_failed(result, failed), go_on)
    elif is_trouble:
        yield (_after_fixing(result), go_on)
    elif not result.complete:
        yield ("go on", go_on)
    elif result.left_over:
        nodes = counted(len(result.left_over), "node")
        over = f"the rollout is over, without {nodes} of it that may not be started now. Later"
        yield (over, "rollout apply")


def _failed_names(result: RunResult) -> str:
    """Name the nodes that failed in this process or before; empty if none did."""
    names = [node.node for node in result.failed] + [node.node for node in result.failed_before]
    return shortened(list(dict.fromkeys(names)), most=2) if names else ""


def _after_fixing(result: RunResult) -> str:
    """Name what has to be fixed first: the failed nodes, or if none failed, whatever keeps nodes from being started."""
    return f"after fixing {_failed_names(result) or 'the cause'}"


def _after_fixing_failed(result: RunResult, failed: str) -> str:
    held = f"version {shortened(result.newly_held)} is held. " if result.newly_held else ""
    return f"{held}{'after' if not held else 'After'} fixing {failed}"


def _without_failed(result: RunResult) -> Iterator[Step]:
    """Yield the command that continues without the failed nodes, because a dead host would fail forever."""
    failed = _failed_names(result)
    if not failed or any(node.outcome is Outcome.FENCED for node in result.failed):
        return
    if result.not_started:
        release = _release(result)
        yield (f"to go on without {failed}", release or "rollout resume")
        yield from (("then", "rollout resume"),) if release else ()
    else:
        yield (f"to end the rollout without {failed}", "rollout abort")


def _go_on(result: RunResult) -> str:
    if any(node.outcome is not Outcome.STRANDED for node in result.failed) or result.failed_before:
        needed = max((node.needed_drain_seconds for node in result.failed), default=0)
        longer = f" --drain-timeout {Duration(needed)}" if needed else ""
        return f"rollout resume --retry-failed{longer}"
    left = result.failed or (result.resumable and (result.not_started or result.left_over))
    return "rollout resume" if left else "rollout apply"


def _release(result: RunResult) -> str:
    """Return the command that ends the holds which keep nodes from being started; empty where none does."""
    held = [node.version for node in result.not_done if node.reason is ExclusionReason.VERSION_HELD]
    versions = dict.fromkeys(filter(None, (*result.held, *held)))
    return " ".join(("rollout release", *map(shell_word, versions))) if versions else ""
