"""The program at the ends of the standard streams: closed, full, or of an encoding that lacks what is said."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rollout.cli.failures import report
from rollout.errors import ExitCode

ROLLOUT = f"{sys.executable} -m rollout"


def shell(line: str, home: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), **variables}
    return subprocess.run(
        ["sh", "-c", line], env=environment, cwd=home, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_error(closed: str, tmp_path: Path) -> None:
    ended = shell(f"{ROLLOUT} lab scenarios {closed}", tmp_path)
    assert (ended.returncode, ended.stderr) == (ExitCode.OK, "")
    assert ("never-returns" in ended.stdout) == (">&-" not in closed.split())


def test_nothing_else_gets_the_number_of_a_closed_stream(tmp_path: Path) -> None:
    code = (
        "import os; from rollout.cli.streams import prepare_streams; prepare_streams();"
        "from pathlib import Path;"
        "Path('told').write_text(' '.join(os.readlink(f'/proc/self/fd/{number}') for number in range(3)))"
    )
    ended = shell(f'PYTHONPATH={Path.cwd()} {sys.executable} -c "{code}" <&- >&- 2>&-', tmp_path)
    assert ended.returncode == 0
    assert (tmp_path / "told").read_text(encoding="utf-8").split() == [os.devnull] * 3


@pytest.mark.parametrize("command", ["--help", "lab scenarios", "doctor --kubeconfig nowhere"])
@pytest.mark.parametrize("buffered", ["", "1"])
def test_output_without_room(command: str, buffered: str, tmp_path: Path) -> None:
    ended = shell(f"{ROLLOUT} {command} >/dev/full", tmp_path, PYTHONUNBUFFERED=buffered)
    assert ended.returncode == ExitCode.ERROR
    error, hint = ended.stderr.splitlines()
    assert error == "rollout: error: cannot write the output: No space left on device"
    assert hint.startswith("hint: the system denied it: room, ")


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
    ended = shell(f"exec {sys.executable} load.py", tmp_path, PYTHONPATH=str(Path.cwd()))
    assert (ended.returncode, ended.stdout, ended.stderr) == (ExitCode.INTERRUPTED, "", "")


def test_an_encoding_that_lacks_what_is_said(tmp_path: Path) -> None:
    ended = shell(f"{ROLLOUT} doctor --kubeconfig nowhere", tmp_path, PYTHONIOENCODING="ascii")
    assert ended.returncode == ExitCode.ERROR
    assert ended.stdout.startswith("x kubeconfig")
    assert "bug" not in ended.stderr


def test_a_thread_that_the_system_denies_is_no_bug(capfd: pytest.CaptureFixture[str]) -> None:
    assert report(RuntimeError("can't start new thread"), verbose=False) == ExitCode.ERROR
    error, hint = capfd.readouterr().err.splitlines()
    assert "cannot start a thread" in error
    assert "ulimit -u" in error
    assert hint.startswith("hint: the system denied it")
