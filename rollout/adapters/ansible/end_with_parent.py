"""Becomes another program that ends when its starter does: `python end_with_parent.py STARTER PROGRAM [ARGUMENTS]`.

ansible-runner has Ansible ignore that its terminal is gone, and a killed rollout can end nothing any more. Where the
system offers no such tie (only Linux does) Ansible finds no further turn, and that has to do.

STARTER is a process id. That it is 1 says nothing: in a container rollout itself is process 1.
"""

import ctypes
import os
import signal
import sys

_SET_PARENT_DEATH_SIGNAL = 1


def main(starter: int, arguments: list[str]) -> None:
    """Tie, and become the program; the tie survives that."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != starter:
            sys.exit(1)
    os.execv(arguments[0], arguments)  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
