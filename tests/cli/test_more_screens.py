"""Screens of rollouts that were interrupted or failed, of checks for updates, and of saved plans: as `test_screens`."""

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollout.errors import ExitCode
from rollout.lab.hostplan import scale
from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario
from tests.cli.screens import Screen, shown
from tests.cli.test_screens import WIDTHS, hold
from tests.ended import end_of, start

TINY = str(Path(__file__).with_name("tiny.yaml"))
TIMES = re.compile(r"\b\d+m\d\ds\b|\b\d+s\b")
PIDS = re.compile(r"(?<=@)\S+?/\d+")
CODES = re.compile(rb"\x1b\[[\d;]+m")


def still(screen: Screen) -> Screen:
    """Without what differs with the machine's speed; tables have no columns then, but rows."""
    lines = [re.sub(r" {2,}", "  ", PIDS.sub("machine/1", TIMES.sub("1s", line))).rstrip() for line in screen.lines]
    return Screen(screen.code, lines, screen.octets)


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A rollout that was killed while its first node was away; nothing goes on in it."""
    home = tmp_path_factory.mktemp("home")
    with Lab.start(scale(load_scenario(TINY), 3), directory=tmp_path_factory.mktemp("lab"), speed=5) as lab:
        process = start(home, lab.environment, ("apply", "--yes", "-o", "json"))
        assert process.stdout is not None
        for line in process.stdout:
            if '"phase":"rebooting"' in line:
                break
        process.send_signal(signal.SIGKILL)
        end_of(process)
        yield lab


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab.start(scale(load_scenario("rollback"), 6), directory=tmp_path_factory.mktemp("lab"), speed=40) as lab:
        yield lab


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["resume", "abort"])
def test_what_would_be_done_with_an_interrupted_rollout(
    name: str, width: int, interrupted: Lab, tmp_path: Path
) -> None:
    words = (name, "--lease-duration", "15s") if name == "resume" else (name,)
    screen = shown(tmp_path, interrupted.environment, words, width, typed="no\n")
    assert screen.code == ExitCode.DECLINED
    hold(name, width, still(screen))


@pytest.mark.parametrize("width", WIDTHS)
def test_the_rollout_that_stands(width: int, interrupted: Lab, tmp_path: Path) -> None:
    hold("status-run", width, still(shown(tmp_path, interrupted.environment, ("status", "--run"), width)))


@pytest.mark.parametrize("width", WIDTHS)
def test_a_saved_plan(width: int, failing: Lab, tmp_path: Path) -> None:
    end_of(start(tmp_path, failing.environment, ("plan", "--max-unavailable", "2", "--out", "web.plan")))
    hold("show", width, shown(tmp_path, {}, ("show", "web.plan"), width))


@pytest.mark.parametrize("width", WIDTHS)
def test_hosts_that_are_asked_to_look_for_updates(width: int, tmp_path: Path) -> None:
    with Lab.start(scale(load_scenario("updates"), 11), directory=tmp_path / "lab", speed=30) as lab:
        screen = still(shown(tmp_path, lab.environment, ("check-update",), width))
    # hosts come to their end in any order
    lines = sorted(line for line in screen.lines if not line.startswith(" ") and "hosts:" not in line)
    rest = [line for line in screen.lines if line not in lines]
    hold("check-update", width, Screen(screen.code, [*lines, *rest], screen.octets))


@pytest.mark.parametrize("width", WIDTHS)
def test_the_end_of_a_run_with_failures(width: int, tmp_path: Path) -> None:
    with Lab.start(scale(load_scenario("rollback"), 6), directory=tmp_path / "lab", speed=40) as lab:
        screen = still(shown(tmp_path, lab.environment, ("apply", "--yes", "--max-unavailable", "2"), width))
    assert screen.code == ExitCode.PARTIAL
    at = max(number for number, line in enumerate(screen.lines) if "failed (" in line)
    hold("failures", width, Screen(screen.code, screen.lines[at:], screen.octets))


@pytest.mark.parametrize("words", [("resume",), ("abort",), ("status", "--run")])
def test_colours_say_nothing_that_the_words_do_not(words: tuple[str, ...], interrupted: Lab, tmp_path: Path) -> None:
    plain = shown(tmp_path, {**interrupted.environment, "NO_COLOR": "1"}, words, 80, typed="no\n")
    coloured = shown(tmp_path, interrupted.environment, words, 80, typed="no\n")
    assert still(plain).lines == still(coloured).lines
    assert not CODES.search(plain.octets)
