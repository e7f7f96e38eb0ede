"""Signals that come at the worst moment, to a process of their own."""

import subprocess
import sys

DROPPED = """
import os, signal, sys, time
from rollout.cli.signals import interrupted_by_signals
from rollout.execution.base.stop import StopRequest

class Tidied:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)
        print("not interrupted at all")

ending = StopRequest()
began = time.monotonic()
try:
    with interrupted_by_signals(ending):
        Tidied()
        print("dropped")
        time.sleep(100)
except KeyboardInterrupt:
    print("interrupted", ending.requested, time.monotonic() - began < 60)
"""
WHILE_WAITING = """
import os, signal, threading, time
from rollout.cli.signals import interrupted_by_signals
from rollout.execution.base.stop import StopRequest

class Busy(StopRequest):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()

    def request(self):
        with self.lock:
            super().request()

ending = Busy()
try:
    with interrupted_by_signals(ending):
        with ending.lock:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(100)
except KeyboardInterrupt:
    print("interrupted", ending.requested)
"""


def ran(program: str) -> tuple[str, str]:
    ended = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    return ended.stdout, ended.stderr


def test_an_interruption_that_python_drops_comes_again_and_leaves_no_traceback() -> None:
    assert ran(DROPPED) == ("dropped\ninterrupted True True\n", "")


def test_a_signal_beside_the_lock_of_the_wish_does_not_lock_the_process() -> None:
    assert ran(WHILE_WAITING) == ("interrupted True\n", "")
