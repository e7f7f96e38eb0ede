from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from rollout.model.finding import NodeMarkedByOther, StartKind
from rollout.model.plan import ExclusionReason
from rollout.model.progress import NotDone, NotStarted, Outcome, RunResult
from rollout.model.quantity import Duration
from rollout.model.text import (
    capitalize,
    counted,
    grouped,
    joined,
    printable,
    shell_word,
    shortened,
)
from rollout.model.timestamps import elapsed
from rollout.report.columns import is_command, wrap
from rollout.report.sentences import absence_counts, what_failed

_MOST_ROWS = 18
_MOST_NOT_DONE = 5
_WIDEST_NAME = 18
_INDENT = "    "

_SEE = "see"
_THEN = "then"
_GO_ON = "go on"


_REASONS_TO_START_LATER = (ExclusionReason.DEFERRED, ExclusionReason.VERSION_HELD)


class _Step(NamedTuple):
    """A lead with its command, or a sentence without one.

    Commands with the leads `_SEE` and `_GO_ON` are printed below `Next:`, those with `_THEN` below
    the command before.
    """

    lead: str
    command: str = ""


class _FindingRow(NamedTuple):
    """`fixes` are commands or sentences."""

    sign: str
    nodes: str
    text: str
    fixes: Sequence[str] = ()


def summary_text(
    result: RunResult,
    *,
    took: float,
    width: int | None,
    unattended: bool = False,
    with_flags: Callable[[str], str] = str,
) -> str:
    """Without a `width`, every node has a row. `took` is in seconds."""
    rows = (
        *_failure_rows(result, width),
        *_not_done_rows(result.not_done, width),
        *_not_started_rows(result, width),
    )
    steps = [*_steps_to_next_pass(result)]
    if not unattended:
        steps = [*_next_steps(result), *_steps_without_failed(result)]
    steps_with_flags = [
        step._replace(command=with_flags(step.command)) if step.command else step for step in steps
    ]
    headline = wrap(_headline(result, took), width)
    return "\n".join([headline, *_row_lines(rows, width), *_step_lines(steps_with_flags, width)])


def _headline(result: RunResult, took: float) -> str:
    requested = {finished.node for finished in result.finished}
    requested.update(entry.node for entry in result.not_started)
    requested.update(entry.node for entry in result.not_done)
    done = f"{len(result.succeeded)} of {counted(len(requested), 'node')} done"
    if took:
        done += f" in {elapsed(took)}"
    versions = sorted({success.version for success in result.succeeded if success.version})
    if versions:
        done += f", on {shortened(versions)}"
    return f"{joined('; ', done, absence_counts((), result.left_out))}."


def _failure_rows(result: RunResult, width: int | None) -> Iterator[_FindingRow]:
    most = _MOST_ROWS if width else len(result.failed)
    for failure in result.failed[:most]:
        fixes = failure.fixes or (failure.hint,)
        printable_fixes = [printable(fix) for fix in (*fixes, failure.diagnosis.console) if fix]
        yield _FindingRow("✘", printable(failure.node), what_failed(failure), printable_fixes)
    hidden_count = len(result.failed) - most
    if hidden_count > 0:
        yield _FindingRow(
            "✘", counted(hidden_count, "other node"), "failed too", ("rollout history",)
        )


def _not_done_rows(not_done: Sequence[NotDone], width: int | None) -> Iterator[_FindingRow]:
    names_by_cause = grouped(
        (f"{entry.reason}: {printable(entry.message)}", entry.node) for entry in not_done
    )
    groups = list(names_by_cause.items())
    most = _MOST_NOT_DONE if width else len(groups)
    for cause, names in groups[:most]:
        yield _FindingRow("!", shortened(names), cause)
    hidden_count = sum(len(names) for _, names in groups[most:])
    if hidden_count:
        yield _FindingRow("!", f"and {hidden_count} more", "not done either", ("rollout status",))


