"""The program at the ends of the standard streams: closed, full, or of an encoding that lacks what
is said.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from rollout.cli.failures import report_error
from rollout.cli.signals import delay_interrupts
from rollout.errors import ExitCode
from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.lab import Lab
from tests.cli.screens import shown
from tests.conftest import StartLab
from tests.ended import Ended, start
from tests.waiting import wait_until

ROLLOUT = f"{sys.executable} -m rollout"


def shell(line: str, folder: Path, lab: Lab | None = None, **variables: str) -> Ended:
    """A line of shell, in a folder, with the lab's variables."""
    given = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(Path.cwd())}
    environment = {**given, **(lab.environment if lab else {}), **variables}
    ended = subprocess.run(
        ["bash", "-c", line],
        env=environment,
        cwd=folder,
        capture_output=True,
        check=False,
        timeout=100,
    )
    return Ended(ended.returncode, ended.stdout.decode(), ended.stderr.decode())


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_error(closed: str, tmp_path: Path) -> None:
    ended = shell(f"{ROLLOUT} --version {closed}", tmp_path)
    assert ended.code == ExitCode.OK
    assert ended.stderr == ""
    assert ended.stdout.startswith("rollout ") == (">&-" not in closed.split())


def test_nothing_else_gets_the_number_of_a_closed_stream(tmp_path: Path) -> None:
    code = (
        "import os; from rollout.cli.terminal import prepare_streams; prepare_streams();from"
        " pathlib import Path;Path('told').write_text('"
        " '.join(os.readlink(f'/proc/self/fd/{number}') for number in range(3)))"
    )
    shell(f'{sys.executable} -c "{code}" <&- >&- 2>&-', tmp_path).ends(0)
    assert (tmp_path / "told").read_text(encoding="utf-8").split() == [os.devnull] * 3


@pytest.mark.parametrize(
    ("command", "buffered"),
    [("--help", ""), ("lab scenarios", "1"), ("doctor --kubeconfig nowhere", "")],
)
def test_output_without_room(command: str, buffered: str, tmp_path: Path) -> None:
    ended = shell(f"{ROLLOUT} {command} >/dev/full", tmp_path, PYTHONUNBUFFERED=buffered).ends(
        ExitCode.ERROR
    )
    error, hint = ended.stderr.splitlines()
    assert error == "rollout: error: No space left on device"
    assert hint.startswith("hint: The operating system refused a request. Check disk space, ")


def test_ctrl_c_while_the_program_is_being_loaded(tmp_path: Path) -> None:
    code = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
from rollout.cli.entry import main
main()
"""
    (tmp_path / "load.py").write_text(code, encoding="utf-8")
    ended = shell(f"exec {sys.executable} load.py", tmp_path)
    assert ended.code == ExitCode.INTERRUPTED
    assert ended.stdout == ""
    assert ended.stderr == ""


def test_an_interruption_after_the_program_has_ended(tmp_path: Path) -> None:
    code = """
import atexit, os, signal

atexit.register(os.kill, os.getpid(), signal.SIGINT)
from rollout.cli.entry import main
main()
"""
    (tmp_path / "end.py").write_text(code, encoding="utf-8")
    ended = shell(f"exec {sys.executable} end.py --version", tmp_path)
    assert ended.code == ExitCode.OK
    assert ended.stderr == ""


def test_an_encoding_that_lacks_what_is_said(tmp_path: Path) -> None:
    ended = shell(
        f"{ROLLOUT} doctor --kubeconfig nowhere", tmp_path, PYTHONIOENCODING="ascii"
    ).ends(ExitCode.ERROR)
    assert ended.stdout.startswith("\\u2718 kubeconfig")
    assert "bug" not in ended.stderr


def test_a_thread_that_the_system_denies_is_no_bug(capfd: pytest.CaptureFixture[str]) -> None:
    report_error(RuntimeError("can't start new thread"), verbose=False)
    error, hint = capfd.readouterr().err.splitlines()
    assert error == "rollout: error: can't start new thread"
    assert hint.startswith(
        "hint: The operating system refused a request. Check disk space, memory, permissions and"
        " limits (ulimit -a)."
    )


# The program where it is not at home: no folder to stand in, none that it may look into, names that
# no shell takes.


@pytest.mark.exhaustive
def test_what_needs_no_folder_works_in_one_that_is_gone(lab: Lab, tmp_path: Path) -> None:
    shell(
        f"mkdir gone && cd gone && rmdir ../gone && {ROLLOUT} plan --out {tmp_path}/x.plan",
        tmp_path,
        lab,
    ).ends(ExitCode.OK)


@pytest.mark.exhaustive
def test_the_command_for_a_saved_plan_is_one_that_a_shell_takes(lab: Lab, tmp_path: Path) -> None:
    """Copied from the screen as it stands there."""
    for name in (
        b"it's $(touch ran)",
        b"a\nb",
        b"\xff\x1b]0;t\x07",
        "pl\N{LATIN SMALL LETTER A WITH DIAERESIS}n".encode(),
    ):
        word = "$'" + "".join(f"\\x{octet:02x}" for octet in name) + "'"
        saved = shell(f"{ROLLOUT} plan --out {word}", tmp_path, lab).ends(ExitCode.OK)
        line = next(line for line in saved.stdout.splitlines() if "rollout apply " in line)
        assert all(character.isprintable() for character in line)
        shell(f"{ROLLOUT} plan {line.partition('rollout apply ')[2]}", tmp_path, lab).ends(
            ExitCode.OK
        )
    assert not (tmp_path / "ran").exists()


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("words", "resource"), [(("plan",), "pods"), (("doctor",), "selfsubjectaccessreviews")]
)
def test_ctrl_c_does_not_wait_for_an_api_server_that_hangs(
    lab: Lab, tmp_path: Path, words: tuple[str, ...], resource: str
) -> None:
    """A request may take half a minute; a thread that carries one keeps nobody from leaving."""
    hanging = ApiFault(answer=FaultAnswer.HANG, resource=resource)
    lab.inflict(hanging)
    process = start(tmp_path, lab.environment, words)
    wait_until(lambda: lab.struck(hanging))
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    _, stderr = process.communicate(timeout=50)
    lab.call(lab.faults.clear)
    assert process.returncode == ExitCode.INTERRUPTED
    assert stderr == ""
    assert time.monotonic() - began < 15


@pytest.mark.exhaustive
def test_ctrl_c_at_the_question_says_that_nothing_was_changed(lab: Lab, tmp_path: Path) -> None:
    """On a line of its own, as is the shell's next prompt."""
    asked: list[str] = []

    def leave(lines: Sequence[str], process: subprocess.Popen[bytes]) -> None:
        if not asked and (found := [line for line in lines if "Type yes to continue:" in line]):
            asked.extend(found)
            process.send_signal(signal.SIGINT)

    screen = shown(tmp_path, lab.environment, ("apply",), 100, heed=leave)
    assert screen.code == ExitCode.INTERRUPTED
    assert b"\r\nrollout: interrupted: nothing was changed\r\n" in screen.octets


