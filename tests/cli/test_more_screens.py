"""Screens of rollouts that were interrupted or failed, of checks for updates, and of saved plans: as `test_screens`."""

import os
import re
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from rollout.errors import ExitCode
from rollout.lab.hostplan import scale
from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario
from tests.cli.screens import Screen, shown
from tests.cli.test_screens import PICTURES, WIDTHS, hold
from tests.ended import end_of, start

TINY = str(Path(__file__).with_name("tiny.yaml"))
# What differs with the machine and its speed, and with the names that pods happen to get.
VARYING = (
    (re.compile(r"\b\d+m\d\ds\b|\b\d+s\b"), "1s"),
    (re.compile(r"\S+@\S+?/\d+"), "user@machine/1"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "0123456789abcdef" * 2),
    (re.compile(r"(?<=replicaset/shop/thumbnails-)[a-z0-9]{10}"), "x" * 10),
    (re.compile(r"\d+ evictions, \d+ of them"), "17 evictions, 1 of them"),
    (re.compile(r"\[127\.\d+\.\d+\.\d+\]:\d+"), "[127.0.0.1]:65432"),
    (re.compile(r"SHA256:\S{43}"), "SHA256:" + "x" * 43),
)
CODES = re.compile(rb"\x1b\[[\d;]+m")


def still(screen: Screen) -> Screen:
    """Without what differs with the machine's speed; tables have no columns then, but rows."""
    text = "\n".join(screen.lines)
    for pattern, same in VARYING:
        text = pattern.sub(same, text)
    return Screen(screen.code, [re.sub(r"(?<=\S) {2,}", "  ", line) for line in text.splitlines()], screen.octets)


def hold_words(name: str, width: int, screen: Screen) -> None:
    """The same, wherever its sentences are broken: that differs with the length of a process's number."""
    picture = PICTURES / f"{name}-{width}.txt"
    if os.environ.get("UPDATE_PICTURES"):
        picture.write_text(screen.steady, encoding="utf-8")
    assert sorted(screen.steady.split()) == sorted(picture.read_text(encoding="utf-8").split())


@dataclass(frozen=True)
class Interrupted:
    """A rollout that was killed while its first node was away; `environment` is that of the machine it ran on."""

    environment: Mapping[str, str]


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interrupted]:
    """Nothing goes on in it; and its machine knows that it has ended, whenever anybody looks."""
    home = tmp_path_factory.mktemp("home")
    with Lab.start(scale(load_scenario(TINY), 3), directory=tmp_path_factory.mktemp("lab"), speed=5) as lab:
        environment = {**lab.environment, "XDG_STATE_HOME": str(home)}
        process = start(home, environment, ("apply", "--yes", "-o", "json"))
        assert process.stdout is not None
        for line in process.stdout:
            if '"phase":"rebooting"' in line:
                break
        process.send_signal(signal.SIGKILL)
        end_of(process)
        yield Interrupted(environment)


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab.start(scale(load_scenario("rollback"), 6), directory=tmp_path_factory.mktemp("lab"), speed=40) as lab:
        yield lab


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["resume", "abort"])
def test_what_would_be_done_with_an_interrupted_rollout(
    name: str, width: int, interrupted: Interrupted, tmp_path: Path
) -> None:
    words = (name, "--set", "lock.duration=15s") if name == "resume" else (name,)
    screen = shown(tmp_path, interrupted.environment, words, width, typed="no\n")
    assert screen.code == ExitCode.DECLINED
    hold_words(name, width, still(screen))


@pytest.mark.parametrize("width", WIDTHS)
def test_the_rollout_that_stands(width: int, interrupted: Interrupted, tmp_path: Path) -> None:
    hold_words("status-run", width, still(shown(tmp_path, interrupted.environment, ("status", "--run"), width)))


@pytest.mark.parametrize("width", WIDTHS)
def test_why_a_node_is_where_it_is(width: int, failing: Lab, tmp_path: Path) -> None:
    words = ("plan", "--explain", "worker-2", "--max-unavailable", "2")
    screen = still(shown(tmp_path, failing.environment, words, width))
    lines = [re.sub(r"(?<=[a-z]-)[a-z0-9]{5}(?=  )", "xxxxx", line) for line in screen.lines]
    hold("explain", width, Screen(screen.code, lines, screen.octets))


