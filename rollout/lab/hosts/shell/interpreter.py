"""The shell of a simulated host: runs syntax trees against the host's programs.

Everything runs in the lab's event loop; a command that takes time sleeps there. The stages of a pipeline run
one after the other, each on the whole output of the one before: enough for commands that end.
"""

import fnmatch
from collections.abc import Mapping
from typing import Final, assert_never

from rollout.lab.hosts.machine import Machine
from rollout.lab.hosts.process import Buffer, Input, Process, Program, ProgramNotFoundError, Streams
from rollout.lab.hosts.shell import expansion
from rollout.lab.hosts.shell.builtins import BUILTINS
from rollout.lab.hosts.shell.control import BreakLoop, ContinueLoop, ExitShell, ReturnFunction
from rollout.lab.hosts.shell.lexer import ShellSyntaxError
from rollout.lab.hosts.shell.parser import parse
from rollout.lab.hosts.shell.redirection import RedirectError, redirected
from rollout.lab.hosts.shell.tree import (
    AndOr,
    Case,
    Command,
    CommandList,
    Compound,
    For,
    Function,
    Group,
    If,
    Loop,
    Pipeline,
    Redirect,
    Redirected,
    Simple,
)

NOT_FOUND: Final = 127
SYNTAX_ERROR: Final = 2


