"""What the operator decided: which nodes, how many at once, how long to wait, what may be lost."""

from dataclasses import dataclass, field
from enum import StrEnum

from rollout.model.detection import DEFAULT_SOURCES, Source
from rollout.model.gates import GatePolicy
from rollout.model.quantity import Count, Duration, Number


@dataclass(frozen=True, slots=True)
class CourtesyPolicy:
    """All of it. `fluo_labels`: FLUO's labels of a host (id, group, version) are kept up to date as its agent would."""

    drain_delay: Duration = Duration(0)
    reboot_delay: Duration = Duration(0)
    fluo_labels: bool = False


class ControlPlaneOrder(StrEnum):
    """When control-plane nodes take their turn; always one at a time."""

    LAST = "last"
    FIRST = "first"
    EXCLUDE = "exclude"


class Strategy(StrEnum):
    """How nodes follow one another: wave after wave, or each as soon as another's place is free."""

    WAVES = "waves"
    ROLLING = "rolling"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which nodes are meant. `selector` is a label selector as the API takes it, empty for all."""

    selector: str = ""
    nodes: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Critical:
    """Pods that an operator calls critical: of those with these labels so many stay Ready, budget or not."""

    namespace: str
    selector: str
    min_available: Number


@dataclass(frozen=True, slots=True)
class DrainPolicy:
    """What a drain may do.

    `grace_period` in seconds, None: the pod's own. `pod_selector` as kubectl takes it, empty for
    all pods. `skip_wait_for_delete_timeout`: pods overdue by more than this many seconds are not
    waited for; 0 waits for all.
    """

    timeout: Duration = Duration(600)
    grace_period: Number | None = None
    force: bool = False
    delete_emptydir_data: bool = True
    disable_eviction: bool = False
    pod_selector: str = ""
    skip_wait_for_delete_timeout: Number = 0
    critical: tuple[Critical, ...] = ()

    def grace_of(self, pods_own: int) -> int:
        """Return the seconds that a pod is given to end."""
        return pods_own if self.grace_period is None else self.grace_period


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes with rules of their own, as the settings file has them; None is the rollout's rule.

    A node belongs to the first pool whose selector matches it. `after` names the pools that come
    before this one; its nodes begin only inside its `window`s, and inside the rollout's.
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
    window: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules of one rollout, as the settings say them. `pools` have rules that differ.

    `own_reboot_command`: hosts are rebooted by the operator's own command. The command itself
    stands in no plan and no cluster: what runs on hosts as root is never read from there.

    `prefer_no_schedule_taint` is off where a document does not speak of it: its operator saw a plan
    without it. `control_plane_selector` chooses nodes that are of the control plane though nothing
    on them says so; empty: none. `exclude_from_load_balancers` is how long a node is out of them
    before its drain, in seconds; 0: it stays in them. `detect` are the sources of which any may say
    that a node needs a reboot.
    """

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
    own_reboot_command: bool = False
    ramp: tuple[Count, ...] = ()
    prefer_no_schedule_taint: bool = False
    exclude_from_load_balancers: Duration = Duration(0)
    gates: GatePolicy = field(default_factory=GatePolicy)
    strategy: Strategy = Strategy.WAVES
    pools: tuple[Pool, ...] = ()
    control_plane_selector: str = ""
    include_held: bool = False
    detect: tuple[Source, ...] = DEFAULT_SOURCES
    courtesy: CourtesyPolicy = CourtesyPolicy()

    def failures_allowed(self, selected: int) -> int:
        """How many failed nodes of so many end the rollout: one at least."""
        return max(1, self.max_failures.of(selected))
