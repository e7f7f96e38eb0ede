import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from textwrap import wrap
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from rollout.execution.base.deadline import GracefulStop
from rollout.model.progress import (
    NodeFinished,
    NodeRescued,
    Notice,
    Phase,
    PodsEvicted,
    StepEvent,
    VersionHeld,
)
from rollout.model.text import capitalize, excerpt, printable
from rollout.model.timestamps import elapsed
from rollout.report.console import print_above, share_console
from rollout.report.run_view import NodeView, RunView
from rollout.report.sentences import (
    blocked_lines,
    brief_result,
    is_down,
    outcome_sign,
    phase_counts,
    sentence,
    usual_reboot_clause,
    wave_title,
)

_REFRESHES_PER_SECOND = 8
_MOST_BLOCKED = 5
# The total, the count of hidden nodes, and the cursor's line.
_OTHER_LINES = 3
_DETAIL_LINES = 2
_LEAST_DETAIL = 20
_STOPPING_LINES = 2
_PHASE_WIDTH = max(map(len, Phase))
_INDENT = "    "
_BLOCKED_STYLE = "yellow"
_WIDEST_TOTAL_LINE = 100
_STOPPING = "Stopping: finishing the nodes in flight. Press Ctrl-C again to quit."
_REVERTING = "Stopping: uncordoning nodes that are not rebooting. Press Ctrl-C again to quit."


