"""`test` and `[`: conditions on strings, numbers and files of the simulated host."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from rollout.lab.hosts import files
from rollout.lab.hosts.process import Process, program_path

_USAGE: Final = 2

_NUMBERS: Final[Mapping[str, Callable[[int, int], bool]]] = MappingProxyType(
    {
        "-eq": lambda left, right: left == right,
        "-ne": lambda left, right: left != right,
        "-lt": lambda left, right: left < right,
        "-le": lambda left, right: left <= right,
        "-gt": lambda left, right: left > right,
        "-ge": lambda left, right: left >= right,
    }
)
_STRINGS: Final[Mapping[str, Callable[[str, str], bool]]] = MappingProxyType(
    {
        "=": lambda left, right: left == right,
        "==": lambda left, right: left == right,
        "!=": lambda left, right: left != right,
    }
)


class _ExpressionError(Exception):
    """No such condition; the text is what the shell says."""


async def test(process: Process) -> int:
    """`test expression` and `[ expression ]`."""
    words = list(process.arguments)
    name = process.argv[0]
    if name.endswith("[") and (not words or words.pop() != "]"):
        process.complain(f"{name}: missing `]'")
        return _USAGE
    try:
        return int(not _or(process, words))
    except _ExpressionError as error:
        process.complain(f"{name}: {error}")
        return _USAGE


def _or(process: Process, words: list[str]) -> bool:
    return any(_and(process, part) for part in _split(words, "-o"))


def _and(process: Process, words: list[str]) -> bool:
    return all(_not(process, part) for part in _split(words, "-a"))


def _split(words: list[str], operator: str) -> list[list[str]]:
    """Parts between operators; one at the edge is an operand, as in `[ -a ]`."""
    parts: list[list[str]] = [[]]
    for index, word in enumerate(words):
        if word == operator and 0 < index < len(words) - 1:
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _not(process: Process, words: list[str]) -> bool:
    if len(words) > 1 and words[0] == "!":
        return not _not(process, words[1:])
    return _primary(process, words)


def _primary(process: Process, words: list[str]) -> bool:
    match words:
        case []:
            return False
        case [word]:
            return bool(word)
        case [operator, operand]:
            return _unary(process, operator, operand)
        case [left, operator, right] if operator in _STRINGS:
            return _STRINGS[operator](left, right)
        case [left, operator, right] if operator in _NUMBERS:
            return _NUMBERS[operator](_integer(left), _integer(right))
        case [_, operator, _]:
            raise _ExpressionError(f"{operator}: binary operator expected")
        case _:
            raise _ExpressionError("too many arguments")


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise _ExpressionError(f"{text}: integer expression expected") from None


def _unary(process: Process, operator: str, operand: str) -> bool:
    if operator in ("-n", "-z"):
        return bool(operand) == (operator == "-n")
    if operator not in _FILES:
        raise _ExpressionError(f"{operator}: unary operator expected")
    return _FILES[operator](_described(process, operand))


@dataclass(frozen=True, slots=True)
class _File:
    """What there is at a path: a file's text (None where it is no file), a program, a directory."""

    text: str | None
    program: bool
    directory: bool
    writable: bool

    @property
    def exists(self) -> bool:
        return self.text is not None or self.program or self.directory


def _described(process: Process, path: str) -> _File:
    text = files.read(process.machine, path)
    return _File(
        text=text,
        program=path.startswith("/") and program_path(process, path) is not None,
        directory=text is None and files.is_directory(process.machine, path),
        writable=files.may_write(process.user, path),
    )


_FILES: Final[Mapping[str, Callable[[_File], bool]]] = MappingProxyType(
    {
        "-e": lambda file: file.exists,
        "-r": lambda file: file.exists,
        "-f": lambda file: file.exists and not file.directory,
        "-s": lambda file: bool(file.text) or file.program,
        "-x": lambda file: file.program or file.directory,
        "-d": lambda file: file.directory,
        "-w": lambda file: file.exists and file.writable,
        "-L": lambda _file: False,
        "-h": lambda _file: False,
        "-S": lambda _file: False,
        "-t": lambda _file: False,
    }
)
