"""Nothing runs on the machine that runs the lab."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

from msgspec import Struct

from rollout.lab.hosts.engine import System, os_release
from rollout.lab.hosts.machine import Machine

NOT_FOUND: Final = 127
TIMED_OUT: Final = 124
_PROGRAM_FOLDERS: Final = frozenset({"", "/usr/bin", "/bin", "/usr/sbin", "/sbin"})
_REQUIRED_SYSTEM_BY_PROGRAM: Final = {
    "bootc": System.FEDORA_BOOTC,
    "rpm-ostree": System.FEDORA_COREOS,
    **dict.fromkeys(("update_engine_client", "cgpt", "rootdev"), System.FLATCAR),
}


class CommandOutput(Struct, frozen=True):
    """Undecodable bytes are surrogate escapes."""

    status: int = 0
    out: str = ""
    err: str = ""


Words: TypeAlias = tuple[str, ...]
Program: TypeAlias = "Callable[[ShellSession, Words], Awaitable[CommandOutput]]"


class ShellSession(Struct, frozen=True):
    """`terminal` (`pts/1`) may be empty."""

    machine: Machine
    user: str
    programs: "Mapping[str, Program]"
    terminal: str = ""

    async def run(self, words: Words, *, limit: float = 0) -> CommandOutput:
        """Run it for at most `limit` simulated seconds (0: no limit)."""
        name = words[0]
        if not self.has(name):
            error = f"bash: line 1: {name}: command not found\n"
            if limit:
                error = f"timeout: failed to run command '{name}': No such file or directory\n"
            return CommandOutput(NOT_FOUND, err=error)
        program = self.programs[name.rpartition("/")[2]]
        seconds = self.machine.clock.scaled(limit) if limit else None
        try:
            return await asyncio.wait_for(program(self, words), seconds)
        except TimeoutError:
            return CommandOutput(TIMED_OUT)

    def has(self, name: str) -> bool:
        folder, _, base = name.rpartition("/")
        if folder not in _PROGRAM_FOLDERS or base not in self.programs:
            return False
        if base in self.machine.faults.missing:
            return False
        required_system = _REQUIRED_SYSTEM_BY_PROGRAM.get(base)
        return required_system is None or required_system is self.machine.system

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(self.machine.clock.scaled(seconds))


_UPDATE_SERVER: Final = "https://public.update.flatcar-linux.net/v1/update/"


def _reboot_required(machine: Machine) -> str | None:
    return "" if machine.update_engine.marked and machine.system is System.FLATCAR else None


def _update_conf(line: str) -> Callable[[Machine], str | None]:
    return lambda machine: f"GROUP=stable\n{line}\n" if machine.system is System.FLATCAR else None


def _uptime(machine: Machine) -> str:
    seconds = (machine.clock.now() - machine.booted_at).total_seconds()
    return f"{seconds:.2f} 0.00\n"


def _scheduled_shutdown(machine: Machine) -> str | None:
    """Times are microseconds."""
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
    "/usr/share/flatcar/update.conf": _update_conf(f"SERVER={_UPDATE_SERVER}"),
    "/etc/flatcar/update.conf": _update_conf("REBOOT_STRATEGY=off"),
    "/proc/sys/kernel/random/boot_id": lambda machine: f"{machine.boot_id}\n",
    "/proc/uptime": _uptime,
    "/run/reboot-required": _reboot_required,
    "/run/systemd/shutdown/scheduled": _scheduled_shutdown,
}


def read_file(machine: Machine, path: str) -> str | None:
    # On these hosts /var/run is a link to /run.
    if path.startswith("/var/run/"):
        path = path.removeprefix("/var")
    if path in machine.files:
        return machine.files[path]
    computed = _COMPUTED.get(path)
    return None if computed is None else computed(machine)


def files_below(machine: Machine, folder: str) -> list[str]:
    paths = [path for path in {*_COMPUTED, *machine.files} if path.startswith(f"{folder}/")]
    return sorted(path for path in paths if read_file(machine, path) is not None)
