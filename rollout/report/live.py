"""A run on a terminal: the whole in a line, a row for each node in flight below it, finished nodes above.

Nothing here is timed by the cluster's clock: rows age by this process's own monotonic one.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from textwrap import wrap
from types import TracebackType
from typing import Self

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from rollout.execution.base.stop import StopRequest
from rollout.model.progress import NodeFinished, Notice, Phase, PlanReady, StepEvent, VersionHeld
from rollout.model.text import elapsed, printable
from rollout.report.console import print_above, take_turns
from rollout.report.plan_parts import usual_reboot
from rollout.report.run_view import NodeView, RunView
from rollout.report.sentences import blocked_briefly, briefly, is_down, phases, sentence, sign, wave_title

_REFRESHES_PER_SECOND = 8
_MOST_HELD = 5
# The line of the whole, that of nodes left out, and the cursor's.
_OTHER_LINES = 3
# Between columns, and what the last of them has at least where the others are left whole.
_GAP, _LEAST_DETAIL = 2, 20
_DETAIL_LINES = 2
_HELD = "yellow"
_WIDEST = 100
_LEAST = 60
_STOPPING = "stopping · Ctrl-C again: quit now · no further node is started, those in flight are finished"
_REVERTING = "stopping · Ctrl-C again: quit now · no further node is started, those not yet rebooting are given back"
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


class LiveProgress:
    """Shows a run on a terminal while the context is open. Safe to call from many threads."""

    def __init__(
        self,
        console: Console,
        monotonic: Callable[[], float] = time.monotonic,
        stop: StopRequest | None = None,
    ) -> None:
        self._console = console
        self._monotonic = monotonic
        self._stop = stop or StopRequest()
        self._lock = threading.Lock()
        self._view = RunView()
        self._started = monotonic()
        self._doing = "starting"
        self._estimate = 0.0
        self._usual_reboot = ""
        self._spinner = Spinner("dots")
        self._live = Live(
            get_renderable=self._render,
            console=console,
            refresh_per_second=_REFRESHES_PER_SECOND,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        take_turns(self._live)

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
            self._view.take(event, self._monotonic())
            line = self._line(event)
        if line is not None:
            print_above(self._live, line)

    def _line(self, event: StepEvent) -> Text | None:
        """What an event leaves above the board."""
        match event:
            case PlanReady():
                self._estimate = event.plan.estimate.seconds
                self._usual_reboot = usual_reboot(event.plan.estimate)
            case NodeFinished():
                self._estimate = _at_this_pace(self._view, self._estimate)
                style = "green" if event.succeeded else "red"
                # one line, whatever there is to say: the end of the run tells a failure whole
                return Text.assemble((f"{sign(event)} ", style), briefly(event), no_wrap=True, overflow="ellipsis")
            case Notice() | VersionHeld():
                self._doing = sentence(event)
                return Text(self._doing, style="yellow")
            case _:
                pass
        return None

    def _render(self) -> RenderableType:
        with self._lock:
            text = _REVERTING if self._stop.revert else _STOPPING
            stopping = [_in_a_line(text, "bold yellow")] if self._stop.requested else []
            return Group(self._total(), self._table(), *stopping)

    def _table(self) -> Table:
        """As many rows as the terminal is high; the others as figures."""
        rows = self._view.in_flight
        shown = self._fitting(rows)
        table = Table(box=None, pad_edge=False, show_header=False, padding=(0, _GAP, 0, 0))
        left = [row for row in rows if row not in shown]
        rest = f"and {len(left)} more" if left else ""
        widths = (1, max(len(rest), *(len(row.name) for row in shown)) if shown else 0, max(map(len, Phase)), 6)
        for style, width in zip(("", "bold", "", ""), widths, strict=True):
            most = self._console.width // (3 if self._console.width >= _LEAST else 6)
            table.add_column(style=style, no_wrap=True, overflow="ellipsis", min_width=min(width, most), max_width=most)
        # a line that is wider than what is left would not be shortened, but cut, and the other columns with it
        left_over = self._console.width - sum(widths) - _GAP * len(widths)
        whole = left_over >= _LEAST_DETAIL
        table.add_column(style="dim", no_wrap=whole, overflow="ellipsis", max_width=left_over if whole else None)
        for row in shown:
            self._add(table, row, left_over if whole and self._has_room(rows, left_over) else 0)
        if left:
            table.add_row("", rest, "", "", _in_a_line(phases(left), "dim"))
        return table

    def _add(self, table: Table, row: NodeView, room: int) -> None:
        """A node's row; what it waits for goes on in a second line where there is no `room`, in columns, for it."""
        detail = printable(self._detail(row))
        first, *more = wrap(detail, room, max_lines=_DETAIL_LINES, placeholder=" …") if room and detail else [detail]
        table.add_row(
            self._spinner,
            printable(row.name),
            _phase(row.phase),
            Text(elapsed(self._monotonic() - row.begun), style="dim"),
            _in_a_line(first),
        )
        for further in more:
            table.add_row("", "", "", "", _in_a_line(further))
        for line in self._held(row):
            table.add_row("", "", "", "", line)

    def _detail(self, row: NodeView) -> str:
        """What a node waits for; that a host is silent while it reboots is as it should be."""
        if not is_down(row):
            return row.detail
        usually = f", usually {self._usual_reboot}" if self._usual_reboot else ""
        return f"down for {elapsed(self._monotonic() - row.entered)}{usually}"

    def _fitting(self, rows: Sequence[NodeView]) -> list[NodeView]:
        """All rows where they fit; else those that are held back first, then those longest in their phase."""
        room, lines = self._room, self._lines(rows)
        if sum(lines.values()) <= room:
            return list(rows)
        chosen = set[str]()
        for row in sorted(rows, key=lambda row: (not row.held, row.entered)):
            if sum(lines[node] for node in chosen) + lines[row.name] < room or not chosen:
                chosen.add(row.name)
        return [row for row in rows if row.name in chosen]

    @property
    def _room(self) -> int:
        """Lines for the nodes in flight."""
        return max(1, self._console.height - _OTHER_LINES - self._stop.requested)

    def _lines(self, rows: Sequence[NodeView]) -> dict[str, int]:
        """By node, its own line and those of the pods that hold it up."""
        return {row.name: 1 + min(len(row.held), _MOST_HELD + 1) for row in rows}

    def _has_room(self, rows: Sequence[NodeView], columns: int) -> bool:
        """Whether all fit with a second line for each detail that is longer than so many columns."""
        return sum(self._lines(rows).values()) + sum(len(row.detail) > columns for row in rows) <= self._room

    def _held(self, node: NodeView) -> Iterator[RenderableType]:
        """A line for each pod that keeps this node waiting, the longest waiting first."""
        held = list(node.held.values())
        for hold in held[:_MOST_HELD]:
            waited = (hold.event.at - hold.event.since).total_seconds() + self._monotonic() - node.heard[hold.event.pod]
            yield _in_a_line(blocked_briefly(hold.event, waited), _HELD)
        if len(held) > _MOST_HELD:
            yield _in_a_line(f"and {len(held) - _MOST_HELD} more are held back", _HELD)

    def _total(self) -> Text:
        """Which wave it is, and how far the whole has come, at the other end of the line."""
        view = self._view
        if view.told_at is None:
            return _in_a_line(f"{elapsed(self._monotonic() - self._started)}  {printable(self._doing)}", "dim")
        ended, failed = len(view.ended), f", {view.failed} failed" if view.failed else ""
        took, is_over = self._monotonic() - view.told_at, ended >= view.planned
        time_spent = elapsed(took) if is_over else _against(took, self._estimate)
        figures = f"{ended} of {view.planned} done{failed}, {time_spent}"
        room = min(self._console.width, _WIDEST) - cell_len(figures) - _GAP
        wave = next((wave for wave in self._waves() if cell_len(wave) <= room), "")
        figures_text = Text(figures, style="red" if failed else "")
        return Text.assemble(f"{wave:<{room + _GAP}}" if wave else "", figures_text, no_wrap=True, overflow="ellipsis")

    def _waves(self) -> Sequence[str]:
        wave = ""
        if self._view.settling:
            wave = sentence(self._view.settling)
        elif self._view.waves:
            last = self._view.waves[-1]
            wave = wave_title(last.index, last.of, last.in_flight)
        wave = wave[:1].upper() + wave[1:]
        return (wave, wave.partition(":")[0], wave.partition(",")[0])


def _in_a_line(text: str, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _phase(phase: Phase | None) -> Text:
    return Text(phase, style=_STYLES[phase]) if phase else Text()


def _at_this_pace(view: RunView, planned: float) -> float:
    """How long all takes, in seconds, where a node's end is worth its share of what its wave was to take.

    `planned` is what was expected so far, 0 where that is not known.
    """
    waves = view.plans[-1].waves if view.plans else ()
    shares = {node.name: wave.estimate.seconds / len(wave.nodes) for wave in waves for node in wave.nodes}
    ended = [node for node in view.nodes.values() if node.end]
    done = sum(shares.get(node.name, 0.0) for node in ended)
    if view.told_at is None or not (planned and done):
        return planned
    return (max(node.entered for node in ended) - view.told_at) * sum(shares.values()) / done


def _against(took: float, estimate: float) -> str:
    """How long it has taken, against the estimate while that holds."""
    if not estimate:
        return elapsed(took)
    return (
        f"{elapsed(took)} of about {elapsed(estimate)}"
        if took <= estimate
        else f"{elapsed(took)}, longer than estimated"
    )
