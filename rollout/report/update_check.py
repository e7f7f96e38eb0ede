"""Checks for updates as they go on: bars on a terminal, lines elsewhere, JSON lines for programs."""

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import IO, Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn
from rich.text import Text

from rollout.gather.updates.check import CheckOutcome, CheckResult, Watched
from rollout.model.host import UpdateOperation, UpdateStatus
from rollout.model.json_text import json_line
from rollout.model.plan import FORMAT_VERSION
from rollout.model.text import counted, printable, shortened, timestamp
from rollout.ports import Clock
from rollout.report.document_types import CheckLine, CheckSummaryLine, ResultLine, UpdateLine
from rollout.report.lines import VersionLine, record_of
from rollout.report.shared_console import print_above, take_turns

_PREFIX = "UPDATE_STATUS_"
_STEPS = 10
_MOST_NODES = 5
_AFTER_THE_DOWNLOAD = frozenset({UpdateOperation.VERIFYING, UpdateOperation.FINALIZING})


class CheckReport(Protocol):
    """Is told of changes and of ends, on one thread."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def changed(self, item: Watched) -> None:
        """A host does something else now, or is further with it."""

    def ended(self, result: CheckResult) -> None:
        """A host's check is over."""


class _Lines:
    """What has nothing to open or close."""

    def __init__(self, stream: IO[str], clock: Clock) -> None:
        self._stream = stream
        self._clock = clock

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stream.flush()

    def _write(self, line: str) -> None:
        self._stream.write(f"{line}\n")
        self._stream.flush()


class CheckLines(_Lines):
    """A line with the time of day for each new operation, each tenth of a download, and each end."""

    def __init__(self, stream: IO[str], clock: Clock) -> None:
        super().__init__(stream, clock)
        self._told: dict[str, str] = {}

    def changed(self, item: Watched) -> None:
        """Tell of a change, where a reader would want to know."""
        tenth = int(item.last.progress * _STEPS) if item.last.operation is UpdateOperation.DOWNLOADING else 0
        step = f"{item.last.operation} {tenth} {item.problem}"
        if self._told.get(item.node) != step:
            self._told[item.node] = step
            self._say(f"{printable(item.node)}: {_doing(item)}")

    def ended(self, result: CheckResult) -> None:
        """Tell of an end."""
        self._say(result_text(result))

    def _say(self, text: str) -> None:
        self._write(f"{self._clock.now().astimezone():%H:%M:%S} {text}")


class CheckJsonLines(_Lines):
    """One object a line, each with `type` and `at`: `version`, `update`, `result`, and at the end `summary`."""

    def __enter__(self) -> Self:
        self._object(VersionLine(self._clock.now(), FORMAT_VERSION))
        return self

    def changed(self, item: Watched) -> None:
        """Tell of a change."""
        status = item.last
        line = UpdateLine(
            type="update",
            at=self._now(),
            node=item.node,
            operation=status.operation,
            progress=status.progress,
            version=status.new_version,
            problem=item.problem,
        )
        self._object(line)

    def ended(self, result: CheckResult) -> None:
        """Tell of an end."""
        line = ResultLine(
            type="result",
            at=self._now(),
            node=result.node,
            outcome=result.outcome,
            version=result.version,
            message=result.message,
            last_checked=result.last_checked,
        )
        self._object(line)

    def summary(self, results: Sequence[CheckResult]) -> None:
        """The last line: every node in exactly one list."""
        names = _by_outcome(results)
        line = CheckSummaryLine(
            type="summary",
            at=self._now(),
            asked=names[CheckOutcome.ASKED],
            staged=names[CheckOutcome.STAGED],
            up_to_date=names[CheckOutcome.UP_TO_DATE],
            unreachable=names[CheckOutcome.UNREACHABLE],
            refused=names[CheckOutcome.REFUSED],
            failed=names[CheckOutcome.FAILED],
            stalled=names[CheckOutcome.STALLED],
            timed_out=names[CheckOutcome.TIMED_OUT],
        )
        self._object(line)

    def _object(self, line: CheckLine) -> None:
        self._write(json_line(record_of(line) if isinstance(line, VersionLine) else line).decode())

    def _now(self) -> str:
        return timestamp(self._clock.now())


class CheckBars:
    """A bar for each host under way; what has ended stands above."""

    def __init__(self, console: Console) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
        self._bars = Progress(*columns, console=console, transient=True)
        take_turns(self._bars.live)
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bars.stop()

    def changed(self, item: Watched) -> None:
        """Draw a change."""
        text = f"{printable(item.node)}  {_doing(item)}"
        if item.node not in self._tasks:
            self._tasks[item.node] = self._bars.add_task(text, total=1.0)
        self._bars.update(self._tasks[item.node], description=text, completed=_done(item.last))

    def ended(self, result: CheckResult) -> None:
        """Take the bar away."""
        if result.node in self._tasks:
            self._bars.remove_task(self._tasks.pop(result.node))
        print_above(self._bars.live, Text(result_text(result)))


def _done(status: UpdateStatus) -> float:
    """Verifying and finalizing come after the download, and count as all of it."""
    return 1.0 if status.operation in _AFTER_THE_DOWNLOAD else status.progress


def _doing(item: Watched) -> str:
    """`downloading 4152.2.0 (42%)`, or why that is not known."""
    if item.problem:
        return printable(item.problem)
    status = item.last
    doing = status.operation.removeprefix(_PREFIX).lower().replace("_", " ")
    version = f" {printable(status.new_version)}" if status.new_version else ""
    return f"{doing}{version}" + (f" ({status.progress:.0%})" if _is_loading(status) else "")


def _is_loading(status: UpdateStatus) -> bool:
    return status.operation is UpdateOperation.DOWNLOADING


def result_text(result: CheckResult) -> str:
    """One host's end, in a line."""
    details = ": ".join(part for part in (printable(result.version), printable(result.message)) if part)
    return f"{printable(result.node)}: {result.outcome}" + (f" ({details})" if details else "")


def _by_outcome(results: Iterable[CheckResult]) -> Mapping[CheckOutcome, list[str]]:
    """Names of nodes by outcome, none left out."""
    names: dict[CheckOutcome, list[str]] = {outcome: [] for outcome in CheckOutcome}
    for result in results:
        names[result.outcome].append(result.node)
    return names


def summary_text(results: Sequence[CheckResult]) -> str:
    """The whole in a sentence, and what went wrong: hosts of which the same is said in one line."""
    numbers = [(outcome, sum(item.outcome is outcome for item in results)) for outcome in CheckOutcome]
    figures = ", ".join(f"{number} {outcome}" for outcome, number in numbers if number)
    alike: dict[tuple[str, str], list[str]] = {}
    for item in results:
        if not item.settled:
            alike.setdefault((item.outcome, item.message), []).append(item.node)
    lines = [
        f"  {outcome}: {shortened(names, _MOST_NODES)}: {printable(message)}"
        for (outcome, message), names in alike.items()
    ]
    return "\n".join((f"{counted(len(results), 'host')}: {figures or 'nothing to do'}.", *lines))
