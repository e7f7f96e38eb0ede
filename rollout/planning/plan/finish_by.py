"""The smallest limit with which a rollout is done by a date: a search over plans, whose waves are laid into windows."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from rollout.model.plan import RolloutPlan, Wave
from rollout.model.quantity import Count
from rollout.model.text import elapsed, excerpt
from rollout.planning.eligibility.windows import Schedule
from rollout.planning.plan.build import PlanInputs, build_plan

_ASSUMED_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Finish:
    """A plan with this limit, and when it would be done; None: not in two years of windows."""

    limit: int
    plan: RolloutPlan
    at: datetime | None

    def is_by(self, date: datetime) -> bool:
        """Whether all is done by then."""
        return self.at is not None and self.at <= date

    @property
    def obstacle(self) -> str:
        """The wave that takes longest, and why it is as it is; empty without any."""
        slowest = max(self.plan.waves, key=lambda wave: wave.estimate.seconds, default=None)
        if slowest is None:
            return ""
        return f"wave {slowest.index} takes {elapsed(slowest.estimate.seconds)}: {excerpt(slowest.because)}"


def smallest_limit(inputs: PlanInputs, date: datetime) -> Finish:
    """Return the plan with the fewest nodes away at once that is done by then; that with the most, where none is."""
    first = _planned(inputs, 1)
    if first.is_by(date) or len(first.plan.nodes) <= 1:
        return first
    best, least = _planned(inputs, len(first.plan.nodes)), 2
    if not best.is_by(date):
        return best
    while least < best.limit:
        tried = _planned(inputs, (least + best.limit) // 2)
        if tried.is_by(date):
            best = tried
        else:
            least = tried.limit + 1
    return best


def _planned(inputs: PlanInputs, limit: int) -> Finish:
    policy = replace(inputs.policy, max_unavailable=Count(limit))
    plan = build_plan(replace(inputs, policy=policy))
    return Finish(limit, plan, finish(plan, Schedule.of(policy.gates.windows), inputs.created_at))


def finish(plan: RolloutPlan, schedule: Schedule, now: datetime) -> datetime | None:
    """When all waves would be done, one after another; a wave begins where an opening leaves it the time for that."""
    at = now
    for wave in plan.waves:
        pools = {node.pool for node in wave.nodes}
        ends = [_after(wave, schedule.in_pool(plan.policy, pool), at) for pool in pools]
        if not all(ends):
            return None
        at = max(end for end in ends if end)
    return at


def _after(wave: Wave, schedule: Schedule, at: datetime) -> datetime | None:
    """When a wave that may begin from then on is done; one that rolls goes on in the next opening."""
    needed = timedelta(seconds=wave.estimate.drain + wave.estimate.reboot or _ASSUMED_SECONDS)
    left = timedelta(seconds=wave.estimate.seconds or _ASSUMED_SECONDS)
    if wave.rolling:
        needed = min(needed, left / len(wave.nodes) * wave.rolling.in_flight)
    for opening in schedule.ahead(at):
        begin = max(at, opening.begin)
        room = opening.end - begin
        if room >= (left if wave.rolling else needed):
            return begin + left
        if wave.rolling and room >= needed:
            left -= room
    return None
