"""Lay out each pool under its own rules, then order and combine their waves.

A pool starts once those in its `after` are done; others share waves within limits and budgets.
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
    """How many nodes of a pool may go at once."""

    size: int
    # The sizes of its first waves; the last is for all others, too.
    ramp: tuple[int, ...] = ()

    @property
    def most(self) -> int:
        return min(self.size, self.ramp[-1]) if self.ramp else self.size


def quotas_of(pools: Pools, included: Sequence[Node], away_limit: AwayLimit) -> Mapping[str, Quota]:
    """Return the quotas by pool; percentages refer to the `included` nodes."""
    quotas = dict[str, Quota]()
    for name, size in {NO_POOL: 0, **pools.sizes(included)}.items():
        ramp = tuple(step.of(size) for step in pools.rules(name).ramp)
        most = away_limit.limits.get(name, away_limit.most)
        quotas[name] = Quota(max(1, most), ramp)
    return quotas


def with_pool_limits(limits: WaveLimits, quotas: Mapping[str, Quota]) -> WaveLimits:
    """Add the limit of each pool that is stricter than `size`."""
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
    before = predecessors(pools.policy.pools)
    queues = dict[str, list[Batch]]()
    for name in before:
        if name in layouts:
            queues[name] = [_with_pool(wave, name) for wave in layouts[name].waves]
    waves = tuple(_ordered_waves(queues, before, limits, pools))
    return Layout(waves, _lower_bound(layouts, before), limits.with_another_round)


def _with_pool(wave: Batch, pool: str) -> Batch:
    return replace(wave, parts=tuple(structs.replace(part, pool=pool) for part in wave.parts))


def _lower_bound(layouts: Mapping[str, Layout], before: Mapping[str, frozenset[str]]) -> int:
    """Return the least number of waves; `before` has the pools in order."""
    # Waves until each pool is done.
    until_done: dict[str, int] = {}
    for name, earlier in before.items():
        own_bound = layouts[name].lower_bound if name in layouts else 0
        until_done[name] = own_bound + max((until_done[other] for other in earlier), default=0)
    return max(until_done.values(), default=0)


def _ordered_waves(
    queues: Mapping[str, list[Batch]],
    before: Mapping[str, frozenset[str]],
    limits: WaveLimits,
    pools: Pools,
) -> Iterator[Batch]:
    """Yield and remove all waves of the queues; `before` is what each pool waits for."""
    while any(queues.values()):
        unfinished = [name for name, queue in queues.items() if queue]
        startable = [name for name in unfinished if before[name].isdisjoint(unfinished)]
        # Waves that go alone come before shared ones.
        first = next((name for name in startable if queues[name][0].goes_alone), startable[0])
        queue = queues[first]
        strategy = pools.rules(first).strategy
        other_queues = list[list[Batch]]()
        if not queue[0].goes_alone:
            for name in startable:
                if name != first and pools.rules(name).strategy is strategy:
                    other_queues.append(queues[name])
        if strategy is Strategy.ROLLING:
            waves_by_pool = [
                _take_first_part(queue),
                *(_take_first_part(other) for other in other_queues),
            ]
            yield from _interleave(waves_by_pool, limits)
            continue
        wave = queue.pop(0)
        for other in other_queues:
            wave = _fill_up(wave, other, limits)
        yield wave


def _take_first_part(queue: list[Batch]) -> list[Batch]:
    part = _first_part(queue)
    del queue[: len(part)]
    return part


def _interleave(waves_by_pool: Sequence[list[Batch]], limits: WaveLimits) -> Iterator[Batch]:
    """Yield the pools' waves in turn, each describing the parts of all pools."""
    all_parts = tuple(chain.from_iterable(waves[0].parts for waves in waves_by_pool))
    most = limits.size if len(waves_by_pool) > 1 else waves_by_pool[0][0].most
    for next_waves in zip_longest(*waves_by_pool):
        for wave in next_waves:
            if wave:
                yield replace(wave, parts=all_parts, most=most)


def _fill_up(wave: Batch, queue: list[Batch], limits: WaveLimits) -> Batch:
    """Move nodes that fit from the queue's first part to the wave."""
    next_parts = queue[0].parts
    demands = wave.demands
    for index, next_wave in enumerate(_first_part(queue)):
        if len(demands) >= limits.size:
            break
        demands, still_waiting = join_wave(demands, next_wave.demands, limits)
        queue[index] = replace(next_wave, demands=tuple(still_waiting))
    queue[:] = [other for other in queue if other.demands]
    if len(demands) == len(wave.demands):
        return wave
    parts = wave.parts if next_parts == wave.parts else wave.parts + next_parts
    return replace(wave, parts=parts, most=limits.size, demands=demands)


def _first_part(queue: Sequence[Batch]) -> list[Batch]:
    return [wave for wave in queue if wave.parts == queue[0].parts]
