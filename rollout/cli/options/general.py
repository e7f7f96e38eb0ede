"""How to print, and where settings come from."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rollout.cli import terminal
from rollout.cli.options import values
from rollout.cli.options.declaration import GENERAL, Flag
from rollout.cli.settings.defaults import load_defaults


class OutputFormat(StrEnum):
    """How data is printed."""

    TEXT = "text"
    JSON = "json"
    WIDE = "wide"
    YAML = "yaml"
    NAME = "name"


_WIDTH = 100
_USUAL = (OutputFormat.TEXT, OutputFormat.JSON, OutputFormat.WIDE)


def _usual(written: OutputFormat) -> OutputFormat:
    """Those that every command has: the others are for `ListingOptions`."""
    if written not in _USUAL:
        raise typer.BadParameter(f"{written.value!r} is not one of {', '.join(repr(usual.value) for usual in _USUAL)}.")
    return written


@dataclass(frozen=True, slots=True)
class GeneralOptions:
    """How to print, and where settings come from."""

    output: Annotated[
        OutputFormat,
        Flag(
            GENERAL,
            "Output format; wide: text with every column and row, however wide the terminal.",
            "[text|json|wide]",
            short="-o",
            check=_usual,
        ),
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


@dataclass(frozen=True, slots=True)
class JournalOptions:
    """Where the run is written down."""

    journal: Annotated[
        Path | None,
        Flag(GENERAL, "Journal file. Default: one per run in $XDG_STATE_HOME/rollout/runs.", "FILE"),
    ] = None


@dataclass(frozen=True, slots=True)
class ListingOptions(GeneralOptions):
    """The same for commands that list nodes."""

    output: Annotated[
        OutputFormat,
        Flag(
            GENERAL,
            "Output format; wide: text with every column and row; name: node/NAME, a line each.",
            "[text|json|wide|yaml|name]",
            short="-o",
        ),
    ] = OutputFormat.TEXT

    @property
    def is_document(self) -> bool:
        """Whether the whole is printed as JSON, or as the same in YAML."""
        return self.output in (OutputFormat.JSON, OutputFormat.YAML)

    @property
    def as_names(self) -> bool:
        """Whether nothing but the nodes' names is wanted."""
        return self.output is OutputFormat.NAME

    def document(self, written: bytes) -> bytes:
        """A JSON document in the format that is wanted."""
        return _yaml(written) if self.output is OutputFormat.YAML else written


def _yaml(written: bytes) -> bytes:
    """The same in YAML. It stays ASCII: terminals obey more characters than YAML has escaped."""
    import msgspec
    import yaml

    return yaml.safe_dump(msgspec.json.decode(written), sort_keys=False, allow_unicode=False, width=_WIDTH).encode()
