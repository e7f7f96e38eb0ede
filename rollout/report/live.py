"""A run on a terminal: a row for each node in flight, finished nodes above, the whole below.

Nothing here is timed by the cluster's clock: rows age by this process's own monotonic one.
"""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from rollout.model.progress import (
    NodeFinished,
    NodeStep,
    Notice,
    Phase,
    PlanReady,
    PodBlocked,
    PodReleased,
    RunFinished,
    StepEvent,
    WaveSettling,
    WaveStarted,
)
from rollout.report import sentences
from rollout.report.text import elapsed, printable

_REFRESHES_PER_SECOND = 8
_BAR_WIDTH = 30
_MOST_HELD = 5
_STYLES = {
    Phase.PENDING: "dim",
    Phase.CORDONED: "cyan",
    Phase.DRAINING: "yellow",
    Phase.DRAINED: "yellow",
    Phase.REBOOTING: "magenta",
    Phase.BOOTED: "blue",
    Phase.READY: "green",
    Phase.DONE: "green",
    Phase.FAILED: "red",
}


@dataclass(frozen=True, slots=True)
class Row:
    """A node in flight. `started` is a monotonic reading."""

    node: str
    phase: Phase
    detail: str
    started: float


@dataclass(frozen=True, slots=True)
class Held:
    """A pod that is held back, as told at a monotonic reading."""

    event: PodBlocked
    heard: float


@dataclass(slots=True)
class Board:
    """What the display shows."""

    rows: dict[str, Row] = field(default_factory=dict)
    held: dict[str, dict[str, Held]] = field(default_factory=dict)
    planned: int = 0
    finished: int = 0
    failed: int = 0
    wave: str = ""
    started: float = 0.0


class LiveProgress:
    """Shows a run on a terminal while the context is open. Safe to call from many threads."""

    def __init__(self, console: Console, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._board = Board(started=monotonic())
        self._spinner = Spinner("dots")
        self._live = Live(
            get_renderable=self._render,
            console=console,
            refresh_per_second=_REFRESHES_PER_SECOND,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._live.stop()

    def notify(self, event: StepEvent) -> None:
        """Take one event into the display."""
        with self._lock:
            told = self._take(event)
        if told is not None:
            self._console.print(told, soft_wrap=True)

    def _take(self, event: StepEvent) -> Text | None:
        match event:
            case PlanReady():
                self._board.planned = event.plan.summary.nodes
            case WaveStarted():
                self._board.wave = f"wave {event.index} of {event.waves}"
                return Text(sentences.sentence(event), style="bold")
            case WaveSettling():
                self._board.wave = sentences.sentence(event)
            case NodeStep():
                self._step(event.node, event.phase, event.detail)
            case PodBlocked():
                self._board.held.setdefault(event.node, {})[event.pod] = Held(event, self._monotonic())
            case PodReleased():
                self._board.held.get(event.node, {}).pop(event.pod, None)
            case NodeFinished():
                return self._finish(event)
            case Notice():
                return Text(sentences.sentence(event), style="yellow")
            case RunFinished():
                self._board.rows.clear()
                self._board.held.clear()
        return None

    def _step(self, node: str, phase: Phase, detail: str) -> None:
        known = self._board.rows.get(node) or Row(node, phase, detail, self._monotonic())
        self._board.rows[node] = replace(known, phase=phase, detail=detail)
        if phase is not Phase.DRAINING:
            self._board.held.pop(node, None)

    def _finish(self, event: NodeFinished) -> Text:
        self._board.rows.pop(event.result.node, None)
        self._board.held.pop(event.result.node, None)
        self._board.finished += 1
        succeeded = event.result.succeeded
        self._board.failed += not succeeded
        mark, style = ("✔", "green") if succeeded else ("✘", "red")
        return Text.assemble((f"{mark} ", style), sentences.finished(event.result))

    def _render(self) -> RenderableType:
        with self._lock:
            return Group(self._table(), self._total())

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
        for style in ("", "bold", "", "", "dim"):
            table.add_column(style=style, no_wrap=True, overflow="ellipsis")
        for row in self._board.rows.values():
            table.add_row(
                self._spinner,
                printable(row.node),
                Text(row.phase, style=_STYLES[row.phase]),
                Text(elapsed(self._monotonic() - row.started), style="dim"),
                Text(printable(row.detail)),
            )
            for line in self._held(row.node):
                table.add_row("", "", "", "", Text(line, style="yellow"))
        return table

    def _held(self, node: str) -> Iterator[str]:
        """A line for each pod that keeps this node waiting, the longest waiting first."""
        held = list(self._board.held.get(node, {}).values())
        for each in held[:_MOST_HELD]:
            waited = (each.event.at - each.event.since).total_seconds() + self._monotonic() - each.heard
            yield sentences.blocked(each.event, waited)
        if len(held) > _MOST_HELD:
            yield f"and {len(held) - _MOST_HELD} more are held back"

    def _total(self) -> Table:
        board = self._board
        total = Table.grid(padding=(0, 2, 0, 0))
        style = "red" if board.failed else "green"
        failed = f", {board.failed} failed" if board.failed else ""
        total.add_row(
            ProgressBar(
                total=max(1, board.planned),
                completed=board.finished,
                width=_BAR_WIDTH,
                complete_style=style,
                finished_style=style,
            ),
            Text(f"{board.finished} of {board.planned} nodes{failed}", style="red" if board.failed else ""),
            Text(elapsed(self._monotonic() - board.started), style="dim"),
            Text(printable(board.wave), style="dim", no_wrap=True, overflow="ellipsis"),
        )
        return total
