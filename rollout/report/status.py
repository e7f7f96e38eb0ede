from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TypedDict

from msgspec import Struct

from rollout.model.detection import DEFAULT_SOURCES, Source
from rollout.model.finding import HeldVersion
from rollout.model.host import UpdateOperation, UpdateStanding, UpdateState
from rollout.model.memory import NO_MEMORY, Memory
from rollout.model.node_marks import detect_flag
from rollout.model.plan import FORMAT_VERSION, ExclusionReason
from rollout.model.text import (
    capitalize,
    counted,
    joined,
    or_dash,
    printable,
    shell_word,
    version_change,
)
from rollout.model.timestamps import elapsed, seconds_since
from rollout.planning.eligibility.memory import why_aborted, why_all_paused, why_held
from rollout.planning.eligibility.status import NodeState, NodeStatus
from rollout.report.columns import Column, table_text, wrap
from rollout.wording import cause_of
from rollout.wording.nodes import check_trouble, failure_clause

_OPERATION_PREFIX = "UPDATE_STATUS_"
_FEWEST_NODES_OF_SHARED_NOTE = 2
_COLUMNS = (Column("NODE"), Column("STATE"), Column("VERSION"), Column("NOTE", note=True))
_WIDE_COLUMNS = (
    Column("NODE"),
    Column("STATE"),
    Column("READY", drop_order=3),
    Column("SCHEDULABLE", drop_order=2),
    Column("OPERATION", drop_order=1),
    Column("VERSION", drop_order=6),
    Column("REBOOT", drop_order=4),
    Column("POOL", drop_order=5),
    Column("NOTE", note=True),
)
_STATES_THAT_NEED_A_CHECK = (NodeState.BEHIND, NodeState.ROLLED_BACK, NodeState.CHECK_FAILED)
_WITHOUT_UPDATE_ENGINE = (UpdateOperation.UNKNOWN, UpdateOperation.NOT_ASKED)
_CORDONED = (ExclusionReason.LEFT_CORDONED, ExclusionReason.CORDONED)
_ON_THE_HOST = (ExclusionReason.NO_SUDO, ExclusionReason.INHIBITED, ExclusionReason.WRONG_HOST)
AFTER_THE_CAUSE = "After fixing the cause"


class Way(Struct, frozen=True):
    """A command with a lead such as `To go on without worker-2`."""

    lead: str
    command: str
    # False for a command of kubectl.
    is_of_rollout: bool = True
    # If so, held versions have to be released first.
    starts_nodes: bool = False


class FollowUp(Struct, frozen=True):
    """A sentence below the nodes, and the command that continues."""

    sentence: str = ""
    command: str = ""
    # Nothing can start before this command has run.
    is_first: bool = False
    # When to run the command; empty for now.
    lead: str = ""
    ways: Sequence[Way] = ()

    @classmethod
    def of_ways(cls, sentence: str, ways: Sequence[Way], *, is_first: bool) -> "FollowUp":
        first = ways[0]
        return cls(sentence, command=first.command, is_first=is_first, lead=first.lead, ways=ways)

    @property
    def other_ways(self) -> Sequence[Way]:
        return self.ways[1:]


NO_FOLLOW_UP = FollowUp()


def status_text(
    statuses: Sequence[NodeStatus],
    *,
    width: int | None = 160,
    room: int | None = None,
    only_pending: bool = False,
    sources: Sequence[Source] = DEFAULT_SOURCES,
    memory: Memory = NO_MEMORY,
    now: datetime | None = None,
    unfinished_rollout: FollowUp = NO_FOLLOW_UP,
    closed_windows: str = "",
    with_flags: Callable[[str], str] = str,
) -> str:
    """Show all columns that fit into `room` without a `width`.

    `closed_windows` is a sentence. `with_flags` adds the user's flags to a command of rollout.
    """
    if not statuses:
        return "No nodes to show: all selected nodes are excluded."
    follow_ups = [
        *_memory_follow_ups(memory, statuses, now),
        FollowUp(closed_windows),
        unfinished_rollout,
    ]
    rows = [status for status in statuses if status.is_pending or not only_pending]
    if width is None:
        notes = [_wide_note(status, memory, now) for status in rows]
        lines = [_wide_table(rows, notes, room), _state_counts(statuses)]
    else:
        notes = [_brief_note(status, memory, now) for status in rows]
        lines = _brief_lines(rows, notes, _state_counts(statuses), width)
    lines += [follow_up.sentence for follow_up in follow_ups]
    lines.append(_rolled_back_text(statuses))
    if unfinished_rollout.ways:
        lines += _rollout_commands(follow_ups, unfinished_rollout, with_flags)
    else:
        lines.append(_next_command(statuses, sources, follow_ups, with_flags))
    return wrap(joined("\n", *lines), width or room)


