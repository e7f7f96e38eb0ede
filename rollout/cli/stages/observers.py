import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET

from rollout import __version__
from rollout.adapters.journal import JournalFile, Record, journal_of, list_journals, read_journal
from rollout.adapters.local_files import write_whole
from rollout.adapters.notify import Outbox, destinations
from rollout.cli import failures, wiring
from rollout.cli.settings.schema import Settings
from rollout.cli.terminal import say
from rollout.errors import ExitCode, RolloutError
from rollout.execution.rollout.ledger import Aborted
from rollout.model.cluster import ClusterIdentity, ClusterSnapshot
from rollout.model.host import HostObservation
from rollout.model.notification import Note, NotifyEvent, render_note
from rollout.model.plan import FORMAT_VERSION, RolloutPlan
from rollout.model.progress import PlanReady, StepEvent
from rollout.model.text import is_run_id
from rollout.model.timestamps import timestamp
from rollout.planning.eligibility.versions import update_standings
from rollout.planning.plan.document import encode_plan
from rollout.planning.play.pace import NO_PAST, Past
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

if TYPE_CHECKING:
    from rollout.report.metrics import Metrics

# Older runs say little, and large journals are slow to read.
_PAST_RUNS = 10
_LARGEST_TEXTFILE = 16_000_000
# Metrics of thousands of nodes are slow to write.
_SECONDS_BETWEEN_DELIVERIES = 5.0
_LAST_DELIVERY_SECONDS = 5.0


def past_runs(cluster: ClusterIdentity) -> Past:
    try:
        latest = sorted(list_journals(), key=lambda path: path.stat().st_mtime)[-_PAST_RUNS:]
        return read_past((read_journal(path) for path in latest), cluster.uid)
    except OSError:
        return NO_PAST


@dataclass(slots=True)
class _Journal:
    """An observer that writes events to the journal. If writing fails, it warns once and stops.

    Safe to use from many threads. Nothing is written before the plan: until this process holds the
    lock, another process may own the file.
    """

    path: Path
    # None after writing has failed.
    file: JournalFile | None
    # Records that are not written yet.
    waiting: list[Record]
    has_plan: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def notify(self, event: StepEvent) -> None:
        with self.lock:
            if isinstance(event, PlanReady):
                self.has_plan = True
            try:
                self._write(event)
            except OSError as error:
                self.file = None
                say(f"warning: the journal {self.path} can no longer be written: {error.strerror}")

    def _write(self, event: StepEvent) -> None:
        if self.file is None:
            return
        self.waiting.append(journal_record(event_line(event)))
        while self.has_plan and self.waiting:
            self.file.write(self.waiting.pop(0))


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

    `selected` nodes are the base of percentages, None if unknown. `process` names this process in
    the lock. `lines` also get the header, because a pod's log outlives its files.
    """
    document = msgspec.json.decode(encode_plan(plan))
    header = JournalHeader(
        at=wiring.now(),
        format_version=FORMAT_VERSION,
        run=plan.plan_id,
        command=command,
        by=wiring.lease_holder(),
        version=__version__,
        cluster=document["cluster"],
        cluster_name=settings.cluster.name,
        policy=document["policy"],
        process=process or UNSET,
        selected=UNSET if selected is None else selected,
    )
    if lines is not None:
        lines.write(header)
    path = settings.output.journal or journal_of(plan.plan_id)
    try:
        file = JournalFile(path)
    except OSError as error:
        places = "XDG_STATE_HOME or --set output.journal names another place"
        say(f"warning: no journal is written to {path}: {error.strerror} ({places})")
        yield None
        return
    with closing(file):
        yield _Journal(path, file, [journal_record(header)])


def record_abort(aborted: Aborted) -> None:
    path = journal_of(aborted.run) if is_run_id(aborted.run) else None
    if path is None or not path.exists():
        return
    record = AbortedRecord(
        at=wiring.now(),
        by=wiring.lease_holder(),
        run=aborted.run,
        reverted=aborted.reverted,
        left=sorted({**aborted.left_cordoned, **aborted.left_tainted}),
        versions=aborted.versions or UNSET,
    )
    try:
        with closing(JournalFile(path)) as file:
            file.write(journal_record(record))
    except OSError as error:
        say(f"warning: the journal {path} does not say that it was aborted: {error.strerror}")


@dataclass(slots=True)
class RepeatFilter:
    """Detects a notification that repeats the last one of the previous pass."""

    # The last notification of the previous and of this pass, without its time and run.
    previous: Note | None = None
    current: Note | None = None

    def begin_pass(self) -> None:
        self.previous = self.current
        self.current = None

    def is_repeated(self, note: Note) -> bool:
        return _without_run(note) == self.previous

    def add(self, note: Note) -> None:
        self.current = _without_run(note)


def _without_run(note: Note) -> Note:
    return replace(note, at="", run="")


@dataclass(slots=True)
class _Notifier:
    """An observer that sends notifications of a run. Safe to use from many threads."""

    note_maker: NoteMaker
    outbox: Outbox
    events: frozenset[NotifyEvent]
    is_stopped: Callable[[], bool]
    repeats: RepeatFilter
    lock: threading.Lock = field(default_factory=threading.Lock)

    def notify(self, event: StepEvent) -> None:
        with self.lock:
            self.post(self.note_maker.notes_of(event, stopped=self.is_stopped()))

    def post(self, notes: Iterable[Note]) -> None:
        for note in notes:
            is_repeated = self.repeats.is_repeated(note)
            self.repeats.add(note)
            # Notifications of a run that has begun are never repetitions.
            if is_repeated and not self.note_maker.has_begun:
                continue
            if NotifyEvent(note.event) in self.events:
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
    """Yield None without a URL. Leaving the context waits some seconds for deliveries."""
    options = settings.notify
    receivers = destinations(options.url)
    if not receivers:
        yield None
        return
    held_after = float(options.held_after)
    note_maker = NoteMaker(
        plan, settings.cluster.name, held_after, resumed=resumed, unattended=unattended
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


@dataclass(slots=True)
class MeasuredPass:
    """The exit code of a pass, set by whoever makes it."""

    code: ExitCode = ExitCode.OK


@contextmanager
def measure_pass(metrics: "Metrics | None") -> Iterator[MeasuredPass]:
    """The result is the code that the caller sets, or an error's."""
    measured = MeasuredPass()
    clock = wiring.system_clock()
    if metrics:
        metrics.begin_pass(clock.now())
    try:
        yield measured
    except BaseException as error:
        measured.code = failures.exit_code(error)
        raise
    finally:
        if metrics:
            from rollout.report.metrics import PassResult

            metrics.end_pass(PassResult.of(measured.code), clock.now())


