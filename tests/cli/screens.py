"""What the real program shows on a real terminal: a pty of some size, and an emulator that is
looked at.
"""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyte

from tests.ended import start_on_terminal

ROWS = 24
_LINES_KEPT = 5000
# What differs from run to run, by something of the same width.
_VARYING = (
    (re.compile(r"127\.0\.0\.1:\d{5}"), "127.0.0.1:65432"),
    (re.compile(r"\b[0-9a-f]{16}\b"), "0123456789abcdef"),
    (re.compile(r"\d{4}-\d\d-\d\d([T ])\d\d:\d\d:\d\d"), r"2026-03-04\g<1>05:06:07"),
    (re.compile(r"(?<=-)[a-z0-9]{8,10}-[a-z0-9]{5}\b"), "x" * 16),
)

_LOCAL_MODES = 3


@dataclass(frozen=True)
class Screen:
    """A command that has ended on a terminal: all it showed, and the octets that did it."""

    code: int
    lines: Sequence[str]
    octets: bytes
    has_echo: bool
    moments: Sequence[Sequence[str]] = field(default_factory=tuple)

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    @property
    def steady(self) -> str:
        """The same, but for what differs from run to run."""
        text = self.text
        for pattern, same in _VARYING:
            text = pattern.sub(same, text)
        return text


def shown(
    home: Path,
    environment: Mapping[str, str],
    arguments: Sequence[str],
    columns: int,
    *,
    typed: str = "",
    heed: Callable[[Sequence[str], subprocess.Popen[bytes]], None] | None = None,
    keys: bytes = b"",
    narrowed: int = 0,
) -> Screen:
    """The real program on a terminal of so many columns.

    `typed` is its answer where it asks for consent; `heed` looks at the screen whenever it has
    changed. `keys` are pressed whenever a board has moved. `narrowed` is how many columns the
    terminal has from the first board on.
    """
    leader, follower = pty.openpty()
    _resize(follower, columns)
    process = start_on_terminal(
        home, {"TERM": "xterm-256color", "TZ": "UTC", **environment}, arguments, follower
    )
    os.close(follower)
    screen = pyte.HistoryScreen(columns, ROWS, history=_LINES_KEPT)
    stream = pyte.ByteStream(screen)
    octets = b""
    moments = list[list[str]]()
    while data := _read(leader):
        octets += data
        stream.feed(data)
        if typed and any("Type yes to continue:" in line for line in screen.display):
            os.write(leader, typed.encode())
            typed = ""
        if keys and any(line.startswith("Wave ") for line in screen.display):
            os.write(leader, keys)
        if narrowed and any(line.startswith("Wave ") for line in screen.display):
            _resize(leader, narrowed)
            process.send_signal(signal.SIGWINCH)
            screen = _reflowed(screen, narrowed)
            columns = narrowed
            narrowed = 0
            stream = pyte.ByteStream(screen)
        if heed is not None:
            moments.append([line.rstrip() for line in screen.display])
            heed(moments[-1], process)
    has_echo = bool(termios.tcgetattr(leader)[_LOCAL_MODES] & termios.ECHO)
    os.close(leader)
    return Screen(process.wait(timeout=60), _lines(screen, columns), octets, has_echo, moments)


def has_echo(process: subprocess.Popen[bytes]) -> bool:
    """Whether the terminal of this process shows keys."""
    terminal = os.open(f"/proc/{process.pid}/fd/2", os.O_RDWR | os.O_NOCTTY)
    try:
        return bool(termios.tcgetattr(terminal)[_LOCAL_MODES] & termios.ECHO)
    finally:
        os.close(terminal)


def _resize(terminal: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))


def _reflowed(screen: pyte.HistoryScreen, columns: int) -> pyte.HistoryScreen:
    """The same lines on a narrower terminal, which breaks them as most do; the cursor stays behind
    the last.
    """
    narrower = pyte.HistoryScreen(columns, ROWS, history=_LINES_KEPT)
    lines = [line.rstrip() for line in screen.display[: screen.cursor.y + 1]]
    pyte.Stream(narrower).feed("\r\n".join(lines))
    return narrower


def _read(leader: int) -> bytes:
    try:
        return os.read(leader, 65536)
    except OSError:
        # the terminal of a process that has ended
        return b""


def _lines(screen: pyte.HistoryScreen, columns: int) -> list[str]:
    lines = [
        "".join(row[column].data for column in range(columns)).rstrip()
        for row in screen.history.top
    ]
    lines += [line.rstrip() for line in screen.display]
    while lines and not lines[-1]:
        lines.pop()
    return lines
