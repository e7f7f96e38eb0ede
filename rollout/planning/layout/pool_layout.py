"""Lay out each pool under its own rules, then combine their waves.

A pool starts once those in its `after` are done; others share waves.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, zip_longest

from msgspec import Struct, structs
from msgspec.structs import replace

from rollout.model.cluster import Node
from rollout.model.policy import Strategy
from rollout.planning.eligibility.away import AwayLimit
from rollout.planning.eligibility.pools import NO_POOL, Pools, predecessors
from rollout.planning.layout.sharing import NodeDemand, WaveLimits, pool_key
from rollout.planning.layout.waves import Batch, Layout, join_wave, lay_out


class Quota(Struct, frozen=True):
    size: int
    # Sizes of the first waves; the last is for all others, too.
    ramp: tuple[int, ...] = ()

    @property
    def most(self) -> int:
        return min(self.size, self.ramp[-1]) if self.ramp else self.size


def quotas_of(pools: Pools, included: Sequence[Node], away_limit: AwayLimit) -> Mapping[str, Quota]:
    """Percentages refer to the `included` nodes."""
    node_counts = {NO_POOL: 0, **pools.sizes(included)}
    quotas = dict[str, Quota]()
    for pool, node_count in node_counts.items():
        ramp = tuple(step.of(node_count) for step in pools.rules(pool).ramp)
        most_away = away_limit.limits.get(pool, away_limit.most)
        # If none may be away now, a blocker says so.
        quotas[pool] = Quota(max(1, most_away), ramp)
    return quotas


def with_pool_limits(limits: WaveLimits, quotas: Mapping[str, Quota]) -> WaveLimits:
    allowed = dict(limits.allowed)
    for name, quota in quotas.items():
        if name != NO_POOL and quota.most < limits.size:
            allowed[pool_key(name)] = quota.most
    return replace(limits, allowed=allowed)


def lay_out_pools(
    demands: Sequence[NodeDemand], limits: WaveLimits, pools: Pools, quotas: Mapping[str, Quota]
) -> Layout:
    layouts = dict[str, Layout]()
    for name, quota in quotas.items():
        in_pool = [demand for demand in demands if demand.pool == name]
        pool_limits = replace(limits, size=min(limits.size, quota.size))
        layouts[name] = lay_out(in_pool, pool_limits, pools.rules(name), quota.ramp)
    if not pools.policy.pools:
        return layouts[NO_POOL]
    earlier_pools = predecessors(pools.policy.pools)
    queues = dict[str, list[Batch]]()
    for name in earlier_pools:
        if name in layouts:
            queues[name] = [_with_pool(wave, name) for wave in layouts[name].waves]
    waves = tuple(_combine_waves(queues, earlier_pools, limits, pools))
    # `lay_out` may have used up budgets once more, to merge small waves.
    return Layout(waves, _lower_bound(layouts, earlier_pools), limits.with_another_round)


def _with_pool(wave: Batch, pool: str) -> Batch:
    return replace(wave, parts=tuple(structs.replace(part, pool=pool) for part in wave.parts))


def _lower_bound(layouts: Mapping[str, Layout], earlier_pools: Mapping[str, frozenset[str]]) -> int:
    waves_until_done: dict[str, int] = {}
    for name, earlier in earlier_pools.items():
        own_waves = layouts[name].lower_bound if name in layouts else 0
        waves_before = max((waves_until_done[pool] for pool in earlier), default=0)
        waves_until_done[name] = waves_before + own_waves
    return max(waves_until_done.values(), default=0)


def _combine_waves(
    queues: Mapping[str, list[Batch]],
    earlier_pools: Mapping[str, frozenset[str]],
    limits: WaveLimits,
    pools: Pools,
) -> Iterator[Batch]:
    """Yield the pools' waves in order, combined within limits; empty the queues."""
    while any(queues.values()):
        unfinished = [name for name, queue in queues.items() if queue]
        startable = [name for name in unfinished if earlier_pools[name].isdisjoint(unfinished)]
        going_alone = [name for name in startable if queues[name][0].goes_alone]
        first = going_alone[0] if going_alone else startable[0]
        strategy = pools.rules(first).strategy
        others = [name for name in startable if pools.rules(name).strategy is strategy]
        others.remove(first)
        combined = [first] if going_alone else [first, *others]
        if strategy is Strategy.ROLLING:
            waves_by_pool = [_take_first_part(queues[name]) for name in combined]
            yield from _interleave(waves_by_pool, limits)
            continue
        wave = queues[first].pop(0)
        for name in combined[1:]:
            wave = _fill_up(wave, queues[name], limits)
        yield wave


def _take_first_part(queue: list[Batch]) -> list[Batch]:
    part = _first_part(queue)
    del queue[: len(part)]
    return part


def _interleave(waves_by_pool: Sequence[list[Batch]], limits: WaveLimits) -> Iterator[Batch]:
    all_parts = tuple(chain.from_iterable(waves[0].parts for waves in waves_by_pool))
    has_one_pool = len(waves_by_pool) == 1
    most_at_once = waves_by_pool[0][0].most if has_one_pool else limits.size
    for next_waves in zip_longest(*waves_by_pool):
        for wave in next_waves:
            if wave:
                yield replace(wave, parts=all_parts, most=most_at_once)


def _fill_up(wave: Batch, queue: list[Batch], limits: WaveLimits) -> Batch:
    """Move nodes that fit from the queue's first part to the wave."""
    next_parts = queue[0].parts
    demands = wave.demands
    for index, next_wave in enumerate(_first_part(queue)):
        if len(demands) >= limits.size:
            break
        demands, still_waiting = join_wave(demands, next_wave.demands, limits)
        queue[index] = replace(next_wave, demands=tuple(still_waiting))
    queue[:] = [next_wave for next_wave in queue if next_wave.demands]
    has_gained_nodes = len(demands) > len(wave.demands)
    if not has_gained_nodes:
        return wave
    parts = wave.parts if next_parts == wave.parts else wave.parts + next_parts
    return replace(wave, parts=parts, most=limits.size, demands=demands)


def _first_part(queue: Sequence[Batch]) -> list[Batch]:
    return [wave for wave in queue if wave.parts == queue[0].parts]
