from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct

from rollout.model.quantity import Duration

# update_engine checks every 45 minutes; after errors, within four hours.
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
        """Whether the service is off, now or after a boot."""
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
    """Return why a service is off."""
    match state:
        case CheckState.FAILED:
            return f"{unit} has failed"
        case CheckState.DISABLED:
            return f"updates are disabled in the configuration of {unit}"
        case _:
            return f"{unit} is {state}"


class UnitState(Struct, frozen=True):
    """A systemd unit; unknown texts are empty."""

    load: str = ""
    active: str = ""
    file: str = ""
    # Another unit starts it. With its link in /usr, systemd says disabled.
    wanted: bool = False
    # Why it cannot be loaded.
    problem: str = ""
    active_after_boot_seconds: float | None = None

    @property
    def masked(self) -> bool:
        """Whether nothing can start the unit."""
        return "masked" in (self.load, self.file) or self.file == "masked-runtime"

    @property
    def stays_masked(self) -> bool:
        """Whether the mask survives a boot, which clears /run."""
        return self.masked and self.file != "masked-runtime"

    @property
    def stays_on(self) -> bool:
        """Whether a boot starts it, as far as known."""
        return self.wanted or self.file != "disabled"

    @property
    def missing(self) -> bool:
        """Whether the host lacks the unit."""
        return self.load == "not-found"

    @property
    def exists(self) -> bool:
        """Whether the host surely has the unit."""
        return self.known and not self.missing

    @property
    def runs(self) -> bool:
        """Whether the unit runs, or soon will."""
        return self.active in ("active", "activating", "reloading")

    @property
    def known(self) -> bool:
        """Whether systemd reported the unit."""
        return bool(self.load and self.active)

    @property
    def service_state(self) -> CheckState:
        """Return what the unit says about checks."""
        if not self.exists:
            return CheckState.UNKNOWN
        if self.masked:
            return CheckState.MASKED
        if self.active == "failed":
            return CheckState.FAILED
        return CheckState.WORKING if self.runs else CheckState.STOPPED


UPDATE_ENGINE_UNIT: Final = "update-engine"


class UpdateChecks(Struct, frozen=True):
    """A service that looks for updates."""

    # Empty if unknown.
    unit: str = ""
    service: UnitState = UnitState()
    # When it last reached its server, or None.
    last: datetime | None = None
    # Since then, or its start; None if unknown.
    silence_seconds: float | None = None
    is_disabled: bool = False

    def check_state(self, longest_silence: Duration = LONGEST_SILENCE) -> CheckState:
        """Return the state; stale after too long a silence."""
        state = self.service.service_state
        if state.is_off:
            return state
        if self.is_disabled:
            return CheckState.DISABLED
        is_stale = self.silence_seconds is not None and self.silence_seconds > longest_silence
        return CheckState.STALE if is_stale else state


NO_CHECKS: Final = UpdateChecks()
