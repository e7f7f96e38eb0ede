from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from rollout.model.plan import RolloutPlan, Wave
from rollout.model.quantity import Count
from rollout.model.text import excerpt
from rollout.model.timestamps import elapsed
from rollout.planning.eligibility.windows import Schedule
from rollout.planning.plan.build import PlanInputs, build_plan

# For a wave without an estimate.
_ASSUMED_SECONDS = 600
# update_engine checks 7 to 12 minutes after a boot, then downloads and installs.
_STAGING_SECONDS = 1800


class Finish(Struct, frozen=True):
    limit: int
    plan: RolloutPlan
    # None if not within two years.
    at: datetime | None

    def is_by(self, date: datetime) -> bool:
        return self.at is not None and self.at <= date

    @property
    def slowest_wave(self) -> str:
        slowest = max(self.plan.waves, key=lambda wave: wave.estimate.seconds, default=None)
        if slowest is None:
            return ""
        seconds = elapsed(slowest.estimate.seconds)
        return f"wave {slowest.index} takes longest ({seconds}): {excerpt(slowest.because)}"


def smallest_limit(inputs: PlanInputs, date: datetime) -> Finish:
    """Find the smallest --max-unavailable that ends the rollout by the date.

    If none does, return the result with all nodes at once.
    """
    one_at_a_time = _plan_with(inputs, 1)
    nodes = len(one_at_a_time.plan.nodes)
    if one_at_a_time.is_by(date) or nodes <= 1:
        return one_at_a_time
    all_at_once = _plan_with(inputs, nodes)
    if not all_at_once.is_by(date):
        return all_at_once
    best = all_at_once
    lowest = 2
    while lowest < best.limit:
        middle = _plan_with(inputs, (lowest + best.limit) // 2)
        if middle.is_by(date):
            best = middle
        else:
            lowest = middle.limit + 1
    return best


def _plan_with(inputs: PlanInputs, limit: int) -> Finish:
    policy = replace(inputs.policy, max_unavailable=Count(limit))
    plan = build_plan(replace(inputs, policy=policy))
    schedule = Schedule.of(policy.gates.windows)
    return Finish(limit, plan, finish_date(plan, schedule, inputs.created_at))


def finish_date(plan: RolloutPlan, schedule: Schedule, now: datetime) -> datetime | None:
    """Return when nodes run their newest versions; None if not within two years.

    Nodes go through their waves again if their staged version is only a step to a newer one.
    """
    end = _end_of_waves(plan, plan.waves, schedule, now)
    repeated = [wave for wave in plan.waves if any(node.next_version for node in wave.nodes)]
    if end is None or not repeated:
        return end
    newer_staged_at = end + timedelta(seconds=_STAGING_SECONDS)
    return _end_of_waves(plan, repeated, schedule, newer_staged_at)


def _end_of_waves(
    plan: RolloutPlan, waves: Iterable[Wave], schedule: Schedule, start: datetime
) -> datetime | None:
    for wave in waves:
        wave_end = start
        for pool in {node.pool for node in wave.nodes}:
            pool_end = _wave_end(wave, schedule.in_pool(plan.policy, pool), start)
            if pool_end is None:
                return None
            wave_end = max(wave_end, pool_end)
        start = wave_end
    return start


def _wave_end(wave: Wave, schedule: Schedule, start: datetime) -> datetime | None:
    """Return None if no opening in two years is long enough.

    A rolling wave may go on in the next window.
    """
    drain_and_reboot = wave.estimate.drain + wave.estimate.reboot
    shortest_opening = timedelta(seconds=drain_and_reboot or _ASSUMED_SECONDS)
    remaining = timedelta(seconds=wave.estimate.seconds or _ASSUMED_SECONDS)
    if wave.rolling:
        time_in_flight = remaining / len(wave.nodes) * wave.rolling.in_flight
        shortest_opening = min(shortest_opening, time_in_flight)
    for opening in schedule.openings_ahead(start):
        begin = max(start, opening.begin)
        available = opening.end - begin
        if available < shortest_opening:
            continue
        ends_here = not wave.rolling or available >= remaining
        if ends_here:
            return begin + remaining
        remaining -= available
    return None
