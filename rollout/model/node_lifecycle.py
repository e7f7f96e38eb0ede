"""Conditions of drained or maintained nodes.

https://kubernetes.io/docs/reference/node/node-lifecycle-conditions/
"""

from enum import StrEnum

from msgspec import Struct

OUR_REASON = "NodeRollout"


class Lifecycle(StrEnum):
    """A condition's type."""

    MAINTENANCE_PLANNED = "MaintenancePlanned"
    DRAIN_IN_PROGRESS = "DrainInProgress"
    DRAINED = "Drained"
    MAINTENANCE_IN_PROGRESS = "MaintenanceInProgress"


# These nodes lose, or have lost, their pods.
AT_WORK = frozenset({Lifecycle.DRAIN_IN_PROGRESS, Lifecycle.MAINTENANCE_IN_PROGRESS})


class LifecycleCondition(Struct, frozen=True):
    """A condition; `since` is RFC 3339, or empty."""

    type: Lifecycle
    is_true: bool
    reason: str
    since: str

    @property
    def is_ours(self) -> bool:
        """Whether rollout has set the condition."""
        return self.reason == OUR_REASON
