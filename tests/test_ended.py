"""The rule that no test which starts the program lets a traceback pass."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ended import end_of, none_left, start, start_cold
from tests.warm import Warm

BUG = "this is a bug in rollout"
# What `python -m rollout` finds in the folder that it is started in.
WRONG = {"traceback": "raise ValueError('broken')", "bug": f"import sys; print('hint: {BUG}', file=sys.stderr)"}


@pytest.fixture(params=WRONG)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    (tmp_path / "rollout.py").write_text(WRONG[request.param], encoding="utf-8")
    return tmp_path


def test_a_process_that_is_ended_in_our_way(home: Path) -> None:
    with pytest.raises(AssertionError, match=rf"Traceback|{BUG}"):
        end_of(start_cold(home, {}, ("plan",)))


@pytest.mark.parametrize("line", [False, True])
def test_one_that_is_run_in_any_other_way(home: Path, line: bool) -> None:  # noqa: FBT001
    command = f"{sys.executable} -m rollout plan" if line else [sys.executable, "-m", "rollout", "plan"]
    with pytest.raises(AssertionError, match=rf"Traceback|{BUG}"):
        subprocess.run(command, cwd=home, shell=line, capture_output=True, check=False)


def test_one_that_is_started_warm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    monkeypatch.setattr("tests.ended.assert_well_said", heard.append)
    with start(tmp_path, {"KUBECONFIG": "/nowhere"}, ("plan",)) as process:
        assert isinstance(process, Warm)
        assert process.communicate(timeout=100)[1] in heard
    assert "/nowhere" in "".join(heard)


@pytest.mark.traceback
def test_a_test_whose_subject_it_is(home: Path) -> None:
    ended = subprocess.run([sys.executable, "-m", "rollout"], cwd=home, capture_output=True, text=True, check=False)
    assert "Traceback" in ended.stderr or BUG in ended.stderr


def test_other_programs_may_say_what_they_like() -> None:
    ended = subprocess.run([sys.executable, "-c", "1/0"], capture_output=True, text=True, check=False)
    assert "ZeroDivisionError" in ended.stderr


def test_what_a_test_has_left_running_ends_with_it(tmp_path: Path) -> None:
    (tmp_path / "rollout.py").write_text("import time; time.sleep(600)", encoding="utf-8")
    with none_left():
        process = start_cold(tmp_path, {}, ("plan",))
        assert process.poll() is None
    assert process.returncode == -signal.SIGKILL
    assert process.stdout is not None
    assert process.stdout.closed