def _not_started_rows(result: RunResult, width: int | None) -> Iterator[_FindingRow]:
    listed_above = {entry.node for entry in result.not_done}
    reasons_and_nodes = [(_reason_skipped(entry), entry.node) for entry in result.skipped]
    reasons_and_nodes += [(_reason_not_started(entry), entry.node) for entry in result.not_started]
    names_by_reason = grouped(
        (reason, node) for reason, node in reasons_and_nodes if node not in listed_above
    )
    for reason, names in names_by_reason.items():
        yield _FindingRow("·", shortened(names, most=3 if width else len(names)), reason)


def _reason_skipped(entry: NotStarted) -> str:
    message = printable(entry.message)
    # The message about a begun node says its state.
    return message if entry.was_begun else f"skipped: {message}"


def _reason_not_started(entry: NotStarted) -> str:
    state = "not started"
    if entry.was_begun:
        end = "left cordoned" if entry.left_cordoned else "returned"
        state = f"{end} in phase {entry.phase}"
    return f"{state}: {printable(entry.message)}"


def _row_lines(rows: Sequence[_FindingRow], width: int | None) -> Iterator[str]:
    # Wider names do not move the other rows' texts.
    widths = [len(row.nodes) for row in rows if len(row.nodes) <= _WIDEST_NAME]
    name_width = max(widths, default=0)
    for row in rows:
        line = f"{row.sign} {row.nodes:<{name_width}}  {row.text}"
        if len(row.fixes) == 1:
            line_with_fix = f"{line}   → {row.fixes[0]}"
            if not width or len(line_with_fix) <= width:
                yield line_with_fix
                continue
        yield wrap(line, width, hang=len(_INDENT))
        for fix in row.fixes:
            yield f"{_INDENT}{fix}" if is_command(fix) else wrap(f"{_INDENT}→ {fix}", width)


def _step_lines(steps: Iterable[_Step], width: int | None) -> Iterator[str]:
    previous_lead = ""
    for lead, command in steps:
        if lead in (_SEE, _GO_ON):
            if lead != previous_lead:
                yield "Next:"
        elif lead != _THEN:
            colon = ":" if command else ""
            yield wrap(f"{capitalize(lead)}{colon}", width)
        if command:
            yield f"{_INDENT}{command}"
        previous_lead = lead


def rehearsal_ending(result: RunResult, width: int | None) -> str:
    lines = []
    absent = absence_counts(result.not_done, result.left_out)
    if absent:
        lines.append(wrap(f"Requested nodes: {absent}.", width))
    lines += _row_lines(tuple(_not_done_rows(result.not_done, width)), width)
    if result.not_done:
        lines += _step_lines([_Step(_SEE, "rollout doctor")], width)
    return "\n".join(lines)


def next_step(result: RunResult, *, unattended: bool) -> str:
    steps = tuple(_steps_to_next_pass(result) if unattended else _next_steps(result))
    if len(steps) == 1 and steps[0].lead == _GO_ON:
        return steps[0].command
    return capitalize("; ".join(joined(": ", *step) for step in steps))


def _steps_to_next_pass(result: RunResult) -> Iterator[_Step]:
    if any(entry.reason not in _REASONS_TO_START_LATER for entry in result.not_done):
        yield _Step(_SEE, "rollout doctor")
    if result.failed:
        yield _Step(_SEE, "rollout status --run")
    release = _release_command(result)
    if release:
        yield _Step(_after_fixing(result), release)
    if result.not_started or result.deferred:
        exception = ", except those with held versions" if result.failed else ""
        yield _Step(f"the next pass reboots the remaining nodes{exception}.")


def _next_steps(result: RunResult) -> Iterator[_Step]:
    if _was_stopped_by_other(result):
        yield from _steps_after_other(result)
        return
    command = _continue_command(result)
    if result.deferred and _is_rest_deferred(result):
        # This process runs on a node that it cannot reboot.
        yield _Step("continue from another node", command)
        return
    has_new_trouble = _has_new_trouble(result)
    release_command = _release_command(result)
    failed_names = _failed_names(result)
    if release_command or has_new_trouble:
        yield _Step(_SEE, "rollout doctor" if has_new_trouble else "rollout status")
    if release_command:
        yield _Step(_after_fixing(result), release_command)
        yield _Step(_THEN, command)
    elif failed_names:
        yield _Step(_after_fixing_failed(result, failed_names), command)
    elif has_new_trouble:
        yield _Step(_after_fixing(result), command)
    elif not result.complete:
        lead = "after changing the windows" if _needs_other_windows(result) else _GO_ON
        yield _Step(lead, command)
    elif result.left_over:
        nodes = counted(len(result.left_over), "node")
        lead = f"the rollout has ended. {nodes} could not be rebooted now. To try again later"
        yield _Step(lead, _start_command(result))


