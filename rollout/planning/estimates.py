"""How long waves are likely to take: from what the pods say, what past reboots took here, and stated assumptions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import msgspec

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
    """What a finished node's annotation tells of its reboot; the number is written as text."""

    outcome: str = ""
    reboot_seconds: str = ""


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds that a reboot takes, from being asked for until the node is ready; `measured` of how many past ones."""

    reboot: int
    measured: int

    @classmethod
    def of(cls, nodes: Iterable[Node]) -> "Pace":
        """The median of the last reboots that the nodes' annotations tell of, or an assumption."""
        past = [seconds for node in nodes if (seconds := _past_reboot(node)) is not None]
        return cls(round(median(past)), len(past)) if past else cls(_REBOOT_SECONDS, 0)

    @property
    def basis(self) -> tuple[str, ...]:
        """What estimates at this pace are reckoned from."""
        reboot = f"a reboot takes {Duration(self.reboot)}, "
        reboot += f"the median of {self.measured} past here" if self.measured else "which is assumed"
        return (
            reboot,
            "pods use all of their termination grace",
            f"replacements are ready {Duration(_START_SECONDS)} after their start, which is assumed",
        )


def _past_reboot(node: Node) -> float | None:
    written = node.annotations.get(marks.LAST_RESULT)
    if not written:
        return None
    try:
        result = msgspec.json.decode(written, type=_LastResult)
        seconds = float(result.reboot_seconds)
    except (msgspec.MsgspecError, ValueError):
        return None
    return seconds if result.outcome == "succeeded" and 0 < seconds < float("inf") else None


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
    return Estimate(drain + pace.reboot + settle, drain, pace.reboot, settle)


def total(estimates: Iterable[Estimate], pace: Pace) -> TimeEstimate:
    """The whole, wave after wave."""
    seconds = sum(each.seconds for each in estimates)
    return TimeEstimate(seconds, pace.basis) if seconds else TimeEstimate()
