"""Commands of the operator's, as real processes."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rollout.adapters.operator_command import OperatorCommand
from rollout.errors import ExitCode
from tests.waiting import is_running, wait_until

# Ignores SIGTERM; the shell that starts it does not.
CHILD = 'trap "" TERM; echo $$ > "$FILE.new"; mv "$FILE.new" "$FILE"; exec sleep 60'


def test_a_stopped_command_leaves_no_child_behind(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    words = ("sh", "-c", 'sh -c "$CHILD" & wait')
    command = OperatorCommand(words, "rescue command", "reboot.rescue-timeout")
    end = command.run({"CHILD": CHILD, "FILE": str(file)}, 30, file.exists)
    assert end.problem == "rescue command 'sh' was stopped before it finished"
    child = int(file.read_text(encoding="utf-8"))
    wait_until(lambda: not is_running(child), 10)


def test_a_command_ends_if_nobody_can_say_whether_to_stop_it(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    command = OperatorCommand(("sh", "-c", CHILD), "gate command", "gates.timeout")

    def fail() -> bool:
        if file.exists():
            raise ValueError("a bug")
        return False

    with pytest.raises(ValueError, match="a bug"):
        command.run({"FILE": str(file)}, 30, fail)
    assert not is_running(int(file.read_text(encoding="utf-8")))


INTERRUPTED_TWICE = """
import sys
from rollout.adapters.operator_command import OperatorCommand
from rollout.cli.signals import stopped_by_signals
from rollout.execution.base.deadline import GracefulStop
command = OperatorCommand(("sh", "-c", sys.argv[1]), "rescue command", "reboot.rescue-timeout")
with stopped_by_signals(GracefulStop()):
    command.run({"FILE": sys.argv[2]}, 60, lambda: False)
"""


def test_a_command_does_not_outlive_a_second_interruption(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    words = (sys.executable, "-c", INTERRUPTED_TWICE, CHILD, str(file))
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        wait_until(file.exists, 30)
        process.send_signal(signal.SIGINT)
        assert "Stopping" in process.stderr.readline() + process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert "stopped immediately" in process.stderr.read()
    assert process.returncode == ExitCode.INTERRUPTED
    child = int(file.read_text(encoding="utf-8"))
    wait_until(lambda: not is_running(child), 10)
