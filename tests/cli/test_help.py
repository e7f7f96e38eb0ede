"""Help names everything, and loads nothing."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from rollout import __version__
from rollout.cli.main import program
from rollout.errors import ExitCode
from tests.cli.conftest import Command
from tests.docs import reference

CLIENTS = (
    *("kubernetes", "paramiko", "cryptography", "rich", "pydantic", "urllib3", "prometheus_client", "jinja2"),
    *("ansible", "ansible_runner", "aiohttp", "asyncssh"),
)


@pytest.mark.parametrize("name", ["status", "plan", "apply", "demo", "lab up", "lab scenarios"])
def test_help_of_a_command_lists_each_of_its_flags(name: str, command: Command) -> None:
    ended = command(*name.split(), "--help")
    assert ended.code == ExitCode.OK
    flags = [flag for path, option in reference.options() if path == name for flag in option.opts]
    shown = set(re.findall(r"(?<!\S)-{1,2}[a-z][a-z-]*", ended.stdout))
    assert set(flags) <= shown


def test_the_list_of_commands_fits_on_a_terminal(command: Command) -> None:
    listed = command("--help", variables={"COLUMNS": "80"}).stdout.partition("Commands:\n")[2].partition("\n\n")[0]
    shown = [line.strip().split(maxsplit=1) for line in listed.splitlines()]
    commands = {name: command for name, command in program().commands.items() if not command.hidden}
    assert shown == [[name, command.get_short_help_str(200)] for name, command in commands.items()]


def test_the_first_steps_stand_last_and_no_line_is_broken(command: Command) -> None:
    """There a terminal of 24 lines still shows them."""
    lines = command("--help", variables={"COLUMNS": "80"}).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    last = "\n".join(lines[-12:])
    assert all(f"rollout {name} " in last for name in ("doctor", "status", "plan", "apply", "resume"))
    assert "rollout demo" in last


def test_the_longest_help_is_a_screen_with_a_line_a_flag(command: Command) -> None:
    lines = command("apply", "--help", variables={"COLUMNS": "80"}).stdout.splitlines()
    assert len(lines) < 75
    assert [line for line in lines if line.startswith(" " * 20)] == []


def test_version(command: Command) -> None:
    assert command("--version").stdout == f"rollout {__version__}\n"


def test_help_loads_no_client() -> None:
    script = (
        "import sys\n"
        "from rollout.cli.main import run\n"
        "assert run(['--help']) == 0\n"
        f"print([name for name in {CLIENTS} if name in sys.modules], file=sys.stderr)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stderr == "[]\n"


def loaded(file: Path, *words: str, **variables: str) -> set[str]:
    """The modules that a command line loads: told in a file, for completions leave nothing else to say it by."""
    script = (
        "import pathlib, sys\n"
        "from rollout.cli.main import main\n"
        f"sys.argv = ['rollout', *{words}]\n"
        "try: main()\n"
        f"finally: pathlib.Path({str(file)!r}).write_text(' '.join(sys.modules))\n"
    )
    command = [sys.executable, "-c", script]
    subprocess.run(command, env={**os.environ, **variables}, capture_output=True, check=False)
    return set(file.read_text(encoding="ascii").split())


def commands_among(modules: set[str]) -> set[str]:
    begin = "rollout.cli.commands."
    return {module.removeprefix(begin) for module in modules if module.startswith(begin)}


COMPLETED = {"sta": set(), "plan --context ": {"plan"}, "history ": {"history"}, "demo --scenario ": {"demo"}}


@pytest.mark.parametrize("line", COMPLETED)
def test_a_line_that_is_typed_loads_little(line: str, tmp_path: Path) -> None:
    """Neither what checks values nor the clients: they take longer than all else."""
    count = str(len(line.split(" ")))
    asked = {"COMP_WORDS": f"rollout {line}", "COMP_CWORD": count, "_ROLLOUT_COMPLETE": "complete_bash"}
    modules = loaded(tmp_path / "modules", **asked)
    assert commands_among(modules) == COMPLETED[line]
    heavy = {*CLIENTS, "asyncio", "rollout.planning.plan.build", "rollout.execution", "rollout.lab.scenario"}
    assert modules & heavy == set()


def test_help_teaches_without_pythons_words(command: Command) -> None:
    """Arguments by their names alone; the flags that examples have; where else a flag may stand; an example each."""
    texts = dict(helps(program(), "rollout"))
    assert [path for path, text in texts.items() if re.search(r"<(str|path|list|int)|\{[a-zA-Z]+\}", text)] == []
    assert "--fingerprints " in texts["rollout known-hosts"]
    assert "ROLLOUT_MAX_UNAVAILABLE=3" in command("--help").stdout
    silent = [path for path, text in texts.items() if "Examples:" not in text and not path.endswith(LISTS)]
    assert silent == []


# groups and commands without anything to choose
LISTS = ("rollout", "fleetlock", "scenarios")


def helps(command: Any, path: str) -> Iterator[tuple[str, str]]:
    yield path, command.get_help(typer.Context(command, info_name=path, terminal_width=80, max_content_width=80))
    for name, member in getattr(command, "commands", {}).items():
        yield from helps(member, f"{path} {name}")
