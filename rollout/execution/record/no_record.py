"""What a rollout tells its record, and whom it tells where there is none."""

from typing import Protocol

from rollout.execution.record.health import Health
from rollout.model.plan import RolloutPlan


class Record(Protocol):
    """What a rollout tells its record: see `RunRecord`."""

    def begin(self, plan: RolloutPlan, holder: str) -> None:
        """A new rollout begins."""

    def take_up(self, run: str) -> None:
        """An interrupted one is gone on with."""

    def keep(self, health: Health) -> None:
        """A wave begins, before which this was well."""

    def end(self, *, complete: bool) -> None:
        """It has ended; whether with nothing left over."""


class NoRecord:
    """Where the record is gone or not understood: none is written, and what stands there stays."""

    def begin(self, plan: RolloutPlan, holder: str) -> None:
        """Write nothing."""

    def take_up(self, run: str) -> None:
        """Ask for nothing."""

    def keep(self, health: Health) -> None:
        """Write nothing."""

    def end(self, *, complete: bool) -> None:
        """Take nothing away."""
