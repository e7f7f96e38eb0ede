from enum import Enum

from msgspec import Struct


class WaveStage(Enum):
    """Which of a pool's nodes a wave takes."""

    CANARY = "canary"
    WORKERS = "workers"
    CONTROL_PLANE = "control plane"


class WavePart(Struct, frozen=True):
    """Nodes with the same rules."""

    pool: str = ""
    stage: WaveStage = WaveStage.WORKERS
    # 0 without a ramp.
    step: int = 0
    # Of --spread-by, such as `zone=a`, or empty.
    group: str = ""


class OneAtATime(Struct, frozen=True):
    """Canaries, control-plane nodes, or a limit of one."""


class NextOnReturn(Struct, frozen=True):
    """At most `in_flight` are away."""

    in_flight: int


class FullWave(Struct, frozen=True):
    """The wave has as many nodes as allowed."""

    size: int


class NoRoomForMore(Struct, frozen=True):
    """More nodes' pods would not fit."""


class PoolsTogether(Struct, frozen=True):
    """The wave has nodes of several pools."""


class RemainingNodes(Struct, frozen=True):
    """No more nodes are left."""


class PoolFull(Struct, frozen=True):
    """At most `allowed` nodes may go at once."""

    pool: str
    allowed: int


class ControllerBusy(Struct, frozen=True):
    """The controller moves one pod at a time."""

    controller: str


class CopiesShort(Struct, frozen=True):
    """Too few copies would be healthy."""

    data: str


class OwnerDown(Struct, frozen=True):
    """The owner would lose all pods at once."""

    owner: str
    pods: int


class BudgetExceeded(Struct, frozen=True):
    """More pods would be away than allowed."""

    budget: str
    allowed: int


class BudgetSlow(Struct, frozen=True):
    """Drains would wait too long."""

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
    # Evictions at a time; 0 if none now.
    permits: int
    seconds: int = 0


class WaveReason(Struct, frozen=True):
    """Why a wave is as it is."""

    parts: tuple[WavePart, ...]
    limit: WaveLimit
    delay: BudgetDelay | None
