"""The shell of a simulated host.

Everything runs in the lab's event loop and nothing on the machine that the lab is on; a command that takes time sleeps
there.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, TypeAlias

from rollout.lab.hosts import files
from rollout.lab.hosts.grammar import ShellSyntaxError, parse
from rollout.lab.hosts.process import NOT_FOUND, Buffer, Process, ProgramNotFoundError, Streams, program_path
from rollout.lab.hosts.redirection import redirected
from rollout.lab.hosts.running import Leave, Node

_SYNTAX_ERROR: Final = 2
_OPTIONS: Final = frozenset({"e", "u", "x", "pipefail"})
_LONG_OPTIONS: Final = MappingProxyType({"errexit": "e", "nounset": "u", "xtrace": "x", "pipefail": "pipefail"})


class Shell:
    """One shell process, or with `fork` a subshell of it; its name is the first of the process's words.

    `variables` are all of them (exported or not makes no difference here), `status` is `$?`, `guarded` whether a
    failure is expected by an `if` or `&&`, `substituted` the status of the last `$(…)`.
    """

    def __init__(self, process: Process, arguments: tuple[str, ...] = ()) -> None:
        self.process, self.arguments = process, arguments
        self.variables = dict(process.environment)
        self.functions: dict[str, Node] = {}
        self.options: set[str] = set()
        self.status = self.guarded = self.substituted = 0
        self.line = 1

    async def run(self, script: str) -> int:
        """Run a script to its end or to `exit`, and return the exit status."""
        self.status = await self.life(lambda _shell: self.execute(script))
        return self.status

    async def execute(self, script: str) -> int:
        """Run commands in this shell; `exit` goes through."""
        try:
            node = parse(script)
        except ShellSyntaxError as error:
            self.line = error.line
            what = f"near unexpected token `{error.near}'" if error.near else "unexpected end of file"
            self.complain(f"syntax error{': ' if not error.near else ' '}{what}")
            return _SYNTAX_ERROR
        return await node(self)

    async def life(self, node: Node) -> int:
        """Run commands as the whole life of this shell."""
        try:
            return await node(self)
        except Leave as leaving:
            return leaving.status if leaving.word in ("exit", "return") else self.status

    async def holds(self, node: Node) -> bool:
        """Run a condition: its failure is no error."""
        self.guarded += 1
        try:
            self.status = await node(self)
        finally:
            self.guarded -= 1
        return self.status == 0

    def fork(self, streams: Streams | None = None) -> "Shell":
        """A subshell: what it changes stays in it."""
        process = replace(self.process, streams=streams or self.process.streams, environment=self.variables)
        child = Shell(process, self.arguments)
        child.functions, child.options = dict(self.functions), set(self.options)
        child.status, child.line = self.status, self.line
        return child

    def complain(self, message: str) -> None:
        """A message of the shell itself, as bash words it."""
        self.process.complain(f"{self.process.argv[0]}: line {self.line}: {message}")

    def redirect(self, operator: str, target: str) -> None:
        """Use other streams from now on; raises RedirectError."""
        self.process = replace(self.process, streams=redirected(self.process, operator, target))

    # What words ask for.

    @property
    def strict(self) -> bool:
        """Whether `set -u` is on."""
        return "u" in self.options

    def value(self, name: str) -> str | None:
        """A parameter's value, None where it is unset."""
        special = {
            "?": str(self.status),
            "#": str(len(self.arguments)),
            "0": self.process.argv[0],
            "$": "4242",
            "-": "",
        }
        if name in special:
            return special[name]
        if name in "@*":
            return " ".join(self.arguments)
        if name.isdigit():
            return dict(enumerate(self.arguments, 1)).get(int(name))
        return self.variables.get(name)

    def assign(self, name: str, value: str) -> None:
        """Set a variable."""
        self.variables[name] = value

    def paths(self, pattern: str) -> list[str]:
        """The files that an absolute pattern matches, in order; `*` matches no slash."""
        return files.matching(self.process.machine, pattern)

    async def output(self, commands: Node) -> str:
        """What commands print in a subshell, without trailing newlines."""
        output = Buffer()
        self.substituted = await self.fork(replace(self.process.streams, out=output)).life(commands)
        return output.text.rstrip("\n")

    # Functions, builtins, programs.

    async def invoke(self, argv: tuple[str, ...]) -> int:
        """Run whatever has this name."""
        if argv[0] in self.functions:
            return await self._call(self.functions[argv[0]], argv[1:])
        return await self.run_program(argv)

    async def run_program(self, argv: tuple[str, ...]) -> int:
        """Run a builtin, or a program of the host; 127 where there is none of this name."""
        if argv[0] in _BUILTINS:
            return await _BUILTINS[argv[0]](self, argv[1:])
        try:
            return await self.process.run(argv, environment=self.variables)
        except ProgramNotFoundError:
            self.complain(f"{argv[0]}: {'No such file or directory' if '/' in argv[0] else 'command not found'}")
            return NOT_FOUND

    async def _call(self, function: Node, arguments: tuple[str, ...]) -> int:
        before, self.arguments = self.arguments, arguments
        try:
            return await function(self)
        except Leave as leaving:
            if leaving.word != "return":
                raise
            return leaving.status
        finally:
            self.arguments = before


