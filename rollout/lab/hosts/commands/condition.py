"""`test` and `[`: conditions on strings, numbers and files of the simulated host."""

import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from rollout.lab.hosts import files
from rollout.lab.hosts.process import Process, program_path

_USAGE: Final = 2


def _of_numbers(compare: Callable[[int, int], bool]) -> Callable[[str, str], bool]:
    return lambda left, right: compare(int(left), int(right))


_COMPARISONS: Final[Mapping[str, Callable[[str, str], bool]]] = MappingProxyType(
    {"=": operator.eq, "==": operator.eq, "!=": operator.ne}
    | {f"-{name}": _of_numbers(getattr(operator, name)) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
)


class _ExpressionError(Exception):
    """No such condition; the text is what the shell says."""


async def test(process: Process) -> int:
    """`test expression` and `[ expression ]`."""
    words, name = list(process.arguments), process.argv[0]
    if name.endswith("[") and (not words or words.pop() != "]"):
        process.complain(f"{name}: missing `]'")
        return _USAGE
    try:
        return int(not _holds(process, words))
    except (_ExpressionError, ValueError) as error:
        process.complain(f"{name}: {error}")
        return _USAGE


def _holds(process: Process, words: list[str]) -> bool:
    for joint, joined in (("-o", any), ("-a", all)):
        if joint in words[1:-1]:
            at = words.index(joint, 1)
            return joined((_holds(process, words[:at]), _holds(process, words[at + 1 :])))
    match words:
        case ["!", _, *_]:
            return not _holds(process, words[1:])
        case [] | [_]:
            return any(words)
        case [name, operand]:
            return _is(process, name, operand)
        case [left, name, right] if name in _COMPARISONS:
            return _COMPARISONS[name](left, right)
        case _:
            raise _ExpressionError("too many arguments")


def _is(process: Process, name: str, path: str) -> bool:
    """What there is at a path (a file, a program, a directory, or nothing), or whether there is a text at all."""
    text = files.read(process.machine, path)
    program = path.startswith("/") and program_path(process, path) is not None
    folder = text is None and files.is_directory(process.machine, path)
    there = text is not None or program or folder
    answers = {
        "-n": bool(path),
        "-z": not path,
        **dict.fromkeys(("-e", "-r"), there),
        "-f": there and not folder,
        "-s": bool(text) or program,
        "-x": program or folder,
        "-d": folder,
        "-w": there and files.may_write(process.user, path),
        **dict.fromkeys(("-L", "-h", "-S", "-t"), False),
    }
    if name not in answers:
        raise _ExpressionError(f"{name}: unary operator expected")
    return answers[name]
