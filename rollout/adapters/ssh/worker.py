"""The program of one process that asks a share of many hosts."""

import os
import sys
import threading
from functools import partial

from rollout.adapters.ssh.shell import ParamikoShell
from rollout.adapters.ssh.workers import Task, read_messages, sent_answer, write_message
from rollout.gather.hosts.side_by_side import side_by_side


def work() -> None:
    """Do one task; ends the process."""
    task = next(read_messages(sys.stdin.buffer, Task))
    threading.Thread(target=_end_with_input, daemon=True).start()
    shell = ParamikoShell.from_settings(task.settings)
    ask = partial(shell.run, command=task.command, timeout=task.timeout)
    for name, answer in side_by_side(task.hosts, ask, concurrency=task.concurrency):
        write_message(sys.stdout.buffer, sent_answer(name, answer))
    # Nothing is left to be done, and to join all threads takes its time.
    os._exit(0)


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    work()
