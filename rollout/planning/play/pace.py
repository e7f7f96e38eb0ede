import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import mean, median_low

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from rollout.errors import UsageError
from rollout.model import marks
from rollout.model.cluster import Node, Pod
from rollout.model.plan import TimeEstimate, Wave
from rollout.model.policy import Policy
from rollout.model.quantity import Duration
from rollout.planning.layout.sharing import Rate

# Assumed: a reboot, a pod's start, and an eviction's API calls.
_REBOOT_SECONDS = 180
_START_SECONDS = 30
_CALL_SECONDS = 5
HANDOVER_SECONDS = 30
"""How long the controller of a database is assumed to take to move its primary after a cordon."""
DETACH_SECONDS = 120.0
"""How long at most an empty node waits for its volumes, in seconds."""
PROOF_SECONDS = 120.0
"""How long at most sources may take to show that a reboot worked, in seconds."""
# Also Deployments' default progressDeadlineSeconds. After longer starts, pods probably were unready
# in between.
_LONGEST_START = 600
# Owners that replace a pod while it terminates. Pods do not show a Job's podReplacementPolicy.
REPLACED_AT_ONCE = frozenset({"ReplicaSet", "ReplicationController", "Job"})
# This owner starts pods one by one. Pods do not show podManagementPolicy: Parallel.
ORDERED = "StatefulSet"


class PastDurations(Struct, frozen=True):
    # Until the node was empty.
    drains: tuple[float, ...] = ()
    # From the empty node until its return.
    reboots: tuple[float, ...] = ()
    # From a wave's last node to the next wave.
    settles: tuple[float, ...] = ()
    # From the last permitted eviction until the node was empty.
    endings: tuple[float, ...] = ()
    # By owner (`kind/namespace/name`).
    endings_by_owner: Mapping[str, Sequence[float]] = field(default_factory=dict)


NO_PAST = PastDurations()


class _LastResult(msgspec.Struct, frozen=True):
    outcome: str = ""
    took: str = ""


