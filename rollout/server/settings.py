"""By what a server grants, and what it is given of the world."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from rollout.execution.gates.gates import GatePorts
from rollout.model.fleetlock import Groups
from rollout.model.plan import RolloutPlan
from rollout.model.policy import Policy, Selection
from rollout.model.quantity import Duration
from rollout.ports import Clock, ClusterApi, Observer


class Tally(Protocol):
    """Who counts."""

    def count(self, request: str, kind: str) -> None:
        """One answer of this kind to a request: `pre-reboot` or `steady-state`."""
        ...


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """All that a server goes by. `holder` is how it calls itself in the Lease; times are in seconds.

    `slot_timeout` is how long a host may take to ask again once it is drained, and to come back once it was granted.
    """

    groups: Groups
    selection: Selection
    policy: Policy
    namespace: str
    holder: str
    lease_seconds: int
    slot_timeout: Duration
    api_patience: float = 600.0


@dataclass(frozen=True, slots=True)
class World:
    """What a server needs of the world. `watched` gives whoever hears of one node's way, for as long as that takes."""

    api: ClusterApi
    clock: Clock
    notice: Callable[[str], None]
    watched: Callable[[RolloutPlan], AbstractContextManager[Observer]]
    tally: Tally
    gates: GatePorts = field(default_factory=GatePorts)
