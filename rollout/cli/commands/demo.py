"""`rollout demo`: the real commands, on a simulated cluster."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from rollout.cli.options.lab import NodesOption, ScenarioOption, SpeedOption
from rollout.errors import ExitCode

if TYPE_CHECKING:
    from rollout.lab.lab import Lab

_AT_ONCE = "3"


def demo(
    call: typer.Context, nodes: NodesOption = None, scenario: ScenarioOption = "default", speed: SpeedOption = 10.0
) -> None:
    """Watch a simulated cluster being taken through its updates.

    Needs no cluster: hosts and API server are simulated on this machine's loopback addresses. The commands that
    are shown are the real ones. It takes less than a minute.
    """
    from rollout.cli.scoreboard import scoreboard_text
    from rollout.cli.terminal import show

    program = call.find_root().command
    with _lab(scenario, nodes, speed) as lab:
        saved = str(lab.directory / "demo.plan")
        show(f"{len(lab.machines)} nodes, simulated on this machine; their time passes {speed:g} times faster.")
        _run_command(program, lab, ["status"])
        _run_command(program, lab, ["plan", "--max-unavailable", _AT_ONCE, "--out", saved])
        code = _run_command(program, lab, ["apply", saved])
        _run_command(program, lab, ["status"])
        scores = lab.scoreboard()
    _heading("What happened in the cluster")
    show(scoreboard_text(scores))
    updated = all(versions.now != versions.before for versions in scores.versions.values())
    raise typer.Exit(code or (ExitCode.OK if scores.clean and updated else ExitCode.ERROR))


@contextmanager
def _lab(scenario: str, nodes: int | None, speed: float) -> "Iterator[Lab]":
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from rollout.adapters.scratch import scratch_for

    with scratch_for("the demo"):
        # asyncssh finds out by a temporary file which libraries there are
        from rollout.lab.libraries import require_libraries

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


def _run_command(program: Callable[..., Any], lab: "Lab", words: Sequence[str]) -> int:
    """Run one command line on the lab, as the shell would."""
    from rollout.cli.invocation import invoke

    _heading(f"$ rollout {' '.join(words)}")
    with _no_settings_of_the_user():
        return invoke(program, [*words, *_flags(lab)])


def _flags(lab: "Lab") -> Sequence[str]:
    """What stands in kubeconfig, environment and rollout.toml of somebody who has a cluster."""
    hosts = ["--inventory", str(lab.inventory)] if lab.ssh_port is None else ["--ssh-port", str(lab.ssh_port)]
    keys = ["--ssh-key", str(lab.key), "--known-hosts", str(lab.known_hosts), "--ssh-config", "none"]
    return ["--kubeconfig", str(lab.kubeconfig), *hosts, *keys, "--config", os.devnull]


@contextmanager
def _no_settings_of_the_user() -> Iterator[None]:
    """A selector or an inventory meant for a real cluster would fit the lab badly."""
    hidden = {name: value for name, value in os.environ.items() if name.startswith("ROLLOUT_")}
    for name in hidden:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(hidden)


def _heading(text: str) -> None:
    from rich.console import Console
    from rich.text import Text

    Console(highlight=False).print(Text(f"\n{text}\n", style="bold cyan"))