def _wide_table(rows: Sequence[NodeStatus], notes: Sequence[str], room: int | None) -> str:
    if not rows:
        return ""
    cells = [_wide_row(status, note) for status, note in zip(rows, notes, strict=True)]
    return table_text(_WIDE_COLUMNS, cells, room, elsewhere="a wider terminal")


def _rollout_commands(
    follow_ups: Sequence[FollowUp], rollout: FollowUp, with_flags: Callable[[str], str]
) -> Iterator[str]:
    """Yield each way, after the other commands it needs to start nodes."""
    other_commands = [
        entry.command for entry in follow_ups if entry is not rollout and entry.command
    ]
    lines_before_start = "".join(f"    {with_flags(command)}\n" for command in other_commands)
    for way in rollout.ways:
        lines_before = lines_before_start if way.starts_nodes else ""
        command = with_flags(way.command) if way.is_of_rollout else way.command
        yield f"{way.lead}:\n{lines_before}    {command}"


def _next_command(
    statuses: Sequence[NodeStatus],
    sources: Sequence[Source],
    follow_ups: Sequence[FollowUp],
    with_flags: Callable[[str], str],
) -> str:
    step = next(_next_steps(statuses, sources, follow_ups), NO_FOLLOW_UP)
    if not step.command:
        return ""
    return f"{step.lead or 'Next'}:\n    {with_flags(step.command)}"


def _brief_lines(
    statuses: Sequence[NodeStatus], notes: Sequence[str], counts: str, width: int
) -> list[str]:
    shared_note = _shared_note(notes)
    if not shared_note:
        return [_brief_table(statuses, notes, width), counts]
    sharing = [status for status, note in zip(statuses, notes, strict=True) if note == shared_note]
    is_error_of_hosts = all(status.error for status in sharing)
    total = counted(len(statuses), "host" if is_error_of_hosts else "node")
    note_line = f"{len(sharing)} of {total}: {shared_note}"
    if is_error_of_hosts and len(sharing) == len(statuses):
        return [note_line]
    other_notes = ["" if note == shared_note else note for note in notes]
    return [_brief_table(statuses, other_notes, width), counts, note_line]


def _brief_table(statuses: Sequence[NodeStatus], notes: Sequence[str], width: int) -> str:
    versions = list(map(_version_cell, statuses))
    if all(version == "?" for version in versions):
        # `table_text` leaves out an empty column.
        versions = [""] * len(versions)
    rows = [
        (printable(status.node), status.state, version, note)
        for status, version, note in zip(statuses, versions, notes, strict=True)
    ]
    return table_text(_COLUMNS, rows, width) if rows else ""


def _shared_note(notes: Sequence[str]) -> str:
    counts = Counter(note for note in notes if note)
    if not counts:
        return ""
    [(note, count)] = counts.most_common(1)
    is_shared = count >= _FEWEST_NODES_OF_SHARED_NOTE and count * 2 > len(notes)
    return note if is_shared else ""


def _wide_row(status: NodeStatus, note: str) -> tuple[str, ...]:
    operation = status.operation.removeprefix(_OPERATION_PREFIX).lower().replace("_", "-")
    is_reboot_known = status.judged
    return (
        printable(status.node),
        status.state,
        _yes_or_no(status.ready),
        _yes_or_no(status.schedulable),
        or_dash(operation),
        _version_cell(status),
        _yes_or_no(status.needs_reboot) if is_reboot_known else "?",
        printable(status.pool),
        note,
    )


class StatusSummary(TypedDict):
    """Totals of all selected nodes, even if they are not shown."""

    nodes: int
    needs_reboot: int
    not_judged: int


class StatusReport(TypedDict):
    """What `rollout status -o json` prints."""

    format_version: str
    nodes: Sequence[NodeStatus]
    summary: StatusSummary


