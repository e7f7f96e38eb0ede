"""How to print, and what is written down: the table `output`, and how a command shows what it found."""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from rollout.cli import terminal
from rollout.cli.settings.keys import Table, flag, setting


class OutputFormat(StrEnum):
    """How data is printed."""

    TEXT = "text"
    JSON = "json"
    WIDE = "wide"


class Output(Table):
    """How to print, and what is written down."""

    format: OutputFormat = flag(OutputFormat.TEXT, "text, json, wide: every column", "output", short="-o")
    verbose: int = flag(0, "Print more: stages; -vv: requests", short="-v", least=0)
    journal: Path | None = setting(None, "Journal file. Default: one per run in $XDG_STATE_HOME/rollout/runs")

    @property
    def as_json(self) -> bool:
        """Whether programs read it."""
        return self.format is OutputFormat.JSON

    @property
    def is_wide(self) -> bool:
        """Whether every column is asked for."""
        return self.format is OutputFormat.WIDE

    @property
    def width(self) -> int | None:
        """Columns that text may take; None: no limit."""
        return None if self.is_wide else terminal.width()

    def show(self, document: object, text: Callable[[], str], *, is_prose: bool = False) -> None:
        """Show what a command found: as JSON, or as a text, of which prose is wrapped."""
        if self.as_json:
            from rollout.model.json_text import json_document

            terminal.show_bytes(document if isinstance(document, bytes) else json_document(document))
        elif is_prose:
            terminal.show_lines(text())
        else:
            terminal.show(text())
