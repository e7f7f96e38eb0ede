from typing import ClassVar

from msgspec import Struct

from rollout.model.blocker_finding import NodeAway
from rollout.model.cluster import OwnerRef
from rollout.model.drain_finding import Nowhere, PodFinding
from rollout.model.finding import Finding, HeldVersion, NodeBackingOff, UncountedVersion
from rollout.model.plan import WarningKind
from rollout.model.policy import CompletionFallback
from rollout.model.quantity import Duration


class WarningFinding(Finding, frozen=True):
    """A warning's reason."""

    kind: ClassVar[WarningKind]


class PodWarning(WarningFinding, frozen=True):
    """The drain goes on, at a cost."""

    kind = WarningKind.POD
    finding: PodFinding


class CriticalUnready(WarningFinding, frozen=True):
    """The pod is system-node-critical and not Ready."""

    kind = WarningKind.POD
    # RFC 3339, or empty.
    since: str


class StaysHere(WarningFinding, frozen=True):
    """The pod tolerates the cordon and fits nowhere else."""

    kind = WarningKind.POD


class TerminatingLate(WarningFinding, frozen=True):
    """The drain waits, although the pod is `overdue`."""

    kind = WarningKind.TERMINATING
    overdue: Duration
    finalizers: tuple[str, ...]


class LongGrace(WarningFinding, frozen=True):
    """`grace` is not shorter than `timeout`."""

    kind = WarningKind.LONG_GRACE
    grace: Duration
    is_terminating: bool
    timeout: Duration


class LonghornOpens(WarningFinding, frozen=True):
    """Longhorn removes the budget during the drain."""

    kind = WarningKind.BUDGET_WAITING


class RookOpens(WarningFinding, frozen=True):
    """Rook opens the budget during the drain."""

    kind = WarningKind.BUDGET_WAITING


class LongCompletion(WarningFinding, frozen=True):
    """The pod is likely to outlast the drain's wait."""

    kind = WarningKind.LONG_COMPLETION
    left: Duration
    timeout: Duration
    fallback: CompletionFallback


class BudgetClosed(WarningFinding, frozen=True):
    """The budget allows no eviction now."""

    kind = WarningKind.BUDGET_WAITING
    healthy: int
    needed: int


class BudgetManaged(WarningFinding, frozen=True):
    """The `owner`'s controller must first move the pods."""

    kind = WarningKind.BUDGET_MANAGED
    namespace: str
    owner: OwnerRef
    # There is no other pod to switch to.
    is_alone: bool


class BudgetSurged(WarningFinding, frozen=True):
    """A restart moves the budget's pods."""

    kind = WarningKind.BUDGET_RESTART
    deployment: str


class DownMeanwhile(WarningFinding, frozen=True):
    """The pod is down until its node returns."""

    kind = WarningKind.FITS_NOWHERE
    nowhere: Nowhere


class BudgetCrowded(WarningFinding, frozen=True):
    """`allowed` of `pods` may be away, but not all fit."""

    kind = WarningKind.FITS_NOWHERE
    allowed: int
    pods: int


class AllReplicas(WarningFinding, frozen=True):
    """One node has all the owner's pods, without a budget."""

    kind = WarningKind.ALL_REPLICAS
    pods: int


class HeldVersionTaken(WarningFinding, frozen=True):
    """A planned version is held."""

    kind = WarningKind.VERSION_HELD
    held: HeldVersion | UncountedVersion


class BackingOffNodeTaken(WarningFinding, frozen=True):
    """A planned node failed recently."""

    kind = WarningKind.FAILED_RECENTLY
    backoff: NodeBackingOff


class UsersLoggedIn(WarningFinding, frozen=True):
    """Users are logged in."""

    kind = WarningKind.LOGGED_IN
    node: str
    users: tuple[str, ...]


class MoreUpdates(WarningFinding, frozen=True):
    """`staged` is older than the cluster's `newest`."""

    kind = WarningKind.MORE_UPDATES
    staged: str
    newest: str


class CoversNoPod(WarningFinding, frozen=True):
    """A `drain.critical` rule covers no pod."""

    kind = WarningKind.NOTHING_CRITICAL


class OtherAtWork(WarningFinding, frozen=True):
    """Someone else is emptying the node."""

    kind = WarningKind.OTHERS_AT_WORK
    away: NodeAway


class PlaceWarning(Struct, frozen=True):
    """A warning about `subject` while nodes are away."""

    subject: str
    finding: WarningFinding
