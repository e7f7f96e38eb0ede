"""Which part of a rollout a wave is, and why it is no larger and no faster."""

from enum import Enum

from msgspec import Struct


class WaveStage(Enum):
    """Which of a pool's nodes a wave takes."""

    CANARY = "canary"
    WORKERS = "workers"
    CONTROL_PLANE = "control plane"


class WavePart(Struct, frozen=True):
    """A part of a rollout, whose nodes have the same rules."""

    pool: str = ""
    stage: WaveStage = WaveStage.WORKERS
    # The step of the ramp, or 0.
    step: int = 0
    # The label of --spread-by, such as `zone=a`, or empty.
    group: str = ""


class OneAtATime(Struct, frozen=True):
    """Canaries, control-plane nodes, or a limit of one."""


class NextOnReturn(Struct, frozen=True):
    """At most `in_flight` nodes are away."""

    in_flight: int


class FullWave(Struct, frozen=True):
    """The wave has as many nodes as may go at once."""

    size: int


class NoRoomForMore(Struct, frozen=True):
    """The pods of more nodes would not fit."""


class PoolsTogether(Struct, frozen=True):
    """The wave has nodes of several pools."""


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
    """Stored data would have too few healthy copies."""

    data: str


class OwnerDown(Struct, frozen=True):
    """An owner would lose all its pods at once."""

    owner: str
    pods: int


class BudgetExceeded(Struct, frozen=True):
    """More pods would be away than the budget allows."""

    budget: str
    allowed: int


class BudgetSlow(Struct, frozen=True):
    """Drains would wait too long for the budget."""

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
    """Drains wait for a budget."""

    budget: str
    # Evictions allowed at a time; 0 if none now.
    permits: int
    seconds: int = 0


class WaveReason(Struct, frozen=True):
    """Why a wave is as it is."""

    parts: tuple[WavePart, ...]
    limit: WaveLimit
    delay: BudgetDelay | None
