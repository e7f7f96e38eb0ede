"""Progress before there is anything to show: reading a large cluster takes a while, and silence looks like a hang."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, SpinnerColumn, TextColumn

from rollout.report.shared_console import take_turns


def moving_line(console: Console, doing: str) -> AbstractContextManager[Progress]:
    """What is being done, as `reading the nodes`, on a terminal while the context is open; nothing elsewhere."""
    progress = _progress(console, TextColumn(doing, markup=False), SpinnerColumn())
    progress.add_task(doing, total=None)
    return progress


@contextmanager
def asking_progress(
    console: Console, total: int, doing: str = "asking hosts"
) -> Iterator[Callable[[str, object], None]]:
    """A bar on a terminal while the context is open, nothing elsewhere; to be called for each host, on any thread."""
    with _progress(console, TextColumn(doing, markup=False), BarColumn(), MofNCompleteColumn()) as progress:
        task = progress.add_task(doing, total=total)
        yield lambda _name, _answer: progress.advance(task)


def _progress(console: Console, *columns: ProgressColumn) -> Progress:
    disable = not console.is_terminal or console.is_dumb_terminal
    progress = Progress(*columns, console=console, transient=True, disable=disable)
    take_turns(progress.live)
    return progress
