"""The journal of a run: where it is, what stands first in it, and that it never keeps a rollout from its work."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import UNSET

from rollout import __version__
from rollout.adapters.journal import JournalFile, journal_of, journals, read_journal, runs_directory
from rollout.cli import wiring
from rollout.cli.settings.schema import Settings
from rollout.cli.terminal import say
from rollout.execution.rollout.ledger import Aborted
from rollout.model.cluster import ClusterIdentity
from rollout.model.plan import FORMAT_VERSION, RolloutPlan
from rollout.model.progress import PlanReady, StepEvent
from rollout.model.text import is_run_id
from rollout.planning.plan.document import encode_plan
from rollout.planning.play.pace import NO_PAST, Past
from rollout.ports import Observer
from rollout.report.experience import past_of
from rollout.report.lines import AbortedRecord, Command, JsonLines, RunRecord, line, record_of

# Older ones tell little of how things are now, and a journal of a large run takes a while to read.
_LATEST = 10


def past_runs(cluster: ClusterIdentity) -> Past:
    """Return what the latest runs on this cluster that were written down here took; nothing where none can be read."""
    try:
        latest = sorted(journals(runs_directory()), key=lambda path: path.stat().st_mtime)[-_LATEST:]
        return past_of((read_journal(path) for path in latest), cluster.uid)
    except OSError:
        return NO_PAST


class _Journalled:
    """Tells one observer, and writes down: until that fails, of which it warns once.

    The plan is the first to be told by whoever holds the lock, if any: before it nothing is written, for the journal
    may be that of a rollout which another process is still at work on.
    """

    def __init__(self, observer: Observer, path: Path, journal: JournalFile, first: RunRecord) -> None:
        self._observer = observer
        self._path = path
        self._journal: JournalFile | None = journal
        self._waiting = deque([record_of(first)])
        self._is_held = False

    def notify(self, event: StepEvent) -> None:
        try:
            if self._journal is not None:
                self._write(self._journal, event)
        except OSError as error:
            self._journal = None
            say(f"warning: the journal {self._path} can no longer be written: {error.strerror}")
        self._observer.notify(event)

    def _write(self, journal: JournalFile, event: StepEvent) -> None:
        self._waiting.append(record_of(line(event)))
        self._is_held = self._is_held or isinstance(event, PlanReady)
        while self._is_held and self._waiting:
            journal.write(self._waiting.popleft())


@contextmanager
def journalled(
    observer: Observer,
    plan: RolloutPlan,
    command: Command,
    settings: Settings,
    *,
    process: str = "",
    lines: JsonLines | None = None,
) -> Iterator[Observer]:
    """Yield the observer, with everything that it is told written down as well; `process` as the lock has it, if any.

    `lines` that are to be a journal, too, begin as it does.
    """
    path = settings.output.journal or journal_of(plan.plan_id)
    first = _first_record(plan, command, settings.cluster.name, process)
    if lines is not None:
        lines.write(first)
    try:
        journal = JournalFile(path)
    except OSError as error:
        say(
            f"warning: no journal is written to {path}: {error.strerror} "
            "(XDG_STATE_HOME or --set output.journal names another place)"
        )
        yield observer
        return
    try:
        yield _Journalled(observer, path, journal, first)
    finally:
        journal.close()


def note_abort(aborted: Aborted) -> None:
    """Have the journal of a run that was begun on this machine say that it was undone; others know nothing of it."""
    path = journal_of(aborted.run) if is_run_id(aborted.run) else None
    if path is None or not path.exists():
        return
    left = {**aborted.left_cordoned, **aborted.left_tainted}
    record = AbortedRecord(
        at=wiring.system_clock().now(),
        by=wiring.lease_holder(),
        run=aborted.run,
        reverted=aborted.reverted,
        left=sorted(left),
    )
    try:
        journal = JournalFile(path)
        journal.write(record_of(record))
        journal.close()
    except OSError as error:
        say(f"warning: the journal {path} does not say that it was aborted: {error.strerror}")


def _first_record(plan: RolloutPlan, command: Command, cluster_name: str, process: str) -> RunRecord:
    """Who ran what, with which rules and which version of the program."""
    document = msgspec.json.decode(encode_plan(plan))
    return RunRecord(
        at=wiring.system_clock().now(),
        format_version=FORMAT_VERSION,
        run=plan.plan_id,
        command=command,
        by=wiring.lease_holder(),
        version=__version__,
        cluster=document["cluster"],
        cluster_name=cluster_name,
        policy=document["policy"],
        process=process or UNSET,
    )
