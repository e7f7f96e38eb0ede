"""The rows of `status`, and what earlier rollouts have left to remember: read at a glance."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from rollout.model.detection import DEFAULT_SOURCES, Source
from rollout.model.memory import Memory
from rollout.model.plan import ExclusionReason
from rollout.model.text import NOTHING, counted, or_nothing, printable, shell_word, shortened, version_step
from rollout.model.unasked import detect_flag
from rollout.planning.memory import trouble, why_aborted, why_held
from rollout.planning.status import NodeStatus
from rollout.report.columns import Column, table_text, wrapped
from rollout.report.tables import reason_sign

_OPERATION_PREFIX = "UPDATE_STATUS_"
_STATUS_COLUMNS = (
    Column("NODE"),
    Column("READY", leaves=4),
    Column("SCHEDULABLE", leaves=3),
    Column("OPERATION", leaves=1),
    Column("VERSION"),
    Column("REBOOT"),
    Column("NOTE", note=True),
)
_STATUS_POOL = Column("POOL", leaves=2)
_STATUS_WIDE = (Column("GROUP"), Column("USERS"))
# Between the word of a reason and its sentence.
_PARTS_NOTE = ": "


def status_text(
    statuses: Sequence[NodeStatus],
    *,
    width: int | None = None,
    only_pending: bool = False,
    wide: bool = False,
    signs: bool = False,
    asked: Sequence[Source] = DEFAULT_SOURCES,
    remembered: Sequence[str] = (),
) -> str:
    """One row a node, and how many wait for a reboot. `width` in columns, None for no limit.

    With `only_pending` no row for nodes that nothing waits for; all of them count. `wide` adds what few look for. With
    `signs` a glance is enough. `asked` are the sources of `detect.sources`, `remembered` sentences that stand last.

    Within a width, what is said of several nodes, or remembered, stands once below the table, and in rows its word.
    """
    if not statuses:
        return "No node is left to show: all that are selected are excluded."
    shown = [status for status in statuses if status.is_pending or not only_pending]
    notes = [_note(status) for status in shown]
    repeated = {} if width is None else _repeated(shown, notes, remembered)
    brief = [_split(note)[0] if note in repeated else note for note in notes]
    table = _status_table(shown, brief, width, wide=wide, signs=signs)
    waiting = sum(status.needs_reboot and not (status.is_paused or status.is_rebooting) for status in statuses)
    paused = sum(status.needs_reboot and status.is_paused for status in statuses)
    verb = "waits" if waiting == 1 else "wait"
    unknown = sum(not (status.judged or status.is_rebooting) for status in statuses)
    rebooting = sum(status.is_rebooting for status in statuses)
    counts = ((rebooting, "rebooting"), (paused, "paused"), (unknown, "unknown"))
    rest = "".join(f", {number} {word}" for number, word in counts if number)
    text = f"{table}{counted(waiting, 'node')} of {len(statuses)} {verb} for a reboot{rest}.{_logged_in(statuses)}"
    lines = (*_said_once(repeated, remembered), *_led_on(statuses, asked), *remembered)
    return "\n".join((text, *(wrapped(line, width) for line in lines)))


def _repeated(
    statuses: Sequence[NodeStatus], notes: Sequence[str], remembered: Sequence[str]
) -> Mapping[str, Sequence[str]]:
    """Notes of a word and a sentence that stand better elsewhere, as of several nodes, with these nodes."""
    nodes: dict[str, list[str]] = {}
    for status, note in zip(statuses, notes, strict=True):
        if _PARTS_NOTE in note:
            nodes.setdefault(note, []).append(status.node)
    return {note: names for note, names in nodes.items() if len(names) > 1 or _is_among(note, remembered)}


def _is_among(note: str, remembered: Sequence[str]) -> bool:
    """Whether its sentence, without the way out in parentheses, is told by what is remembered."""
    sentence = _split(note)[1]
    return any((sentence.rpartition(" (")[0] or sentence).lower() in line.lower() for line in remembered)


def _split(note: str) -> tuple[str, str]:
    word, _, sentence = note.partition(_PARTS_NOTE)
    return word, sentence


def _said_once(repeated: Mapping[str, Sequence[str]], remembered: Sequence[str]) -> Iterator[str]:
    for note, nodes in repeated.items():
        if not _is_among(note, remembered):
            word, sentence = _split(note)
            yield f"{word} ({shortened(nodes)}): {sentence}"


def _led_on(statuses: Sequence[NodeStatus], asked: Sequence[Source]) -> Iterator[str]:
    """What tells more: of hosts that could not be judged, and of those that were not asked by all that they have."""
    if any(not (status.judged or status.shows or status.is_rebooting) for status in statuses):
        yield "Why some are unknown, and how to fix it: rollout doctor"
    yield from _unasked(statuses, asked)


def _unasked(statuses: Sequence[NodeStatus], asked: Sequence[Source]) -> Iterator[str]:
    """By which sources more could be told than by those that were `asked`; nothing where none is known."""
    silent = [status for status in statuses if status.shows and not status.needs_reboot]
    counts = Counter(source for status in silent for source in status.shows)
    if shown := [source for source in Source if source in counts]:
        nodes = ", ".join(f"{source} on {counts[source]}" for source in shown)
        yield f"{counted(len(silent), 'node')} could tell more: {detect_flag(asked, shown)} ({nodes})"


def _status_table(
    statuses: Sequence[NodeStatus], notes: Sequence[str], width: int | None, *, wide: bool, signs: bool
) -> str:
    """The rows with what parts them from the line below; nothing where there is none."""
    if not statuses:
        return ""
    rows = [(*_status_row(status, signs=signs), note) for status, note in zip(statuses, notes, strict=True)]
    columns = list(_STATUS_COLUMNS)
    if any(status.pool for status in statuses):
        columns.insert(1, _STATUS_POOL)
        rows = [(row[0], printable(status.pool), *row[1:]) for row, status in zip(rows, statuses, strict=True)]
    if wide:
        columns[-1:-1] = _STATUS_WIDE
        rows = [(*row[:-1], *_wide(status), row[-1]) for row, status in zip(rows, statuses, strict=True)]
    return f"{table_text(columns, rows, width)}\n\n"


def _wide(status: NodeStatus) -> tuple[str, str]:
    """The update group, and who is logged in: a question mark where the host does not tell."""
    users = "?" if status.users is None else shortened([str(user) for user in status.users], 3)
    return or_nothing(status.group), users or NOTHING


def _logged_in(statuses: Sequence[NodeStatus]) -> str:
    """How many users there are on how many nodes; nothing where there is none."""
    users = [len(status.users) for status in statuses if status.users]
    return f" {counted(sum(users), 'user')} logged in on {counted(len(users), 'node')}." if users else ""


def _status_row(status: NodeStatus, *, signs: bool) -> tuple[str, ...]:
    reboot = "now" if status.is_rebooting else _yes(status.needs_reboot) if status.judged else "?"
    return (
        printable(status.node),
        _yes(status.ready),
        _yes(status.schedulable),
        or_nothing(status.operation.removeprefix(_OPERATION_PREFIX).lower().replace("_", "-")),
        _status_version(status),
        f"{_status_sign(status)}{reboot}" if signs else reboot,
    )


def _note(status: NodeStatus) -> str:
    """How far a rollout has come with it, and what is wrong with it or keeps it."""
    if status.is_rebooting:
        return printable(status.under_way)
    return printable("; ".join(filter(None, (status.under_way, status.error or _worth_telling(status)))))


def _status_sign(status: NodeStatus) -> str:
    """Whether apply would take it, or something keeps it that an operator has to see to; empty of all others."""
    # what a rollout does to a node keeps it from another, and is nothing to see to
    word = "" if status.under_way else status.reason.partition(":")[0]
    if status.rollback or (status.error and not status.is_rebooting) or (word and reason_sign(ExclusionReason(word))):
        return "! "
    return "~ " if status.needs_reboot and not word else ""


def _worth_telling(status: NodeStatus) -> str:
    """Why it would be left out, or was; what stands in the columns already, or is our own doing, is not told again."""
    known = (
        ExclusionReason.NO_UPDATE,
        *((ExclusionReason.LEFT_CORDONED, ExclusionReason.CORDONED) if status.under_way else ()),
    )
    if status.rollback:
        return status.rollback
    is_annotated = Source.ANNOTATION in status.shows
    if status.reason and (is_annotated or not status.reason.startswith(known)):
        return status.reason
    if status.deferred:
        return f"{ExclusionReason.DEFERRED}: {status.deferred}"
    # update_engine's stands in the columns
    return status.detail if set(status.detected_by) - {Source.UPDATE_ENGINE} else ""


def _status_version(status: NodeStatus) -> str:
    if not status.needs_reboot:
        return or_nothing(status.running_version)
    return version_step(status.running_version, status.staged_version, status.detected_by)


def _yes(value: bool) -> str:  # noqa: FBT001 - it is a formatter of booleans
    return "yes" if value else "no"


_MOST_NODES = 10


def memory_lines(memory: Memory, statuses: Sequence[NodeStatus], now: datetime | None) -> Iterator[str]:
    """A line for each thing that holds nodes back, with what ends it; nothing where nothing does."""
    if memory.pause is not None and not memory.pause.is_over(now):
        yield f"All nodes are {printable(str(memory.pause))}. End it: rollout unpause --all"
    if why := why_aborted(memory):
        yield f"No unattended pass begins anything: {printable(why)}"
    for version in memory.versions:
        if why := why_held(memory, version):
            staged = sum(status.staged_version == version for status in statuses)
            yield f"{printable(why)}; staged on {staged} of these. Release it: rollout release {shell_word(version)}"
    resting = [status for status in statuses if status.retry_after]
    for status in resting[:_MOST_NODES]:
        why = printable(trouble(memory.nodes[status.node]))
        yield f"{printable(status.node)} {why}: rollout operate tries it again after {status.retry_after}"
    if len(resting) > _MOST_NODES:
        yield f"Failed a short while ago, too: {shortened([status.node for status in resting[_MOST_NODES:]])}"
