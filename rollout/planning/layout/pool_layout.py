"""Lay out each pool under its own rules, then order and combine their waves.

A pool starts once the pools in its `after` are done. Other pools share waves, as far as limits and
budgets allow. Canaries and control-plane nodes go alone, and pools of different strategies share no
wave.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest

from msgspec import structs

from rollout.model.cluster import Node
from rollout.model.policy import Strategy
from rollout.planning.eligibility.away import AwayLimit
from rollout.planning.eligibility.pools import Pools, predecessors
from rollout.planning.layout.sharing import NodeDemand, WaveLimits, pool_key
from rollout.planning.layout.waves import Batch, Layout, join_wave, lay_out


@dataclass(frozen=True, slots=True)
class Quota:
    """How many nodes of a pool may go at once; `ramp` has the sizes of its first waves."""

    size: int
    ramp: tuple[int, ...] = ()

    @property
    def most(self) -> int:
        return min(self.size, self.ramp[-1]) if self.ramp else self.size


def quotas_of(pools: Pools, included: Sequence[Node], left: AwayLimit) -> Mapping[str, Quota]:
    """Return the quotas by pool.

    Percentages refer to the `included` nodes. `left` is what nodes that are away leave of the
    limit.
    """
    quotas = dict[str, Quota]()
    for name, size in {"": 0, **pools.sizes(included)}.items():
        ramp = tuple(step.of(size) for step in pools.rules(name).ramp)
        quotas[name] = Quota(max(1, left.limits.get(name, left.most)), ramp)
    return quotas


def with_pool_limits(limits: WaveLimits, quotas: Mapping[str, Quota]) -> WaveLimits:
    allowed = dict(limits.allowed)
    for name, quota in quotas.items():
        if name and quota.most < limits.size:
            allowed[pool_key(name)] = quota.most
    return replace(limits, allowed=allowed)


def lay_out_pools(
    demands: Sequence[NodeDemand], limits: WaveLimits, pools: Pools, quotas: Mapping[str, Quota]
) -> Layout:
    layouts = dict[str, Layout]()
    for name, quota in quotas.items():
        in_pool = [demand for demand in demands if demand.pool == name]
        own = replace(limits, size=min(limits.size, quota.size))
        layouts[name] = lay_out(in_pool, own, pools.rules(name), quota.ramp)
    if not pools.policy.pools:
        return layouts[""]
    before = predecessors(pools.policy.pools)
    queues = dict[str, list[Batch]]()
    for name in before:
        if name in layouts:
            queues[name] = [_with_pool(wave, name) for wave in layouts[name].waves]
    waves = tuple(_in_order(queues, before, limits, pools))
    return Layout(waves, _bound(layouts, before), limits.wider)


def _with_pool(wave: Batch, pool: str) -> Batch:
    return replace(wave, parts=tuple(structs.replace(part, pool=pool) for part in wave.parts))


def _bound(layouts: Mapping[str, Layout], before: Mapping[str, frozenset[str]]) -> int:
    ends: dict[str, int] = {}
    for name, earlier in before.items():
        own = layouts[name].lower_bound if name in layouts else 0
        ends[name] = own + max((ends[other] for other in earlier), default=0)
    return max(ends.values(), default=0)


def _in_order(
    queues: Mapping[str, list[Batch]],
    before: Mapping[str, frozenset[str]],
    limits: WaveLimits,
    pools: Pools,
) -> Iterator[Batch]:
    while any(queues.values()):
        waiting = [name for name, queue in queues.items() if queue]
        free = [name for name in waiting if before[name].isdisjoint(waiting)]
        first = next((name for name in free if queues[name][0].goes_alone), free[0])
        queue = queues[first]
        strategy = pools.rules(first).strategy
        others = list[list[Batch]]()
        if not queue[0].goes_alone:
            alike = (name for name in free if pools.rules(name).strategy is strategy)
            others = [queues[name] for name in alike if name != first]
            others = [other for other in others if not other[0].goes_alone]
        if strategy is Strategy.ROLLING:
            parts = [_take_part(queue), *(_take_part(other) for other in others)]
            yield from _common_part(parts, limits)
            continue
        wave = queue.pop(0)
        for other in others:
            wave = _with_company(wave, other, limits)
        yield wave


def _take_part(queue: list[Batch]) -> list[Batch]:
    part = _part_ahead(queue)
    del queue[: len(part)]
    return part


def _common_part(parts: Sequence[list[Batch]], limits: WaveLimits) -> Iterator[Batch]:
    common = tuple(chain.from_iterable(part[0].parts for part in parts))
    most = limits.size if len(parts) > 1 else parts[0][0].most
    for waves in zip_longest(*parts):
        for wave in waves:
            if wave:
                yield replace(wave, parts=common, most=most)


def _with_company(wave: Batch, queue: list[Batch], limits: WaveLimits) -> Batch:
    next_parts = queue[0].parts
    demands = wave.demands
    for index, head in enumerate(_part_ahead(queue)):
        if len(demands) >= limits.size:
            break
        demands, staying = join_wave(demands, head.demands, limits)
        queue[index] = replace(head, demands=tuple(staying))
    queue[:] = [other for other in queue if other.demands]
    if len(demands) == len(wave.demands):
        return wave
    parts = wave.parts if next_parts == wave.parts else wave.parts + next_parts
    return replace(wave, parts=parts, most=limits.size, demands=demands)


def _part_ahead(queue: Sequence[Batch]) -> list[Batch]:
    return [wave for wave in queue if wave.parts == queue[0].parts]