@pytest.mark.parametrize("width", WIDTHS)
def test_a_run_as_a_timeline(width: int, tmp_path: Path) -> None:
    journal = Path(__file__).with_name("journal.jsonl")
    run = "0123456789abcdef"
    hold("history-run", width, still(shown(tmp_path, {}, ("history", "--journal", str(journal), run), width)))


@pytest.mark.parametrize("width", [80, 200])
def test_keys_of_hosts(width: int, failing: Lab, tmp_path: Path) -> None:
    words = ("known-hosts", "--out", "known_hosts", "--known-hosts", "known_hosts")
    hold("known-hosts", width, still(shown(tmp_path, failing.environment, words, width, typed="no\n")))


@pytest.mark.parametrize("width", WIDTHS)
def test_a_saved_plan(width: int, failing: Lab, tmp_path: Path) -> None:
    end_of(start(tmp_path, failing.environment, ("plan", "--max-unavailable", "2", "--out", "web.plan")))
    hold("show", width, still(shown(tmp_path, {}, ("plan", "web.plan"), width)))


@pytest.mark.parametrize("width", WIDTHS)
def test_hosts_that_are_asked_to_look_for_updates(width: int, tmp_path: Path) -> None:
    with Lab.start(scale(load_scenario("updates"), 11), directory=tmp_path / "lab", speed=30) as lab:
        screen = still(shown(tmp_path, lab.environment, ("check-update",), width))
    # hosts come to their end in any order
    first = next(number for number, line in enumerate(screen.lines) if "11 hosts: " in line)
    hold("check-update", width, Screen(screen.code, screen.lines[first:], screen.octets))
    ended = [line for line in screen.lines[:first] if re.match(r"(cp|worker)-\d: \w+", line)]
    assert len(ended) == 11


@pytest.mark.sample
@pytest.mark.parametrize("width", WIDTHS)
def test_the_end_of_a_run_with_failures(width: int, tmp_path: Path) -> None:
    with Lab.start(scale(load_scenario("rollback"), 6), directory=tmp_path / "lab", speed=40) as lab:
        screen = still(shown(tmp_path, lab.environment, ("apply", "--yes", "--max-unavailable", "2"), width))
    assert screen.code == ExitCode.PARTIAL
    at = max(number for number, line in enumerate(screen.lines) if "failed (" in line)
    in_order = [line for line in screen.lines[at:] if "succeeded  " not in line]
    hold("failures", width, Screen(screen.code, in_order, screen.octets))


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """After a run in which a version failed on as many nodes as may."""
    home = tmp_path_factory.mktemp("home")
    with Lab.start(scale(load_scenario("rollback"), 8), directory=tmp_path_factory.mktemp("lab"), speed=40) as lab:
        ended = end_of(start(home, lab.environment, ("apply", "--yes", "--node", "worker-2")))
        assert ended.code == ExitCode.PARTIAL
        yield lab


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["status", "plan"])
def test_a_version_that_is_held_is_told_once(name: str, width: int, held: Lab, tmp_path: Path) -> None:
    hold_words(f"held-{name}", width, still(shown(tmp_path, held.environment, (name,), width)))


@pytest.mark.sample
@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_board_says_for_how_long_a_pod_is_still_held(width: int, tmp_path: Path) -> None:
    """Whatever else of the line has room: which pod, by what, and how much time is left."""
    flags = ("--allow", "blocked", "--drain-timeout", "8s", "--node", "worker-2")
    with Lab.start(scale(load_scenario("budget-never"), 6), directory=tmp_path / "lab", speed=30) as lab:
        screen = shown(tmp_path, lab.environment, ("apply", "--yes", *flags), width, heed=lambda _lines, _process: None)
    assert screen.code == ExitCode.PARTIAL
    held = {line.strip() for lines in screen.moments for line in lines if "ledger · " in line}
    assert "  hint: See: kubectl describe pdb -n shop ledger" in screen.lines
    assert len([line for line in held if re.search(r"\b\ds left$", line)]) >= 3, held


@pytest.mark.parametrize("words", [("resume",), ("abort",), ("status", "--run")])
def test_colours_say_nothing_that_the_words_do_not(
    words: tuple[str, ...], interrupted: Interrupted, tmp_path: Path
) -> None:
    plain = shown(tmp_path, {**interrupted.environment, "NO_COLOR": "1"}, words, 80, typed="no\n")
    coloured = shown(tmp_path, interrupted.environment, words, 80, typed="no\n")
    assert still(plain).steady == still(coloured).steady
    assert not CODES.search(plain.octets)
