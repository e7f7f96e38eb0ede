"""The command lines of the program that documents and messages have, as a reader would paste them."""

import ast
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

PROGRAM = "rollout"
_FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_SHELLS = ("sh", "bash", "console")
# What a shell keeps for itself: whoever comes after it is another command, or a file.
_ENDS = frozenset({"|", "||", "&&", ";", "&"})
_REDIRECTION = re.compile(r"\d?(>>?|<)&?\d?")
_OPENING = re.compile(r"(?:^|[`(:;,.] ?|\bor |\bthen:? )(rollout [a-z-]+[^`,;:.()]*)")


@dataclass(frozen=True, slots=True)
class CommandLine:
    """Words after the program's name, and where they stand."""

    place: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.place}: {shlex.join(self.words)}"


def of_page(page: Path) -> Iterator[CommandLine]:
    """In its blocks for a shell, and in the spans of its text; what a table holds is a span, too."""
    text = page.read_text(encoding="utf-8")
    for language, block in _FENCE.findall(text):
        if language in _SHELLS:
            yield from _of_block(page.name, block)
    for span in re.findall(r"`([^`]+)`", _FENCE.sub("", text)):
        if span.startswith(f"{PROGRAM} "):
            # brackets stand for what may be left out, dots for more of it
            plain = re.sub(r"\[|\]|\.\.\.", "", " ".join(span.split()))
            yield from _of_line(page.name, plain)


def _of_block(place: str, block: str) -> Iterator[CommandLine]:
    variables = dict(re.findall(r"^ *(\w+)=(\S+)", block, re.MULTILINE))
    for line in block.replace("\\\n", " ").splitlines():
        # of a console's block only what is typed
        typed = line.strip().removeprefix("$ ")
        for name, value in variables.items():
            typed = typed.replace(f"${name}", value)
        yield from _of_line(place, typed)


def _of_line(place: str, line: str) -> Iterator[CommandLine]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list(lexer)
    commands: list[list[str]] = [[]]
    for word in words:
        if word in _ENDS:
            commands.append([])
        else:
            commands[-1].append(word)
    for command in commands:
        if command and command[0].rpartition("/")[2] == PROGRAM:
            yield CommandLine(place, tuple(_without_redirections(command[1:])))


def _without_redirections(words: Sequence[str]) -> Iterator[str]:
    """A redirection's file is no word of the command."""
    rest = iter(words)
    for word in rest:
        if _REDIRECTION.fullmatch(word):
            next(rest, None)
        else:
            yield word


def of_code(module: Path) -> Iterator[CommandLine]:
    """In the texts of a module: hints, helps, notes. What stands in braces is a name that is not known here."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        for text in _texts(node):
            for begin in _OPENING.findall(text):
                yield CommandLine(module.name, tuple(begin.split()[1:]))


def _texts(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    if isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "NAME" for part in node.values)
