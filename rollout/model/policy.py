from enum import StrEnum

from msgspec import Struct, field

from rollout.model.detection import DEFAULT_SOURCES, Source
from rollout.model.gates import GatePolicy
from rollout.model.quantity import Count, Duration, Number


class CourtesyPolicy(Struct, frozen=True):
    """Delays that give users time to react, and labels and conditions for other programs."""

    drain_delay: Duration = Duration(0)
    reboot_delay: Duration = Duration(0)
    fluo_labels: bool = False
    conditions: bool = False


class ControlPlaneOrder(StrEnum):
    """When to reboot control-plane nodes, which are always rebooted one at a time."""

    LAST = "last"
    FIRST = "first"
    EXCLUDE = "exclude"


class Strategy(StrEnum):
    """When the next nodes start: in the next wave, or as soon as another node is back."""

    WAVES = "waves"
    ROLLING = "rolling"


class Selection(Struct, frozen=True):
    """The nodes that the operator has selected."""

    # Empty for all nodes.
    selector: str = ""
    nodes: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


class Critical(Struct, frozen=True):
    """A minimum number of pods with these labels that must stay Ready."""

    namespace: str
    selector: str
    min_available: Number


class CompletionFallback(StrEnum):
    """What to do with a node whose pods have not completed in time."""

    RETURN = "return"
    EVICT = "evict"


class CompletionPolicy(Struct, frozen=True):
    """Which pods a drain does not evict, but waits for until they have completed."""

    selectors: tuple[str, ...] = ()
    timeout: Duration = Duration(3600)
    fallback: CompletionFallback = CompletionFallback.RETURN

    @property
    def is_used(self) -> bool:
        """Whether drains wait for pods."""
        return bool(self.selectors)


class Restart(StrEnum):
    """Whether a drain restarts Deployments whose budget allows no eviction."""

    NEVER = "never"
    BLOCKED = "blocked"


class DrainPolicy(Struct, frozen=True):
    """The rules for drains."""

    timeout: Duration = Duration(600)
    # None for each pod's own.
    grace_period: Number | None = None
    force: bool = False
    delete_emptydir_data: bool = True
    disable_eviction: bool = False
    pod_selector: str = ""
    # 0 waits for all.
    skip_wait_for_delete_timeout: Number = 0
    critical: tuple[Critical, ...] = ()
    completion: CompletionPolicy = CompletionPolicy()
    restart: Restart = Restart.NEVER

    @property
    def restarts(self) -> bool:
        """Whether a drain restarts Deployments; without evictions, no budget blocks."""
        return self.restart is Restart.BLOCKED and not self.disable_eviction

    def grace_of(self, own_grace_period: int) -> int:
        """Return the seconds to terminate."""
        return own_grace_period if self.grace_period is None else self.grace_period


class Pool(Struct, frozen=True):
    """Nodes with their own settings. If the pool lacks a setting, the rollout's setting applies.

    A node belongs to the first pool whose selector matches.
    """

    name: str
    selector: str
    after: tuple[str, ...] = ()
    max_unavailable: Count | None = None
    canary: Number | None = None
    ramp: tuple[Count, ...] | None = None
    strategy: Strategy | None = None
    spread_by: str | None = None
    reboot_idle: bool | None = None
    drain_timeout: Duration | None = None
    reboot_timeout: Duration | None = None
    ready_timeout: Duration | None = None
    # In addition to the rollout's.
    window: tuple[str, ...] = ()


class Policy(Struct, frozen=True):
    """The rules of one rollout."""

    max_unavailable: Count = Count(1)
    canary: Number = 0
    spread_by: str = ""
    control_plane: ControlPlaneOrder = ControlPlaneOrder.LAST
    include_cordoned: bool = False
    reboot_idle: bool = False
    skip_blocked: bool = False
    drain: DrainPolicy = DrainPolicy()
    reboot_timeout: Duration = Duration(900)
    ready_timeout: Duration = Duration(600)
    settle_timeout: Duration = Duration(300)
    max_failures: Count = Count(1)
    # Only whether there is one: what runs as root is never read from a plan or a cluster.
    own_reboot_command: bool = False
    ramp: tuple[Count, ...] = ()
    # Off in older plans, whose operators did not see it.
    prefer_no_schedule_taint: bool = False
    exclude_from_load_balancers: Duration = Duration(0)
    gates: GatePolicy = field(default_factory=GatePolicy)
    strategy: Strategy = Strategy.WAVES
    pools: tuple[Pool, ...] = ()
    control_plane_selector: str = ""
    include_held: bool = False
    detect: tuple[Source, ...] = DEFAULT_SOURCES
    courtesy: CourtesyPolicy = CourtesyPolicy()
    # The version to leave, or empty.
    rollback: str = ""

    @property
    def sources(self) -> tuple[Source, ...]:
        """Return the sources to ask."""
        return (Source.ROLLBACK,) if self.rollback else self.detect

    def failure_limit(self, selected: int) -> int:
        """Return how many failures end the rollout, at least 1."""
        return max(1, self.max_failures.of(selected))
