"""Every format that a command offers, beside an interrupted rollout, on a terminal of 80 columns."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from rollout.lab.hostplan import scale
from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario
from tests.apply.conftest import is_ending
from tests.cli.screens import shown
from tests.ended import Ended, end_of, start
from tests.waiting import wait_until

FORMATS = ("text", "json", "wide", "yaml", "name")
LISTS = {
    "status": ("status",),
    "status-run": ("status", "--run"),
    "status-pending": ("status", "--pending"),
    "plan": ("plan",),
    "fleetlock-status": ("fleetlock", "status"),
}
OTHERS = {
    "doctor": ("doctor",),
    "history": ("history",),
    "abort": ("abort",),
    "release": ("release", "9.9.9"),
    "pause": ("pause", "worker-1"),
    "check-update": ("check-update", "--node", "worker-1"),
}


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, Path]]:
    """A lab, and the home of a process that is gone."""
    home = tmp_path_factory.mktemp("home")
    with Lab.start(scale(load_scenario("drain-hangs"), 5), directory=tmp_path_factory.mktemp("lab"), speed=30) as lab:
        process = start(home, lab.environment, ("apply", "--yes", "-o", "json", "--max-unavailable", "2"))
        wait_until(lambda: lab.call(lambda: is_ending(lab, "stubborn")), 90)
        process.kill()
        process.communicate()
        yield lab, home


def told(interrupted: tuple[Lab, Path], words: tuple[str, ...], form: str) -> Ended:
    lab, home = interrupted
    ended = end_of(start(home, lab.environment, (*words, "-o", form)))
    assert "Traceback" not in ended.stdout + ended.stderr
    return ended


@pytest.mark.parametrize("name", LISTS)
def test_what_lists_nodes_has_every_format(name: str, interrupted: tuple[Lab, Path]) -> None:
    ended = {form: told(interrupted, LISTS[name], form) for form in FORMATS}
    assert len({end.code for end in ended.values()}) == 1
    assert ended["text"].code in (0, 2, 6), ended["text"].stderr
    document = json.loads(ended["json"].stdout)
    same = yaml.safe_load(ended["yaml"].stdout)
    if name == "plan":
        # it has the time at which it was made
        document, same = document["summary"], same["summary"]
    assert same == document
    names = ended["name"].stdout.splitlines()
    assert all(line.startswith("node/") and " " not in line for line in names)
    assert len(names) == len(set(names))
    assert bool(names) == (name != "fleetlock-status")


@pytest.mark.parametrize("name", OTHERS)
def test_what_lists_no_nodes_refuses_formats_without_a_meaning(name: str, interrupted: tuple[Lab, Path]) -> None:
    for form in ("yaml", "name", "markdown"):
        refused = told(interrupted, OTHERS[name], form)
        assert (refused.code, refused.stdout) == (64, "")
        assert f"'{form}' is not one of 'text', 'json', 'wide'" in refused.stderr or form == "markdown"


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", [*LISTS, "doctor", "history"])
def test_no_line_of_a_table_is_broken_by_the_terminal(name: str, interrupted: tuple[Lab, Path], tmp_path: Path) -> None:
    """What it writes has no line that is longer than the terminal is wide."""
    lab, _ = interrupted
    words = {**LISTS, **OTHERS}[name]
    screen = shown(tmp_path, {**lab.environment, "NO_COLOR": "1"}, words, 80)
    lines = screen.octets.decode().replace("\r\n", "\n").splitlines()
    assert "Traceback" not in screen.text
    # what moves is drawn anew, and taken away
    assert [line for line in lines if len(line) > 80 and "\x1b" not in line] == []