@pytest.mark.exhaustive
@pytest.mark.parametrize("words", ["apply --yes -o json", "apply --yes", "operate --once"])
@pytest.mark.parametrize("is_told", [True, False])
def test_a_terminal_that_goes_away_ends_a_run_as_asked(
    start_lab: StartLab, tmp_path: Path, words: str, *, is_told: bool
) -> None:
    """As a broken login does; `setsid` and `disown` have a run go on, and nobody reads what it
    says.
    """
    lab = start_lab("default", nodes=4)
    code = (
        "import fcntl, signal, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
        f"signal.signal(signal.SIGHUP, signal.{'SIG_DFL' if is_told else 'SIG_IGN'})\n"
        "from rollout.cli.main import main; main()"
    )
    terminal, theirs = os.openpty()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "TERM": "dumb",
        "PYTHONPATH": str(Path.cwd()),
    }
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words.split()],
        env={**environment, **lab.environment},
        cwd=tmp_path,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    shown = b""
    while not re.search(rb"worker-\d[^\n]*draining", shown):
        shown += os.read(terminal, 4096)
    os.close(terminal)
    ended = process.wait(timeout=100)
    (journal,) = (tmp_path / ".local").rglob("*.jsonl")
    summary = json.loads(journal.read_text(encoding="utf-8").splitlines()[-1])
    assert summary["type"] == "summary"
    assert (ended, bool(summary["not_started"])) == ((130, True) if is_told else (0, False))
    assert lab.scoreboard().cordons_left == ()


# Signals that come at the worst moment, to a process of their own.


DROPPED = """
import os, signal, sys, time
from rollout.cli.signals import interrupted_by_signals
from rollout.execution.base.deadline import GracefulStop

class Tidied:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)
        print("not interrupted at all")

stop = GracefulStop()
began = time.monotonic()
try:
    with interrupted_by_signals(stop):
        Tidied()
        print("dropped")
        time.sleep(100)
except KeyboardInterrupt:
    print("interrupted", stop.is_due, time.monotonic() - began < 60)
"""
DROPPED_AT_THE_END = """
import os, signal, time
from rollout.cli.signals import interrupted_by_signals
from rollout.cli.stages.operate import Operation
from rollout.execution.base.deadline import GracefulStop
from rollout.cli.settings.reading import CommandSettings

class Tidied:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)

class Tidying(Operation):
    def run_once(self):
        Tidied()

    def _await_next_pass(self, clock, next_pass_at):
        self.process_stop.wait(60)

stop = GracefulStop()
with interrupted_by_signals(stop) as ignore_signals:
    Tidying(CommandSettings(), stop, None).run_until_stopped(ignore_signals)
    time.sleep(1)
time.sleep(1)
print("ended well")
"""
WHILE_WAITING = """
import os, signal, threading, time
from rollout.cli.signals import interrupted_by_signals
from rollout.execution.base.deadline import GracefulStop

lock = threading.Lock()

class Busy(GracefulStop):
    def request(self):
        with lock:
            super().request()

stop = Busy()
try:
    with interrupted_by_signals(stop):
        with lock:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(100)
except KeyboardInterrupt:
    print("interrupted", stop.is_due)
"""


def ran(program: str) -> tuple[str, str]:
    ended = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    )
    return ended.stdout, ended.stderr


def test_an_interruption_that_python_drops_comes_again_and_leaves_no_traceback() -> None:
    assert ran(DROPPED) == ("dropped\ninterrupted True True\n", "")


def test_an_interruption_that_python_drops_at_the_end_of_a_pass_is_an_end_as_any_other() -> None:
    assert ran(DROPPED_AT_THE_END) == (
        "ended well\n",
        "stopped on request: no more passes will run\n",
    )


def test_a_signal_beside_the_lock_of_the_wish_does_not_lock_the_process() -> None:
    assert ran(WHILE_WAITING) == ("interrupted True\n", "")


def test_an_interruption_waits_for_a_screen_that_is_half_drawn() -> None:
    drawn = list[str]()

    def draw() -> None:
        with delay_interrupts():
            drawn.append("upper half")
            signal.raise_signal(signal.SIGINT)
            drawn.append("lower half")

    with pytest.raises(KeyboardInterrupt):
        draw()
    assert drawn == ["upper half", "lower half"]
