"""How far the asking of hosts has come: five hundred hosts take a while, and silence looks like a hang."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from rollout.model.host import HostObservation
from rollout.report.shared_console import take_turns


@contextmanager
def asking_progress(console: Console, total: int) -> Iterator[Callable[[str, HostObservation], None]]:
    """A bar on a terminal while the context is open, nothing elsewhere; to be called for each host, on any thread."""
    columns = (TextColumn("asking hosts"), BarColumn(), MofNCompleteColumn())
    disable = not console.is_terminal or console.is_dumb_terminal
    progress = Progress(*columns, console=console, transient=True, disable=disable)
    take_turns(progress.live)
    with progress:
        task = progress.add_task("hosts", total=total)
        yield lambda _name, _observation: progress.advance(task)
