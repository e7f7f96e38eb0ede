"""How long waves are likely to take: from what the pods say, what past runs took here, and stated assumptions."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import mean, median_low

import msgspec

from rollout.errors import UsageError
from rollout.model import marks
from rollout.model.cluster import Node, Pod
from rollout.model.policy import Policy
from rollout.model.quantity import Duration
from rollout.planning.layout.sharing import Rate

_REBOOT_SECONDS = 180
_START_SECONDS = 30
_CALL_SECONDS = 5
# A pod that was ready later than this has mostly been unready in between: Deployments give such a one up as well.
_LONGEST_START = 600
# Their controllers count a pod that is being deleted as gone, and replace it while it still ends (a Job unless its
# podReplacementPolicy is Failed, which pods do not tell). Those of other kinds, StatefulSets first, wait until it is.
REPLACED_AT_ONCE = frozenset({"ReplicaSet", "ReplicationController", "Job"})
# Its controller starts a pod once the one before is ready, unless it was told to be parallel, which pods do not tell.
ORDERED = "StatefulSet"


@dataclass(frozen=True, slots=True)
class Past:
    """Seconds that things took in past runs on this cluster.

    `drains`: from the beginning to the empty node; `reboots`: from there until it was given back; `settles`: from
    the last node of a wave to the next wave. `endings`: from the last pod that might go to the empty node, where
    there were pods to evict. `owners`: what pods of each took to end, by its kind/namespace/name.
    """

    drains: tuple[float, ...] = ()
    reboots: tuple[float, ...] = ()
    settles: tuple[float, ...] = ()
    endings: tuple[float, ...] = ()
    owners: Mapping[str, Sequence[float]] = field(default_factory=dict)


NO_PAST = Past()


class _LastResult(msgspec.Struct, frozen=True):
    """What a finished node's annotation tells of its run; the duration is written as flags write one."""

    outcome: str = ""
    took: str = ""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast things go: `past` runs as they were written down, and `runs`, whole ones as the nodes remember them.

    Of both the shortest come first. `usual_settle` is how long waves take to settle: the mean, for that adds up.
    `starts` is how many seconds the pods of each owner, by its UID, took to be ready, `endings` how many to end.
    """

    past: Past
    runs: tuple[float, ...] = ()
    usual_settle: int = _START_SECONDS
    starts: Mapping[str, int] = field(default_factory=dict)
    endings: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, nodes: Iterable[Node], past: Past, pods: Sequence[Pod] = ()) -> "Pace":
        """Return the pace of these nodes and pods."""
        runs = tuple(sorted(seconds for node in nodes if (seconds := past_run(node)) is not None))
        settle = round(mean(past.settles)) if past.settles else _START_SECONDS
        past = replace(
            past,
            drains=tuple(sorted(past.drains)),
            reboots=tuple(sorted(past.reboots)),
            settles=tuple(sorted(past.settles)),
            endings=tuple(sorted(past.endings)),
        )
        return cls(past, runs, settle, _starts_of(pods), _endings_of(pods, past.owners))

    @property
    def is_known(self) -> bool:
        """Whether any run of this cluster tells it; all that is assumed is reckoned generously."""
        return bool(self.past.reboots)

    def ending(self, grace: int, nodes: int = 1) -> int:
        """How long pods of so much grace take to end: as past drains were, or as long as the grace.

        Of several nodes side by side the slowest counts, as of reboots.
        """
        longest, seen = grace + _CALL_SECONDS, self.past.endings or self.past.drains
        return min(longest, _slowest(seen, nodes)) if seen else longest

    def ending_of(self, owners: Iterable[str], grace: int) -> int:
        """Return that of one node's pods of these owners, by UID: as those took in the past, if it tells of them."""
        known = [self.endings.get(uid) for uid in owners]
        longest = max((seconds for seconds in known if seconds is not None), default=0)
        return min(grace + _CALL_SECONDS, longest) if known and None not in known else max(longest, self.ending(grace))

    def rate(self, permits: int, grace: int, owners: Mapping[str, str]) -> Rate:
        """How fast a budget lets pods of so much grace go; `owners` are their kinds by UID."""
        ending, starting = self.ending_of(owners, grace), self.starting(owners)
        turn = starting if REPLACED_AT_ONCE.issuperset(owners.values()) else ending + starting
        return Rate(permits, ending, turn)

    def starting(self, owners: Iterable[str]) -> int:
        """How long the slowest replacement takes to be ready, as the pods of these owners did; `owners` are UIDs.

        As long as no run tells anything, none is reckoned to be fast.
        """
        slowest = max((self.starts.get(uid, _START_SECONDS) for uid in owners), default=_START_SECONDS)
        return slowest if self.is_known else max(slowest, _START_SECONDS)

    def reboot(self, drain: int, nodes: int) -> int:
        """How long the slowest of so many reboots takes; `drain` is how long emptying the nodes takes before.

        Drains are reckoned generously, so that of a run known as a whole at least half is left for the reboot.
        """
        if self.past.reboots:
            return _slowest(self.past.reboots, nodes)
        if not self.runs:
            return _REBOOT_SECONDS
        whole = _slowest(self.runs, nodes)
        return max(whole - drain, whole // 2)

    def settle(self, pods: Iterable[Pod]) -> int:
        """How long it takes at least until these moved pods are well again, once their nodes are back.

        Where their starts are known, that is what any wave took: more was the starting of what moved then.
        """
        if not self.past.settles:
            return 0
        is_told = all(pod.owner.uid in self.starts for pod in pods if pod.owner)
        return min(round(self.past.settles[0]), _START_SECONDS) if is_told else self.usual_settle

    @property
    def basis(self) -> tuple[str, ...]:
        """What estimates at this pace are reckoned from."""
        return (self._basis_of_reboots(), self._basis_of_drains(), self._basis_of_settling())

    def _basis_of_reboots(self) -> str:
        if self.past.reboots:
            return f"a reboot takes {_median(self.past.reboots)}{_of_journals(self.past.reboots)}"
        if self.runs:
            return f"a node takes {_median(self.runs)}, the median of {len(self.runs)} past runs recorded on the nodes"
        return f"a reboot takes {Duration(_REBOOT_SECONDS)} (assumed)"

    def _basis_of_drains(self) -> str:
        if self.past.drains:
            return f"a drain takes {_median(self.past.drains)}{_of_journals(self.past.drains)}"
        return "pods use all of their termination grace"

    def _basis_of_settling(self) -> str:
        if self.past.settles:
            mean_of = f", the mean of {len(self.past.settles)} in the local journals"
            return f"a wave settles in {Duration(self.usual_settle)}{mean_of}"
        return f"replacements are ready {Duration(_START_SECONDS)} after their start (assumed)"


def _endings_of(pods: Iterable[Pod], past: Mapping[str, Sequence[float]]) -> Mapping[str, int]:
    """By the UID of their owner, how long pods took to end: the median."""
    owners = {pod.owner.uid: f"{pod.owner.kind}/{pod.namespace}/{pod.owner.name}" for pod in pods if pod.owner and past}
    return {uid: round(median_low(past[owner])) for uid, owner in owners.items() if owner in past}


def _starts_of(pods: Iterable[Pod]) -> Mapping[str, int]:
    """By the UID of their owner, how long its pods took to be ready; one that was unready later seems slow."""
    starts: dict[str, list[int]] = defaultdict(list)
    for pod in pods:
        if pod.owner and pod.start_seconds is not None and pod.start_seconds <= _LONGEST_START:
            starts[pod.owner.uid].append(pod.start_seconds)
    return {uid: median_low(seconds) for uid, seconds in starts.items()}


def _slowest(past: Sequence[float], of: int) -> int:
    """Return what the slowest of so many is likely to take, in seconds: the median for one, near the longest for many.

    `past` has the shortest first.
    """
    return round(past[math.ceil(len(past) * of / (of + 1)) - 1])


def _median(past: Sequence[float]) -> str:
    return str(Duration(round(_slowest(past, 1))))


def _of_journals(past: Sequence[float]) -> str:
    return f", the median of {len(past)} in the local journals"


def past_run(node: Node) -> float | None:
    """Seconds that this node's last run took, as it remembers; None where that did not succeed, or is not known."""
    written = node.annotations.get(marks.LAST_RESULT)
    if not written:
        return None
    try:
        result = msgspec.json.decode(written, type=_LastResult)
        seconds = Duration.parse(result.took)
    except (msgspec.MsgspecError, RecursionError, UsageError):
        return None
    return float(seconds) if result.outcome == "succeeded" and seconds > 0 else None


def slowest_node_seconds(policy: Policy) -> float:
    """From the first mark on a node to its last, where each step takes all the time that it may.

    Pools' own times count, and checks around the reboot only where there are any.
    """
    pools = policy.pools
    drain = max(policy.drain.timeout, *(pool.drain_timeout or 0 for pool in pools), 0)
    reboot = max(policy.reboot_timeout, *(pool.reboot_timeout or 0 for pool in pools), 0)
    ready = max(policy.ready_timeout, *(pool.ready_timeout or 0 for pool in pools), 0)
    hooks = policy.gates.hooks
    checks = hooks.timeout * (bool(hooks.before) + bool(hooks.after))
    courtesy = policy.courtesy
    waits = courtesy.drain_delay + courtesy.reboot_delay
    return policy.exclude_from_load_balancers + waits + drain + reboot + ready + checks
