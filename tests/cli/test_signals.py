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
DROPPED_AT_THE_END = """
import os, signal, time
from rollout.adapters.clock import SystemClock
from rollout.cli.signals import interrupted_by_signals
from rollout.cli.stages.operate import Lasting, Loop, PassEnd
from rollout.errors import ExitCode
from rollout.execution.base.stop import StopRequest
from rollout.execution.lease import LeaseWatch
from rollout.cli.settings.reading import Given

class Tidied:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)

class Tidying(Loop):
    def _pass(self):
        Tidied()
        return PassEnd(ExitCode.OK)

    def _idle(self, until):
        self.lasting.ending.wait(60)

clock, ending = SystemClock(), StopRequest()
lasting = Lasting(Given(), LeaseWatch(clock), ending, None, None)
with interrupted_by_signals(ending) as undisturbed:
    Tidying(clock, lasting, undisturbed).run()
    time.sleep(1)
time.sleep(1)
print("ended well")
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


def test_an_interruption_that_python_drops_at_the_end_of_a_pass_is_an_end_as_any_other() -> None:
    assert ran(DROPPED_AT_THE_END) == ("ended well\n", "stopped on request: no further pass is made\n")


def test_a_signal_beside_the_lock_of_the_wish_does_not_lock_the_process() -> None:
    assert ran(WHILE_WAITING) == ("interrupted True\n", "")