async def _nothing(_shell: Shell, _words: tuple[str, ...]) -> int:
    return 0


def _leave(word: str) -> "_Builtin":
    """`exit [N]`, `return [N]`, `break` and `continue`."""

    async def leave(shell: Shell, words: tuple[str, ...]) -> int:
        raise Leave(word, int(words[0]) % 256 if words and words[0].isdigit() else shell.status)

    return leave


async def _export(shell: Shell, words: tuple[str, ...]) -> int:
    shell.variables.update({name: value for name, equals, value in (word.partition("=") for word in words) if equals})
    return 0


async def _unset(shell: Shell, words: tuple[str, ...]) -> int:
    for name in words:
        shell.variables.pop(name, None)
        shell.functions.pop(name, None)
    return 0


async def _set(shell: Shell, words: tuple[str, ...]) -> int:
    """`set -eu`, `set -o pipefail`, `set +e`, `set -- words`."""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            shell.arguments = tuple(rest)
            return 0
        names = [_LONG_OPTIONS.get(rest.pop(0), "")] if word in ("-o", "+o") and rest else list(word[1:])
        if word[0] not in "-+" or not _OPTIONS.issuperset(names):
            shell.complain(f"set: {word}: invalid option")
            return _SYNTAX_ERROR
        (shell.options.update if word[0] == "-" else shell.options.difference_update)(names)
    return 0


async def _shift(shell: Shell, words: tuple[str, ...]) -> int:
    count = int(words[0]) if words else 1
    if count > len(shell.arguments):
        return 1
    shell.arguments = shell.arguments[count:]
    return 0


async def _eval(shell: Shell, words: tuple[str, ...]) -> int:
    return await shell.execute(" ".join(words))


async def _source(shell: Shell, words: tuple[str, ...]) -> int:
    text = files.read(shell.process.machine, "".join(words[:1]))
    if text is None:
        shell.complain(f"{''.join(words[:1])}: No such file or directory")
        return 1
    return await shell.execute(text)


async def _exec(shell: Shell, words: tuple[str, ...]) -> int:
    raise Leave("exit", await shell.run_program(words))


async def _read(shell: Shell, words: tuple[str, ...]) -> int:
    """One line into variables, the last one takes the rest."""
    names = [word for word in words if not word.startswith("-")] or ["REPLY"]
    line = await shell.process.streams.stdin.line()
    whole = shell.variables.get("IFS") == ""
    values = [line or ""] if whole else (line or "").strip().split(None, len(names) - 1)
    shell.variables.update(zip(names, [*values, *[""] * len(names)], strict=False))
    return int(line is None)


async def _command(shell: Shell, words: tuple[str, ...]) -> int:
    """`command -v name` says what a name is; `command name …` runs it and no function."""
    if words[:1] != ("-v",):
        return await shell.run_program(words) if words else 0
    known = (*_BUILTINS, *shell.functions)
    paths = [name if name in known else program_path(shell.process, name) for name in words[1:]]
    for path in filter(None, paths):
        shell.process.print(path)
    return int(not any(paths))


_Builtin: TypeAlias = Callable[[Shell, tuple[str, ...]], Awaitable[int]]
_BUILTINS: Final[Mapping[str, _Builtin]] = MappingProxyType(
    {word: _leave(word) for word in ("exit", "return", "break", "continue")}
    | {".": _source, "source": _source, ":": _nothing, "export": _export, "local": _export}
    | {"command": _command, "eval": _eval, "exec": _exec, "read": _read, "set": _set, "shift": _shift, "unset": _unset}
)


async def sh(process: Process) -> int:
    """`sh -c SCRIPT [name words]`, `sh FILE`, and a script on standard input."""
    words, options = list(process.arguments), ""
    while words and words[0].startswith("-"):
        options += words.pop(0).lstrip("-")
    name = process.argv[0].rpartition("/")[2]
    if "c" in options:
        script = words.pop(0) if words else ""
        name = words.pop(0) if words else name
    elif words and "s" not in options:
        name = words.pop(0)
        text = files.read(process.machine, name)
        if text is None:
            process.complain(f"{process.argv[0]}: {name}: No such file or directory")
            return NOT_FOUND
        script = text
    else:
        script = await process.streams.stdin.rest()
    shell = Shell(replace(process, argv=(name,)), tuple(words))
    shell.options.update(letter for letter in options if letter in "eu")
    return await shell.run(script)
