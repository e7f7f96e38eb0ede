"""What the shell does itself, because it changes the shell or asks about it."""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from rollout.lab.hosts import files
from rollout.lab.hosts.process import program_path
from rollout.lab.hosts.shell.control import BreakLoop, ContinueLoop, ExitShell, ReturnFunction

if TYPE_CHECKING:
    from rollout.lab.hosts.shell.interpreter import Shell

Builtin: TypeAlias = "Callable[[Shell, tuple[str, ...]], Awaitable[int]]"

_LETTERS: Final = ("e", "u")
_NAMED: Final[Mapping[str, str]] = MappingProxyType({"errexit": "e", "nounset": "u", "pipefail": "pipefail"})
_OUT_OF_RANGE: Final = 2


async def _nothing(_shell: "Shell", _argv: tuple[str, ...]) -> int:
    return 0


async def _exit(shell: "Shell", argv: tuple[str, ...]) -> int:
    raise ExitShell(_status(shell, argv))


async def _return(shell: "Shell", argv: tuple[str, ...]) -> int:
    raise ReturnFunction(_status(shell, argv))


def _status(shell: "Shell", argv: tuple[str, ...]) -> int:
    if len(argv) == 1:
        return shell.status
    if argv[1].lstrip("-").isdigit():
        return int(argv[1]) % 256
    shell.complain(f"{argv[0]}: {argv[1]}: numeric argument required")
    return _OUT_OF_RANGE


async def _break(_shell: "Shell", _argv: tuple[str, ...]) -> int:
    raise BreakLoop


async def _continue(_shell: "Shell", _argv: tuple[str, ...]) -> int:
    raise ContinueLoop


async def _export(shell: "Shell", argv: tuple[str, ...]) -> int:
    for argument in argv[1:]:
        name, equals, value = argument.partition("=")
        if equals:
            shell.assign(name, value)
    return 0


async def _unset(shell: "Shell", argv: tuple[str, ...]) -> int:
    for name in argv[1:]:
        shell.variables.pop(name, None)
        shell.functions.pop(name, None)
    return 0


async def _set(shell: "Shell", argv: tuple[str, ...]) -> int:
    """`set -eu`, `set -o pipefail`, `set +e`, `set -- words`."""
    words = list(argv[1:])
    while words:
        word = words.pop(0)
        if word == "--":
            shell.arguments = tuple(words)
            return 0
        names = [_NAMED.get(words.pop(0), "")] if word in ("-o", "+o") and words else list(word[1:])
        if word[0] not in "-+" or any(name not in (*_LETTERS, *_NAMED.values()) for name in names):
            shell.complain(f"set: {word}: invalid option")
            return _OUT_OF_RANGE
        (shell.options.update if word[0] == "-" else shell.options.difference_update)(names)
    return 0


async def _shift(shell: "Shell", argv: tuple[str, ...]) -> int:
    count = int(argv[1]) if len(argv) > 1 else 1
    if count > len(shell.arguments):
        return 1
    shell.arguments = shell.arguments[count:]
    return 0


async def _eval(shell: "Shell", argv: tuple[str, ...]) -> int:
    return await shell.execute(" ".join(argv[1:]))


async def _source(shell: "Shell", argv: tuple[str, ...]) -> int:
    path = argv[1] if len(argv) > 1 else ""
    text = files.read(shell.machine, path)
    if text is None:
        shell.complain(f"{path}: No such file or directory")
        return 1
    return await shell.execute(text)


async def _exec(shell: "Shell", argv: tuple[str, ...]) -> int:
    """Another program in the shell's place; redirections alone are not supported."""
    if len(argv) == 1:
        return 0
    raise ExitShell(await shell.run_program(argv[1:]))


async def _read(shell: "Shell", argv: tuple[str, ...]) -> int:
    """One line into variables, the last one takes the rest."""
    names = [word for word in argv[1:] if not word.startswith("-")] or ["REPLY"]
    line = await shell.streams.stdin.line()
    separators = shell.variables.get("IFS", " \t\n")
    text = (line or "").strip(separators) if separators.strip() == "" else (line or "")
    values = text.split(separators if separators.strip() else None, len(names) - 1) if separators else [text]
    for name, value in zip(names, [*values, *[""] * len(names)], strict=False):
        shell.assign(name, value)
    return int(line is None)


async def _command(shell: "Shell", argv: tuple[str, ...]) -> int:
    """`command -v name` says what a name is; `command name …` runs it and no function."""
    if len(argv) > 1 and argv[1] in ("-v", "-V"):
        return _describe(shell, argv[2:])
    words = argv[1:]
    if not words:
        return 0
    builtin = BUILTINS.get(words[0])
    return await (shell.run_program(words) if builtin is None else builtin(shell, words))


def _describe(shell: "Shell", names: tuple[str, ...]) -> int:
    status = 1
    for name in names:
        builtin = name in BUILTINS or name in shell.functions
        found = name if builtin else program_path(shell.process((name,)), name)
        if found is not None:
            shell.streams.out.write(f"{found}\n")
            status = 0
    return status


async def _type(shell: "Shell", argv: tuple[str, ...]) -> int:
    status = 0
    for name in argv[1:]:
        path = program_path(shell.process((name,)), name)
        if name in BUILTINS:
            shell.streams.out.write(f"{name} is a shell builtin\n")
        elif path is not None:
            shell.streams.out.write(f"{name} is {path}\n")
        else:
            shell.complain(f"type: {name}: not found")
            status = 1
    return status


BUILTINS: Final[Mapping[str, Builtin]] = MappingProxyType(
    {
        ":": _nothing,
        ".": _source,
        "break": _break,
        "command": _command,
        "continue": _continue,
        "eval": _eval,
        "exec": _exec,
        "exit": _exit,
        "export": _export,
        "local": _export,
        "read": _read,
        "return": _return,
        "set": _set,
        "shift": _shift,
        "source": _source,
        "type": _type,
        "unset": _unset,
    }
)
