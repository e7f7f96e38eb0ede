"""The shell blocks of the documents, as a reader would paste them: in their order, in one folder, against a lab.

A comment right before a block, which readers of the page do not see, says what a test has to know of it:

* `<!-- not run: REASON -->`
* `<!-- run: NAME is worker-1; ends with 2 -->` puts in what the block leaves to its reader, and names the exit codes
  other than 0 with which its commands end, in their order.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

SHELLS = ("sh", "bash", "console")
_COMMENT = r"(?:^ *<!-- (?P<kind>not run|run): (?P<said>[^>]*?)\s-->\n)?"
_BLOCK = re.compile(rf"{_COMMENT}^ *```(?P<language>\w*)\n(?P<text>.*?)^ *```$", re.DOTALL | re.MULTILINE)
_TYPED = re.compile(r"^ *\$ (.*)", re.MULTILINE)
# After each command, whatever came of it, as at a terminal.
_TELL = 'echo "$?" >&{}'
_SECONDS = 100


class CommentError(Exception):
    """A comment before a block names what the block does not have."""


@dataclass(frozen=True, slots=True)
class Block:
    """What is to be pasted, and what the comment before it says."""

    place: str
    language: str
    text: str
    not_run: str = ""
    instead: Mapping[str, str] = field(default_factory=dict)
    codes: tuple[int, ...] = ()

    @property
    def commands(self) -> tuple[str, ...]:
        """Each with all of its lines; of a console's block only what is typed."""
        text = self.text
        for name, value in self.instead.items():
            if name not in text:
                raise CommentError(f"{self.place} has no {name}")
            text = text.replace(name, value)
        return tuple(_TYPED.findall(text) if self.language == "console" else _commands(text))

    @property
    def shown(self) -> tuple[str, ...]:
        """Of a console's block the lines that are shown as printed, without their figures."""
        lines = self.text.splitlines() if self.language == "console" else ()
        return tuple(shape(line) for line in lines if not _TYPED.match(line))


@dataclass(frozen=True, slots=True)
class Pasted:
    """What came of a block: its commands with their exit codes, and all that was printed."""

    ended: tuple[tuple[str, int], ...]
    printed: str

    @property
    def codes(self) -> tuple[int, ...]:
        """Those other than 0."""
        return tuple(code for _, code in self.ended if code)


def blocks(page: Path) -> Iterator[Block]:
    """Those for a shell, in the order of the page."""
    text = page.read_text(encoding="utf-8")
    for found in _BLOCK.finditer(text):
        place = f"{page.name}:{text.count(chr(10), 0, found.start('text'))}"
        said = " ".join((found["said"] or "").split())
        if found["language"] not in SHELLS:
            continue
        if found["kind"] == "not run":
            yield Block(place, found["language"], found["text"], not_run=said)
        else:
            yield _run(place, found["language"], found["text"], said)


def _run(place: str, language: str, text: str, said: str) -> Block:
    parts = [part for part in said.split("; ") if part]
    codes = [int(code) for part in parts if part.startswith("ends with ") for code in re.findall(r"\d+", part)]
    instead = dict(part.split(" is ", 1) for part in parts if not part.startswith("ends with "))
    return Block(place, language, text, instead=instead, codes=tuple(codes))


def _commands(text: str) -> Iterator[str]:
    lines: list[str] = []
    for line in text.splitlines():
        lines.append(line)
        command = "\n".join(lines)
        if not command.endswith("\\") and _is_whole(command):
            if not command.isspace() and not command.lstrip().startswith("#"):
                yield command
            lines.clear()
    if lines:
        yield "\n".join(lines)


def _is_whole(command: str) -> bool:
    """Whether a shell would wait for no further line."""
    return subprocess.run(["bash", "-nc", command], capture_output=True, check=False).returncode == 0


def shape(line: str) -> str:
    """A line without what differs from one cluster, and one run, to the next."""
    return re.sub(r"\b(?:cp|worker)-N\b", "NODE", re.sub(r"\d[\d.:]*", "N", line.strip()))


def paste(block: Block, folder: Path, environment: Mapping[str, str]) -> Pasted:
    """Run it in a shell, at a terminal at which `yes` is typed to every question."""
    commands = block.commands
    reading, telling = os.pipe()
    ours, theirs = os.openpty()
    lines = ["set -o pipefail", *(line for command in commands for line in (command, _TELL.format(telling)))]
    try:
        os.write(ours, b"yes\n" * len(commands))
        ended = subprocess.run(
            ["bash", "-c", "\n".join(lines)],
            cwd=folder,
            env=environment,
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[telling],
            text=True,
            check=False,
            timeout=_SECONDS,
        )
    finally:
        for number in (telling, ours, theirs):
            os.close(number)
    with os.fdopen(reading) as told:
        codes = [int(code) for code in told]
    return Pasted(tuple(zip(commands, codes, strict=True)), ended.stdout)


def path_with_program(programs: Path) -> str:
    """A PATH on which `rollout` is the program that is tested, beside Ansible and kubectl."""
    programs.mkdir()
    (programs / "rollout").write_text(f'#!/bin/sh\nexec {sys.executable} -m rollout "$@"\n')
    (programs / "rollout").chmod(0o755)
    return f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
