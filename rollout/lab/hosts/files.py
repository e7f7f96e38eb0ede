"""The files of a simulated host.

Those that say something about the host are computed when they are read; those that somebody wrote lie on the
machine. Everything else does not exist.
"""

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Final

from rollout.lab.hosts.machine import Machine
from rollout.lab.hosts.release import System
from rollout.lab.hosts.units import LOCKSMITHD

MARKER: Final = "/run/update_engine_autoupdate_completed"
_UPDATE_SERVER: Final = "https://public.update.flatcar-linux.net/v1/update/"
_DIRECTORIES: Final = frozenset({"/", "/etc", "/home/core", "/proc", "/run", "/tmp", "/usr", "/var"})  # noqa: S108
PROGRAMS: Final = ("/usr/bin/", "/bin/", "/usr/sbin/", "/sbin/")


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


def _uptime(machine: Machine) -> str:
    seconds = (machine.clock.now() - machine.booted_at).total_seconds()
    return f"{seconds:.2f} {seconds * 3:.2f}\n"


_COMPUTED: Final[Mapping[str, Callable[[Machine], str | None]]] = MappingProxyType(
    {
        "/etc/os-release": lambda machine: machine.release.os_release,
        "/usr/lib/os-release": lambda machine: machine.release.os_release,
        "/etc/hostname": lambda machine: f"{machine.name}\n",
        "/etc/machine-id": lambda machine: f"{machine.machine_id}\n",
        "/usr/share/flatcar/update.conf": _on_flatcar(f"SERVER={_UPDATE_SERVER}"),
        "/etc/flatcar/update.conf": _on_flatcar("REBOOT_STRATEGY=off"),
        "/proc/sys/kernel/random/boot_id": lambda machine: f"{machine.boot_id}\n",
        "/proc/sys/kernel/hostname": lambda machine: f"{machine.name}\n",
        "/proc/sys/kernel/osrelease": lambda machine: f"{machine.kernel_version}\n",
        "/proc/uptime": _uptime,
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


def write(machine: Machine, path: str, text: str) -> None:
    """Put a file on the machine; it lives as long as its directory does."""
    machine.files[_canonical(path)] = text


def remove(machine: Machine, path: str) -> bool:
    """Delete a file that somebody wrote; False where there is none."""
    return machine.files.pop(_canonical(path), None) is not None


def is_directory(machine: Machine, path: str) -> bool:
    """Whether the path is a directory, by the files known to lie under it."""
    wanted = _canonical(path).rstrip("/") or "/"
    known = (*_COMPUTED, *machine.files)
    return wanted in _DIRECTORIES or any(name.startswith(f"{wanted}/") for name in known)


def matching(machine: Machine, pattern: str) -> list[str]:
    """The files whose paths match, in order; a pattern matches no slash."""
    known = {*_COMPUTED, *machine.files}
    same_depth = (path for path in known if path.count("/") == pattern.count("/"))
    return sorted(path for path in same_depth if fnmatchcase(path, pattern) and read(machine, path) is not None)


def may_write(user: str, path: str) -> bool:
    """Whether this user may write there: root everywhere, others at home and in /tmp."""
    return user == "root" or _canonical(path).startswith((f"/home/{user}/", "/tmp/", "/dev/shm/"))  # noqa: S108


def _canonical(path: str) -> str:
    """One name a file: on these hosts /var/run is a link to /run."""
    absolute = path if path.startswith("/") else f"/home/core/{path}"
    return absolute.removeprefix("/var") if absolute.startswith("/var/run/") else absolute