def status_document(rows: Sequence[NodeStatus], statuses: Sequence[NodeStatus]) -> StatusReport:
    return {
        "format_version": FORMAT_VERSION,
        "nodes": rows,
        "summary": {
            "nodes": len(statuses),
            "needs_reboot": sum(status.needs_reboot for status in statuses),
            "not_judged": sum(not status.judged for status in statuses),
        },
    }


def _state_counts(statuses: Sequence[NodeStatus]) -> str:
    nodes = counted(len(statuses), "node")
    states = Counter(status.state for status in statuses)
    if set(states) == {NodeState.UP_TO_DATE}:
        versions = dict.fromkeys(or_dash(status.running_version) for status in statuses)
        return f"Up to date: {nodes} on {', '.join(versions)}."
    counts = [f"{number} {state}" for state, number in states.most_common()]
    return f"{nodes}: {', '.join(counts)}"


def _next_steps(
    statuses: Sequence[NodeStatus], sources: Sequence[Source], follow_ups: Sequence[FollowUp]
) -> Iterator[FollowUp]:
    doctor = FollowUp(command="rollout doctor")
    if any(_needs_doctor(status) for status in statuses):
        yield doctor
    yield from (follow_up for follow_up in follow_ups if follow_up.is_first)
    unconfigured = _unconfigured_sources(statuses)
    if unconfigured:
        yield FollowUp(command=f"rollout status {detect_flag(*sources, *unconfigured)}")
    yield from (follow_up for follow_up in follow_ups if follow_up.command)
    if any(status.state == NodeState.PENDING for status in statuses):
        yield FollowUp(command="rollout plan")
    if any(status.update and status.update.checks.is_trouble for status in statuses):
        yield doctor
    rolled_back = rolled_back_versions(statuses)
    to_check = [status for status in statuses if _is_check_useful(status, rolled_back)]
    # Only update_engine can be told to check.
    if any(status.operation not in _WITHOUT_UPDATE_ENGINE for status in to_check):
        yield FollowUp(command="rollout check-update")
    elif any(status.state is NodeState.BEHIND for status in to_check):
        yield doctor


def _unconfigured_sources(statuses: Sequence[NodeStatus]) -> Sequence[Source]:
    unconfigured: set[Source] = set()
    for status in statuses:
        if not status.needs_reboot:
            unconfigured.update(status.shows)
    return [source for source in Source if source in unconfigured]


def _needs_doctor(status: NodeStatus) -> bool:
    if status.reason in _ON_THE_HOST:
        return True
    is_explained = status.judged or status.shows or status.is_rebooting
    return not is_explained


def rolled_back_versions(statuses: Sequence[NodeStatus]) -> frozenset[str]:
    updates = (status.update for status in statuses)
    return frozenset(
        update.rolled_back_from for update in updates if update and update.rolled_back_from
    )


def _is_check_useful(status: NodeStatus, rolled_back: frozenset[str]) -> bool:
    if status.update is None or status.state not in _STATES_THAT_NEED_A_CHECK:
        return False
    # A check would only stage the version that failed again.
    return status.update.newest_version not in rolled_back


def _rolled_back_text(statuses: Sequence[NodeStatus]) -> str:
    rolled_back = rolled_back_versions(statuses)
    if not rolled_back:
        return ""
    versions = " and ".join(sorted(map(printable, rolled_back)))
    return (
        f"A check for updates may stage {versions} again. Find out the cause of the rollback first."
    )


def _failure_text(status: NodeStatus, memory: Memory, now: datetime | None) -> str:
    failures = memory.nodes.get(status.node)
    will_retry = bool(status.retry_after)
    if failures is None or not will_retry:
        return ""
    return failure_clause(failures, _time_ago(failures.at, now))


def _time_ago(at: str, now: datetime | None) -> str:
    return f"{elapsed(seconds_since(at, now))} ago" if at and now else ""


def _wide_note(status: NodeStatus, memory: Memory, now: datetime | None) -> str:
    if status.is_rebooting:
        return printable(status.progress)
    problem = status.error or _explanation(status, status.message, now)
    failure = _failure_text(status, memory, now)
    if failure:
        failure = f"{failure}: `rollout operate` retries it after {status.retry_after}"
    return printable(joined("; ", status.progress, problem, failure))


