"""The command `rollout`: its root, which knows its commands by their lines alone."""

import getpass
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from rollout import __version__
from rollout.cli import completion
from rollout.cli.catalogue import CONTEXT, Program
from rollout.cli.failures import PROGRAM
from rollout.cli.invocation import invoke
from rollout.cli.settings.variables import unknown_variables
from rollout.cli.streams import prepare_streams
from rollout.cli.terminal import say

_EPILOG = (
    "Exit codes: 0 done, 1 error, 2 changes pending, 3 declined, 4 some nodes failed, 5 stale plan, 6 blocked, "
    "64 wrong usage, 130 interrupted."
)

_FIRST_PROCESS = 1

app = typer.Typer(
    name=PROGRAM,
    cls=Program,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=dict(CONTEXT),
    epilog=_EPILOG,
)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"{PROGRAM} {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 - its callback does it
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Take a Kubernetes cluster's Flatcar / CoreOS hosts through their pending OS updates, a wave at a time.

    \b
    Without a cluster:  rollout demo
    With one:           rollout status    which nodes wait for a reboot
                        rollout plan      what apply would do
                        rollout apply     do it
                        rollout doctor    what is missing for that, and how to mend it
                        rollout check-update --wait   have hosts look for updates now
    Interrupted:        rollout resume    go on with it, or: rollout abort
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
    for sentence in unknown_variables(context.command, os.environ, context.invoked_subcommand):
        say(f"warning: {sentence}")


def run(arguments: Sequence[str]) -> int:
    """Run one command line; the exit code, whatever happens."""
    return invoke(app, arguments)


def main() -> None:
    """The console entry point."""
    prepare_streams()
    completion.be_silent()
    if os.getpid() == _FIRST_PROCESS:
        # the kernel keeps from it what it does not handle: without this a container ignores SIGTERM but during a run
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    _name_the_user()
    sys.exit(run(sys.argv[1:]))


def _name_the_user() -> None:
    """Where the user is a mere number, as in containers, let it go by that, and have its home where runtimes set it.

    Libraries ask for both.
    """
    try:
        getpass.getuser()
    except (KeyError, OSError):
        os.environ["USER"] = str(os.getuid())
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = "/"
