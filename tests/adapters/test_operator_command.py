"""Commands of the operator's, as real processes."""

from pathlib import Path

from rollout.adapters.operator_command import OperatorCommand
from tests.waiting import is_running, wait_until

# Ignores SIGTERM; the shell that starts it does not.
CHILD = 'trap "" TERM; echo $$ > "$FILE.new"; mv "$FILE.new" "$FILE"; exec sleep 60'


def test_a_stopped_command_leaves_no_child_behind(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    words = ("sh", "-c", 'sh -c "$CHILD" & wait')
    command = OperatorCommand(words, "rescue command", "reboot.rescue-timeout")
    end = command.run({"CHILD": CHILD, "FILE": str(file)}, 30, file.exists)
    assert end.problem == "rescue command 'sh' was stopped before it ended"
    child = int(file.read_text(encoding="utf-8"))
    wait_until(lambda: not is_running(child), 10)
