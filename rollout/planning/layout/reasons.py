from collections.abc import Sequence
from itertools import zip_longest

from rollout.model import wave_finding as findings
from rollout.planning.drain.budgets import controller_in
from rollout.planning.eligibility.away import is_storage_key
from rollout.planning.layout.sharing import NodeDemand, WaveLimits, is_owner_key, pool_in, sum_of
from rollout.planning.layout.waves import Batch, usage_of


def wave_reasons(waves: Sequence[Batch], limits: WaveLimits) -> tuple[findings.WaveReason, ...]:
    reasons = list[findings.WaveReason]()
    for wave, following in zip_longest(waves, waves[1:]):
        is_same_part = following is not None and following.parts == wave.parts
        next_nodes = following.demands if is_same_part else ()
        own_limits = wave.own_limits(limits)
        limit = _why_no_larger(wave, next_nodes, own_limits)
        delay = None if wave.rolling else _budget_delay(wave.demands, own_limits)
        reasons.append(findings.WaveReason(wave.parts, limit, delay))
    return tuple(reasons)


def _why_no_larger(
    wave: Batch, next_nodes: Sequence[NodeDemand], limits: WaveLimits
) -> findings.WaveLimit:
    """Return why the wave has no more nodes; `next_nodes` follow in the part."""
    if wave.goes_alone or (wave.rolling and wave.rolling.in_flight == 1):
        return findings.OneAtATime()
    if wave.rolling:
        return findings.NextOnReturn(wave.rolling.in_flight)
    if len(wave.demands) >= limits.size:
        return findings.FullWave(limits.size)
    if wave.refused:
        return findings.NoRoomForMore()
    if len({demand.pool for demand in wave.demands}) > 1:
        return findings.PoolsTogether()
    return _first_conflict(wave, next_nodes, limits) or findings.RemainingNodes()


def _first_conflict(
    wave: Batch, next_nodes: Sequence[NodeDemand], limits: WaveLimits
) -> findings.WaveConflict | None:
    for demand in next_nodes:
        for conflict in _conflicts(wave.demands, demand, limits):
            return conflict
    return None


def obstacles_to_joining(
    wave: Sequence[NodeDemand], demand: NodeDemand, limits: WaveLimits
) -> tuple[findings.WaveLimit, ...]:
    conflicts = _conflicts(wave, demand, limits)
    is_full = len(wave) >= limits.size
    return (*conflicts, findings.FullWave(limits.size)) if is_full else conflicts


def _conflicts(
    wave: Sequence[NodeDemand], demand: NodeDemand, limits: WaveLimits
) -> tuple[findings.WaveConflict, ...]:
    """Return the limits that the wave and the node share, and that together they exceed."""
    used = usage_of(wave, limits)
    kept_budgets = {key for node in (demand, *wave) for key in node.kept_permits}
    conflicts = list[findings.WaveConflict]()
    for key, need in sorted(limits.usage(demand).items()):
        is_shared = used[key] > 0
        if is_shared and used[key] + need > limits.allowed_in_all_rounds.get(key, 0):
            allowed = limits.allowed.get(key, 0)
            conflicts.append(_conflict(key, allowed, keeps_permits=key in kept_budgets))
    return tuple(dict.fromkeys(conflicts))


def _conflict(key: str, allowed: int, *, keeps_permits: bool) -> findings.WaveConflict:
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
    """Return the budget that the drains wait for longest, and their delay by all budgets.

    None without a delay. A closed budget comes first, because its delay is unknown.
    """
    load = sum_of(demand.load for demand in wave)
    rates = limits.rates
    # In order, so that the first name wins a tie.
    exceeded = sorted(key for key in load.keys() & rates if load[key] > limits.allowed[key])
    if not exceeded:
        return None
    closed = [key for key in exceeded if not rates[key].permits]
    slowest = max(closed or exceeded, key=lambda key: rates[key].drain_seconds(load[key]))
    if closed:
        return findings.BudgetDelay(slowest, permits=0)
    without_budgets = max(demand.ending_seconds for demand in wave)
    delay = limits.drain_seconds(wave) - without_budgets
    return findings.BudgetDelay(slowest, rates[slowest].permits, delay) if delay else None
