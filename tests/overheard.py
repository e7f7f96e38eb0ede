"""A program that goes on by itself, and what it says meanwhile."""

import signal
import subprocess
import threading
from dataclasses import dataclass, field

from tests.ended import assert_well_said
from tests.waiting import wait_until

PATIENCE = 90.0


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
        self.process.wait(PATIENCE)
        for thread, stream in zip(self.threads, (self.process.stdout, self.process.stderr), strict=True):
            thread.join(10)
            assert stream is not None
            stream.close()
        assert_well_said("".join(self.said))
        return self.process.returncode
