"""`rollout version`."""

import typer

from rollout import __version__


def version() -> None:
    """Print the version."""
    typer.echo(f"rollout {__version__}")
