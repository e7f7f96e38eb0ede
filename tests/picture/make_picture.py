"""Makes the README's picture from a real run: `python tests/picture/make_picture.py .github/assets/demo.svg`.

`rollout demo` runs in a pseudo-terminal, a terminal emulator shows what it prints, and the screen
is drawn while the run is at its liveliest.
"""

import argparse
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pyte
from pyte.screens import Char
from rich.console import Console
from rich.style import Style
from rich.text import Text

COLUMNS = 120
ROWS = 200
# the emulator's names for what a terminal calls yellow and bright black
_COLOURS = {"default": None, "brown": "yellow", "brightblack": "bright_black"}
_FIRST = re.compile(r"\$ rollout plan")
# a spinner, a node, a phase
_IN_FLIGHT = re.compile(r"[\u2801-\u28ff] +\S+ +(\S+)")
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def chunks(command: list[str]) -> Iterator[bytes]:
    """What a command writes to a terminal, piece by piece."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {
        **os.environ,
        "TERM": "xterm-256color",
        "COLUMNS": str(COLUMNS),
        "LINES": str(ROWS),
    }
    environment.pop("NO_COLOR", None)
    with subprocess.Popen(
        command, stdin=follower, stdout=follower, stderr=follower, env=environment
    ) as process:
        os.close(follower)
        try:
            while data := os.read(leader, 65536):
                yield data
        except OSError:
            # the terminal of a process that has ended
            pass
        os.close(leader)
    if process.returncode:
        raise SystemExit(f"{command} ended with {process.returncode}")


def liveliest(command: list[str]) -> list[Text]:
    """The screen when most different things were going on at once."""
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    most = 0
    lines = list[Text]()
    for data in chunks(command):
        stream.feed(data)
        phases = {found[1] for line in screen.display if (found := _IN_FLIGHT.match(line))}
        if len(phases) >= most:
            most = len(phases)
            lines = [line_of(screen, row) for row in range(ROWS)]
    return lines


def line_of(screen: pyte.Screen, row: int) -> Text:
    """One row of the screen with its colours."""
    cells = [screen.buffer[row][column] for column in range(COLUMNS)]
    line = Text()
    for style, run in groupby(cells, key=_style):
        line.append("".join(cell.data for cell in run), style)
    line.rstrip()
    return line


def _style(cell: Char) -> Style:
    return Style(color=_COLOURS.get(cell.fg, _colour(cell.fg)), bold=cell.bold)


def _colour(name: str) -> str:
    if re.fullmatch(r"[0-9a-f]{6}", name):
        return f"#{name}"
    return name.replace("bright", "bright_")


def trimmed(lines: list[Text]) -> list[Text]:
    """From the plan on, without the empty rest."""
    first = next(number for number, line in enumerate(lines) if _FIRST.search(line.plain))
    last = max(number for number, line in enumerate(lines) if line.plain.strip())
    return lines[first : last + 1]


def drawn(lines: list[Text]) -> str:
    """The lines as SVG, without fonts from elsewhere."""
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        console = Console(
            record=True, width=COLUMNS, file=nowhere, force_terminal=True, color_system="truecolor"
        )
        for line in lines:
            console.print(line, no_wrap=True, crop=False)
        return _FONTS.sub("", console.export_svg(title="rollout demo", unique_id="demo"))


def main() -> None:
    """Draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    given = parser.parse_args()
    rollout = [sys.executable, "-c", "from rollout.cli.main import main; main()", "demo"]
    given.target.parent.mkdir(parents=True, exist_ok=True)
    given.target.write_text(drawn(trimmed(liveliest(rollout))) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
