"""Every screen at three widths, from the real program on a real pty, held against the pictures in `pictures/`.

`UPDATE_PICTURES=1 pytest tests/cli/test_screens.py` takes them anew: look at what changed.
"""

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from rollout.errors import ExitCode
from rollout.lab.api.resources import CONFIGMAPS, LEASES
from rollout.lab.lab import Lab
from tests.apply.conftest import is_ending
from tests.cli.conftest import TINY, Command
from tests.cli.screens import Screen, has_echo, shown
from tests.conftest import StartLab
from tests.ended import invoked, start
from tests.waiting import wait_until

PICTURES = Path(__file__).with_name("pictures")


WIDTHS = (80, 120, 200)


COMMANDS: Mapping[str, tuple[str, ...]] = {
    "status": ("status",),
    "plan": ("plan", "--max-unavailable", "3"),
    "doctor": ("doctor",),
    "apply-asks": ("apply",),
    "history": ("history", "--set", f"output.journal={Path(__file__).with_name('journal.jsonl')}"),
}


# Beside a rollout that was interrupted.
BESIDE: Mapping[str, tuple[str, ...]] = {
    "status": ("status",),
    "pending": ("status", "--pending"),
    "run": ("status", "--run"),
    "abort-asks": ("abort",),
}


@pytest.fixture(scope="module")
def blocked(shared_lab: StartLab) -> Lab:
    return shared_lab("budget-never", nodes=6, speed=30)


