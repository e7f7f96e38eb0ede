"""The engine, its commands and its server wait by their clock alone: so tests choose how fast time
passes.
"""

import ast
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from rollout.adapters.clock import SystemClock

ROOMS = ("execution", "gather", "cli", "server")
PROGRAM = Path(__file__).parents[1] / "rollout"
# What a clock waits for, and waits that are not of the program's pace: for an answer, a signal, the
# end of a process.
OWN = {
    "execution/base/deadline.py": "a wish to stop is one of the events",
    "execution/lock.py": "a process that ends at once waits for its end",
    "cli/signals.py": "a moment in which a second signal may come",
    "server/http.py": "the event loop's own",
}


def waits(file: Path) -> Iterator[int]:
    """Lines that sleep, or wait for an event, by another way than a clock."""
    for node in ast.walk(ast.parse(file.read_text())):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        owner = ast.unparse(node.func.value)
        is_clock = owner.removesuffix("()").endswith("clock")
        if (node.func.attr == "sleep" and owner != "asyncio" and not is_clock) or (
            node.func.attr == "wait" and not is_clock
        ):
            yield node.lineno


def test_nothing_waits_but_by_its_clock() -> None:
    files = [file for room in ROOMS for file in sorted((PROGRAM / room).rglob("*.py"))]
    found = {
        str(file.relative_to(PROGRAM)): lines for file in files if (lines := list(waits(file)))
    }
    assert found.keys() <= OWN.keys(), found


def test_waits_are_as_many_times_shorter_as_they_are_hurried() -> None:
    clock = SystemClock(speedup=100)
    began = time.monotonic()
    clock.sleep(3)
    assert not clock.wait(threading.Event(), 3)
    assert time.monotonic() - began < 3
