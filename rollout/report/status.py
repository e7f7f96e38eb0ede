"""The rows of `status`, what earlier rollouts have left to remember, and what to do next: read at a glance."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict

from rollout.model.detection import DEFAULT_SOURCES, Source
from rollout.model.host import UpdateStanding, UpdateState
from rollout.model.memory import NO_MEMORY, Memory
from rollout.model.plan import FORMAT_VERSION, ExclusionReason
from rollout.model.reboot_request import detect_flag
from rollout.model.text import counted, joined, or_nothing, printable, shell_word, version_step
from rollout.model.timestamps import elapsed, seconds_since
from rollout.planning.eligibility.memory import all_paused, why_aborted, why_held
from rollout.planning.eligibility.status import NodeState, NodeStatus
from rollout.report.columns import Column, table_text, wrap
from rollout.report.sentences import capitalize
from rollout.wording import cause
from rollout.wording.nodes import trouble

_OPERATION_PREFIX = "UPDATE_STATUS_"
_COLUMNS = (Column("NODE"), Column("STATE"), Column("VERSION"), Column("NOTE", note=True))
_WIDE = (
    Column("NODE"),
    Column("STATE"),
    Column("READY", leaves=3),
    Column("SCHEDULABLE", leaves=2),
    Column("OPERATION", leaves=1),
    Column("VERSION", leaves=6),
    Column("REBOOT", leaves=4),
    Column("POOL", leaves=5),
    Column("NOTE", note=True),
)
_MAY_FIND_AN_UPDATE = (NodeState.BEHIND, NodeState.ROLLED_BACK, NodeState.CHECK_FAILED)
# What the operator has to see to on the host.
_ON_THE_HOST = (ExclusionReason.NO_SUDO, ExclusionReason.INHIBITED, ExclusionReason.WRONG_HOST)
# What is said before a held version is released, if no failed node is named.
AFTER_THE_CAUSE = "After fixing the cause"


@dataclass(frozen=True, slots=True)
class Way:
    """A further command, and the words that stand before it: `To go on without worker-2`.

    `is_ours`: it is a command of this program. `starts_nodes`: held versions have to be released
    before it.
    """

    lead: str
    command: str
    is_ours: bool = True
    starts_nodes: bool = False


@dataclass(frozen=True, slots=True)
class FollowUp:
    """What is said below the nodes, and the command that leads on; `is_first` where nothing can begin before.

    `lead` says when to run the command, such as `After fixing worker-2`; it is empty if nothing
    comes first. `ways` are all ways on if there are several, the first one again, and empty
    otherwise.
    """

    sentence: str = ""
    command: str = ""
    is_first: bool = False
    lead: str = ""
    ways: Sequence[Way] = ()

    @classmethod
    def of_ways(cls, sentence: str, ways: Sequence[Way], *, is_first: bool) -> "FollowUp":
        """Return what leads on in several ways, the first of them before all."""
        return cls(sentence, ways[0].command, is_first, ways[0].lead, ways)


def status_text(
    statuses: Sequence[NodeStatus],
    *,
    width: int | None = 160,
    room: int | None = None,
    only_pending: bool = False,
    asked: Sequence[Source] = DEFAULT_SOURCES,
    memory: Memory = NO_MEMORY,
    now: datetime | None = None,
    rollout: FollowUp = FollowUp(),
    closed: str = "",
    repeated: Callable[[str], str] = str,
) -> str:
    """Show one row a node, how many are in which state, and what to do next.

    `width` in columns, None for what few look for besides, which then has `room`: None for no
    limit. With `only_pending` no row for nodes that nothing waits for; all of them count. `asked`
    are the sources of `detect.sources`, `rollout` is the one beside these nodes. `closed` says why
    no node may be started now. `repeated` makes of a command the one about the same nodes.

    But without a limit, what is said of more than half of the rows stands once below them.
    """
    if not statuses:
        return "No node is left to show: all that are selected are excluded."
    remembered = (*_remembered(memory, statuses, now), FollowUp(closed))
    shown = [status for status in statuses if status.is_pending or not only_pending]
    notes = [_note(status, memory, now, is_wide=width is None) for status in shown]
    if width is None:
        rows = [_wide_row(status, note) for status, note in zip(shown, notes, strict=True)]
        table = table_text(_WIDE, rows, room, elsewhere="a wider terminal") if rows else ""
        lines = [table, _counts(statuses)]
    else:
        lines = _brief_lines(shown, notes, _counts(statuses), width)
    lines += [said.sentence for said in (*remembered, rollout)]
    lines.append(_bad_versions_text(statuses))
    if rollout.lead:
        # a node with a version that is held is not started before its release
        releases = "".join(f"    {said.command}\n" for said in remembered if said.command)
        for way in rollout.ways:
            before = releases if way.starts_nodes else ""
            lines.append(
                f"{way.lead}:\n{before}    {repeated(way.command) if way.is_ours else way.command}"
            )
    elif command := _next(statuses, asked, (*remembered, rollout)):
        caution = next(
            (f"{said.lead}:" for said in remembered if said.lead and said.command == command),
            "Next:",
        )
        lines.append(f"{caution}\n    {repeated(command)}")
    return wrap(joined("\n", *lines), width or room)


def _brief_lines(
    statuses: Sequence[NodeStatus], notes: Sequence[str], counts: str, width: int | None
) -> list[str]:
    """Return the rows and their counts; of hosts that are all silent for one cause nothing but that."""
    cause, alike = Counter(filter(None, notes)).most_common(1)[0] if any(notes) else ("", 0)
    is_common = alike > 1 and alike * 2 > len(statuses)
    of_hosts = all(
        status.error for status, note in zip(statuses, notes, strict=True) if note == cause
    )
    line = f"{alike} of {counted(len(statuses), 'host' if of_hosts else 'node')}: {cause}"
    if is_common and of_hosts and alike == len(statuses):
        return [line]
    versions = list(map(_version, statuses))
    told = versions if any(version != "?" for version in versions) else [""] * len(versions)
    rows = [
        (printable(status.node), status.state, version, "" if is_common and note == cause else note)
        for status, version, note in zip(statuses, told, notes, strict=True)
    ]
    return [table_text(_COLUMNS, rows, width) if rows else "", counts, line if is_common else ""]


def _wide_row(status: NodeStatus, note: str) -> tuple[str, ...]:
    return (
        printable(status.node),
        status.state,
        _yes(status.ready),
        _yes(status.schedulable),
        or_nothing(status.operation.removeprefix(_OPERATION_PREFIX).lower().replace("_", "-")),
        _version(status),
        _yes(status.needs_reboot) if status.judged else "?",
        printable(status.pool),
        note,
    )


class StatusSummary(TypedDict):
    """How many nodes are meant, shown or not."""

    nodes: int
    needs_reboot: int
    not_judged: int


class StatusReport(TypedDict):
    """How the nodes stand."""

    format_version: str
    nodes: Sequence[NodeStatus]
    summary: StatusSummary


def status_document(shown: Sequence[NodeStatus], statuses: Sequence[NodeStatus]) -> StatusReport:
    """Return the nodes that are `shown` as one object; all of them count."""
    return {
        "format_version": FORMAT_VERSION,
        "nodes": shown,
        "summary": {
            "nodes": len(statuses),
            "needs_reboot": sum(status.needs_reboot for status in statuses),
            "not_judged": sum(not status.judged for status in statuses),
        },
    }


def _counts(statuses: Sequence[NodeStatus]) -> str:
    """How many are in which state; in one sentence where nothing is to be done."""
    states = Counter(status.state for status in statuses)
    if set(states) == {NodeState.UP_TO_DATE}:
        versions = ", ".join(
            dict.fromkeys(or_nothing(status.running_version) for status in statuses)
        )
        return f"Up to date: {counted(len(statuses), 'node')} on {versions}."
    return (
        f"{counted(len(statuses), 'node')}:"
        f" {', '.join(f'{number} {word}' for word, number in states.most_common())}"
    )


def _next(
    statuses: Sequence[NodeStatus], asked: Sequence[Source], others: Sequence[FollowUp]
) -> str:
    """Return the one command that leads on; empty where nothing is to be done."""
    unknown = (not (status.judged or status.shows or status.is_rebooting) for status in statuses)
    if any(unknown) or any(status.reason in _ON_THE_HOST for status in statuses):
        return "rollout doctor"
    if first := [other.command for other in others if other.is_first]:
        return first[0]
    silent = {source for status in statuses if not status.needs_reboot for source in status.shows}
    if silent:
        sources = [source for source in Source if source in silent]
        return f"rollout status {detect_flag(*asked, *sources)}"
    commands = [other.command for other in others if other.command]
    if any(status.state == NodeState.PENDING for status in statuses):
        commands.append("rollout plan")
    if any(_may_find_an_update(status, bad_versions(statuses)) for status in statuses):
        commands.append("rollout check-update")
    return commands[0] if commands else ""


def bad_versions(statuses: Sequence[NodeStatus]) -> frozenset[str]:
    """Return the versions that hosts were rolled back from and have not been updated to since."""
    updates = (status.update for status in statuses)
    return frozenset(
        update.rolled_back_from for update in updates if update and update.rolled_back_from
    )


def _may_find_an_update(status: NodeStatus, bad: frozenset[str]) -> bool:
    """Whether a check may stage another version than one that was rolled back from."""
    if status.update is None or status.state not in _MAY_FIND_AN_UPDATE:
        return False
    return status.update.newest_version not in bad


def _bad_versions_text(statuses: Sequence[NodeStatus]) -> str:
    """Say why no check for updates is advised; empty if no version was rolled back from."""
    bad = bad_versions(statuses)
    if not bad:
        return ""
    versions = " and ".join(sorted(map(printable, bad)))
    return f"A check for updates may stage {versions} again. Find out first why it was rolled back."


def _note(
    status: NodeStatus,
    memory: Memory,
    now: datetime | None,
    *,
    is_wide: bool,
) -> str:
    """Tell how far a rollout has come with it, what is wrong with it or keeps it, and when it is tried again.

    Where it is not wide, the way out is left out, and what stands `below` for many.
    """
    stage = status.progress
    if status.is_rebooting:
        return printable(stage)
    sentence = status.error or _worth_telling(status, status.message, now)
    failures = memory.nodes.get(status.node) if status.retry_after else None
    ago = f"{elapsed(seconds_since(failures.at, now))} ago" if failures and now else ""
    again = trouble(failures, ago) if failures else ""
    if is_wide:
        again = (
            f"{again}: `rollout operate` tries it again after {status.retry_after}" if again else ""
        )
        return printable(joined("; ", stage, sentence, again))
    if status.shows and status.judged and not status.needs_reboot:
        return f"not asked: {', '.join(status.shows)}"
    sentence = status.note if status.error else _worth_telling(status, status.note, now)
    if _is_said_below(status, memory):
        sentence = ""
    lead = again if again and not status.is_rolled_back else stage
    return printable(joined("; ", lead, sentence))


def _is_said_below(status: NodeStatus, memory: Memory) -> bool:
    """Whether a sentence below the table gives the cause: all are paused, or the version is held."""
    if status.error:
        return False
    if status.is_paused:
        return status.pause is not None and status.pause == memory.pause
    version = status.staged_version
    is_held = status.reason == ExclusionReason.VERSION_HELD and version in memory.versions
    return is_held and why_held(memory, version) is not None


def _worth_telling(status: NodeStatus, message: str, now: datetime | None) -> str:
    """Why it would be left out, or was; what its state says already, or is our own doing, is not told again."""
    if status.update and status.reason in ("", ExclusionReason.NO_UPDATE):
        told = _of_update(status.update, message, now)
        if told:
            return told
    is_told = status.reason == ExclusionReason.NO_UPDATE and Source.ANNOTATION not in status.shows
    is_ours = status.under_way and status.reason in (
        ExclusionReason.LEFT_CORDONED,
        ExclusionReason.CORDONED,
    )
    if status.reason and not (is_told or is_ours):
        return message
    if status.deferred:
        return status.deferred
    # update_engine's stands in the columns
    return status.detail if set(status.detected_by) - {Source.UPDATE_ENGINE} else ""


def _of_update(update: UpdateStanding, message: str, now: datetime | None) -> str:
    """Return what explains the update state of a host; empty if the state says everything."""
    match update.state:
        case UpdateState.ROLLED_BACK:
            ago = (
                f", {elapsed(seconds_since(update.rolled_back_at, now))} ago"
                if now and update.rolled_back_at
                else ""
            )
            return f"from {update.rolled_back_from}{ago}"
        case UpdateState.BEHIND:
            return f"the cluster has {update.newest_version}"
        case UpdateState.CHECK_FAILED:
            return message
        case UpdateState.UP_TO_DATE | UpdateState.UPDATING | UpdateState.IDLE:
            return ""


def _version(status: NodeStatus) -> str:
    if not status.needs_reboot:
        return printable(status.running_version) or "?"
    return version_step(status.running_version, status.staged_version, status.detected_by)


def _yes(value: bool) -> str:  # noqa: FBT001 - it is a formatter of booleans
    return "yes" if value else "no"


def _remembered(
    memory: Memory, statuses: Sequence[NodeStatus], now: datetime | None
) -> Iterator[FollowUp]:
    """Yield what holds many nodes back, with what ends it; nothing where nothing does."""
    if pause := all_paused(memory, now):
        yield FollowUp(f"{printable(capitalize(cause(pause)))}.", "rollout unpause --all")
    if why := why_aborted(memory):
        yield FollowUp(f"No unattended pass starts a node: {printable(why)}.")
    if slip := memory.slip:
        yield FollowUp(printable(f"{slip} (known since {slip.since})."))
    for version in memory.versions:
        if held := why_held(memory, version):
            staged = sum(status.staged_version == version for status in statuses)
            sentence = f"{printable(capitalize(cause(held)))}; staged on {staged} of these."
            yield FollowUp(sentence, f"rollout release {shell_word(version)}", lead=AFTER_THE_CAUSE)
