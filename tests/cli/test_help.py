"""What helps to type: help names everything, loads nothing and is one screen; shells are told what
may follow.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from rollout.cli.main import root_command
from rollout.cli.settings.schema import Allow, settings
from tests.cli.conftest import Command
from tests.docs.test_blocks import path_with_program

CLIENTS = (
    "kubernetes",
    "paramiko",
    "cryptography",
    "rich",
    "pydantic",
    "urllib3",
    "prometheus_client",
    "jinja2",
    *("ansible", "ansible_runner", "aiohttp", "asyncssh"),
)


def test_the_first_steps_stand_last_and_no_line_is_broken(command: Command) -> None:
    """There a terminal of 24 lines still shows them."""
    lines = command("--help", variables={"COLUMNS": "80"}).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    last = "\n".join(lines[-13:])
    assert all(
        f"rollout {name} " in last for name in ("doctor", "status", "plan", "apply", "resume")
    )
    assert "rollout demo" in last


@pytest.mark.parametrize(("columns", "most"), [("80", 77), ("100", 73)])
def test_the_longest_help_is_a_page(columns: str, most: int, command: Command) -> None:
    lines = command("plan", "--help", variables={"COLUMNS": columns}).stdout.splitlines()
    assert len(lines) <= most


def test_no_flag_is_broken_across_lines() -> None:
    broken = [
        path for path, text in helps(root_command(), "rollout") if re.search(r"--[a-z-]+-\n", text)
    ]
    assert broken == []


def test_usage_shows_arguments_without_braces() -> None:
    usages = {path: text.partition("\n")[0] for path, text in helps(root_command(), "rollout")}
    assert [usage for usage in usages.values() if re.search(r"[{}]", usage)] == []
    assert "Usage: rollout hold [OPTIONS] VERSION..." in usages.values()


def test_the_help_of_a_list_flag_says_that_it_is_repeatable() -> None:
    lists = [setting for setting in settings().values() if setting.flag and setting.is_list]
    silent = [setting.flag for setting in lists if "repeatable" not in setting.help]
    assert silent == ["skip"]


def test_the_help_of_allow_names_each_word() -> None:
    text = settings()["nodes.allow"].help
    assert [word for word in Allow if word not in text] == []


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("apply", set(Allow)),
        ("operate", {Allow.BLOCKED, Allow.CORDONED, Allow.UNHEALTHY}),
        ("resume", {Allow.BLOCKED, Allow.HELD, Allow.UNHEALTHY}),
        ("fleetlock serve", {Allow.CORDONED, Allow.HELD}),
    ],
)
def test_the_help_of_allow_names_the_words_with_an_effect(command: str, words: set[Allow]) -> None:
    shown = flag_help(command, "--allow")
    assert {word for word in Allow if re.search(rf"\b{word}\b", shown)} == words
    assert ("kured" in shown) == (command != "resume")


def test_the_help_of_fleetlock_serve_shows_its_own_default() -> None:
    shown = flag_help("fleetlock serve", "--max-unavailable")
    assert "[the sum of the slots]" in shown


@pytest.mark.parametrize("flag", ["--drain-timeout", "--reboot-timeout", "--settle-timeout"])
def test_the_help_of_resume_says_that_planned_timeouts_still_apply(flag: str) -> None:
    shown = flag_help("resume", flag)
    assert shown.endswith("; default: as planned")
    assert "[" not in shown


def flag_help(command: str, flag: str) -> str:
    text = dict(helps(root_command(), "rollout"))[f"rollout {command}"]
    match = re.search(rf"^  {flag} .*\n(?: {{20,}}.*\n)*", text, re.MULTILINE)
    assert match is not None
    return " ".join(match[0].split())


def loaded(file: Path, *words: str, **variables: str) -> set[str]:
    """The modules that a command line loads: told in a file, for completions leave nothing else to
    say it by.
    """
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


COMPLETED = {
    "sta": set(),
    "plan --context ": {"plan"},
    "history ": {"history"},
    "demo --scenario ": {"lab"},
}


@pytest.mark.parametrize("line", COMPLETED)
def test_a_line_that_is_typed_loads_little(line: str, tmp_path: Path) -> None:
    """Importing the checks of values and the clients takes longer than everything else."""
    count = str(len(line.split(" ")))
    asked = {
        "COMP_WORDS": f"rollout {line}",
        "COMP_CWORD": count,
        "_ROLLOUT_COMPLETE": "complete_bash",
    }
    modules = loaded(tmp_path / "modules", **asked)
    assert commands_among(modules) == COMPLETED[line]
    heavy = {
        *CLIENTS,
        "asyncio",
        "rollout.planning.plan.build",
        "rollout.execution",
        "rollout.lab.scenario",
    }
    assert modules & heavy == set()


# How many modules each line may load, Python's own among them: an eighth more than it does now.
MOST_MODULES = {("--help",): 205, ("--version",): 205, ("status", "--help"): 290}


@pytest.mark.parametrize("words", MOST_MODULES)
def test_help_loads_few_modules(words: tuple[str, ...], tmp_path: Path) -> None:
    modules = loaded(tmp_path / "modules", *words)
    assert len(modules) <= MOST_MODULES[words]
    assert modules.isdisjoint(CLIENTS)
    ours = {module for module in modules if module.startswith("rollout.")}
    assert not any(module.startswith(("rollout.execution", "rollout.report")) for module in ours)
    if "status" not in words:
        # The schema loads the model, and takes as long as all else.
        assert ours.isdisjoint({"rollout.cli.settings.schema", "rollout.model.policy"})


def test_help_teaches_without_pythons_words(command: Command) -> None:
    """Arguments by their names alone; the flags that examples have; where else a flag may stand; an
    example each.
    """
    texts = dict(helps(root_command(), "rollout"))
    assert [
        path
        for path, text in texts.items()
        if re.search(r"<(str|path|list|int)|\{[a-zA-Z]+\}|x>=", text)
    ] == []
    assert "--fingerprints " in texts["rollout known-hosts"]
    assert "ROLLOUT_MAX_UNAVAILABLE=3" in command("--help").stdout
    silent = [
        path for path, text in texts.items() if "Examples:" not in text and not path.endswith(LISTS)
    ]
    assert silent == []


# groups and commands without anything to choose
LISTS = ("rollout", "fleetlock", "scenarios")


def helps(command: Any, path: str) -> Iterator[tuple[str, str]]:
    yield (
        path,
        command.get_help(
            typer.Context(command, info_name=path, terminal_width=80, max_content_width=80)
        ),
    )
    for name, member in getattr(command, "commands", {}).items():
        yield from helps(member, f"{path} {name}")


# What a real bash asks the program while a line is typed.


def test_a_real_bash_completes_with_the_printed_script(command: Command, home: Path) -> None:
    """Commands, flags and the words that one takes; files are left to the shell, and nothing else
    is said.
    """
    bash = shutil.which("bash")
    assert bash is not None
    script = command("completion", "bash").ends(0)
    environment = {"PATH": path_with_program(home / "bin"), "HOME": str(home)}

    def completed(*words: str) -> list[str]:
        ask = (
            f"{script.stdout}\nCOMP_WORDS=({' '.join(words)})\nCOMP_CWORD={len(words) - 1}\n"
            '_rollout_completion rollout\nprintf "%s\\n" "${COMPREPLY[@]}"\n'
        )
        done = subprocess.run(
            [bash, "--norc", "-c", ask],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0
        assert done.stderr == ""
        return done.stdout.split()

    assert completed("rollout", "known-") == ["known-hosts"]
    assert completed("rollout", "plan", "--max-una") == ["--max-unavailable"]
    assert completed("rollout", "plan", "--strategy", "r") == ["rolling"]
    assert completed("rollout", "plan", "--out", "''") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_names_the_program(shell: str, command: Command) -> None:
    printed = command("completion", shell).ends(0)
    assert "_ROLLOUT_COMPLETE" in printed.stdout