class LiveProgress:
    """Draws a rollout's progress. Safe to call from many threads."""

    def __init__(
        self,
        console: Console,
        monotonic: Callable[[], float] = time.monotonic,
        stop: GracefulStop | None = None,
        *,
        names_pods: bool = False,
        with_program_name: Callable[[str], str] = str,
    ) -> None:
        self._with_program_name = with_program_name
        self._console = console
        self._monotonic = monotonic
        self._stop = stop or GracefulStop()
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
        with suppress(OSError):
            self._live.stop()

    def notify(self, event: StepEvent) -> None:
        with self._lock:
            self._view.apply(event, self._monotonic())
            line = self._permanent_line(event)
        if line is not None:
            print_above(self._live, line)

    def _permanent_line(self, event: StepEvent) -> Text | None:
        match event:
            case NodeFinished():
                style = "green" if event.succeeded else "red"
                text = Text(no_wrap=True, overflow="ellipsis")
                return text.append(f"{outcome_sign(event)} ", style).append(brief_result(event))
            case PodsEvicted() if self._names_pods:
                return Text(sentence(event), style="dim")
            case Notice() | VersionHeld() | NodeRescued():
                return Text(self._with_program_name(sentence(event)), style="yellow")
            case _:
                return None

    def _render(self) -> RenderableType:
        with self._lock:
            lines = [self._total_line(), *self._node_rows()]
            if self._stop.is_due:
                text = _REVERTING if self._stop.revert else _STOPPING
                lines.append(Text(text, "bold yellow"))
            return Group(*lines)

    def _node_rows(self) -> list[Text]:
        nodes = self._view.in_flight
        longest_name = max((len(node.name) for node in nodes), default=0)
        name_width = min(longest_name, self._console.width // 3)
        other_lines = _OTHER_LINES
        if self._stop.is_due:
            other_lines += _STOPPING_LINES
        room = max(1, self._console.height - other_lines)
        most_urgent = sorted(nodes, key=_urgency)[:room]
        rows: dict[str, list[Text]] = {}
        for detail_lines in (_DETAIL_LINES, 1):
            rows = {
                node.name: list(self._node_row(node, name_width, detail_lines))
                for node in most_urgent
            }
            has_all_nodes = len(rows) == len(nodes)
            if has_all_nodes and sum(map(len, rows.values())) <= room:
                return _lines_of(nodes, rows)
        visible_rows = _first_rows(rows, room - 1)
        others = [node for node in nodes if node.name not in visible_rows]
        count = f"  and {len(others)} more: {phase_counts(others)}"
        return [*_lines_of(nodes, visible_rows), _single_line(count, "dim")]

    def _node_row(self, node: NodeView, name_width: int, detail_lines: int) -> Iterator[Text]:
        phase = node.phase or Phase.PENDING
        now = self._monotonic()
        row = Text.assemble(
            f"{self._spinner.render(now)}",
            (f" {excerpt(node.name, name_width):<{name_width}}", "bold"),
            (f"  {phase:<{_PHASE_WIDTH}}", _BLOCKED_STYLE if node.blocked_evictions else "cyan"),
            (f"  {elapsed(now - node.begun_monotonic):<6}  ", "dim"),
        )
        indent = len(row)
        detail = printable(self._detail(node))
        room = max(_LEAST_DETAIL, self._console.width - indent)
        lines = wrap(detail, room, max_lines=detail_lines, placeholder=" …") or [""]
        yield _single_line(row.append(lines[0], "dim"))
        for line in lines[1:]:
            yield _single_line(f"{'':{indent}}{line}", "dim")
        yield from self._blocked_rows(node, now)

    def _blocked_rows(self, node: NodeView, now: float) -> Iterator[Text]:
        evictions = list(node.blocked_evictions.values())
        for eviction in evictions[:_MOST_BLOCKED]:
            age = now - node.block_reported_monotonic[eviction.event.pod]
            for line in blocked_lines(eviction.event, self._console.width - len(_INDENT), age):
                yield _single_line(f"{_INDENT}{line}", _BLOCKED_STYLE)
        hidden_count = len(evictions) - _MOST_BLOCKED
        if hidden_count > 0:
            yield _single_line(
                f"{_INDENT}and {hidden_count} more blocked evictions", _BLOCKED_STYLE
            )

    def _detail(self, node: NodeView) -> str:
        if not is_down(node):
            return node.detail
        plans = self._view.plans
        usual = usual_reboot_clause(plans[-1].estimate) if plans else ""
        return f"down for {elapsed(self._monotonic() - node.phase_begun_monotonic)}{usual}"

    def _total_line(self) -> Text:
        view = self._view
        if view.planned_monotonic is None:
            step = sentence(view.notices[-1]) if view.notices else "starting"
            return _single_line(f"{elapsed(self._monotonic() - self._started)}  {step}", "dim")
        failed = f", {view.failed_count} failed" if view.failed_count else ""
        time_spent = self._time_spent(view.planned_monotonic)
        figures = f"{len(view.ended)} of {view.planned_count} done{failed}, {time_spent}"
        title = ""
        if view.settling:
            title = sentence(view.settling)
        elif view.waves:
            last = view.waves[-1]
            title = wave_title(last.index, last.of, last.in_flight)
        room = min(self._console.width, _WIDEST_TOTAL_LINE) - len(figures) - len(_INDENT)
        text = Text(no_wrap=True, overflow="ellipsis")
        if title and room > 0:
            text.append(f"{excerpt(capitalize(title), room):<{room}}{_INDENT}")
        return text.append(figures, "red" if failed else "")

    def _time_spent(self, planned_at: float) -> str:
        took = self._monotonic() - planned_at
        estimate = _estimate_at_this_pace(self._view)
        have_all_ended = len(self._view.ended) >= self._view.planned_count
        if not estimate or have_all_ended:
            return elapsed(took)
        if took > estimate:
            return f"{elapsed(took)}, longer than estimated"
        return f"{elapsed(took)} of about {elapsed(estimate)}"


def _urgency(node: NodeView) -> tuple[bool, float]:
    return not node.blocked_evictions, node.phase_begun_monotonic


def _first_rows(rows: Mapping[str, Sequence[Text]], room: int) -> Mapping[str, Sequence[Text]]:
    first_rows: dict[str, Sequence[Text]] = {}
    line_count = 0
    for name, lines in rows.items():
        line_count += len(lines)
        if first_rows and line_count > room:
            break
        first_rows[name] = lines
    return first_rows


def _lines_of(nodes: Sequence[NodeView], rows: Mapping[str, Sequence[Text]]) -> list[Text]:
    lines: list[Text] = []
    for node in nodes:
        lines += rows.get(node.name, ())
    return lines


def _single_line(text: str | Text, style: str = "") -> Text:
    return Text.assemble(
        (text, style) if isinstance(text, str) else text, no_wrap=True, overflow="ellipsis"
    )


def _estimate_at_this_pace(view: RunView) -> float:
    """Return seconds; 0 if no node has ended."""
    plan = view.plans[-1]
    estimate = plan.estimate.seconds
    # Nodes have equal shares of their wave's estimate.
    planned_seconds = {}
    for wave in plan.waves:
        for node in wave.nodes:
            planned_seconds[node.name] = wave.estimate.seconds / len(wave.nodes)
    ended = [node for node in view.nodes.values() if node.end]
    planned_for_ended = sum(planned_seconds.get(node.name, 0.0) for node in ended)
    if view.planned_monotonic is None or not estimate or not planned_for_ended:
        return estimate
    # For ended nodes, `phase_begun_monotonic` is their end.
    last_end = max(node.phase_begun_monotonic for node in ended)
    taken_for_ended = last_end - view.planned_monotonic
    return taken_for_ended * sum(planned_seconds.values()) / planned_for_ended
