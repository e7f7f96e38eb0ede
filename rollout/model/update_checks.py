from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct

from rollout.model.quantity import Duration

# update_engine checks every 45 minutes, and waits at most four hours after a server error.
LONGEST_SILENCE: Final = Duration(2 * 86_400)


class CheckState(StrEnum):
    """Whether a host checks for updates; enumerated values."""

    WORKING = "working"
    MASKED = "masked"
    STOPPED = "stopped"
    FAILED = "failed"
    DISABLED = "disabled"
    STALE = "stale"
    UNKNOWN = "unknown"

    @property
    def is_off(self) -> bool:
        """Whether the service does not check, or will not after the next boot."""
        return self in (
            CheckState.MASKED,
            CheckState.STOPPED,
            CheckState.FAILED,
            CheckState.DISABLED,
        )

    @property
    def is_trouble(self) -> bool:
        """Whether the host finds no new updates."""
        return self.is_off or self is CheckState.STALE


def service_text(unit: str, state: CheckState) -> str:
    """Return a clause that says why the service is off."""
    match state:
        case CheckState.FAILED:
            return f"{unit} has failed"
        case CheckState.DISABLED:
            return f"updates are disabled in the configuration of {unit}"
        case _:
            return f"{unit} is {state}"


class UnitState(Struct, frozen=True):
    """A systemd unit."""

    # Its states, in systemd's words; empty if unknown.
    load: str = ""
    active: str = ""
    file: str = ""
    # Another unit starts it. systemd calls it disabled nevertheless if the link is in /usr.
    wanted: bool = False
    # Why systemd cannot load it.
    problem: str = ""
    active_after_boot_seconds: float | None = None

    @property
    def masked(self) -> bool:
        """Whether nothing can start the unit."""
        return "masked" in (self.load, self.file) or self.file == "masked-runtime"

    @property
    def stays_masked(self) -> bool:
        """Whether it stays masked after a boot, which removes masks in /run."""
        return self.masked and self.file != "masked-runtime"

    @property
    def stays_on(self) -> bool:
        """Whether the next boot starts the unit, as far as known."""
        return self.wanted or self.file != "disabled"

    @property
    def missing(self) -> bool:
        """Whether the host has no such unit."""
        return self.load == "not-found"

    @property
    def exists(self) -> bool:
        """Whether the host surely has the unit."""
        return self.known and not self.missing

    @property
    def runs(self) -> bool:
        """Whether the unit runs, or is about to."""
        return self.active in ("active", "activating", "reloading")

    @property
    def known(self) -> bool:
        """Whether systemd reported anything about the unit."""
        return bool(self.load and self.active)

    @property
    def service_state(self) -> CheckState:
        """Return what the unit alone says about checks for updates."""
        if not self.exists:
            return CheckState.UNKNOWN
        if self.masked:
            return CheckState.MASKED
        if self.active == "failed":
            return CheckState.FAILED
        return CheckState.WORKING if self.runs else CheckState.STOPPED


UPDATE_ENGINE_UNIT: Final = "update-engine"


class UpdateChecks(Struct, frozen=True):
    """The service that looks for updates on a host, and when it last did."""

    # Empty if unknown.
    unit: str = ""
    service: UnitState = UnitState()
    # When it last reached the update server, or None.
    last: datetime | None = None
    # Since then, or since its start; None if unknown.
    silence_seconds: float | None = None
    # Its configuration turns updates off.
    is_disabled: bool = False

    def check_state(self, longest_silence: Duration = LONGEST_SILENCE) -> CheckState:
        """Return whether the host looks for updates; it is stale after too long a silence."""
        state = self.service.service_state
        if state.is_off:
            return state
        if self.is_disabled:
            return CheckState.DISABLED
        is_stale = self.silence_seconds is not None and self.silence_seconds > longest_silence
        return CheckState.STALE if is_stale else state


NO_CHECKS: Final = UpdateChecks()