class Shell:
    """One shell process, or with `fork` a subshell of it.

    `name` is what its own messages begin with, `variables` all of them (exported or not makes no difference
    here), `arguments` the positional parameters, `status` the `$?`.
    """

    def __init__(
        self,
        machine: Machine,
        programs: Mapping[str, Program],
        streams: Streams,
        *,
        user: str,
        name: str,
        variables: Mapping[str, str],
        arguments: tuple[str, ...] = (),
    ) -> None:
        self.machine = machine
        self.programs = programs
        self.streams = streams
        self.user = user
        self.name = name
        self.variables = dict(variables)
        self.arguments = arguments
        self.functions: dict[str, Command] = {}
        self.options: set[str] = set()
        self.status = 0
        self.line = 1
        self._guarded = 0
        self._substitution_status = 0

    async def run(self, script: str) -> int:
        """Run a script to its end or to `exit`, and return the exit status."""
        try:
            await self.execute(script)
        except ExitShell as leaving:
            self.status = leaving.status
        except (BreakLoop, ContinueLoop, ReturnFunction):
            pass
        return self.status

    async def execute(self, script: str) -> int:
        """Run commands in this shell; `exit` goes through."""
        try:
            commands = parse(script)
        except ShellSyntaxError as error:
            self._complain_syntax(error)
            self.status = SYNTAX_ERROR
            return self.status
        return await self.run_list(commands)

    def complain(self, message: str) -> None:
        """A message of the shell itself, as bash words it."""
        self.streams.err.write(f"{self.name}: line {self.line}: {message}\n")

    def fork(self, streams: Streams | None = None) -> "Shell":
        """A subshell: what it changes stays in it."""
        child = Shell(
            self.machine,
            self.programs,
            streams or self.streams,
            user=self.user,
            name=self.name,
            variables=self.variables,
            arguments=self.arguments,
        )
        child.functions, child.options = dict(self.functions), set(self.options)
        child.status, child.line = self.status, self.line
        return child

    def process(self, argv: tuple[str, ...]) -> Process:
        """The process that would run these words as a program."""
        return Process(self.machine, self.user, argv, self.streams, self.variables, self.programs)

    # What expansion asks for.

    def value(self, name: str) -> str | None:
        """A parameter's value, None where it is unset."""
        special = {"?": str(self.status), "#": str(len(self.arguments)), "0": self.name, "$": "4242", "-": ""}
        if name in special:
            return special[name]
        if name in ("@", "*"):
            return " ".join(self.arguments)
        if name.isdigit():
            index = int(name) - 1
            return self.arguments[index] if index < len(self.arguments) else None
        return self.variables.get(name)

    def positional(self) -> tuple[str, ...]:
        """The positional parameters."""
        return self.arguments

    def assign(self, name: str, value: str) -> None:
        """Set a variable."""
        self.variables[name] = value

    def unset_is_error(self) -> bool:
        """Whether `set -u` is on."""
        return "u" in self.options

    async def substitute(self, body: CommandList) -> str:
        """The output of a command list run in a subshell, without trailing newlines."""
        output = Buffer()
        child = self.fork(Streams(self.streams.stdin, output, self.streams.err))
        self._substitution_status = await child.run_forked(body)
        return output.text.rstrip("\n")

    # Lists.

    async def run_forked(self, body: CommandList) -> int:
        """Run a list as the whole life of this subshell."""
        try:
            return await self.run_list(body)
        except (ExitShell, ReturnFunction) as leaving:
            return leaving.status
        except (BreakLoop, ContinueLoop):
            return self.status

    async def run_list(self, body: CommandList) -> int:
        """Run commands one after the other; the status is the last one's."""
        for item in body.items:
            if item.background:
                self.machine.spawn(self.fork().run_forked(CommandList((_foreground(item),))))
                self.status = 0
            else:
                await self._and_or(item)
        return self.status

    async def _and_or(self, item: AndOr) -> None:
        steps = (("", item.first), *item.rest)
        fatal = False
        for index, (operator, pipeline) in enumerate(steps):
            if operator and (self.status == 0) != (operator == "&&"):
                fatal = False
                continue
            fatal = index == len(steps) - 1 and not pipeline.negated
            self._guarded += not fatal
            try:
                await self._pipeline(pipeline)
            finally:
                self._guarded -= not fatal
        if self.status and fatal and "e" in self.options and not self._guarded:
            raise ExitShell(self.status)

    async def _condition(self, body: CommandList) -> bool:
        self._guarded += 1
        try:
            return await self.run_list(body) == 0
        finally:
            self._guarded -= 1

    async def _pipeline(self, pipeline: Pipeline) -> None:
        if len(pipeline.commands) == 1:
            self.status = await self._command(pipeline.commands[0])
        else:
            self.status = await self._piped(pipeline.commands)
        if pipeline.negated:
            self.status = int(self.status == 0)

    async def _piped(self, commands: tuple[Command, ...]) -> int:
        stdin, statuses = self.streams.stdin, list[int]()
        for index, command in enumerate(commands):
            last = index == len(commands) - 1
            output = Buffer()
            streams = Streams(stdin, self.streams.out if last else output, self.streams.err)
            piped = CommandList((AndOr(Pipeline((command,))),))
            statuses.append(await self.fork(streams).run_forked(piped))
            stdin = Input.of(output.text)
        failed = [status for status in statuses if status]
        return failed[-1] if failed and "pipefail" in self.options else statuses[-1]

    # Commands.

    async def _command(self, command: Command) -> int:
        match command:
            case Simple():
                return await self._simple(command)
            case Redirected():
                return await self._with_redirects(command)
            case Function():
                self.functions[command.name] = command.body
                return 0

    async def _with_redirects(self, command: Redirected) -> int:
        before = self.streams
        if not await self._redirect(command.redirects):
            return 1
        try:
            return await self._compound(command.command)
        finally:
            self.streams = before

    async def _redirect(self, redirects: tuple[Redirect, ...]) -> bool:
        try:
            for redirect in redirects:
                target = await expansion.text(self, redirect.target)
                self.streams = redirected(self.streams, redirect, target, machine=self.machine, user=self.user)
        except RedirectError as error:
            self.complain(str(error))
            return False
        return True

    async def _simple(self, command: Simple) -> int:
        self.line, self._substitution_status = command.line, 0
        streams = self.streams
        try:
            argv = tuple(await expansion.fields(self, command.words))
            if not argv:
                return await self._assign_for_good(command)
            assigned = [(name, await expansion.text(self, word)) for name, word in command.assignments]
            if not await self._redirect(command.redirects):
                return 1
            return await self._invoke(argv, dict(assigned))
        except expansion.UnboundVariableError as error:
            self.complain(f"{error}: unbound variable")
            raise ExitShell(1) from error
        finally:
            self.streams = streams

    async def _assign_for_good(self, command: Simple) -> int:
        for name, word in command.assignments:
            self.variables[name] = await expansion.text(self, word)
        return self._substitution_status if await self._redirect(command.redirects) else 1

    async def _invoke(self, argv: tuple[str, ...], assigned: dict[str, str]) -> int:
        """Run a function, a builtin or a program, with variables set for it alone."""
        before = {name: self.variables.get(name) for name in assigned}
        self.variables.update(assigned)
        try:
            return await self._dispatch(argv)
        finally:
            for name, value in before.items():
                if value is None:
                    self.variables.pop(name, None)
                else:
                    self.variables[name] = value

    async def _dispatch(self, argv: tuple[str, ...]) -> int:
        if argv[0] in self.functions:
            return await self._call(self.functions[argv[0]], argv)
        builtin = BUILTINS.get(argv[0])
        return await (self.run_program(argv) if builtin is None else builtin(self, argv))

    async def run_program(self, argv: tuple[str, ...]) -> int:
        """Run a program of the host; 127 where there is none of this name."""
        try:
            return await self.process(argv).run(argv)
        except ProgramNotFoundError:
            missing = "No such file or directory" if "/" in argv[0] else "command not found"
            self.complain(f"{argv[0]}: {missing}")
            return NOT_FOUND

    async def _call(self, function: Command, argv: tuple[str, ...]) -> int:
        before = self.arguments
        self.arguments = argv[1:]
        try:
            return await self._command(function)
        except ReturnFunction as leaving:
            return leaving.status
        finally:
            self.arguments = before

    async def _compound(self, command: Compound) -> int:
        match command:
            case If():
                return await self._if(command)
            case Loop():
                return await self._loop(command)
            case For():
                return await self._for(command)
            case Case():
                return await self._case(command)
            case Group():
                return await self._group(command)
            case _ as never:
                assert_never(never)

    async def _group(self, command: Group) -> int:
        if command.subshell:
            return await self.fork().run_forked(command.body)
        return await self.run_list(command.body)

    async def _if(self, command: If) -> int:
        for condition, body in command.branches:
            if await self._condition(condition):
                return await self.run_list(body)
        return 0 if command.otherwise is None else await self.run_list(command.otherwise)

    async def _loop(self, command: Loop) -> int:
        status = 0
        while await self._condition(command.condition) != command.until:
            try:
                status = await self.run_list(command.body)
            except ContinueLoop:
                continue
            except BreakLoop:
                break
        return status

    async def _for(self, command: For) -> int:
        values = self.arguments if command.words is None else await expansion.fields(self, command.words)
        status = 0
        for value in values:
            self.variables[command.name] = value
            try:
                status = await self.run_list(command.body)
            except ContinueLoop:
                continue
            except BreakLoop:
                break
        return status

    async def _case(self, command: Case) -> int:
        subject = await expansion.text(self, command.subject)
        for patterns, body in command.branches:
            for word in patterns:
                if fnmatch.fnmatchcase(subject, await expansion.pattern(self, word)):
                    return await self.run_list(body)
        return 0

    def _complain_syntax(self, error: ShellSyntaxError) -> None:
        self.line = error.line
        if error.near:
            self.complain(f"syntax error near unexpected token `{error.near}'")
        else:
            self.complain("syntax error: unexpected end of file")


def _foreground(item: AndOr) -> AndOr:
    return AndOr(item.first, item.rest)
