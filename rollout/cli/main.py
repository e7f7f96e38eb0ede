import getpass
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from rollout import __version__
from rollout.cli.failures import invoke
from rollout.cli.options import CONTEXT, CommandList, Commands, option
from rollout.cli.program import COMMANDS, PROGRAM, program_name
from rollout.cli.terminal import prepare_streams, warn

# Kept at the end, where a terminal of 24 lines shows it.
_EPILOG = """\b
Without a cluster:  rollout demo          watch a simulated rollout
With a cluster:     rollout doctor        check the requirements
                    rollout status        show which nodes need a reboot
                    rollout plan          show what apply would do
                    rollout apply         reboot the nodes
                    rollout check-update  make hosts check for an update
If interrupted:     rollout resume        continue the rollout
                    rollout abort         cancel the rollout, and clean up

Flags that have a key in the settings file can also be set with an environment variable,
such as ROLLOUT_MAX_UNAVAILABLE=3. Settings file: --config FILE.
Exit codes: 0 done, 1 error, 2 changes pending, 3 declined, 4 incomplete,
5 stale plan, 6 blocked, 64 usage error, 130 interrupted.
"""

_FIRST_PROCESS = 1

app = typer.Typer(
    name=PROGRAM,
    cls=CommandList,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings=CONTEXT,
    epilog=_EPILOG,
)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context, version: bool = option(False, "Print the version.", "", "--version")
) -> None:
    """Reboot the Flatcar and CoreOS hosts of a Kubernetes cluster to apply pending OS updates."""
    if version:
        typer.echo(f"{program_name()} {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
    if any(name.startswith("ROLLOUT_") for name in os.environ):
        # The settings schema loads slowly.
        from rollout.cli.settings.reading import unknown_variables

        warn(*unknown_variables(os.environ))


def root_command() -> Any:
    """Return click's group, which typer's own types do not describe."""
    # `get_command` does not register the shells' completions.
    typer.completion.completion_init()  # type: ignore[attr-defined]
    group: Any = typer.main.get_command(app)
    group.commands = Commands(COMMANDS)
    return group


def run(arguments: Sequence[str]) -> int:
    return invoke(root_command(), arguments)


def main() -> None:
    prepare_streams()
    if os.getpid() == _FIRST_PROCESS:
        # The kernel ignores unhandled signals to process 1, so treat SIGTERM like Ctrl-C.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    _ensure_user_and_home()
    sys.exit(run(sys.argv[1:]))


def _ensure_user_and_home() -> None:
    """Some containers lack a user and a home, which libraries need."""
    try:
        getpass.getuser()
    except (KeyError, OSError):
        os.environ["USER"] = str(os.getuid())
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = "/"
