"""The command `rollout`.

Commands are imported for their flags, which costs little; what they work with is imported when they run.
"""

import getpass
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from rollout import __version__
from rollout.cli import completion, failures
from rollout.cli.commands.abort import abort
from rollout.cli.commands.adopt import adopt
from rollout.cli.commands.apply import apply
from rollout.cli.commands.check_update import check_update
from rollout.cli.commands.completion import completion as completion_script
from rollout.cli.commands.demo import demo
from rollout.cli.commands.doctor import doctor
from rollout.cli.commands.fleetlock import fleetlock_app
from rollout.cli.commands.history import history
from rollout.cli.commands.inventory import inventory
from rollout.cli.commands.known_hosts import known_hosts
from rollout.cli.commands.lab import lab_app
from rollout.cli.commands.leads import drain, help_of, reboot
from rollout.cli.commands.manifests import manifests
from rollout.cli.commands.metrics import metrics_app
from rollout.cli.commands.operate import operate
from rollout.cli.commands.pause import pause, unpause
from rollout.cli.commands.plan import plan
from rollout.cli.commands.release import release
from rollout.cli.commands.report import report
from rollout.cli.commands.resume import resume
from rollout.cli.commands.show import show
from rollout.cli.commands.status import status
from rollout.cli.commands.zincati import zincati
from rollout.cli.help import SectionedCommand
from rollout.cli.invocation import invoke
from rollout.cli.options.flattening import flattened
from rollout.cli.settings.variables import unknown_variables
from rollout.cli.streams import prepare_streams
from rollout.cli.terminal import say

_EPILOG = (
    "Exit codes: 0 done, 1 error, 2 changes pending, 3 declined, 4 some nodes failed, 5 stale plan, 6 blocked, "
    "64 wrong usage, 130 interrupted."
)

_FIRST_PROCESS = 1
_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

app = typer.Typer(
    name=failures.PROGRAM,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=_CONTEXT,
    epilog=_EPILOG,
)


def _print_version(value: bool) -> None:
    if value:
        version()
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
    for sentence in unknown_variables(context.command, os.environ):
        say(f"warning: {sentence}")


def version() -> None:
    """Print the version."""
    typer.echo(f"{failures.PROGRAM} {__version__}")


# a line each in the list of commands; None: their own first sentence is short enough for 80 columns
_COMMANDS: Mapping[Callable[..., None], str | None] = {
    status: "Show which nodes wait for a reboot, and why the others do not.",
    plan: None,
    show: "Show a saved plan; ask neither cluster nor hosts.",
    apply: None,
    resume: None,
    operate: "Reboot what waits, unattended: once, or pass after pass.",
    abort: "Undo what an interrupted rollout started.",
    pause: "Have no rollout start these nodes, or any.",
    unpause: "End a pause.",
    release: "End the hold of a version that failed on too many nodes.",
    history: "List this machine's runs, or show one as a timeline.",
    adopt: "Clean up what another reboot coordinator left on the nodes.",
    report: "Report a run as a page, Markdown or JSON.",
    doctor: "Check everything that a rollout needs, and name each fix.",
    inventory: "Print the Nodes as an Ansible inventory, in JSON.",
    known_hosts: "Scan the Nodes' host keys into a known_hosts file.",
    check_update: None,
    manifests: "Print what runs rollout in the cluster, for kubectl apply.",
}
for _command, _short in _COMMANDS.items():
    app.command(cls=SectionedCommand, context_settings=_CONTEXT, short_help=_short)(
        completion.completed(flattened(_command))
    )
app.command(cls=SectionedCommand, context_settings=_CONTEXT)(completion.completed(demo))
fleetlock_app.command(short_help="Print the drop-in for hosts with Zincati.")(zincati)
for _registered in fleetlock_app.registered_commands:
    if _registered.callback is not None:
        completion.completed(_registered.callback)
app.add_typer(fleetlock_app, name="fleetlock")
app.add_typer(metrics_app, name="metrics")
app.add_typer(lab_app, name="lab")
app.command(cls=SectionedCommand)(version)
app.command(
    name="completion",
    cls=SectionedCommand,
    context_settings=_CONTEXT,
    short_help="Print the completion script of bash, zsh or fish.",
)(completion_script)
app.command(name="help", hidden=True)(help_of)
_ANYTHING = {"ignore_unknown_options": True}
for _command in (drain, reboot):
    app.command(hidden=True, context_settings=_ANYTHING, add_help_option=False)(completion.completed(_command))


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
