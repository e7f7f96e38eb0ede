"""`rollout demo`: the real commands, on a simulated cluster."""

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from rollout.adapters.local_files import scratch_for
from rollout.cli.failures import PROGRAM, invoke
from rollout.cli.simulated import NodesOption, ScenarioOption, SpeedOption, own_path, scoreboard_text
from rollout.cli.terminal import is_forced, show
from rollout.errors import ExitCode
from rollout.model.policy import Policy

if TYPE_CHECKING:
    from pathlib import Path

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
_STATE_HOME = "XDG_STATE_HOME"


def demo(
    call: typer.Context, nodes: NodesOption = None, scenario: ScenarioOption = DEFAULT, speed: SpeedOption = 10.0
) -> None:
    """Watch a simulated cluster being taken through its updates.

    Needs no cluster: hosts and API server are simulated on this machine's loopback addresses. The commands that
    are shown are the real ones. It takes less than a minute.

    \b
    Examples:
      rollout demo
      rollout demo --scenario never-returns
    """
    program = call.find_root().command
    planned, detecting = _own_flags(scenario)
    with _lab(scenario, nodes, speed) as lab:
        saved = str(lab.directory / "demo.plan")
        show(f"{len(lab.machines)} nodes, simulated on this machine; their time passes {speed:g} times faster.")
        show("So do the demo's time-outs; how long a plan takes is estimated for real machines.")
        _run_command(program, lab, ["status", *detecting])
        _run_command(program, lab, ["plan", *planned, "--out", saved], _timeouts(speed))
        code = _run_command(program, lab, ["apply", saved])
        _run_command(program, lab, ["status", *detecting])
        scores = lab.scoreboard()
    _heading("What happened in the cluster")
    show(scoreboard_text(scores))
    named = "" if scenario == DEFAULT else f" --scenario {shlex.quote(scenario)}"
    show(_NEXT.format(program=shlex.quote(str(own_path() or PROGRAM)), of_scenario=named))
    updated = all(versions.now != versions.before for versions in scores.versions.values())
    raise typer.Exit(code or (ExitCode.OK if scores.clean and updated else ExitCode.ERROR))


def _own_flags(scenario: str) -> tuple[Sequence[str], Sequence[str]]:
    """Return the flags of the scenario's plan, with a limit that shows waves, and those by which hosts are asked."""
    from rollout.lab.scenario import flags_of, load_scenario

    flags = list(flags_of(load_scenario(scenario), "plan"))
    planned = flags if _LIMIT in flags else [*flags, _LIMIT, _AT_ONCE]
    return planned, [word for flag in flags if flag.startswith(_DETECT) for word in (_SET, flag)]


@contextmanager
def _lab(scenario: str, nodes: int | None, speed: float) -> "Iterator[Lab]":
    from pathlib import Path
    from tempfile import TemporaryDirectory

    with scratch_for("the demo"):
        # asyncssh finds out by a temporary file which libraries there are
        from rollout.lab import require_libraries

        require_libraries()
        from rollout.lab.hostplan import scale
        from rollout.lab.lab import Lab
        from rollout.lab.scenario import load_scenario

        folder = TemporaryDirectory(prefix="rollout-demo-")
    loaded = load_scenario(scenario)
    with (
        folder as directory,
        Lab.start(scale(loaded, nodes) if nodes else loaded, directory=Path(directory), speed=speed) as lab,
    ):
        yield lab


def _state(lab: "Lab") -> "Path":
    """Where the demo's journals are: it is no run of the operator's."""
    return lab.directory / "state"


def _timeouts(speed: float) -> Sequence[str]:
    """Return the time-outs of a plan, as much shorter as the lab is faster."""
    rules = Policy()
    limits = {
        "--drain-timeout": rules.drain.timeout,
        "--reboot-timeout": rules.reboot_timeout,
        "--ready-timeout": rules.ready_timeout,
    }
    return [word for flag, usual in limits.items() for word in (flag, f"{max(1, round(usual / speed))}s")]


def _run_command(program: Callable[..., Any], lab: "Lab", words: Sequence[str], further: Sequence[str] = ()) -> int:
    """Run one command line on the lab, as the shell would; `further` words stand in its settings, so to speak."""
    _heading(f"$ rollout {' '.join(words)}")
    with _no_settings_of_the_user(_state(lab)):
        return invoke(program, [*words, *further, *_flags(lab)])


def _flags(lab: "Lab") -> Sequence[str]:
    """Return what stands in kubeconfig, environment and rollout.toml of somebody who has a cluster."""
    hosts = ["--inventory", str(lab.inventory)] if lab.ssh_port is None else ["--ssh-port", str(lab.ssh_port)]
    keys = ["--ssh-key", str(lab.key), "--known-hosts", str(lab.known_hosts), "--ssh-config", "none"]
    return ["--kubeconfig", str(lab.kubeconfig), *hosts, *keys, "--config", os.devnull]


@contextmanager
def _no_settings_of_the_user(state: "Path") -> Iterator[None]:
    """Hide the user's own settings.

    A selector or an inventory meant for a real cluster would fit the lab badly, and journals are the demo's own.
    """
    hidden = {name: value for name, value in os.environ.items() if name.startswith(("ROLLOUT_", _STATE_HOME))}
    for name in hidden:
        del os.environ[name]
    os.environ[_STATE_HOME] = str(state)
    try:
        yield
    finally:
        del os.environ[_STATE_HOME]
        os.environ.update(hidden)


def _heading(text: str) -> None:
    from rich.console import Console
    from rich.text import Text

    Console(highlight=False, force_terminal=is_forced(sys.stdout)).print(Text(f"\n{text}\n", style="bold cyan"))
