"""How to print, and where settings come from."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from rollout.cli import terminal
from rollout.cli.options.declaration import GENERAL, Flag
from rollout.cli.settings.defaults import load_defaults


class OutputFormat(StrEnum):
    """How data is printed."""

    TEXT = "text"
    JSON = "json"
    WIDE = "wide"


@dataclass(frozen=True, slots=True)
class GeneralOptions:
    """How to print, and where settings come from."""

    output: Annotated[
        OutputFormat,
        Flag(GENERAL, "Output format; wide: text with every column and row, however wide the terminal.", short="-o"),
    ] = OutputFormat.TEXT
    config: Annotated[
        Path | None,
        Flag(
            GENERAL,
            "Settings: any flag, by its name. Default: your ./rollout.toml, for tuning only.",
            "FILE",
            short="-c",
            check=load_defaults,
            eager=True,
        ),
    ] = None
    verbose: Annotated[bool, Flag(GENERAL, "Print more, and the cause of an error.", short="-v")] = False

    @property
    def as_json(self) -> bool:
        """Whether programs read it."""
        return self.output is OutputFormat.JSON

    @property
    def is_wide(self) -> bool:
        """Whether every column is asked for."""
        return self.output is OutputFormat.WIDE

    @property
    def width(self) -> int | None:
        """Columns that text may take; None: no limit."""
        return None if self.output is OutputFormat.WIDE else terminal.width()
