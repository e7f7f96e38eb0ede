"""How far the asking of hosts has come: five hundred hosts take a while, and silence looks like a hang."""

import threading
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from rollout.model.host import HostObservation


class AskingProgress:
    """A bar on a terminal while the context is open, nothing elsewhere."""

    def __init__(self, console: Console, total: int) -> None:
        self._progress = Progress(
            TextColumn("asking hosts"),
            BarColumn(),
            MofNCompleteColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal or console.is_dumb_terminal,
        )
        self._task = self._progress.add_task("hosts", total=total)
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def answered(self, _name: str, _observation: HostObservation) -> None:
        """One more host has answered, or failed to."""
        with self._lock:
            self._progress.advance(self._task)
