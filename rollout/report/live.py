"""A run on a terminal: the whole in a line, a row for each node in flight below it, finished nodes above.

Nothing here is timed by the cluster's clock: rows age by this process's own monotonic one.
"""

import threading
import time
from collections.abc import Callable, Iterator
from itertools import accumulate
from textwrap import wrap
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from rollout.execution.base.deadline import StopRequest
from rollout.model.progress import NodeFinished, Notice, Phase, PodsEvicted, StepEvent, VersionHeld
from rollout.model.text import excerpt, printable
from rollout.model.timestamps import elapsed
from rollout.report.console import print_above, share_console
from rollout.report.plan_screen import usual_reboot
from rollout.report.run_view import NodeView, RunView
from rollout.report.sentences import (
    blocked_lines,
    brief_result,
    capitalize,
    is_down,
    phases,
    sentence,
    sign,
    wave_title,
)

_REFRESHES_PER_SECOND = 8
_MOST_HELD = 5
# The line of the whole, that of nodes left out, and the cursor's.
_OTHER_LINES = 3
_DETAIL_LINES = 2
_LEAST_DETAIL = 20
# On a narrow terminal.
_STOPPING_LINES = 2
_PHASE_WIDTH = max(map(len, Phase))
_INDENT = "    "
_HELD = "yellow"
_WIDEST = 100
_STOPPING = "Stopping: finishing the nodes in flight. Ctrl-C again quits now."
_REVERTING = "Stopping: returning the nodes that are not rebooting. Ctrl-C again quits now."


