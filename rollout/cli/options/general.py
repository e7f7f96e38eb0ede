"""How to print, and where settings come from."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from rollout.cli import terminal
from rollout.cli.options import values
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
    verbose: Annotated[
        int,
        Flag(
            GENERAL,
            "Print more: stages and their time, decisions, causes of errors. -vv: API requests and SSH commands, too.",
            short="-v",
            read=values.verbosity,
            counts=True,
        ),
    ] = 0
    log_file: Annotated[
        Path | None, Flag(GENERAL, "Append all that -vv prints, with what was said and done, to this file.", "FILE")
    ] = None

    @contextmanager
    def opened(self, command: str) -> Iterator[None]:
        """While its command runs: the log that is wanted of it."""
        from rollout.cli.log import logged

        with logged(command, self.verbose, self.log_file):
            yield

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