class Pace(Struct, frozen=True):
    """Estimates how many seconds steps take, from what they took before.

    An ending is the time from a pod's eviction until it is gone. A start is the time until a pod is
    ready.
    """

    # From local journals, sorted.
    past: PastDurations
    # Whole runs of nodes, sorted, from annotations.
    node_runs: tuple[float, ...] = ()
    # The mean, because times of waves add up.
    usual_settle: int = _START_SECONDS
    # By owner's UID.
    starts_by_owner: Mapping[str, int] = field(default_factory=dict)
    endings_by_owner: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, nodes: Iterable[Node], past: PastDurations, pods: Sequence[Pod] = ()) -> "Pace":
        runs = [last_run_seconds(node) for node in nodes]
        sorted_past = replace(
            past,
            drains=tuple(sorted(past.drains)),
            reboots=tuple(sorted(past.reboots)),
            settles=tuple(sorted(past.settles)),
            endings=tuple(sorted(past.endings)),
        )
        return cls(
            past=sorted_past,
            node_runs=tuple(sorted(seconds for seconds in runs if seconds is not None)),
            usual_settle=round(mean(past.settles)) if past.settles else _START_SECONDS,
            starts_by_owner=_starts_of(pods),
            endings_by_owner=_endings_of(pods, past.endings_by_owner),
        )

    @property
    def has_past_reboots(self) -> bool:
        return bool(self.past.reboots)

    def ending_seconds(self, grace: int, nodes: int = 1) -> int:
        """Return how long pods of this grace period need on the slowest node."""
        longest = grace + _CALL_SECONDS
        # A drain includes the ending, so this is an upper estimate.
        past = self.past.endings or self.past.drains
        if not past:
            return longest
        return min(longest, _slowest(past, nodes))

    def ending_seconds_of(self, owner_uids: Iterable[str], grace: int) -> int:
        uids = list(owner_uids)
        past_endings = list[int]()
        for uid in uids:
            if uid in self.endings_by_owner:
                past_endings.append(self.endings_by_owner[uid])
        slowest_known = max(past_endings, default=0)
        are_all_known = bool(uids) and len(past_endings) == len(uids)
        if are_all_known:
            return min(grace + _CALL_SECONDS, slowest_known)
        return max(slowest_known, self.ending_seconds(grace))

    def budget_rate(self, permits: int, grace: int, kind_by_owner: Mapping[str, str]) -> Rate:
        ending = self.ending_seconds_of(kind_by_owner, grace)
        starting = self.starting_seconds(kind_by_owner)
        # Some kinds of owners start the replacement at once, others when the pod is gone.
        are_replaced_at_once = REPLACED_AT_ONCE.issuperset(kind_by_owner.values())
        seconds_per_round = starting if are_replaced_at_once else ending + starting
        return Rate(permits, ending, seconds_per_round)

    def starting_seconds(self, owner_uids: Iterable[str]) -> int:
        starts = [self.starts_by_owner.get(uid, _START_SECONDS) for uid in owner_uids]
        slowest = max(starts, default=_START_SECONDS)
        if self.has_past_reboots:
            return slowest
        # An estimate is rather too long than too short.
        return max(slowest, _START_SECONDS)

    def reboot_seconds(self, before_reboot: int, nodes: int) -> int:
        """`before_reboot` is how long a node's run takes until then."""
        if self.past.reboots:
            return _slowest(self.past.reboots, nodes)
        if not self.node_runs:
            return _REBOOT_SECONDS
        # Only whole runs are known. The reboot is at least half of the run.
        node_run = _slowest(self.node_runs, nodes)
        return max(node_run - before_reboot, node_run // 2)

    def least_settle_seconds(self, pods: Iterable[Pod]) -> int:
        """Return how long a wave that moved these pods settles at least."""
        if not self.past.settles:
            return 0
        owner_uids = {pod.owner.uid for pod in pods if pod.owner}
        # The simulation itself waits for starts of known length.
        if owner_uids <= self.starts_by_owner.keys():
            shortest_settle = round(self.past.settles[0])
            return min(shortest_settle, _START_SECONDS)
        return self.usual_settle

    def estimate_rollout(self, waves: Iterable[Wave]) -> TimeEstimate:
        is_assumed = not (self.past.reboots or self.node_runs)
        return TimeEstimate(
            seconds=sum(wave.estimate.seconds for wave in waves),
            basis=(self._basis_of_reboots(), self._basis_of_drains(), self._basis_of_settling()),
            usual_reboot=_median(self.past.reboots) if self.past.reboots else 0,
            assumed_reboot=_REBOOT_SECONDS if is_assumed else 0,
        )

    def _basis_of_reboots(self) -> str:
        if self.past.reboots:
            median = Duration(_median(self.past.reboots))
            return f"a reboot takes {median}{_of_journals(self.past.reboots)}"
        if self.node_runs:
            median = Duration(_median(self.node_runs))
            runs = f"{len(self.node_runs)} past runs recorded on the nodes"
            return f"a node takes {median}, the median of {runs}"
        return f"a reboot takes {Duration(_REBOOT_SECONDS)} (assumed)"

    def _basis_of_drains(self) -> str:
        if self.past.drains:
            median = Duration(_median(self.past.drains))
            return f"a drain takes {median}{_of_journals(self.past.drains)}"
        return "pods use their full termination grace period (assumed)"

    def _basis_of_settling(self) -> str:
        if self.past.settles:
            return (
                f"a wave settles in {Duration(self.usual_settle)},"
                f" the mean of {len(self.past.settles)} in the local journals"
            )
        return f"replacements are ready {Duration(_START_SECONDS)} after their start (assumed)"


def _endings_of(
    pods: Iterable[Pod], past_by_owner: Mapping[str, Sequence[float]]
) -> Mapping[str, int]:
    """Return the median by owner UID; `past_by_owner` has `kind/namespace/name`."""
    if not past_by_owner:
        return {}
    endings = dict[str, int]()
    for pod in pods:
        if pod.owner is None or pod.owner.uid in endings:
            continue
        owner = f"{pod.owner.kind}/{pod.namespace}/{pod.owner.name}"
        if owner in past_by_owner:
            endings[pod.owner.uid] = round(median_low(past_by_owner[owner]))
    return endings


def _starts_of(pods: Iterable[Pod]) -> Mapping[str, int]:
    """Return the median by owner UID.

    Pods that were probably unready for a while are dropped.
    """
    starts: dict[str, list[int]] = defaultdict(list)
    for pod in pods:
        if pod.owner is None or pod.start_seconds is None:
            continue
        if pod.start_seconds <= _LONGEST_START:
            starts[pod.owner.uid].append(pod.start_seconds)
    return {uid: median_low(seconds) for uid, seconds in starts.items()}


def _slowest(past: Sequence[float], number: int) -> int:
    """Return the likely slowest of `number` steps, by the sorted `past`."""
    # On average, the longest of n random steps is at the quantile n / (n + 1).
    rank = math.ceil(len(past) * number / (number + 1))
    return round(past[rank - 1])


def _median(past: Sequence[float]) -> int:
    return _slowest(past, 1)


def _of_journals(past: Sequence[float]) -> str:
    return f", the median of {len(past)} in the local journals"


def last_run_seconds(node: Node) -> float | None:
    """Return None if the run failed or is unknown."""
    text = node.annotations.get(marks.LAST_RESULT)
    if not text:
        return None
    try:
        result = msgspec.json.decode(text, type=_LastResult)
        seconds = Duration.parse(result.took)
    except (msgspec.MsgspecError, RecursionError, UsageError):
        return None
    if result.outcome != "succeeded" or seconds <= 0:
        return None
    return float(seconds)


def slowest_node_seconds(
    policy: Policy, rescue_seconds: float | None = None, *, playbooks: int = 0
) -> float:
    """Return the most seconds a node of any pool may take.

    `rescue_seconds` is None without a rescue.
    """
    pools = policy.pools
    drain = _longest(policy.drain.timeout, [pool.drain_timeout for pool in pools])
    reboot = _longest(policy.reboot_timeout, [pool.reboot_timeout for pool in pools])
    # For asking the host, for its return, and for its return after a rescue.
    reboots = 2 * reboot
    if rescue_seconds is not None:
        reboots += rescue_seconds + reboot
    ready = _longest(policy.ready_timeout, [pool.ready_timeout for pool in pools])
    hooks = policy.gates.hooks
    # All annotations before the reboot, all after it, and each playbook.
    check_count = bool(hooks.before) + bool(hooks.after) + playbooks
    checks = hooks.timeout * check_count
    courtesy = policy.courtesy
    delays = courtesy.drain_delay + courtesy.reboot_delay + policy.exclude_from_load_balancers
    completion = policy.drain.completion
    if completion.is_used:
        delays += completion.timeout
    detaching = min(DETACH_SECONDS, drain)
    proving = min(PROOF_SECONDS, ready)
    # The node is to be Ready after its reboot, and again after the checks that follow.
    becoming_ready = 2 * ready
    after_reboot = becoming_ready + checks + proving + policy.settle_timeout
    return delays + drain + detaching + reboots + after_reboot


def _longest(default: Duration, of_pools: Iterable[Duration | None]) -> Duration:
    return max([default, *filter(None, of_pools)])
