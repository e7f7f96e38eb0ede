"""The program at the ends of the standard streams: closed, full, or of an encoding that lacks what is said."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
    assert ended.stderr.splitlines() == [
        "rollout: error: cannot write the output: No space left on device",
        "hint: Make room there, or send the output elsewhere.",
    ]


def test_an_encoding_that_lacks_what_is_said(tmp_path: Path) -> None:
    ended = shell(f"{ROLLOUT} doctor --kubeconfig nowhere", tmp_path, PYTHONIOENCODING="ascii")
    assert ended.returncode == ExitCode.ERROR
    assert ended.stdout.startswith("\\u2718 kubeconfig")
    assert "bug" not in ended.stderr