def _brief_note(status: NodeStatus, memory: Memory, now: datetime | None) -> str:
    if status.is_rebooting:
        return printable(status.progress)
    if status.shows and status.judged and not status.needs_reboot:
        return f"not a configured source: {', '.join(status.shows)}"
    problem = status.note if status.error else _explanation(status, status.note, now)
    if _is_explained_below(status, memory):
        problem = ""
    lead = status.progress
    failure = _failure_text(status, memory, now)
    # A rolled-back host's state already says how it failed.
    if failure and not status.is_rolled_back:
        lead = failure
    return printable(joined("; ", lead, problem))


def _is_explained_below(status: NodeStatus, memory: Memory) -> bool:
    if status.error:
        return False
    if status.is_paused:
        # The pause of all nodes, not one of this node.
        return status.pause is not None and status.pause == memory.pause
    version = status.staged_version
    is_held = status.reason == ExclusionReason.VERSION_HELD and version in memory.versions
    return is_held and why_held(memory, version) is not None


def _explanation(status: NodeStatus, message: str, now: datetime | None) -> str:
    """`message` is the reason's, in full or in brief."""
    if status.update and status.is_judged_by_its_version:
        explanation = _update_explanation(status.update, message, now)
        if explanation:
            return explanation
    # NO_UPDATE explains itself, unless an annotation asks for a reboot.
    is_idle = status.reason == ExclusionReason.NO_UPDATE and Source.ANNOTATION not in status.shows
    # The phase of the rollout already shows its cordon.
    is_own_cordon = status.under_way and status.reason in _CORDONED
    needs_no_words = is_idle or is_own_cordon
    if status.reason and not needs_no_words:
        return message
    if status.deferred:
        return status.deferred
    # The columns already show update_engine's state.
    other_sources = set(status.detected_by) - {Source.UPDATE_ENGINE}
    return status.detail if other_sources else ""


def _update_explanation(update: UpdateStanding, message: str, now: datetime | None) -> str:
    trouble = check_trouble(update, now)
    match update.state:
        case UpdateState.ROLLED_BACK:
            time_ago = _time_ago(update.rolled_back_at, now)
            rollback = joined(", ", f"from {update.rolled_back_from}", time_ago)
            return joined("; ", rollback, trouble)
        case UpdateState.BEHIND:
            newest = f"the newest version in the cluster is {update.newest_version}"
            newer = "" if update.checks.is_off else newest
            return joined("; ", newer, trouble)
        case UpdateState.CHECK_FAILED:
            return joined("; ", message, trouble)
        case UpdateState.NOT_CHECKING:
            return trouble
        case UpdateState.UP_TO_DATE | UpdateState.UPDATING | UpdateState.IDLE:
            return ""


def _version_cell(status: NodeStatus) -> str:
    if not status.needs_reboot:
        return printable(status.running_version) or "?"
    return version_change(status.running_version, status.staged_version, status.detected_by)


def _yes_or_no(value: bool) -> str:  # noqa: FBT001 - it is a formatter of booleans
    return "yes" if value else "no"


def _memory_follow_ups(
    memory: Memory, statuses: Sequence[NodeStatus], now: datetime | None
) -> Iterator[FollowUp]:
    pause = why_all_paused(memory, now)
    if pause:
        yield FollowUp(f"{printable(capitalize(cause_of(pause)))}.", "rollout unpause --all")
    aborted = why_aborted(memory)
    if aborted:
        yield FollowUp(f"Unattended passes will not reboot any nodes: {printable(aborted)}.")
    missed = memory.missed_deadline
    if missed:
        yield FollowUp(printable(f"{missed} (known since {missed.since})."))
    for version in memory.versions:
        held = why_held(memory, version)
        if held:
            staged = sum(status.staged_version == version for status in statuses)
            nodes = f"; it is staged on {counted(staged, 'node')}" if staged else ""
            sentence = f"{printable(capitalize(cause_of(held)))}{nodes}."
            release = f"rollout release {shell_word(version)}"
            if isinstance(held, HeldVersion) and held.by:
                # Someone holds it on purpose.
                yield FollowUp(f"{sentence} To end the hold: {release}")
            else:
                yield FollowUp(sentence, release, lead=AFTER_THE_CAUSE)
