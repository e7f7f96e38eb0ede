"""`rollout version`."""

import typer

from rollout import __version__
from rollout.cli.failures import PROGRAM


def version() -> None:
    """Print the version."""
    typer.echo(f"{PROGRAM} {__version__}")
