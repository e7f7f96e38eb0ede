"""`rollout lab`: a simulated cluster to rehearse on, with real commands over a real wire."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rollout.cli.flags import option
from rollout.cli.simulated import NODES, SCENARIO, SPEED, own_path, require_lab, scoreboard_text
from rollout.cli.terminal import is_terminal, say, show, width
from rollout.errors import UsageError

if TYPE_CHECKING:
    from rollout.lab.lab import Lab

lab_app = typer.Typer(rich_markup_mode=None, add_completion=False)

_DEFAULT = "default"
_FILES = "Where kubeconfig, inventory, known_hosts, key and env are written."
_FLEETLOCK = "Hosts ask this FleetLock server before they reboot, as Zincati does: those of the scenario, else all."
_NEXT = """
The lab serves until Ctrl-C. In another terminal:

    . {env}
{steps}

Hosts answer SSH, too, as core with the key id_ed25519: addresses and ports are in {inventory}
"""


@lab_app.callback(invoke_without_command=True)
def lab(call: typer.Context) -> None:
    """Rehearse on a simulated cluster.

    \b
    Examples:
      rollout lab up              serve one until Ctrl-C; in another terminal:
      . rollout-lab/env && rollout status
      rollout lab scenarios       which trouble there is to rehearse with
      rollout lab up --scenario never-returns
    """
    if call.invoked_subcommand is None:
        typer.echo(call.get_help())


@lab_app.command()
def up(
    nodes: int | None = NODES,
    scenario: str = SCENARIO,
    directory: Path = option(Path("rollout-lab"), _FILES, "DIR", "--dir"),
    speed: float = option(1.0, SPEED, "X", min=0.1),
    fleetlock: str = option("", _FLEETLOCK, "URL"),
    like: Path | None = option(None, "Be the cluster in this file, of: rollout plan --snapshot FILE", "FILE"),
) -> None:
    """Start a simulated cluster and serve it until Ctrl-C.

    API server and hosts listen on this machine's loopback addresses only. kubectl and ssh work on them.

    \b
    Examples:
      rollout lab up --nodes 12 --speed 10
      rollout lab up --scenario never-returns
      rollout lab up --like cluster.json --speed 20
    """
    require_lab("the lab")
    from rollout.lab.copied import scenario_like
    from rollout.lab.hostplan import scale, with_fleetlock
    from rollout.lab.lab import serve
    from rollout.lab.scenario import load_scenario, steps_of

    if like and (nodes or scenario != _DEFAULT):
        raise UsageError("--like is a whole cluster", hint="Drop --nodes and --scenario.")
    if fleetlock and not fleetlock.startswith(("http://", "https://")):
        raise UsageError(f"--fleetlock {fleetlock!r} is not a URL", hint="Write it as http://127.0.0.1:8080/.")
    loaded = scenario_like(like) if like else load_scenario(scenario)
    loaded = scale(loaded, nodes) if nodes else loaded
    loaded = with_fleetlock(loaded, f"{fleetlock.rstrip('/')}/") if fleetlock else loaded

    def ready(lab: "Lab") -> None:
        exports = [f"export {name}={shlex.quote(value)}" for name, value in lab.environment.items()]
        if program := own_path():
            exports.append(f'export PATH={shlex.quote(str(program.parent.absolute()))}:"$PATH"')
        (lab.directory / "env").write_text("\n".join((*exports, "")), encoding="utf-8")
        show("\n".join(exports))
        steps = "\n".join(f"    {step}" for step in steps_of(loaded))
        env, inventory = shlex.quote(str(lab.directory / "env")), lab.directory / "inventory.yaml"
        for line in _NEXT.format(env=env, steps=steps, inventory=inventory).splitlines():
            say(line)

    say(f"{sum(group.count for group in loaded.nodes)} nodes: {loaded.description}")
    if loaded.fleetlock:
        say(f"Hosts ask {loaded.fleetlock} before they reboot, once rollout fleetlock serve listens there.")
    scores = serve(loaded, directory=directory, speed=speed, on_ready=ready)
    show(f"\nWhat happened in the cluster:\n\n{scoreboard_text(scores)}")


@lab_app.command()
def scenarios() -> None:
    """List the scenarios that come with the lab."""
    from rollout.lab.scenario import load_scenario
    from rollout.lab.scenarios import scenario_names
    from rollout.report.columns import wrapped

    names = scenario_names()
    hang = max(len(name) for name in names) + 2
    for name in names:
        line = f"{name.ljust(hang)}{load_scenario(name).description}"
        show(wrapped(line, width() if is_terminal() else None, hang))
