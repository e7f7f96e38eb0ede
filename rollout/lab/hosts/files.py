"""The files of a simulated host: those that say something about it are computed, the others lie on the machine."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from rollout.lab.hosts.machine import Machine
from rollout.lab.hosts.release import System
from rollout.lab.hosts.units import LOCKSMITHD

MARKER: Final = "/run/update_engine_autoupdate_completed"
_UPDATE_SERVER: Final = "https://public.update.flatcar-linux.net/v1/update/"


def _reboot_required(machine: Machine) -> str | None:
    return "" if machine.engine.marked and machine.system is System.FLATCAR else None


def _on_flatcar(line: str) -> Callable[[Machine], str | None]:
    """An update.conf with this line."""
    return lambda machine: f"GROUP={machine.group}\n{line}\n" if machine.system is System.FLATCAR else None


def _coordinator(machine: Machine) -> str | None:
    if not machine.units.active(LOCKSMITHD):
        return None
    return "NAME=locksmithd\nSTRATEGY=reboot\nSTATE=running\n"


def _scheduled(machine: Machine) -> str | None:
    """What logind writes of a shutdown that somebody has scheduled; times are microseconds."""
    delay = machine.faults.shuts_down_after_seconds
    if delay is None:
        return None
    at = int(machine.booted_at.timestamp() + delay)
    return f"USEC={at}000000\nWARN_WALL=1\nMODE=reboot\nUID=0\nWALL_MESSAGE=maintenance\n"


_COMPUTED: Final[Mapping[str, Callable[[Machine], str | None]]] = MappingProxyType(
    {
        "/etc/os-release": lambda machine: machine.release.os_release,
        "/usr/lib/os-release": lambda machine: machine.release.os_release,
        "/etc/hostname": lambda machine: f"{machine.name}\n",
        "/etc/machine-id": lambda machine: f"{machine.machine_id}\n",
        "/usr/share/flatcar/update.conf": _on_flatcar(f"SERVER={_UPDATE_SERVER}"),
        "/etc/flatcar/update.conf": _on_flatcar("REBOOT_STRATEGY=off"),
        "/proc/sys/kernel/random/boot_id": lambda machine: f"{machine.boot_id}\n",
        "/run/reboot-required": _reboot_required,
        "/run/systemd/shutdown/scheduled": _scheduled,
        "/run/update-engine/coordinator.conf": _coordinator,
        MARKER: _reboot_required,
    }
)


def read(machine: Machine, path: str) -> str | None:
    """The text of a file, None where there is none."""
    path = _canonical(path)
    if path in machine.files:
        return machine.files[path]
    computed = _COMPUTED.get(path)
    return None if computed is None else computed(machine)


def below(machine: Machine, folder: str) -> list[str]:
    """The files that lie in a folder or below it, in order."""
    known = {*_COMPUTED, *machine.files}
    return sorted(path for path in known if path.startswith(f"{folder}/") and read(machine, path) is not None)


def may_write(user: str, path: str) -> bool:
    """Whether this user may write there: root everywhere, others at home and in /tmp."""
    return user == "root" or _canonical(path).startswith((f"/home/{user}/", "/tmp/", "/dev/shm/"))  # noqa: S108


def write(machine: Machine, path: str, text: str) -> None:
    """Put a file on the machine; it lives as long as its folder does."""
    machine.files[_canonical(path)] = text


def _canonical(path: str) -> str:
    """One name a file: on these hosts /var/run is a link to /run."""
    absolute = path if path.startswith("/") else f"/home/core/{path}"
    return absolute.removeprefix("/var") if absolute.startswith("/var/run/") else absolute