@pytest.fixture(scope="module")
def interrupted(shared_lab: StartLab, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A rollout whose process is gone, with names and times that are the same each time."""
    lab = shared_lab("drain-hangs", nodes=6, speed=30)
    home = tmp_path_factory.mktemp("home")
    process = start(
        home, lab.environment, ("apply", "--yes", "-o", "json", "--max-unavailable", "2")
    )
    wait_until(lambda: lab.call(lambda: is_ending(lab, "stubborn")), 90)
    process.kill()
    process.communicate()
    lab.call(lambda: _say_who(lab))
    return lab


def _say_who(lab: Lab) -> None:
    lease, record = (
        lab.store.get(kind, "node-rollout", "kube-system") for kind in (LEASES, CONFIGMAPS)
    )
    assert lease is not None
    assert record is not None
    annotations = {
        **record["metadata"]["annotations"],
        "node-rollout.dev/started-by": "ada@laptop/4711",
    }
    lab.store.put(LEASES, {**lease, "spec": {**lease["spec"], "holderIdentity": ""}})
    lab.store.put(
        CONFIGMAPS, {**record, "metadata": {**record["metadata"], "annotations": annotations}}
    )


def typed(name: str) -> str:
    """What the operator answers."""
    return "no\n" if name.endswith("-asks") else ""


def hold(name: str, width: int, screen: Screen) -> None:
    """It looks as it did, and no line is broken by the terminal."""
    picture = PICTURES / f"{name}-{width}.txt"
    if os.environ.get("UPDATE_PICTURES"):
        picture.parent.mkdir(exist_ok=True)
        picture.write_text(screen.steady, encoding="utf-8")
    assert screen.steady == picture.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_screen_looks_like_its_picture(name: str, width: int, mixed: Lab, tmp_path: Path) -> None:
    hold(name, width, shown(tmp_path, mixed.environment, COMMANDS[name], width, typed=typed(name)))


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("name", ["plan", "apply"])
def test_what_blocks_looks_like_its_picture(
    name: str, width: int, blocked: Lab, tmp_path: Path
) -> None:
    hold(f"blocked-{name}", width, shown(tmp_path, blocked.environment, (name,), width))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", BESIDE)
def test_an_interrupted_rollout_looks_like_its_picture(
    name: str, width: int, interrupted: Lab, tmp_path: Path
) -> None:
    words = BESIDE[name]
    hold(
        f"interrupted-{name}",
        width,
        shown(tmp_path, interrupted.environment, words, width, typed=typed(name)),
    )


def test_a_plan_beside_an_interrupted_rollout_ends_with_it(
    command: Command, interrupted: Lab
) -> None:
    """On the screen itself; beside a document on standard error alone."""
    sentence = "apply cannot start until it has ended, or until you undo it with `rollout abort`."
    shown = command("plan", lab=interrupted).stdout
    assert sentence in " ".join(shown.split())
    assert shown.endswith("\n\nNext:\n    rollout resume\n")
    assert command("plan", "-o", "json", lab=interrupted).stderr.endswith(
        f"{sentence} See: rollout resume\n"
    )


@pytest.mark.parametrize("width", [80, 120])
def test_the_board_of_a_watch_leaves_a_clean_terminal(
    width: int, interrupted: Lab, tmp_path: Path
) -> None:
    """It says what Ctrl-C does; after it, the last look stands there, and the cursor never was
    gone.
    """
    sent = list[int]()

    def leave(lines: Sequence[str], process: subprocess.Popen[bytes]) -> None:
        text = " ".join(" ".join(lines).split())
        wanted = ("Ctrl-C ends this view", "no process is working on it")
        if (
            not sent
            and all(words in text for words in wanted)
            and re.search(r"worker-\d: draining", text)
        ):
            process.send_signal(signal.SIGINT)
            sent.append(process.pid)

    screen = shown(tmp_path, interrupted.environment, ("status", "--watch"), width, heed=leave)
    assert screen.code == ExitCode.INTERRUPTED
    assert "Ctrl-C ends this view" not in screen.text
    assert sent
    assert "no process is working on it" in " ".join(screen.text.split())
    assert b"\x1b[?25l" not in screen.octets


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", COMMANDS)
def test_colours_say_nothing_that_the_words_do_not(name: str, mixed: Lab, tmp_path: Path) -> None:
    plain = shown(
        tmp_path, {**mixed.environment, "NO_COLOR": "1"}, COMMANDS[name], 80, typed=typed(name)
    )
    coloured = shown(tmp_path, mixed.environment, COMMANDS[name], 80, typed=typed(name))
    assert coloured.steady == plain.steady
    assert re.search(rb"\x1b\[[\d;]+m", coloured.octets)
    assert not re.search(rb"\x1b\[[\d;]+m", plain.octets)


def test_a_command_to_copy_is_one_line_on_any_terminal(mixed: Lab, tmp_path: Path) -> None:
    flags = ("--exclude", "worker-[12]", "--max-unavailable", "3", "--set", "waves.soak=9m")
    screen = shown(tmp_path, mixed.environment, ("plan", *flags, "-o", "wide"), 60)
    told = re.sub(r"\x1b\[[\d;]*m", "", screen.octets.replace(b"\r", b"").decode())
    command = "rollout apply --exclude 'worker-[12]' --max-unavailable 3 --set waves.soak=9m"
    assert told.endswith(f"Next:\n    {command}\n")


@pytest.mark.sample
@pytest.mark.parametrize("width", [60, 120])
def test_a_board_that_is_stopped_says_what_another_ctrl_c_does(
    width: int, start_lab: StartLab, tmp_path: Path
) -> None:
    lab = start_lab(TINY, nodes=3, speed=15)
    sent = list[int]()

    def stop_once(lines: Sequence[str], process: subprocess.Popen[bytes]) -> None:
        if not sent and any("rebooting" in line for line in lines):
            process.send_signal(signal.SIGINT)
            sent.append(process.pid)

    screen = shown(tmp_path, lab.environment, ("apply", "--yes"), width, heed=stop_once)
    assert screen.code == ExitCode.INTERRUPTED
    assert any(
        "Press Ctrl-C again to quit" in " ".join(map(str.strip, lines)) for lines in screen.moments
    )
    assert "1 of 3 nodes done in " in screen.text
    assert "not started: stopped on request\nNext:\n    rollout resume\n" in screen.text
    assert "Ctrl-C again" not in screen.text


def test_keys_leave_no_frame_of_a_board_and_are_shown_again_after_it(
    start_lab: StartLab, tmp_path: Path
) -> None:
    lab = start_lab(TINY, nodes=3, speed=15)
    screen = shown(
        tmp_path,
        lab.environment,
        ("apply", "--yes", "--node", "worker-1"),
        80,
        heed=lambda _lines, _process: None,
        keys=b"x\n",
    )
    assert screen.code == ExitCode.OK
    frames = [sum(" of 1 done" in line for line in lines) for lines in screen.moments]
    assert max(frames) == 1
    assert screen.has_echo


def is_stopped(process: subprocess.Popen[bytes]) -> bool:
    return "State:\tT" in Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")


def test_ctrl_z_shows_keys_again_until_the_rollout_goes_on(
    start_lab: StartLab, tmp_path: Path
) -> None:
    lab = start_lab(TINY, nodes=3, speed=15)
    echoes = list[bool]()

    def pause_once(lines: Sequence[str], process: subprocess.Popen[bytes]) -> None:
        if echoes or not any(line.startswith("Wave ") for line in lines):
            return
        echoes.append(has_echo(process))
        process.send_signal(signal.SIGTSTP)
        wait_until(lambda: is_stopped(process))
        echoes.append(has_echo(process))
        process.send_signal(signal.SIGCONT)
        wait_until(lambda: not has_echo(process))

    screen = shown(
        tmp_path, lab.environment, ("apply", "--yes", "--node", "worker-1"), 80, heed=pause_once
    )
    assert echoes == [False, True]
    assert screen.code == ExitCode.OK
    assert screen.has_echo


def test_a_terminal_that_becomes_narrower_keeps_no_frame_of_a_board(
    start_lab: StartLab, tmp_path: Path
) -> None:
    lab = start_lab(TINY, nodes=3, speed=15)
    screen = shown(
        tmp_path,
        lab.environment,
        ("apply", "--yes", "--node", "worker-1"),
        100,
        heed=lambda _lines, _process: None,
        narrowed=50,
    )
    assert screen.code == ExitCode.OK
    assert max(map(len, screen.lines)) <= 50
    frames = [sum(line.startswith("Wave ") for line in lines) for lines in screen.moments]
    assert max(frames) == 1
    assert "Wave " not in screen.text


def test_keys_are_shown_again_after_a_rollout_that_was_stopped_at_once(
    start_lab: StartLab, tmp_path: Path
) -> None:
    lab = start_lab("drain-hangs", nodes=4, speed=30)

    def interrupt(lines: Sequence[str], process: subprocess.Popen[bytes]) -> None:
        if any("draining" in line or "Stopping" in line for line in lines):
            process.send_signal(signal.SIGINT)

    screen = shown(tmp_path, lab.environment, ("apply", "--yes"), 80, heed=interrupt)
    assert screen.code == ExitCode.INTERRUPTED
    assert "To continue:\n    rollout resume\n" in screen.text
    assert screen.has_echo


def test_the_next_command_is_about_the_same_cluster_and_the_same_nodes(
    command: Command, mixed: Lab
) -> None:
    words = (
        *("--context", "rollout-lab", "--exclude", "worker-[12]"),
        *("--set", "detect.sources=update-engine,annotation"),
    )
    for asked in ("status", "plan"):
        shown = command(asked, *words, lab=mixed).stdout
        following = shown.rpartition("Next:\n    rollout ")[2].strip()
        name, _, repeated = following.partition(" ")
        assert name in ("doctor", "plan", "apply"), shown
        assert shlex.split(repeated) == [*words], shown


# What the real program shows on a terminal before its answer: silence of seconds looks like a hang.


STAGES = {
    "status": ("reading the nodes", "asking hosts"),
    "check-update": ("reading the nodes", "asking hosts"),
    "plan": ("reading the cluster", "asking hosts", "making the plan"),
    "doctor": ("reading the nodes", "asking hosts", "reading the cluster", "making the plan"),
}


HIDDEN = b"\x1b[?25l"


@pytest.fixture(scope="module")
def lab(shared_lab: StartLab) -> Lab:
    return shared_lab(TINY, speed=30)


@pytest.mark.parametrize("command", STAGES)
def test_each_stage_is_shown_while_it_lasts(command: str, lab: Lab, tmp_path: Path) -> None:
    screen = shown(tmp_path, lab.environment, (command,), 80)
    places = [screen.octets.find(stage.encode()) for stage in STAGES[command]]
    assert -1 not in places
    assert places == sorted(places)
    assert not any(stage in screen.text for stage in STAGES[command])


@pytest.mark.parametrize("command", STAGES)
def test_no_stage_is_shown_in_a_pipe_or_on_a_dumb_terminal(
    command: str, lab: Lab, tmp_path: Path
) -> None:
    ended = invoked(tmp_path, lab.environment, (command,))
    dumb = shown(tmp_path, {**lab.environment, "TERM": "dumb"}, (command,), 80)
    for stage in STAGES[command]:
        assert stage not in ended.stderr + ended.stdout
        assert stage.encode() not in dumb.octets


@pytest.mark.parametrize("words", ["status", "apply --yes --allow idle --node worker-1"])
def test_the_cursor_is_never_taken(words: str, lab: Lab, tmp_path: Path) -> None:
    """What Ctrl-Z stops, or a kill ends, could not give it back to the shell."""
    screen = shown(tmp_path, lab.environment, tuple(words.split()), 80)
    assert screen.code == ExitCode.OK
    assert HIDDEN not in screen.octets
