"""What runs a command on a simulated host: on which machine, as whom, which programs there are, and which files.

A program is a function of the session and its words to what it says; nothing runs on the machine
that the lab is on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from rollout.lab.hosts.engine import System, os_release
from rollout.lab.hosts.machine import Machine

NOT_FOUND: Final = 127
TIMED_OUT: Final = 124
_FOLDERS: Final = frozenset({"", "/usr/bin", "/bin", "/usr/sbin", "/sbin"})
_ONLY_ON: Final = {"rpm-ostree": System.FEDORA_COREOS, "update_engine_client": System.FLATCAR}


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """How a command ended, and what it printed; undecodable bytes are surrogate escapes."""

    status: int = 0
    out: str = ""
    err: str = ""


Words: TypeAlias = tuple[str, ...]
Program: TypeAlias = "Callable[[ShellSession, Words], Awaitable[CommandOutput]]"


@dataclass(frozen=True, slots=True)
class ShellSession:
    """Who runs commands where; `terminal` (`pts/1`) is empty where there is none, `programs` are by name."""

    machine: Machine
    user: str
    programs: "Mapping[str, Program]"
    terminal: str = ""

    async def run(self, words: Words, *, limit: float = 0) -> CommandOutput:
        """Run a program, for at most so many simulated seconds (0: for as long as it takes), as `timeout` does."""
        name = words[0]
        if not self.has(name):
            by_timeout = f"timeout: failed to run command '{name}': No such file or directory\n"
            return CommandOutput(
                NOT_FOUND, err=by_timeout if limit else f"bash: line 1: {name}: command not found\n"
            )
        program = self.programs[name.rpartition("/")[2]](self, words)
        try:
            return await asyncio.wait_for(
                program, self.machine.clock.scaled(limit) if limit else None
            )
        except TimeoutError:
            return CommandOutput(TIMED_OUT)

    def has(self, name: str) -> bool:
        """Whether there is a program of this name or path on the host."""
        folder, _, base = name.rpartition("/")
        machine = self.machine
        is_there = (
            folder in _FOLDERS and base in self.programs and base not in machine.faults.missing
        )
        return is_there and machine.system is _ONLY_ON.get(base, machine.system)

    async def sleep(self, seconds: float) -> None:
        """Let simulated time pass."""
        await asyncio.sleep(self.machine.clock.scaled(seconds))


_UPDATE_SERVER: Final = "https://public.update.flatcar-linux.net/v1/update/"


def _reboot_required(machine: Machine) -> str | None:
    return "" if machine.engine.marked and machine.system is System.FLATCAR else None


def _on_flatcar(line: str) -> Callable[[Machine], str | None]:
    """Return an update.conf with this line."""
    return lambda machine: f"GROUP=stable\n{line}\n" if machine.system is System.FLATCAR else None


def _scheduled_shutdown(machine: Machine) -> str | None:
    """Return what logind writes of a shutdown that somebody has scheduled; times are microseconds."""
    delay = machine.faults.shuts_down_after_seconds
    if delay is None:
        return None
    at = int(machine.booted_at.timestamp() + delay)
    return f"USEC={at}000000\nWARN_WALL=1\nMODE=reboot\nUID=0\nWALL_MESSAGE=maintenance\n"


_COMPUTED: Final[Mapping[str, Callable[[Machine], str | None]]] = {
    **dict.fromkeys(
        ("/etc/os-release", "/usr/lib/os-release"),
        lambda machine: os_release(machine.os_version, machine.system),
    ),
    "/etc/machine-id": lambda machine: f"{machine.machine_id}\n",
    "/usr/share/flatcar/update.conf": _on_flatcar(f"SERVER={_UPDATE_SERVER}"),
    "/etc/flatcar/update.conf": _on_flatcar("REBOOT_STRATEGY=off"),
    "/proc/sys/kernel/random/boot_id": lambda machine: f"{machine.boot_id}\n",
    "/run/reboot-required": _reboot_required,
    "/run/systemd/shutdown/scheduled": _scheduled_shutdown,
}


def read_file(machine: Machine, path: str) -> str | None:
    """Return the text of a file, None where there is none."""
    # on these hosts /var/run is a link to /run
    path = path.removeprefix("/var") if path.startswith("/var/run/") else path
    if path in machine.files:
        return machine.files[path]
    computed = _COMPUTED.get(path)
    return None if computed is None else computed(machine)


def files_below(machine: Machine, folder: str) -> list[str]:
    """Return the files that lie in a folder or below it, in order."""
    known = {*_COMPUTED, *machine.files}
    return sorted(
        path
        for path in known
        if path.startswith(f"{folder}/") and read_file(machine, path) is not None
    )
