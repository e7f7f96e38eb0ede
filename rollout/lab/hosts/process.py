"""What a program on a simulated host is given, and how one program runs another.

Programs are functions from a `Process` to an exit status. They are looked up in the table that the process
carries, so that the shell, sudo and timeout run anything without knowing what there is.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from rollout.lab.hosts.faults import SudoFault
from rollout.lab.hosts.files import PROGRAMS
from rollout.lab.hosts.machine import Machine
from rollout.lab.hosts.release import System

Program: TypeAlias = "Callable[[Process], Awaitable[int]]"

NOT_FOUND: Final = 127
_ONLY_ON: Final = {
    "apt-config": System.UBUNTU,
    "rpm-ostree": System.FEDORA_COREOS,
    "unattended-upgrade": System.UBUNTU,
    "update_engine_client": System.FLATCAR,
}


class Sink(Protocol):
    """Where output goes; undecodable bytes are surrogate escapes, as Python decodes them."""

    def write(self, text: str) -> None:
        """Take some text."""


class Buffer:
    """A sink that keeps what it gets."""

    def __init__(self) -> None:
        self._parts: list[str] = []

    def write(self, text: str) -> None:
        """Keep the text."""
        self._parts.append(text)

    @property
    def text(self) -> str:
        """All that was written."""
        return "".join(self._parts)


async def _nothing() -> str:
    return ""


class Input:
    """Standard input, read when somebody first asks for it."""

    def __init__(self, load: Callable[[], Awaitable[str]] = _nothing) -> None:
        self._load = load
        self._text: str | None = None

    @classmethod
    def of(cls, text: str) -> "Input":
        """An input whose text is known."""
        known = cls()
        known._text = text
        return known

    async def rest(self) -> str:
        """All that has not been read yet."""
        text = await self._load() if self._text is None else self._text
        self._text = ""
        return text

    async def line(self) -> str | None:
        """One line without its end, None after the last."""
        text = await self.rest()
        line, _, self._text = text.partition("\n")
        return line if text else None


@dataclass(frozen=True, slots=True)
class Streams:
    """Descriptors 0, 1 and 2."""

    stdin: Input
    out: Sink
    err: Sink


class ProgramNotFoundError(Exception):
    """There is no program of this name on the host."""


@dataclass(frozen=True, slots=True)
class Process:
    """One run of a program: its host, its user, its arguments (the name first) and its streams."""

    machine: Machine
    user: str
    argv: tuple[str, ...]
    streams: Streams
    environment: Mapping[str, str]
    programs: "Mapping[str, Program]"

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments without the name."""
        return self.argv[1:]

    def print(self, line: str) -> None:
        """A line on standard output."""
        self.streams.out.write(f"{line}\n")

    def complain(self, line: str) -> None:
        """A line on standard error."""
        self.streams.err.write(f"{line}\n")

    async def sleep(self, seconds: float) -> None:
        """Let simulated time pass."""
        await asyncio.sleep(self.machine.clock.scaled(seconds))

    async def run(
        self,
        argv: tuple[str, ...],
        *,
        user: str = "",
        streams: Streams | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> int:
        """Run another program and return its exit status; raises ProgramNotFoundError."""
        program = find_program(self, argv[0])
        variables = self.environment if environment is None else environment
        # Not by `replace`, which takes six times as long: a shell runs a hundred of them to answer one question.
        process = Process(self.machine, user or self.user, argv, streams or self.streams, variables, self.programs)
        return await program(process)


def program_path(process: Process, name: str) -> str | None:
    """The path of a program on the host, None where there is none; the name may itself be a path."""
    directory, _, base = name.rpartition("/")
    if base not in process.programs or (directory and f"{directory}/" not in PROGRAMS):
        return None
    faults = process.machine.faults
    if base in faults.missing or (base == "update_engine_client" and faults.client_missing):
        return None
    if base in _ONLY_ON and process.machine.system is not _ONLY_ON[base]:
        return None
    if base == "sudo" and faults.sudo is SudoFault.MISSING:
        return None
    return name if directory else f"/usr/bin/{base}"


def find_program(process: Process, name: str) -> "Program":
    """The program of this name or path; raises ProgramNotFoundError."""
    if program_path(process, name) is None:
        raise ProgramNotFoundError(name)
    return process.programs[name.rpartition("/")[2]]
