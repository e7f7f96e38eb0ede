from collections.abc import Sequence
from itertools import zip_longest

from rollout.model import wave_finding as findings
from rollout.planning.drain.budgets import controller_in
from rollout.planning.eligibility.away import is_storage_key
from rollout.planning.layout.sharing import NodeDemand, WaveLimits, is_owner_key, pool_in, sum_of
from rollout.planning.layout.waves import Batch, usage_of


def wave_reasons(waves: Sequence[Batch], limits: WaveLimits) -> tuple[findings.WaveReason, ...]:
    reasons = list[findings.WaveReason]()
    for wave, next_wave in zip_longest(waves, waves[1:]):
        next_nodes: Sequence[NodeDemand] = ()
        if next_wave is not None and next_wave.parts == wave.parts:
            next_nodes = next_wave.demands
        own_limits = wave.own_limits(limits)
        limit = _why_no_larger(wave, next_nodes, own_limits)
        delay = None if wave.rolling else _budget_delay(wave.demands, own_limits)
        reasons.append(findings.WaveReason(wave.parts, limit, delay))
    return tuple(reasons)


def _why_no_larger(
    wave: Batch, next_nodes: Sequence[NodeDemand], limits: WaveLimits
) -> findings.WaveLimit:
    if wave.goes_alone:
        return findings.OneAtATime()
    if wave.rolling:
        in_flight = wave.rolling.in_flight
        return findings.OneAtATime() if in_flight == 1 else findings.NextOnReturn(in_flight)
    if len(wave.demands) >= limits.size:
        return findings.FullWave(limits.size)
    if wave.refused:
        return findings.NoRoomForMore()
    pools = {demand.pool for demand in wave.demands}
    if len(pools) > 1:
        return findings.PoolsTogether()
    return _first_conflict(wave, next_nodes, limits) or findings.RemainingNodes()


def _first_conflict(
    wave: Batch, next_nodes: Sequence[NodeDemand], limits: WaveLimits
) -> findings.WaveConflict | None:
    for demand in next_nodes:
        conflicts = _conflicts(wave.demands, demand, limits)
        if conflicts:
            return conflicts[0]
    return None


def obstacles_to_joining(
    wave: Sequence[NodeDemand], demand: NodeDemand, limits: WaveLimits
) -> tuple[findings.WaveLimit, ...]:
    conflicts = _conflicts(wave, demand, limits)
    if len(wave) >= limits.size:
        return (*conflicts, findings.FullWave(limits.size))
    return conflicts


def _conflicts(
    wave: Sequence[NodeDemand], demand: NodeDemand, limits: WaveLimits
) -> tuple[findings.WaveConflict, ...]:
    used_by_wave = usage_of(wave, limits)
    budgets_with_kept_permits = set(demand.kept_permits)
    for node in wave:
        budgets_with_kept_permits.update(node.kept_permits)
    conflicts = list[findings.WaveConflict]()
    for key, need in sorted(limits.usage(demand).items()):
        used = used_by_wave[key]
        is_shared = used > 0
        if is_shared and used + need > limits.allowed_in_all_rounds.get(key, 0):
            allowed = limits.allowed.get(key, 0)
            keeps_permits = key in budgets_with_kept_permits
            conflicts.append(_conflict(key, allowed, keeps_permits=keeps_permits))
    return tuple(dict.fromkeys(conflicts))


def _conflict(key: str, allowed: int, *, keeps_permits: bool) -> findings.WaveConflict:
    """`keeps_permits`: some permits of the budget come back only with their nodes."""
    pool = pool_in(key)
    if pool:
        return findings.PoolFull(pool, allowed)
    controller = controller_in(key)
    if controller:
        return findings.ControllerBusy(controller)
    if is_storage_key(key):
        return findings.CopiesShort(key)
    if is_owner_key(key):
        replicas = allowed + 1
        return findings.OwnerDown(key, replicas)
    if keeps_permits:
        return findings.BudgetExceeded(key, allowed)
    return findings.BudgetSlow(key, allowed)


def _budget_delay(wave: Sequence[NodeDemand], limits: WaveLimits) -> findings.BudgetDelay | None:
    """Return the budget that drains wait for longest; None without a delay.

    A closed budget comes first, because its delay is unknown.
    """
    load = sum_of(demand.load for demand in wave)
    rates = limits.rates

    def drain_seconds(budget: str) -> int:
        return rates[budget].drain_seconds(load[budget])

    # Sorted, so that the first name wins a tie.
    exceeded = sorted(key for key in load.keys() & rates if load[key] > limits.allowed[key])
    if not exceeded:
        return None
    closed = [budget for budget in exceeded if not rates[budget].permits]
    if closed:
        return findings.BudgetDelay(max(closed, key=drain_seconds), permits=0)
    slowest = max(exceeded, key=drain_seconds)
    seconds_without_budgets = max(demand.ending_seconds for demand in wave)
    delay = limits.drain_seconds(wave) - seconds_without_budgets
    if not delay:
        return None
    return findings.BudgetDelay(slowest, rates[slowest].permits, delay)
