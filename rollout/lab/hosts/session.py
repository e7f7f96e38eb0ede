"""What runs a command on a simulated host: on which machine, as whom, and which programs there are.

A program is a function of the session and its words to what it says; nothing runs on the machine that the lab is on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from rollout.lab.hosts.faults import SudoFault
from rollout.lab.hosts.machine import Machine
from rollout.lab.hosts.release import System

NOT_FOUND: Final = 127
TIMED_OUT: Final = 124
_FOLDERS: Final = frozenset({"", "/usr/bin", "/bin", "/usr/sbin", "/sbin"})
_ONLY_ON: Final = {
    "apt-config": System.UBUNTU,
    "rpm-ostree": System.FEDORA_COREOS,
    "unattended-upgrade": System.UBUNTU,
    "update_engine_client": System.FLATCAR,
}


@dataclass(frozen=True, slots=True)
class Output:
    """How a command ended, and what it printed; undecodable bytes are surrogate escapes."""

    status: int = 0
    out: str = ""
    err: str = ""


Words: TypeAlias = tuple[str, ...]
Program: TypeAlias = "Callable[[Session, Words], Awaitable[Output]]"


@dataclass(frozen=True, slots=True)
class Session:
    """Who runs commands where; `terminal` (`pts/1`) is empty where there is none, `programs` are by name."""

    machine: Machine
    user: str
    programs: "Mapping[str, Program]"
    terminal: str = ""

    async def run(self, words: Words, *, limit: float = 0) -> Output:
        """Run a program, for at most so many simulated seconds (0: for as long as it takes), as `timeout` does."""
        name = words[0]
        if not self.has(name):
            return Output(NOT_FOUND, err=f"bash: line 1: {name}: command not found\n")
        program = self.programs[name.rpartition("/")[2]](self, words)
        try:
            return await asyncio.wait_for(program, self.machine.clock.scaled(limit) if limit else None)
        except TimeoutError:
            return Output(TIMED_OUT)

    def has(self, name: str) -> bool:
        """Whether there is a program of this name or path on the host."""
        folder, _, base = name.rpartition("/")
        machine, faults = self.machine, self.machine.faults
        if folder not in _FOLDERS or base not in self.programs or base in faults.missing:
            return False
        absent = (base == "update_engine_client" and faults.client_missing) or (
            base == "sudo" and faults.sudo is SudoFault.MISSING
        )
        return not absent and machine.system is _ONLY_ON.get(base, machine.system)

    def as_root(self) -> "Session":
        """The same as root."""
        return replace(self, user="root")

    async def sleep(self, seconds: float) -> None:
        """Let simulated time pass."""
        await asyncio.sleep(self.machine.clock.scaled(seconds))
