"""Waiting for what another process does: by the clock, for as long as a busy machine may need, on
the thing itself.
"""

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.ended import assert_well_said
from tests.scripted_api import Exchange, scripted


def wait_until(happened: Callable[[], object], seconds: float = 60) -> None:
    """Return once it has happened; fail where it has not after so many real seconds."""
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it has not happened"
        time.sleep(0.01)


PATIENCE = 90.0


def is_running(number: int) -> bool:
    """Whether there is such a process, other than one that nobody has waited for."""
    with suppress(OSError):
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@dataclass
class Overheard:
    """A process, and what it has said so far on both of its streams, line by line."""

    process: "subprocess.Popen[str]"
    said: list[str] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)

    def __post_init__(self) -> None:
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            thread = threading.Thread(target=self.said.extend, args=(stream,), daemon=True)
            thread.start()
            self.threads.append(thread)

    def has_said(self, words: str, since: int = 0) -> bool:
        return any(words in line for line in self.said[since:])

    def await_words(self, words: str, since: int = 0) -> None:
        wait_until(lambda: self.has_said(words, since) or self.process.poll() is not None, PATIENCE)
        assert self.has_said(words, since), self.said

    def end(self, number: int = signal.SIGTERM) -> int:
        """As Kubernetes ends a pod; or by SIGKILL, as a node that goes down does. Its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.rest()

    def rest(self) -> int:
        """Hear it to its end; its exit code."""
        self.process.wait(PATIENCE)
        for thread, stream in zip(
            self.threads, (self.process.stdout, self.process.stderr), strict=True
        ):
            thread.join(10)
            assert stream is not None
            stream.close()
        assert_well_said("".join(self.said))
        return self.process.returncode


# A real endpoint of notifications, and what it has received.


TOKEN = "s3cr3t-t0ken"


Notes = list[dict[str, Any]]


class Inbox:
    """A real endpoint, and what it has received."""

    def __init__(self, url: str) -> None:
        self.url = f"{url}/hooks/{TOKEN}?key={TOKEN}"
        self.exchanges: list[Exchange] = []
        self.arrived = threading.Condition()

    @property
    def notes(self) -> Notes:
        return [json.loads(exchange.payload) for exchange in self.exchanges]

    def events(self) -> list[str]:
        return [note["event"] for note in self.notes]

    def one(self, event: str) -> dict[str, Any]:
        (note,) = [note for note in self.notes if note["event"] == event]
        return note

    def take(self, exchange: Exchange) -> None:
        with self.arrived:
            self.exchanges.append(exchange)
            self.arrived.notify_all()

    def wait_for(self, event: str) -> None:
        with self.arrived:
            assert self.arrived.wait_for(lambda: event in self.events(), 60)


@contextmanager
def received() -> Iterator[Inbox]:
    def answer(exchange: Exchange) -> None:
        endpoint.take(exchange)
        exchange.answer(204, b"")

    with scripted(answer) as server:
        endpoint = Inbox(server.url)
        yield endpoint
