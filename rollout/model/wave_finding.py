"""Which part of a rollout a wave is, and why it is no larger and no faster."""

from enum import Enum

from msgspec import Struct


class WaveStage(Enum):
    """Which of a pool's nodes a wave takes."""

    CANARY = "canary"
    WORKERS = "workers"
    CONTROL_PLANE = "control plane"


class WavePart(Struct, frozen=True):
    """The nodes that a wave takes its own from.

    `pool` is empty if there are no pools. `step` is that of the ramp, 0 for none. `group` is the
    label of --spread-by with its value, such as `zone=a`, empty without --spread-by.
    """

    pool: str = ""
    stage: WaveStage = WaveStage.WORKERS
    step: int = 0
    group: str = ""


class OneAtATime(Struct, frozen=True):
    """Its nodes are canaries, of the control plane, or limited to one."""


class NextOnReturn(Struct, frozen=True):
    """Its nodes roll: at most `in_flight` are away."""

    in_flight: int


class FullWave(Struct, frozen=True):
    """It has as many nodes as may go at once."""

    size: int


class NoRoomForMore(Struct, frozen=True):
    """The pods of more nodes would not fit on the others."""


class PoolsTogether(Struct, frozen=True):
    """It has nodes of several pools."""


class RemainingNodes(Struct, frozen=True):
    """No more nodes are left."""


class PoolFull(Struct, frozen=True):
    """At most `allowed` nodes of the pool may go at once."""

    pool: str
    allowed: int


class ControllerBusy(Struct, frozen=True):
    """The controller moves one of its pods at a time."""

    controller: str


class CopiesShort(Struct, frozen=True):
    """With more nodes, stored data would lack healthy copies."""

    data: str


class OwnerDown(Struct, frozen=True):
    """With more nodes, an owner would lose all its pods at once."""

    owner: str
    pods: int


class BudgetExceeded(Struct, frozen=True):
    """With more nodes, more pods would be away than the budget allows."""

    budget: str
    allowed: int


class BudgetSlow(Struct, frozen=True):
    """With more nodes, drains would wait too long for the budget."""

    budget: str
    allowed: int


WaveConflict = PoolFull | ControllerBusy | CopiesShort | OwnerDown | BudgetExceeded | BudgetSlow
"""What a wave and one more node would use up together."""

WaveLimit = (
    OneAtATime
    | NextOnReturn
    | FullWave
    | NoRoomForMore
    | PoolsTogether
    | RemainingNodes
    | WaveConflict
)
"""Why a wave does not have more nodes."""


class BudgetDelay(Struct, frozen=True):
    """The drains wait `seconds` for a budget; `permits` is 0 if it allows no evictions now."""

    budget: str
    permits: int
    seconds: int = 0


class WaveReason(Struct, frozen=True):
    """Why a wave is as it is."""

    parts: tuple[WavePart, ...]
    limit: WaveLimit
    delay: BudgetDelay | None