class LiveProgress:
    """Shows a run on a terminal while the context is open. Safe to call from many threads."""

    def __init__(
        self,
        console: Console,
        monotonic: Callable[[], float] = time.monotonic,
        stop: StopRequest | None = None,
        *,
        names_pods: bool = False,
        rephrase: Callable[[str], str] = str,
    ) -> None:
        """Draw on the console. `rephrase` changes each sentence above the display before it is printed."""
        self._rephrase = rephrase
        self._console = console
        self._monotonic = monotonic
        self._stop = stop or StopRequest()
        self._names_pods = names_pods
        self._lock = threading.Lock()
        self._view = RunView()
        self._started = monotonic()
        self._spinner = Spinner("dots")
        self._live = Live(
            get_renderable=self._render,
            console=console,
            refresh_per_second=_REFRESHES_PER_SECOND,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        share_console(self._live)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._live.stop()

    def notify(self, event: StepEvent) -> None:
        """Take one event into the display."""
        with self._lock:
            self._view.take(event, self._monotonic())
            line = self._line(event)
        if line is not None:
            print_above(self._live, line)

    def _line(self, event: StepEvent) -> Text | None:
        """Return what an event leaves above the board."""
        match event:
            case NodeFinished():
                style = "green" if event.succeeded else "red"
                # one line, whatever there is to say: the end of the run tells a failure whole
                return Text.assemble(
                    (f"{sign(event)} ", style),
                    brief_result(event),
                    no_wrap=True,
                    overflow="ellipsis",
                )
            case PodsEvicted() if self._names_pods:
                return Text(sentence(event), style="dim")
            case Notice() | VersionHeld():
                return Text(self._rephrase(sentence(event)), style="yellow")
            case _:
                pass
        return None

    def _render(self) -> RenderableType:
        with self._lock:
            text = _REVERTING if self._stop.revert else _STOPPING
            stopping = [Text(text, "bold yellow")] if self._stop.requested else []
            return Group(self._total(), *self._rows(), *stopping)

    def _rows(self) -> list[Text]:
        """Lines for as many nodes as the terminal is high; the others as figures."""
        nodes = self._view.in_flight
        width = min(max((len(node.name) for node in nodes), default=0), self._console.width // 3)
        room = max(
            1,
            self._console.height - _OTHER_LINES - (_STOPPING_LINES if self._stop.requested else 0),
        )
        # those that are held back, then those longest in their phase
        first = sorted(nodes, key=lambda node: (not node.held, node.entered))[:room]
        rows = dict[str, list[Text]]()
        for most in (_DETAIL_LINES, 1):
            rows = {node.name: list(self._row(node, width, most)) for node in first}
            if len(rows) == len(nodes) and sum(map(len, rows.values())) <= room:
                return [line for node in nodes for line in rows[node.name]]
        heights = accumulate(map(len, rows.values()))
        chosen = [name for name, height in zip(rows, heights, strict=True) if height < room] or [
            first[0].name
        ]
        left = [node for node in nodes if node.name not in chosen]
        lines = [line for node in nodes if node.name in chosen for line in rows[node.name]]
        return [*lines, _in_a_line(f"  and {len(left)} more: {phases(left)}", "dim")]

    def _row(self, node: NodeView, width: int, most: int) -> Iterator[Text]:
        """Yield a node's line, what it waits for in `most` lines at most, and one for each pod that holds it up."""
        phase = node.phase or Phase.PENDING
        now = self._monotonic()
        row = Text.assemble(
            f"{self._spinner.render(now)}",
            (f" {excerpt(node.name, width):<{width}}", "bold"),
            (f"  {phase:<{_PHASE_WIDTH}}", _HELD if node.held else "cyan"),
            (f"  {elapsed(now - node.begun):<6}  ", "dim"),
        )
        indent = len(row)
        detail = printable(self._detail(node))
        room = max(_LEAST_DETAIL, self._console.width - indent)
        first, *more = wrap(detail, room, max_lines=most, placeholder=" …") or [""]
        yield _in_a_line(row.append(first, "dim"))
        yield from (_in_a_line(f"{'':{indent}}{line}", "dim") for line in more)
        held = list(node.held.values())
        for hold in held[:_MOST_HELD]:
            told = now - node.blocked_at[hold.event.pod]
            for line in blocked_lines(hold.event, self._console.width - len(_INDENT), told):
                yield _in_a_line(f"{_INDENT}{line}", _HELD)
        if len(held) > _MOST_HELD:
            yield _in_a_line(f"{_INDENT}and {len(held) - _MOST_HELD} more are held back", _HELD)

    def _detail(self, node: NodeView) -> str:
        """Tell what a node waits for; that a host is silent while it reboots is as it should be."""
        if not is_down(node):
            return node.detail
        plans = self._view.plans
        usual = usual_reboot(plans[-1].estimate) if plans else ""
        return f"down for {elapsed(self._monotonic() - node.entered)}{usual}"

    def _total(self) -> Text:
        """Which wave it is, and how far the whole has come, at the other end of the line."""
        view = self._view
        if view.planned_at is None:
            doing = sentence(view.notices[-1]) if view.notices else "starting"
            return _in_a_line(f"{elapsed(self._monotonic() - self._started)}  {doing}", "dim")
        ended = len(view.ended)
        failed = f", {view.failed} failed" if view.failed else ""
        took = self._monotonic() - view.planned_at
        is_over = ended >= view.planned
        time_spent = elapsed(took)
        if (estimate := _at_this_pace(view)) and not is_over:
            time_spent += (
                ", longer than estimated" if took > estimate else f" of about {elapsed(estimate)}"
            )
        figures = f"{ended} of {view.planned} done{failed}, {time_spent}"
        wave = ""
        if view.settling:
            wave = sentence(view.settling)
        elif view.waves:
            wave = wave_title(view.waves[-1].index, view.waves[-1].of, view.waves[-1].in_flight)
        room = min(self._console.width, _WIDEST) - len(figures) - len(_INDENT)
        lead = f"{excerpt(capitalize(wave), room):<{room}}{_INDENT}" if wave and room > 0 else ""
        return Text.assemble(
            lead, (figures, "red" if failed else ""), no_wrap=True, overflow="ellipsis"
        )


def _in_a_line(text: str | Text, style: str = "") -> Text:
    return Text.assemble(
        (text, style) if isinstance(text, str) else text, no_wrap=True, overflow="ellipsis"
    )


def _at_this_pace(view: RunView) -> float:
    """How long all takes, in seconds, where a node's end is worth its share of what its wave was to take.

    0 where the plan says nothing of it.
    """
    plan = view.plans[-1]
    planned = plan.estimate.seconds
    shares = {
        node.name: wave.estimate.seconds / len(wave.nodes)
        for wave in plan.waves
        for node in wave.nodes
    }
    ended = [node for node in view.nodes.values() if node.end]
    done = sum(shares.get(node.name, 0.0) for node in ended)
    if view.planned_at is None or not (planned and done):
        return planned
    return (max(node.entered for node in ended) - view.planned_at) * sum(shares.values()) / done
