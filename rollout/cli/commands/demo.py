"""`rollout demo`: the real commands, on a simulated cluster."""

import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from rollout.cli.failures import PROGRAM, invoke
from rollout.cli.flags import option
from rollout.cli.simulated import NODES, SCENARIO, SPEED, own_path, require_lab, scoreboard_text
from rollout.cli.terminal import is_forced, show
from rollout.errors import ExitCode
from rollout.model.policy import Policy

if TYPE_CHECKING:
    from rollout.lab.lab import Lab

DEFAULT = "default"
_AT_ONCE = "3"
_LIMIT, _SET, _DETECT = "--max-unavailable", "--set", "detect.sources="
_NEXT = """
Next, to type the commands yourself:
    {program} lab up{of_scenario}
With trouble to rehearse:
    {program} lab scenarios
On your own cluster, changing nothing:
    {program} doctor"""


def demo(
    call: typer.Context,
    nodes: int | None = NODES,
    scenario: str = SCENARIO,
    speed: float = option(10.0, SPEED, "X", min=0.1),
) -> None:
    """Watch a simulated cluster being taken through its updates.

    Needs no cluster: hosts and API server are simulated on this machine's loopback addresses. The commands that
    are shown are the real ones. It takes less than a minute.

    \b
    Examples:
      rollout demo
      rollout demo --scenario never-returns
    """
    from rollout.lab.scenario import flags_of, load_scenario

    program = call.find_root().command
    # a limit that shows waves, and what hosts are asked by
    flags = list(flags_of(load_scenario(scenario), "plan"))
    planned = flags if _LIMIT in flags else [*flags, _LIMIT, _AT_ONCE]
    detecting = [word for flag in flags if flag.startswith(_DETECT) for word in (_SET, flag)]
    with _lab(scenario, nodes, speed) as lab:
        saved = str(lab.directory / "demo.plan")
        show(f"{len(lab.machines)} nodes, simulated on this machine; their time passes {speed:g} times faster.")
        show("So do the demo's time-outs; how long a plan takes is estimated for real machines.")
        _run_command(program, "status", *detecting)
        _run_command(program, "plan", *planned, "--out", saved)
        code = _run_command(program, "apply", saved)
        _run_command(program, "status", *detecting)
        scores = lab.scoreboard()
    _heading("What happened in the cluster")
    show(scoreboard_text(scores))
    named = "" if scenario == DEFAULT else f" --scenario {shlex.quote(scenario)}"
    show(_NEXT.format(program=shlex.quote(str(own_path() or PROGRAM)), of_scenario=named))
    updated = all(versions.now != versions.before for versions in scores.versions.values())
    raise typer.Exit(code or (ExitCode.OK if scores.clean and updated else ExitCode.ERROR))


@contextmanager
def _lab(scenario: str, nodes: int | None, speed: float) -> "Iterator[Lab]":
    from pathlib import Path
    from tempfile import TemporaryDirectory

    require_lab("the demo")
    from rollout.lab.hostplan import scale
    from rollout.lab.lab import Lab
    from rollout.lab.scenario import load_scenario

    loaded = load_scenario(scenario)
    chosen = scale(loaded, nodes) if nodes else loaded
    with (
        TemporaryDirectory(prefix="rollout-demo-") as directory,
        Lab.start(chosen, directory=Path(directory), speed=speed) as lab,
        _environment(lab, speed),
    ):
        yield lab


@contextmanager
def _environment(lab: "Lab", speed: float) -> Iterator[None]:
    """Have commands work on the lab: with the user's own settings hidden, and time-outs as much shorter as it is fast.

    A selector or an inventory meant for a real cluster would fit the lab badly, and journals are the demo's own.
    """
    before, rules = dict(os.environ), Policy()
    usual = {"DRAIN": rules.drain.timeout, "REBOOT": rules.reboot_timeout, "READY": rules.ready_timeout}
    for name in before:
        if name.startswith("ROLLOUT_"):
            del os.environ[name]
    os.environ.update(lab.environment, XDG_STATE_HOME=str(lab.directory / "state"))
    for name, seconds in usual.items():
        os.environ[f"ROLLOUT_{name}_TIMEOUT"] = f"{max(1, round(seconds / speed))}s"
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def _run_command(program: Callable[..., Any], *words: str) -> int:
    """Run one command line, as the shell would."""
    _heading(f"$ rollout {' '.join(words)}")
    return invoke(program, words)


def _heading(text: str) -> None:
    from rich.console import Console
    from rich.text import Text

    Console(highlight=False, force_terminal=is_forced(sys.stdout)).print(Text(f"\n{text}\n", style="bold cyan"))
