"""How long waves are likely to take: from what the pods say, what past reboots took here, and stated assumptions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import msgspec

from rollout.errors import UsageError
from rollout.model import marks
from rollout.model.cluster import Node, Pod
from rollout.model.plan import Estimate, TimeEstimate
from rollout.model.policy import Policy
from rollout.model.quantity import Duration
from rollout.planning.packing import Load

_REBOOT_SECONDS = 180
_START_SECONDS = 30
_CALL_SECONDS = 5


class _LastResult(msgspec.Struct, frozen=True):
    """What a finished node's annotation tells of its run; the duration is written as flags write one."""

    outcome: str = ""
    took: str = ""


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds that a node takes: `whole` runs as past ones were, from cordon to uncordon; 0 where none is known."""

    whole: int
    measured: int

    @classmethod
    def of(cls, nodes: Iterable[Node]) -> "Pace":
        """The median of the last runs that the nodes' annotations tell of, or an assumption."""
        past = [seconds for node in nodes if (seconds := _past_run(node)) is not None]
        return cls(round(median(past)) if past else 0, len(past))

    def reboot(self, drain: int) -> int:
        """How long the reboot takes of a node that is likely to take `drain` seconds to empty.

        Drains are reckoned generously, so that of a measured run at least half is left for the reboot.
        """
        return max(self.whole - drain, self.whole // 2) if self.measured else _REBOOT_SECONDS

    @property
    def basis(self) -> tuple[str, ...]:
        """What estimates at this pace are reckoned from."""
        assumed = f"a reboot takes {Duration(_REBOOT_SECONDS)}, which is assumed"
        known = f"a node takes {Duration(self.whole)}, the median of {self.measured} past here"
        return (
            known if self.measured else assumed,
            "pods use all of their termination grace",
            f"replacements are ready {Duration(_START_SECONDS)} after their start, which is assumed",
        )


def _past_run(node: Node) -> float | None:
    written = node.annotations.get(marks.LAST_RESULT)
    if not written:
        return None
    try:
        result = msgspec.json.decode(written, type=_LastResult)
        seconds = Duration.parse(result.took)
    except (msgspec.MsgspecError, UsageError):
        return None
    return float(seconds) if result.outcome == "succeeded" and seconds > 0 else None


def drain_seconds(leaving: Sequence[Pod], load: Load, allowed: Mapping[str, int], policy: Policy) -> int:
    """How long emptying a node takes: in rounds where a budget lets only some pods go at a time."""
    if not leaving:
        return 0
    given = policy.drain.grace_period
    grace = max(pod.grace_period if given is None else given for pod in leaving)
    rounds = max((-(-need // max(1, allowed.get(key, 0))) for key, need in load.items()), default=1)
    seconds = rounds * (grace + _CALL_SECONDS) + (rounds - 1) * _START_SECONDS
    return min(seconds, round(policy.drain.timeout)) if policy.drain.timeout else seconds


def wave_estimate(drains: Iterable[int], pace: Pace, *, moves_pods: bool) -> Estimate:
    """A wave whose nodes take these times to drain, side by side."""
    drain, settle = max(drains, default=0), _START_SECONDS if moves_pods else 0
    reboot = pace.reboot(drain)
    return Estimate(drain + reboot + settle, drain, reboot, settle)


def total(estimates: Iterable[Estimate], pace: Pace) -> TimeEstimate:
    """The whole, wave after wave."""
    seconds = sum(each.seconds for each in estimates)
    return TimeEstimate(seconds, pace.basis) if seconds else TimeEstimate()
