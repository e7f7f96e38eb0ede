import os
import shlex
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import typer

from rollout.cli.failures import invoke
from rollout.cli.options import CONTEXT, Group, SectionedCommand, option
from rollout.cli.program import PROGRAM
from rollout.cli.settings.setting import Setting
from rollout.cli.suggestions import lab_scenarios
from rollout.cli.terminal import say, show, show_lines
from rollout.errors import ExitCode, UsageError
from rollout.model.policy import Policy
from rollout.model.text import shortened

if TYPE_CHECKING:
    from rollout.lab.lab import Lab
    from rollout.lab.scenario import Scenario
    from rollout.lab.scoreboard import Scoreboard

lab_app = typer.Typer(cls=Group, rich_markup_mode=None, add_completion=False)

_DEFAULT = "default"
_NODES: int | None = option(
    None,
    "Number of nodes; default: set by the scenario",
    "N",
    # A `min` would add [x>=1] to the help.
    parser=Setting(kind=int, least=1).read,
)
_SCENARIO = option(
    _DEFAULT,
    "Scenario to simulate (see: rollout lab scenarios)",
    "NAME|FILE",
    autocompletion=lab_scenarios,
)
_SPEED = "Simulated seconds per real second"
_parse_speed = Setting(kind=float, least=0.1).read
_DIRECTORY = option(
    Path("rollout-lab"),
    "Directory for the lab's files: kubeconfig, inventory, known_hosts, key and env",
    "DIR",
    "--dir",
)
_FLEETLOCK = option(
    "",
    "FleetLock server that hosts ask before they reboot, as Zincati does; used by the hosts that"
    " the scenario lists, or else by all hosts",
    "URL",
)
_LIKE = option(
    None, "Simulate the cluster in this file, saved with rollout plan --snapshot FILE", "FILE"
)
_NEXT = """
The lab serves until Ctrl-C. In another terminal:

    . {env}
{steps}

Hosts answer SSH, too, as core with the key id_ed25519: addresses and ports are in {inventory}
"""
# In bytes; a cluster of 30,000 pods takes about 50 MB.
_LARGEST_SNAPSHOT = 512 << 20
_LIMIT = "--max-unavailable"
_DETECT_SOURCES = "detect.sources="
_AFTER_DEMO = """
Next, to type the commands yourself:
    {program} lab up{scenario_flag}
To rehearse failures:
    {program} lab scenarios
To check your own cluster, without changing anything:
    {program} doctor"""


@lab_app.callback(invoke_without_command=True)
def lab(invocation: typer.Context) -> None:
    """Rehearse rollouts on a simulated cluster.

    \b
    Examples:
      rollout lab up              # then, in another terminal:
      . rollout-lab/env && rollout status
      rollout lab scenarios       # list the scenarios that you can rehearse
      rollout lab up --scenario never-returns
    """
    if invocation.invoked_subcommand is None:
        typer.echo(invocation.get_help())


def _export_lines(lab: "Lab") -> list[str]:
    exports = [f"export {name}={shlex.quote(value)}" for name, value in lab.environment.items()]
    program = _program_unknown_to_shell()
    if program:
        exports.append(f'export PATH={shlex.quote(str(program.parent.absolute()))}:"$PATH"')
    return exports


