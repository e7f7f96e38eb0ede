import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from rollout import __version__
from rollout.adapters.journal import JournalFile, Record, journal_of, list_journals, read_journal
from rollout.adapters.notify import Outbox, destinations
from rollout.cli import wiring
from rollout.cli.settings.schema import Settings
from rollout.cli.stages.notification_repeats import RepeatFilter
from rollout.cli.terminal import say
from rollout.errors import RolloutError
from rollout.execution.rollout.ledger import Aborted
from rollout.model.cluster import ClusterIdentity
from rollout.model.notification import Note, NotifyEvent, render_note
from rollout.model.plan import FORMAT_VERSION, RolloutPlan
from rollout.model.progress import PlanReady, StepEvent
from rollout.model.text import is_run_id
from rollout.model.timestamps import timestamp
from rollout.planning.plan.document import encode_plan
from rollout.planning.play.pace import NO_PAST, PastDurations
from rollout.ports import Observer
from rollout.report.lines import (
    AbortedRecord,
    Command,
    JournalHeader,
    JsonLines,
    event_line,
    journal_record,
)
from rollout.report.notifications import NoteMaker, error_note
from rollout.report.runs.report import read_past

# Large journals are slow to read.
_PAST_RUNS = 10


def past_durations(cluster: ClusterIdentity) -> PastDurations:
    try:
        oldest_first = sorted(list_journals(), key=lambda path: path.stat().st_mtime)
        latest = oldest_first[-_PAST_RUNS:]
        return read_past((read_journal(path) for path in latest), cluster.uid)
    except OSError:
        return NO_PAST


@dataclass(slots=True)
class _Journal:
    """Writes events to the journal. If that fails, it warns once and stops.

    Until this process holds the lock, another may own the file, so events are kept in memory.
    """

    path: Path
    # None after writing has failed.
    file: JournalFile | None
    unwritten_records: list[Record]
    has_lock: bool = False
    mutex: threading.Lock = field(default_factory=threading.Lock)

    def notify(self, event: StepEvent) -> None:
        with self.mutex:
            # `Rollout.run` sends this event when it has taken the lock.
            if isinstance(event, PlanReady):
                self.has_lock = True
            try:
                self._write(event)
            except OSError as error:
                self.file = None
                say(f"warning: the journal {self.path} can no longer be written: {error.strerror}")

    def _write(self, event: StepEvent) -> None:
        if self.file is None:
            return
        self.unwritten_records.append(journal_record(event_line(event)))
        while self.has_lock and self.unwritten_records:
            self.file.write(self.unwritten_records.pop(0))


@contextmanager
def run_journal(
    plan: RolloutPlan,
    command: Command,
    settings: Settings,
    *,
    process: str = "",
    selected: int | None = None,
    lines: JsonLines | None = None,
) -> Iterator[Observer | None]:
    """Yield None if the journal cannot be created.

    `process` names this process in the lock. Percentages refer to the `selected` number of nodes.
    The header is also written to `lines`.
    """
    plan_document = msgspec.json.decode(encode_plan(plan))
    header = JournalHeader(
        at=wiring.now(),
        format_version=FORMAT_VERSION,
        run=plan.plan_id,
        command=command,
        by=wiring.lock_holder(),
        version=__version__,
        cluster=plan_document["cluster"],
        cluster_name=settings.cluster.name,
        policy=plan_document["policy"],
        process=process or UNSET,
        selected=UNSET if selected is None else selected,
    )
    if lines is not None:
        lines.write(header)
    path = settings.output.journal or journal_of(plan.plan_id)
    # Without a journal, the rollout still runs.
    try:
        file = JournalFile(path)
    except OSError as error:
        fix = "to write it elsewhere, set XDG_STATE_HOME or --set output.journal=FILE"
        say(f"warning: cannot write the journal {path}: {error.strerror} ({fix})")
        yield None
        return
    with closing(file):
        yield _Journal(path, file, [journal_record(header)])


def record_abort(aborted: Aborted) -> None:
    path = journal_of(aborted.run_id) if is_run_id(aborted.run_id) else None
    if path is None or not path.exists():
        return
    record = AbortedRecord(
        at=wiring.now(),
        by=wiring.lock_holder(),
        run=aborted.run_id,
        reverted=aborted.reverted,
        left=sorted({**aborted.left_cordoned, **aborted.left_tainted}),
        versions=aborted.versions or UNSET,
    )
    try:
        with closing(JournalFile(path)) as file:
            file.write(journal_record(record))
    except OSError as error:
        say(
            f"warning: cannot record in the journal {path} that the rollout was aborted:"
            f" {error.strerror}"
        )


@dataclass(slots=True)
class _Notifier:
    note_maker: NoteMaker
    outbox: Outbox
    events: frozenset[NotifyEvent]
    is_stopped: Callable[[], bool]
    repeats: RepeatFilter
    mutex: threading.Lock = field(default_factory=threading.Lock)

    def notify(self, event: StepEvent) -> None:
        with self.mutex:
            self.post(self.note_maker.notes_of(event, stopped=self.is_stopped()))

    def post(self, notes: Iterable[Note]) -> None:
        for note in notes:
            repeats_previous_pass = self.repeats.is_repeated(note)
            self.repeats.add(note)
            # A run that has begun has news, even if its text is the same.
            if repeats_previous_pass and not self.note_maker.has_begun:
                continue
            is_wanted = NotifyEvent(note.event) in self.events
            if is_wanted:
                self.outbox.post(render_note(note))


@contextmanager
def run_notifications(
    plan: RolloutPlan,
    settings: Settings,
    *,
    is_stopped: Callable[[], bool] = lambda: False,
    resumed: bool = False,
    unattended: bool = False,
    repeats: RepeatFilter | None = None,
) -> Iterator[Observer | None]:
    """Yield an observer, or None without URLs. An error in this context is sent, too.

    Leaving the context waits some seconds for deliveries.
    """
    options = settings.notify
    receivers = destinations(options.url)
    if not receivers:
        yield None
        return
    longest_block_seconds = float(options.held_after)
    note_maker = NoteMaker(
        plan,
        settings.cluster.name,
        longest_block_seconds,
        resumed=resumed,
        unattended=unattended,
    )
    with closing(Outbox(receivers, say)) as outbox:
        notifier = _Notifier(
            note_maker,
            outbox,
            events=frozenset(options.on),
            is_stopped=is_stopped,
            repeats=repeats or RepeatFilter(),
        )
        try:
            yield notifier
        except BaseException as error:
            with suppress(Exception):
                notifier.post(note_maker.notes_of_error(error, wiring.now()))
            raise


def notify_of_failed_pass(error: RolloutError, settings: Settings, repeats: RepeatFilter) -> None:
    note = replace(error_note(error), next="rollout doctor")
    is_repeated = repeats.is_repeated(note)
    repeats.add(note)
    if not is_repeated:
        send_note(note, settings)


def send_note(note: Note, settings: Settings) -> None:
    options = settings.notify
    receivers = destinations(options.url)
    if not receivers or NotifyEvent(note.event) not in options.on:
        return
    cluster = settings.cluster.name or settings.cluster.context
    note = replace(note, cluster=cluster, at=timestamp(wiring.now()))
    with closing(Outbox(receivers, say)) as outbox:
        outbox.post(render_note(note))