@contextmanager
def deliver_metrics(
    settings: Settings, server: str, *, serves: bool = False
) -> "Iterator[Metrics | None]":
    """Deliver metrics in this context. Yield None if the settings name no receiver.

    `server` is the default name of the cluster. With `serves`, also serve them over HTTP, or raise
    `InputError`.
    """
    options = settings.metrics
    listen = options.listen if serves else ""
    if not (options.textfile or options.pushgateway or listen):
        yield None
        return
    from rollout.report.metrics import Metrics

    metrics = Metrics(cluster_name(settings, server))
    with ExitStack() as deliveries:
        if options.textfile:
            file = str(options.textfile)
            write = _textfile_writer(options.textfile, metrics)
            deliveries.enter_context(deliver_changes(file, write, lambda: metrics.generation))
        if options.pushgateway:
            from rollout.adapters.metrics import Pushgateway

            gateway = Pushgateway(options.pushgateway, metrics.cluster)

            def push() -> None:
                gateway.push(metrics, metrics.last_success(), is_whole=metrics.has_plan)

            deliveries.enter_context(deliver_changes(gateway.url, push, lambda: metrics.generation))
        if listen:
            from rollout.adapters.metrics import serve
            from rollout.cli.stages.web import RunPages

            pages = RunPages(settings).page
            serving = serve(listen, (metrics,), lambda: metrics.is_ready, pages)
            url = deliveries.enter_context(serving)
            say(f"metrics: {url}/metrics")
        yield metrics


def _textfile_writer(file: Path, metrics: "Metrics") -> Callable[[], None]:
    """Return a function that writes the metrics. Its first call keeps those already in the file."""

    @cache
    def read_earlier() -> None:
        with suppress(Exception):
            if file.is_file() and file.stat().st_size <= _LARGEST_TEXTFILE:
                metrics.remember(file.read_text(encoding="utf-8"))

    def write() -> None:
        read_earlier()
        write_whole(file, metrics.text())

    return write


def observe_cluster(
    metrics: "Metrics | None",
    observations: Mapping[str, HostObservation],
    snapshot: ClusterSnapshot,
    longest_silence: float,
) -> None:
    if metrics:
        metrics.observe_hosts(observations)
        metrics.observe_updates(update_standings(snapshot.nodes, observations, longest_silence))
        metrics.observe_memory(snapshot.memory)


def cluster_name(settings: Settings, server: str) -> str:
    if settings.cluster.name:
        return settings.cluster.name
    parts = urlsplit(server)
    return f"{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}" or server


@contextmanager
def deliver_changes(
    place: str, deliver: Callable[[], None], generation: Callable[[], int]
) -> Iterator[None]:
    """Deliver each new generation in this context, and an undelivered one at the end.

    Failures are retried. The first prints a warning with the `place`, which has no secret.
    """
    clock = wiring.system_clock()
    ended = threading.Event()
    has_warned = False

    def warn_once(problem: str) -> None:
        nonlocal has_warned
        if not has_warned:
            say(f"warning: the metrics do not reach {place}: {problem}")
        has_warned = True

    def deliver_until_ended() -> None:
        delivered = 0
        has_ended = False
        while not has_ended:
            # After the end, deliver once more.
            has_ended = clock.wait(ended, _SECONDS_BETWEEN_DELIVERIES)
            current = generation()
            try:
                if current != delivered:
                    deliver()
                    delivered = current
            except Exception as error:  # noqa: BLE001 - whatever it is, the nodes come first
                warn_once(str(error))

    thread = threading.Thread(target=deliver_until_ended, name="metrics", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_LAST_DELIVERY_SECONDS)
        if thread.is_alive():
            warn_once(f"no response within {_LAST_DELIVERY_SECONDS:g}s")