@lab_app.command(cls=SectionedCommand, context_settings=CONTEXT)
def up(
    nodes: int | None = _NODES,
    scenario: str = _SCENARIO,
    directory: Path = _DIRECTORY,
    speed: float = option(1.0, _SPEED, "X", parser=_parse_speed),
    fleetlock: str = _FLEETLOCK,
    like: Path | None = _LIKE,
) -> None:
    """Start a simulated cluster and keep it running until Ctrl-C.

    The API server and the hosts listen only on loopback addresses of this machine. You can
    connect to them with kubectl and ssh.

    \b
    Examples:
      rollout lab up --nodes 12 --speed 10
      rollout lab up --scenario never-returns
      rollout lab up --like cluster.json --speed 20
    """
    _require_lab("the lab")
    from rollout.lab.copied import scenario_like
    from rollout.lab.hostplan import with_fleetlock
    from rollout.lab.lab import serve

    if like and (nodes or scenario != _DEFAULT):
        raise UsageError(
            "--like cannot be combined with --nodes or --scenario",
            hint="Drop --nodes and --scenario.",
        )
    if fleetlock and not fleetlock.startswith(("http://", "https://")):
        raise UsageError(
            f"--fleetlock {fleetlock!r} is not a URL",
            hint="Use a URL such as http://127.0.0.1:8080/.",
        )
    loaded = scenario_like(like, _read_snapshot) if like else _load_scenario(scenario, nodes)
    if fleetlock:
        loaded = with_fleetlock(loaded, f"{fleetlock.rstrip('/')}/")
    say(f"{sum(group.count for group in loaded.nodes)} nodes: {loaded.description}")
    if loaded.fleetlock:
        say(f"Hosts ask the FleetLock server at {loaded.fleetlock} before they reboot.")
    on_ready = partial(_show_next_steps, loaded)
    scores = serve(loaded, directory=directory, speed=speed, on_ready=on_ready)
    show(f"\nWhat happened in the cluster:\n\n{_scoreboard_text(scores)}")


def _show_next_steps(scenario: "Scenario", lab: "Lab") -> None:
    from rollout.lab.scenario import steps_of

    exports = _export_lines(lab)
    env = lab.directory / "env"
    env.write_text("\n".join((*exports, "")), encoding="utf-8")
    say(f"Variables that make kubectl and rollout use the lab, also in {env}:")
    show("\n".join(exports))
    text = _NEXT.format(
        env=shlex.quote(str(env)),
        steps="\n".join(f"    {step}" for step in steps_of(scenario)),
        inventory=lab.directory / "inventory.yaml",
    )
    for line in text.splitlines():
        say(line)


@lab_app.command(cls=SectionedCommand, context_settings=CONTEXT)
def scenarios() -> None:
    """List the scenarios that come with the lab."""
    from rollout.lab.scenario import load_scenario
    from rollout.lab.scenarios import scenario_names

    names = scenario_names()
    name_width = max(len(name) for name in names) + 2
    for name in names:
        show_lines(f"{name.ljust(name_width)}{load_scenario(name).description}", name_width)


def demo(
    invocation: typer.Context,
    nodes: int | None = _NODES,
    scenario: str = _SCENARIO,
    speed: float = option(10.0, _SPEED, "X", parser=_parse_speed),
) -> None:
    """Watch a rollout on a simulated cluster.

    Needs no cluster: the simulated hosts and API server listen only on loopback addresses of this
    machine. Runs the real commands. Takes less than a minute.

    \b
    Examples:
      rollout demo
      rollout demo --scenario never-returns
    """
    _require_lab("the demo")
    from rollout.lab.lab import Lab
    from rollout.lab.scenario import flags_of

    loaded = _load_scenario(scenario, nodes)
    program = invocation.find_root().command
    flags = list(flags_of(loaded))
    status = ["status"]
    for flag in flags:
        # Status must find the same pending nodes as the plan.
        if flag.startswith(_DETECT_SOURCES):
            status += ["--set", flag]
    if _LIMIT not in flags:
        # One node at a time would show no waves.
        flags += [_LIMIT, "3"]
    with (
        TemporaryDirectory(prefix="rollout-demo-") as directory,
        Lab(loaded, directory=Path(directory), speed=speed) as lab,
    ):
        _use_lab(lab, speed)
        saved = str(lab.directory / "demo.plan")
        nodes_text = f"{len(lab.machines)} nodes, simulated on this machine"
        show(f"{nodes_text}; simulated time passes {speed:g} times faster.")
        show("The demo shortens the timeouts, too. Plans still estimate times for real machines.")
        _run_command(program, *status)
        _run_command(program, "plan", *flags, "--out", saved)
        code = _run_command(program, "apply", saved)
        _run_command(program, *status)
        scores = lab.scoreboard()
    _heading("What happened in the cluster")
    show(_scoreboard_text(scores))
    show(_after_demo(scenario))
    all_updated = all(versions.now != versions.before for versions in scores.versions.values())
    raise typer.Exit(code or (ExitCode.OK if scores.clean and all_updated else ExitCode.ERROR))


