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
    """A reason for a warning of a plan."""

    kind: ClassVar[WarningKind]


class PodWarning(WarningFinding, frozen=True):
    """The drain goes on in spite of this finding about a pod, at a cost."""

    kind = WarningKind.POD
    finding: PodFinding


class CriticalUnready(WarningFinding, frozen=True):
    """The pod is system-node-critical and not Ready."""

    kind = WarningKind.POD
    # RFC 3339, or empty.
    since: str


class StaysHere(WarningFinding, frozen=True):
    """The pod tolerates the cordon and fits on no other node."""

    kind = WarningKind.POD


class TerminatingLate(WarningFinding, frozen=True):
    """The grace period ended `overdue` ago, and the drain waits."""

    kind = WarningKind.TERMINATING
    overdue: Duration
    finalizers: tuple[str, ...]


class LongGrace(WarningFinding, frozen=True):
    """The pod's `grace` is not shorter than the drain's `timeout`."""

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
    """The pod is likely to run longer than the drain waits."""

    kind = WarningKind.LONG_COMPLETION
    left: Duration
    timeout: Duration
    fallback: CompletionFallback


class BudgetClosed(WarningFinding, frozen=True):
    """The budget currently allows no evictions."""

    kind = WarningKind.BUDGET_WAITING
    healthy: int
    needed: int


class BudgetManaged(WarningFinding, frozen=True):
    """The budget allows no eviction until the controller of `owner` moves the pods."""

    kind = WarningKind.BUDGET_MANAGED
    namespace: str
    owner: OwnerRef
    # The owner has no other pod to switch to.
    is_alone: bool


class BudgetSurged(WarningFinding, frozen=True):
    """A restart moves the pods of a budget that never allows an eviction."""

    kind = WarningKind.BUDGET_RESTART
    deployment: str


class DownMeanwhile(WarningFinding, frozen=True):
    """The pod fits nowhere else, and is down until its node returns."""

    kind = WarningKind.FITS_NOWHERE
    nowhere: Nowhere


class BudgetCrowded(WarningFinding, frozen=True):
    """The budget allows `allowed` of `pods` to be away, but not all fit."""

    kind = WarningKind.FITS_NOWHERE
    allowed: int
    pods: int


class AllReplicas(WarningFinding, frozen=True):
    """An owner's pods are all on one node, without a budget."""

    kind = WarningKind.ALL_REPLICAS
    pods: int


class HeldVersionTaken(WarningFinding, frozen=True):
    """The planned node's version is held."""

    kind = WarningKind.VERSION_HELD
    held: HeldVersion | UncountedVersion


class BackingOffNodeTaken(WarningFinding, frozen=True):
    """The planned node failed recently."""

    kind = WarningKind.FAILED_RECENTLY
    backoff: NodeBackingOff


class UsersLoggedIn(WarningFinding, frozen=True):
    """Users are logged in on the node."""

    kind = WarningKind.LOGGED_IN
    node: str
    users: tuple[str, ...]


class MoreUpdates(WarningFinding, frozen=True):
    """The `staged` version is older than the cluster's `newest`."""

    kind = WarningKind.MORE_UPDATES
    staged: str
    newest: str


class CoversNoPod(WarningFinding, frozen=True):
    """A `drain.critical` rule covers no pod, and is probably mistyped."""

    kind = WarningKind.NOTHING_CRITICAL


class OtherAtWork(WarningFinding, frozen=True):
    """Someone else is emptying the node, which counts against the limit."""

    kind = WarningKind.OTHERS_AT_WORK
    away: NodeAway


class PlaceWarning(Struct, frozen=True):
    """A warning about the pod or budget `subject` while nodes are away."""

    subject: str
    finding: WarningFinding
