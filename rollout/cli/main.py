"""The command `rollout`.

A command is imported when it is asked for, and what it works with when it runs.
"""

import getpass
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from rollout import __version__
from rollout.cli import failures
from rollout.cli.failures import invoke
from rollout.cli.flags import option
from rollout.cli.loading import CONTEXT, CommandList, Commands
from rollout.cli.settings.reading import strangers
from rollout.cli.terminal import prepare_streams, warn

# Last, where a terminal of 24 lines still shows it.
_EPILOG = """\b
Without a cluster:  rollout demo
With one:           rollout doctor        what is missing, and the fix
                    rollout status        which nodes wait for a reboot
                    rollout plan          what apply would do
                    rollout apply         do it
                    rollout check-update  look for updates now
Interrupted:        rollout resume        go on, or: rollout abort

Every flag can also be set in the environment: ROLLOUT_MAX_UNAVAILABLE=3. Settings file: --config FILE.
Exit codes: 0 done, 1 error, 2 changes pending, 3 declined, 4 some nodes failed, 5 stale plan, 6 blocked,
64 wrong usage, 130 interrupted.
"""

_FIRST_PROCESS = 1

app = typer.Typer(
    name=failures.PROGRAM,
    cls=CommandList,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings=CONTEXT,
    epilog=_EPILOG,
)


@app.callback(invoke_without_command=True)
def root(context: typer.Context, version: bool = option(False, "Print the version.", "", "--version")) -> None:
    """Take a Kubernetes cluster's Flatcar / CoreOS hosts through their pending OS updates, a wave at a time."""
    if version:
        typer.echo(f"{failures.PROGRAM} {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
    warn(*strangers(os.environ))


_COMMANDS: Mapping[str, str] = {
    "status": "Show which nodes wait for a reboot, and why the others do not.",
    "plan": "Show what apply would do, or a saved plan; touch nothing.",
    "apply": "Run a saved plan; or plan, show, ask and run.",
    "resume": "Go on with an interrupted rollout, from any machine.",
    "operate": "Reboot what waits, unattended: once, or pass after pass.",
    "abort": "Undo what an interrupted rollout started.",
    "pause": "Keep rollouts from starting these nodes, or any.",
    "unpause": "End a pause.",
    "release": "End the hold of a version that failed on too many nodes.",
    "history": "List this machine's runs, or show one as a timeline.",
    "report": "Report a run as a page, Markdown or JSON.",
    "evidence": "Write down what was proved of a version, for other clusters.",
    "doctor": "Check everything that a rollout needs, and name each fix.",
    "inventory": "Print the Nodes as an Ansible inventory, in JSON.",
    "known-hosts": "Scan the Nodes' host keys into a known_hosts file.",
    "check-update": "Ask the selected hosts to look for an update now.",
    "manifests": "Print what runs rollout in the cluster, for kubectl apply.",
    "demo": "Watch a simulated cluster being taken through its updates.",
    "help": "Show the help of a command, or write man pages.",
    "completion": "Print the completion script of bash, zsh or fish.",
    "fleetlock": "Serve FleetLock: hosts with Zincati ask before they reboot.",
    "lab": "Rehearse on a simulated cluster.",
}


def program() -> Any:
    """Return the command `rollout`, with all others in it."""
    typer.completion.completion_init()  # type: ignore[attr-defined]
    root: Any = typer.main.get_command(app)
    root.commands = Commands(_COMMANDS)
    return root


def run(arguments: Sequence[str]) -> int:
    """Run one command line; the exit code, whatever happens."""
    return invoke(program(), arguments)


def main() -> None:
    """Run the program: the console entry point."""
    prepare_streams()
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
