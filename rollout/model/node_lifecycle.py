"""Kubernetes' conditions of nodes that are drained or maintained.

https://kubernetes.io/docs/reference/node/node-lifecycle-conditions/
"""

from enum import StrEnum

from msgspec import Struct

# Marks rollout's own conditions.
OUR_REASON = "NodeRollout"


class Lifecycle(StrEnum):
    """The type of a condition."""

    MAINTENANCE_PLANNED = "MaintenancePlanned"
    DRAIN_IN_PROGRESS = "DrainInProgress"
    DRAINED = "Drained"
    MAINTENANCE_IN_PROGRESS = "MaintenanceInProgress"


# A node with one of these is losing its pods, or has lost them.
AT_WORK = frozenset({Lifecycle.DRAIN_IN_PROGRESS, Lifecycle.MAINTENANCE_IN_PROGRESS})


class LifecycleCondition(Struct, frozen=True):
    """A condition of a node; `since` is RFC 3339, or empty."""

    type: Lifecycle
    is_true: bool
    reason: str
    since: str

    @property
    def is_ours(self) -> bool:
        """Whether rollout has set it."""
        return self.reason == OUR_REASON