def _is_rest_deferred(result: RunResult) -> bool:
    """Whether the rest failed earlier, or waits for a run on another node."""
    return len(result.not_done) == len(result.failed_before) + len(result.deferred)


def _was_stopped_by_other(result: RunResult) -> bool:
    return any(failure.outcome is Outcome.FENCED for failure in result.failed)


def _steps_after_other(result: RunResult) -> Iterator[_Step]:
    yield _Step(_SEE, "rollout status --run")
    if _has_lost_lock(result):
        yield _Step(_THEN, "rollout resume")
    else:
        # Under its own lock, the other rollout may still be running.
        yield _Step("after the other rollout has ended", "rollout resume")


def _has_lost_lock(result: RunResult) -> bool:
    """Whether a process stopped by another lost the lock, not just a node."""
    return any(
        failure.outcome is Outcome.FENCED and not isinstance(failure.finding, NodeMarkedByOther)
        for failure in result.failed
    )


def _has_new_trouble(result: RunResult) -> bool:
    return any(
        entry.reason is not ExclusionReason.VERSION_HELD and entry not in result.failed_before
        for entry in result.not_done
    )


def _needs_other_windows(result: RunResult) -> bool:
    return any(
        entry.kind == StartKind.WINDOW and not entry.is_for_later for entry in result.not_started
    )


def _failed_names(result: RunResult) -> str:
    names = [failure.node for failure in result.failed]
    names += [failure.node for failure in result.failed_before]
    return shortened(list(dict.fromkeys(names)), most=2)


def _after_fixing(result: RunResult) -> str:
    return f"after fixing {_failed_names(result) or 'the cause'}"


def _after_fixing_failed(result: RunResult, failed_names: str) -> str:
    if result.newly_held:
        return f"version {shortened(result.newly_held)} is held. After fixing {failed_names}"
    return f"after fixing {failed_names}"


def _steps_without_failed(result: RunResult) -> Iterator[_Step]:
    """A dead host would fail forever, so offer to leave it out."""
    failed_names = _failed_names(result)
    if not failed_names or _was_stopped_by_other(result):
        return
    if not result.not_started:
        yield _Step(f"to end the rollout without {failed_names}", "rollout abort")
        return
    lead = f"to continue without {failed_names}"
    release = _release_command(result)
    if release:
        yield _Step(lead, release)
        yield _Step(_THEN, "rollout resume")
    else:
        yield _Step(lead, "rollout resume")


def _continue_command(result: RunResult) -> str:
    # Only stranded nodes continue without --retry-failed.
    needs_retry = any(failure.outcome is not Outcome.STRANDED for failure in result.failed)
    if needs_retry or result.failed_before:
        needed = max((failure.needed_drain_seconds for failure in result.failed), default=0)
        timeout_flag = f" --drain-timeout {Duration(needed)}" if needed else ""
        return f"rollout resume --retry-failed{timeout_flag}"
    has_nodes_left = bool(result.not_started or result.left_over)
    if result.failed or (result.resumable and has_nodes_left):
        return "rollout resume"
    return _start_command(result)


def _start_command(result: RunResult) -> str:
    unwanted_version = result.rollback
    if unwanted_version:
        return f"rollout rollback {shell_word(unwanted_version)}"
    return "rollout apply"


def _release_command(result: RunResult) -> str:
    versions_of_nodes = [
        entry.version for entry in result.not_done if entry.reason is ExclusionReason.VERSION_HELD
    ]
    versions = dict.fromkeys((*result.held, *versions_of_nodes))
    arguments = [shell_word(version) for version in versions if version]
    return " ".join(["rollout release", *arguments]) if arguments else ""
