"""The systemd units of a host that matter to a reboot, and the states they can be in."""

from dataclasses import dataclass
from typing import Final

UPDATE_ENGINE: Final = "update-engine.service"
LOCKSMITHD: Final = "locksmithd.service"
ZINCATI: Final = "zincati.service"
_ALWAYS_ON: Final = ("containerd.service", "kubelet.service", "sshd.service", "systemd-logind.service")


@dataclass(slots=True)
class Unit:
    """One unit: whether it runs now, and whether it would be started at boot."""

    name: str
    active: bool
    enabled: bool
    masked: bool = False

    @property
    def active_state(self) -> str:
        """`ActiveState` as systemd names it."""
        return "active" if self.active else "inactive"

    @property
    def sub_state(self) -> str:
        """`SubState` as systemd names it."""
        return "running" if self.active else "dead"

    @property
    def load_state(self) -> str:
        """`LoadState` as systemd names it."""
        return "masked" if self.masked else "loaded"

    @property
    def file_state(self) -> str:
        """`UnitFileState` as systemd names it."""
        if self.masked:
            return "masked"
        return "enabled" if self.enabled else "disabled"


class Units:
    """The units of one host, by full name."""

    def __init__(self, *, locksmithd: bool, flatcar: bool = True, zincati: bool = False) -> None:
        running = (*([UPDATE_ENGINE] if flatcar else []), *_ALWAYS_ON, *([ZINCATI] if zincati else []))
        self._units = {name: Unit(name, active=True, enabled=True) for name in running}
        if flatcar:
            self._units[LOCKSMITHD] = Unit(LOCKSMITHD, active=locksmithd, enabled=locksmithd, masked=not locksmithd)

    def find(self, name: str) -> Unit | None:
        """The unit of this name; a name without a suffix means a service."""
        return self._units.get(name if "." in name else f"{name}.service")

    def active(self, name: str) -> bool:
        """Whether the unit exists and runs."""
        unit = self.find(name)
        return unit is not None and unit.active

    def boot(self) -> None:
        """Start what is enabled, and only that."""
        for unit in self._units.values():
            unit.active = unit.enabled and not unit.masked
