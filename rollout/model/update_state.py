"""What is known of the version of a host that has no update staged."""

from dataclasses import dataclass
from enum import StrEnum


class UpdateState(StrEnum):
    """How a host without a staged update compares with the newest version of its cluster; fixed words."""

    UP_TO_DATE = "up-to-date"
    BEHIND = "behind"
    ROLLED_BACK = "rolled-back"
    CHECK_FAILED = "check-failed"
    UPDATING = "updating"
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class UpdateStanding:
    """The state of a host without a staged update, with its details.

    `newest_version` is the newest version that the cluster runs or has staged for hosts like this one, empty if
    unknown. `rolled_back_from` and `rolled_back_at` (RFC 3339) are set only for a rolled-back host.
    """

    state: UpdateState
    newest_version: str = ""
    rolled_back_from: str = ""
    rolled_back_at: str = ""

    @property
    def is_current(self) -> bool:
        """Whether the host runs the newest version that the cluster knows of."""
        return self.state is UpdateState.UP_TO_DATE