def _after_demo(scenario: str) -> str:
    program = shlex.quote(str(_program_unknown_to_shell() or PROGRAM))
    flag = "" if scenario == _DEFAULT else f" --scenario {shlex.quote(scenario)}"
    return _AFTER_DEMO.format(program=program, scenario_flag=flag)


def _load_scenario(scenario: str, nodes: int | None) -> "Scenario":
    from rollout.adapters.input_files import read_input
    from rollout.lab.copied import load_copy
    from rollout.lab.hostplan import scale
    from rollout.lab.scenario import load_scenario

    loaded = load_scenario(scenario, read_input)
    if loaded.like:
        # The lab reads the copy again, without checks.
        load_copy(Path(loaded.like), _read_snapshot)
    return scale(loaded, nodes) if nodes else loaded


def _read_snapshot(path: Path) -> bytes:
    from rollout.adapters.input_files import read_input

    return read_input(path, most=_LARGEST_SNAPSHOT)


def _use_lab(lab: "Lab", speed: float) -> None:
    # The user's settings do not fit the lab.
    for name in list(os.environ):
        if name.startswith("ROLLOUT_"):
            del os.environ[name]
    os.environ.update(lab.environment, XDG_STATE_HOME=str(lab.directory / "state"))
    defaults = Policy()
    timeouts = {
        "DRAIN": defaults.drain.timeout,
        "REBOOT": defaults.reboot_timeout,
        "READY": defaults.ready_timeout,
    }
    for name, seconds in timeouts.items():
        os.environ[f"ROLLOUT_{name}_TIMEOUT"] = f"{max(1, round(seconds / speed))}s"


def _run_command(program: Callable[..., Any], *words: str) -> int:
    _heading(f"$ rollout {' '.join(words)}")
    return invoke(program, words)


def _heading(text: str) -> None:
    from rich.text import Text

    from rollout.report.console import SharedConsole

    SharedConsole(stderr=False).print(Text(f"\n{text}\n", style="bold cyan"))


def _scoreboard_text(scores: "Scoreboard") -> str:
    from tabulate import tabulate

    reboot_counts = list(scores.reboots.values())
    rebooted_once = reboot_counts.count(1)
    rebooted_repeatedly = sum(reboots > 1 for reboots in reboot_counts)
    updated = sum(versions.now != versions.before for versions in scores.versions.values())
    rows = [
        ("hosts rebooted once", f"{rebooted_once} of {len(scores.reboots)}"),
        ("hosts rebooted more than once", str(rebooted_repeatedly)),
        ("hosts on a new version", f"{updated} of {len(scores.versions)}"),
        ("most nodes unavailable at once", str(scores.most_unavailable)),
        ("pods evicted", str(scores.evictions)),
        ("pods moved more than once", str(scores.moved_twice)),
    ]
    troubles = {
        "pods killed without eviction": scores.killed,
        "disruption budgets violated": [budget.name for budget in scores.budgets_broken],
        "cordons left": scores.cordons_left,
        "taints left": scores.taints_left,
        "nodes still excluded from load balancers": scores.exclusions_left,
        "hosts down": scores.hosts_down,
        "hosts back on their old version": scores.rolled_back,
    }
    for trouble, names in troubles.items():
        rows.append((trouble, f"{len(names)} ({shortened(names)})" if names else "0"))
    table = tabulate(rows, tablefmt="plain", disable_numparse=True)
    result = "Not clean."
    if scores.clean and not scores.hosts_down:
        result = (
            "Clean: no pods were killed, no budgets were violated, and nothing was left behind."
        )
    return f"{table}\n\n{result}"


def _program_unknown_to_shell() -> Path | None:
    started_as = Path(sys.argv[0])
    is_started_by_name = started_as.name == PROGRAM
    program = started_as if is_started_by_name else Path(sys.executable).with_name(PROGRAM)
    if not program.exists():
        return None
    found_by_shell = shutil.which(PROGRAM)
    if found_by_shell is not None and program.samefile(found_by_shell):
        return None
    return program


def _require_lab(subject: str) -> None:
    from rollout.adapters.local_files import needing_temporary_folder

    with needing_temporary_folder(subject):
        # asyncssh writes a temporary file to find its libraries.
        from rollout.lab import require_libraries

        require_libraries()
