import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from math import ceil

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.control import Control
from rich.highlighter import RegexHighlighter
from rich.live import Live
from rich.live_render import LiveRender
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
)
from rich.segment import Segment
from rich.text import Text
from rich.theme import Theme

from rollout.model.plan import ExclusionReason
from rollout.model.progress import Outcome


class SharedConsole(Console):
    """Hold `drawing_lock` to draw."""

    def __init__(self, *, stderr: bool) -> None:
        stream = sys.stderr if stderr else sys.stdout
        # FORCE_COLOR makes Rich see a terminal, but a job's log must not move.
        forced = None if stream.isatty() else False
        super().__init__(
            stderr=stderr,
            theme=THEME,
            highlight=False,
            markup=False,
            emoji=False,
            force_terminal=forced,
        )
        self.drawing_lock = threading.RLock()

    def show_cursor(self, show: bool = True) -> bool:  # noqa: ARG002, FBT001, FBT002
        """Leave the cursor visible: a killed process could not restore it."""
        return False

    def show(self, line: Text) -> None:
        with self.drawing_lock:
            self.print(line, overflow="fold")


class ReflowingRender(LiveRender):
    """A live display that is erased completely after the terminal was narrowed."""

    def __init__(self, live: Live) -> None:
        super().__init__(live.get_renderable(), vertical_overflow=live.vertical_overflow)
        self._console = live.console
        # Of each line that is on the terminal now.
        self._drawn_widths: list[int] = []

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        segments = list(super().__rich_console__(console, options))
        text = "".join(
            segment.text
            for segment in segments
            if isinstance(segment, Segment) and not segment.control
        )
        self._drawn_widths = [cell_len(line) for line in text.split("\n")]
        yield from segments

    def position_cursor(self) -> Control:
        self._update_height_to_erase()
        return super().position_cursor()

    def restore_cursor(self) -> Control:
        self._update_height_to_erase()
        return super().restore_cursor()

    def _update_height_to_erase(self) -> None:
        """Count the lines into which a narrower terminal has broken the drawn lines.

        Rich erases `_shape`, a width and a height.
        """
        if self._shape is None:
            return
        _, drawn_height = self._shape
        width = max(1, self._console.width)
        height = sum(max(1, ceil(cells / width)) for cells in self._drawn_widths)
        # Lines that have scrolled off the screen cannot be erased.
        self._shape = (width, min(height, max(drawn_height, self._console.height)))


def share_console(live: Live) -> None:
    """Let other threads print above a live display that has not started."""
    live._live_render = ReflowingRender(live)  # noqa: SLF001 - rich has no other way
    if isinstance(live.console, SharedConsole):
        # A separate lock could deadlock: printing locks the console first, the display itself.
        live._lock = live.console.drawing_lock  # noqa: SLF001 - rich has no other way


def print_above(live: Live, line: Text) -> None:
    with live._lock:  # noqa: SLF001 - rich has no other way
        live.console.print(line, no_wrap=line.no_wrap, overflow=line.overflow)


def spinner_line(console: Console, activity: str) -> AbstractContextManager[Progress]:
    progress = _progress(console, TextColumn(activity, markup=False), SpinnerColumn())
    progress.add_task(activity, total=None)
    return progress


@contextmanager
def host_progress(console: Console, total: int) -> Iterator[Callable[[], None]]:
    activity = "asking hosts"
    with _progress(console, TextColumn(activity), BarColumn(), MofNCompleteColumn()) as progress:
        task = progress.add_task(activity, total=total)
        yield lambda: progress.advance(task)


def _progress(console: Console, *columns: ProgressColumn) -> Progress:
    disable = not console.is_terminal or console.is_dumb_terminal
    progress = Progress(*columns, console=console, transient=True, disable=disable)
    share_console(progress.live)
    return progress


_CELL = r"(?:(?<=  )|(?<=[!~✔✘] )|^){}(?=  |$)"
_SIGN = r"(?:(?<=  )|^ *)(?P<{}>[{}])(?= \S)"
_GOOD = "succeeded|up to date"
_WAITING = (
    "behind|idle|not"
    " started|skipped|paused|pending|cordoned|draining|drained|rebooting|booted|held|blocked"
)
_BAD = "|".join(
    (
        *(reason.replace("-", "[ -]") for reason in ExclusionReason if reason.is_trouble),
        "unknown|failed|rolled back|check failed",
        *(outcome for outcome in Outcome if outcome not in (Outcome.SUCCEEDED, Outcome.SKIPPED)),
    )
)


class StateHighlighter(RegexHighlighter):
    base_style = "rollout."
    highlights = (
        r"(?m)^(?P<heading> *[A-Z]{3,}(?: [A-Z]+)?(?:  +[A-Z]{2,}(?: [A-Z]+)?)*)$",
        rf"(?m){_CELL.format(f'(?P<good>{_GOOD})')}",
        rf"(?m){_CELL.format(f'(?P<waiting>{_WAITING})')}",
        rf"(?m){_CELL.format(f'(?P<bad>{_BAD})')}",
        r"(?m)^(?P<good>✔)|^(?P<waiting>!) |^(?P<bad>✘)",
        *(
            rf"(?m){_SIGN.format(style, signs)}"
            for style, signs in (("good", "✔"), ("waiting", "~!"), ("bad", "✘"))
        ),
        r"(?m)^ *(?P<bad>Blocked: .*)$",
        r"(?m)^ *(?P<hint>hint:|fix:|Next:|See:)",
        r"(?P<step>\S+ → \S+)",
    )


THEME = Theme(
    {
        "rollout.heading": "bold",
        "rollout.good": "green",
        "rollout.waiting": "yellow",
        "rollout.bad": "bold red",
        "rollout.hint": "cyan",
        "rollout.step": "cyan",
    }
)


def colorize(text: str) -> Text:
    return StateHighlighter()(Text(text))


def has_colors(console: Console) -> bool:
    return console.is_terminal and console.color_system is not None and not console.no_color
