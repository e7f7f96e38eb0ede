"""A man page of every command, made of its help."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rollout.cli.commands.help import man_pages_of
from rollout.cli.main import root_command
from tests.cli.conftest import Command


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return dict(man_pages_of(root_command(), "rollout"))


def test_each_command_has_a_page_with_each_of_its_flags(pages: dict[str, str]) -> None:
    root: Any = root_command()
    for name, command in root.commands.items():
        text = pages[f"rollout-{name}.1"].replace("\\-", "-")
        flags = [
            flag
            for item in command.params
            if not getattr(item, "hidden", False)
            for flag in item.opts[:1]
        ]
        assert [flag for flag in flags if flag.startswith("--") and flag not in text] == [], name
    assert {"rollout.1", "rollout-lab-up.1", "rollout-fleetlock-serve.1"} <= set(pages)


def test_a_page_has_its_sections_in_the_usual_order(pages: dict[str, str]) -> None:
    headings = [
        line.removeprefix(".SH ")
        for line in pages["rollout-plan.1"].splitlines()
        if line.startswith(".SH ")
    ]
    assert headings[:3] == ["NAME", "SYNOPSIS", "DESCRIPTION"]
    assert headings[-2:] == ["EXAMPLES", "SEE ALSO"]
    assert "Exit codes: 0 done" in pages["rollout.1"]


@pytest.mark.skipif(not shutil.which("groff"), reason="needs groff")
def test_the_formatter_has_nothing_to_warn_of(pages: dict[str, str]) -> None:
    for name, text in pages.items():
        ended = subprocess.run(
            ["groff", "-k", "-man", "-Tutf8", "-ww", "-rLL=200n"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        )
        assert ended.stderr == "", name


def test_help_is_that_of_the_command(command: Command) -> None:
    assert (
        command("help", "lab", "up").ends(0).stdout == command("lab", "up", "--help").ends(0).stdout
    )
    assert 'unknown command "paln"' in command("help", "paln").ends(64).stderr


def test_the_pages_are_written_into_a_folder(command: Command, home: Path) -> None:
    command("help", "--man-pages", "man/man1").ends(0)
    assert ".SH SYNOPSIS" in (home / "man" / "man1" / "rollout-apply.1").read_text(encoding="utf-8")
