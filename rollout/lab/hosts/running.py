"""What the commands of a shell script do: each is a function of the shell that runs it, to an exit status.

The stages of a pipeline run one after the other, each on the whole output of the one before: enough for commands that
end.
"""

import fnmatch
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from rollout.lab.hosts import words as expansion
from rollout.lab.hosts.process import Buffer, Input
from rollout.lab.hosts.redirection import RedirectError
from rollout.lab.hosts.words import Environment, Part, Word

if TYPE_CHECKING:
    from rollout.lab.hosts.shell import Shell

Node: TypeAlias = "Callable[[Shell], Awaitable[int]]"


class Leave(Exception):  # noqa: N818 - no error
    """`exit` and `return`, with a status; `break` and `continue` by their names."""

    def __init__(self, word: str, status: int = 0) -> None:
        super().__init__(word)
        self.word, self.status = word, status


def sequence(nodes: Sequence[Node]) -> Node:
    """One after the other; the status is the last one's."""

    async def run(shell: "Shell") -> int:
        for node in nodes:
            shell.status = await node(shell)
        return shell.status

    return run


def background(node: Node) -> Node:
    """A command that nobody waits for."""

    async def run(shell: "Shell") -> int:
        shell.process.machine.spawn(shell.fork().life(node))
        return 0

    return run


def and_or(steps: "Sequence[tuple[str, Node, bool]]") -> Node:
    """Each with what joins it to those before, and whether its status is turned round."""
    if len(steps) == 1 and not steps[0][2]:
        return _fatal(steps[0][1])

    async def run(shell: "Shell") -> int:
        for index, (joint, node, negated) in enumerate(steps):
            if joint and (shell.status == 0) != (joint == "&&"):
                continue
            if negated:
                shell.status = int(await shell.holds(node) != 0)
            elif index < len(steps) - 1:
                await shell.holds(node)
            else:
                shell.status = await _fatal(node)(shell)
        return shell.status

    return run


def _fatal(node: Node) -> Node:
    """With `set -e`, its failure is the shell's end."""

    async def run(shell: "Shell") -> int:
        shell.status = await node(shell)
        if shell.status and "e" in shell.options and not shell.guarded:
            raise Leave("exit", shell.status)
        return shell.status

    return run


def pipeline(commands: Sequence[Node]) -> Node:
    """Each stage in a subshell of its own."""
    if len(commands) == 1:
        return commands[0]

    async def run(shell: "Shell") -> int:
        streams, statuses = shell.process.streams, list[int]()
        for index, command in enumerate(commands):
            output = Buffer()
            out = streams.out if index == len(commands) - 1 else output
            statuses.append(await shell.fork(replace(streams, out=out)).life(command))
            streams = replace(streams, stdin=Input.of(output.text))
        failures = [status for status in statuses if status]
        return failures[-1] if failures and "pipefail" in shell.options else statuses[-1]

    return run


def subshell(body: Node) -> Node:
    """What it changes stays in it."""

    async def run(shell: "Shell") -> int:
        return await shell.fork().life(body)

    return run


def function(name: str, body: Node) -> Node:
    """A name for commands."""

    async def run(shell: "Shell") -> int:
        shell.functions[name] = body
        return 0

    return run


def branches(choices: "Sequence[tuple[Node, Node]]", otherwise: "Node | None") -> Node:
    """`if`: conditions and their bodies."""

    async def run(shell: "Shell") -> int:
        for condition, body in choices:
            if await shell.holds(condition):
                return await body(shell)
        return await otherwise(shell) if otherwise else 0

    return run


def loop(condition: Node, body: Node, *, until: bool) -> Node:
    """`while` and `until`."""

    async def run(shell: "Shell") -> int:
        status: int | None = 0
        last = 0
        while status is not None and await shell.holds(condition) != until:
            status = await _turn(shell, body)
            last = status or 0
        return last

    return run


def for_each(name: str, words: "tuple[Word, ...] | None", body: Node) -> Node:
    """`for`, over words or over the arguments."""

    async def run(shell: "Shell") -> int:
        last = 0
        for value in shell.arguments if words is None else await expansion.fields(shell, words):
            shell.assign(name, value)
            status = await _turn(shell, body)
            last = status or 0
            if status is None:
                break
        return last

    return run


async def _turn(shell: "Shell", body: Node) -> int | None:
    """One turn of a loop; None where it was the last."""
    try:
        return await body(shell)
    except Leave as leaving:
        if leaving.word == "break":
            return None
        if leaving.word == "continue":
            return 0
        raise


def case(subject: Word, choices: "Sequence[tuple[tuple[Word, ...], Node]]") -> Node:
    """The first choice of which a pattern matches."""

    async def run(shell: "Shell") -> int:
        text = await expansion.text(shell, subject)
        shell.status = 0
        for patterns, body in choices:
            for pattern in patterns:
                if fnmatch.fnmatchcase(text, await expansion.pattern(shell, pattern)):
                    return await body(shell)
        return 0

    return run


def substitution(body: Node, *, quoted: bool) -> Part:
    """The output of commands run in a subshell, without trailing newlines."""

    async def value(environment: Environment) -> str:
        return await environment.output(body)

    return Part(value, quoted)


def redirected(node: Node, redirects: "Sequence[tuple[str, Word]]") -> Node:
    """Run with other streams; a redirection that fails is a failed command."""

    async def run(shell: "Shell") -> int:
        process = shell.process
        try:
            for operator, word in redirects:
                shell.redirect(operator, await expansion.text(shell, word))
            return await node(shell)
        except RedirectError as error:
            shell.process = process
            shell.complain(str(error))
            return 1
        finally:
            shell.process = process

    return run


def simple(
    line: int,
    assignments: "Sequence[tuple[str, Word]]",
    words: "tuple[Word, ...]",
    redirects: "Sequence[tuple[str, Word]]",
) -> Node:
    """Assignments alone, or a command with them."""

    async def run(shell: "Shell") -> int:
        shell.line, shell.substituted = line, 0
        try:
            argv = tuple(await expansion.fields(shell, words))
            values = [(name, await expansion.text(shell, word)) for name, word in assignments]
        except expansion.UnboundVariableError as error:
            shell.complain(f"{error}: unbound variable")
            raise Leave("exit", 1) from error
        command = _invocation(argv, dict(values))
        return await (redirected(command, redirects) if redirects else command)(shell)

    return run


def _invocation(argv: tuple[str, ...], values: dict[str, str]) -> Node:
    async def run(shell: "Shell") -> int:
        if not values and argv:
            return await shell.invoke(argv)
        before = dict(shell.variables)
        shell.variables.update(values)
        if not argv:
            return shell.substituted
        try:
            return await shell.invoke(argv)
        finally:
            for name in values:
                if name in before:
                    shell.variables[name] = before[name]
                else:
                    shell.variables.pop(name, None)

    return run
