"""Laying nodes out in waves: as few or as fast as their disruption budgets, the room and the wave's size allow.

Two nodes may share a wave when their pods can leave under every disruption budget, and with a replica left of every
owner that has no budget; whether they find places on the nodes that stay is tried in the play. A budget is
a rate: what finds a place elsewhere gives its permit back, so that one drain waits for another's, as long as neither
takes too long, and as the whole is faster than wave after wave. What finds no place keeps its permit until its node is
back: of that, a wave takes only as much as the budget allows at a time. A node whose own pods exceed a budget drains
gradually, and shares its wave with no other node of that budget.

The node that is most in the way of others comes first, and each goes into the first wave that takes it.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rollout.model.plan import Estimate, Rolling
from rollout.model.policy import ControlPlaneOrder, Policy
from rollout.model.text import natural_key
from rollout.planning.layout.sharing import Limits, NodeDemand, sum_of

_CANARY = "canary"


@dataclass(frozen=True, slots=True)
class Batch:
    """One wave's nodes, and which part of the rollout it belongs to: a clause, or empty.

    `most` is how many nodes its part takes at once; `refused` says of nodes of later waves why there was no place for
    their pods while this one's were away.
    `rolling` says how its nodes follow one another, None: side by side; the play tells its `estimate`. `because` is why
    the wave is as it is, `note` of that what nobody would expect.
    """

    demands: tuple[NodeDemand, ...]
    part: str = ""
    most: int = 1
    refused: Mapping[str, str] = field(default_factory=dict)
    rolling: Rolling | None = None
    estimate: Estimate = field(default_factory=Estimate)
    because: str = ""
    note: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes' names."""
        return tuple(demand.name for demand in self.demands)

    @property
    def goes_alone(self) -> bool:
        """Whether it is of canaries or the control plane, which go one at a time."""
        # "pool canary" is the part of a pool of that name
        is_canary = self.part == _CANARY or self.part.endswith(f", {_CANARY}")
        return is_canary or any(demand.control_plane for demand in self.demands)

    def own(self, limits: Limits) -> Limits:
        """Return the limits that this wave was laid out by."""
        return replace(limits, size=self.most)


@dataclass(frozen=True, slots=True)
class Layout:
    """All waves, and a number of waves below which no layout under the same rules can go."""

    waves: tuple[Batch, ...]
    lower_bound: int
    limits: Limits


def lay_out(demands: Sequence[NodeDemand], limits: Limits, policy: Policy, ramp: Sequence[int] = ()) -> Layout:
    """Waves over all demands: the canary first, then group by group, the control plane last or first.

    `ramp` holds the sizes of the first waves, the last for all that follow.
    """
    control_plane = sorted((demand for demand in demands if demand.control_plane), key=_by_name)
    waves, bound = _workers([demand for demand in demands if not demand.control_plane], limits, policy, ramp)
    alone = [Batch((demand,), "control plane") for demand in control_plane]
    ordered = alone + waves if policy.control_plane is ControlPlaneOrder.FIRST else waves + alone
    return Layout(tuple(ordered), bound + len(alone), limits)


def _workers(
    demands: Sequence[NodeDemand], limits: Limits, policy: Policy, ramp: Sequence[int]
) -> tuple[list[Batch], int]:
    ordered = sorted(demands, key=_by_name)
    waves = [Batch((demand,), _CANARY) for demand in ordered[: policy.canary]]
    bound = len(waves)
    for part, selected, narrower in _ramped(ordered[policy.canary :], limits, ramp):
        groups: dict[str, list[NodeDemand]] = defaultdict(list)
        for demand in selected:
            groups[demand.group].append(demand)
        for group in sorted(groups, key=natural_key):
            zone = f"{policy.spread_by}={group or '(none)'}" if policy.spread_by else ""
            label = ", ".join(word for word in (part, zone) if word)
            waves += [Batch(wave, label, narrower.size) for wave in _packed(groups[group], narrower)]
            bound += _lower_bound(groups[group], narrower)
    return waves, max(bound, _budget_bound(demands, limits))


def _ramped(
    demands: Sequence[NodeDemand], limits: Limits, ramp: Sequence[int]
) -> Iterator[tuple[str, Sequence[NodeDemand], Limits]]:
    """Yield the demands step by step: as many as each step of the ramp says, the rest in waves of its last."""
    remaining = sorted(demands, key=lambda demand: (natural_key(demand.group), _by_price(demand)))
    for number, size in enumerate(ramp[:-1], start=1):
        yield f"step {number} of the ramp", remaining[:size], replace(limits, size=min(size, limits.size))
        remaining = remaining[size:]
    yield "", remaining, replace(limits, size=min(ramp[-1], limits.size)) if ramp else limits


def _by_name(demand: NodeDemand) -> tuple[tuple[int, int, str], ...]:
    """Sort key: names as people count them."""
    return natural_key(demand.name)


def _by_price(demand: NodeDemand) -> tuple[object, ...]:
    """Sort key: the fewest pods first, then the least CPU, then by name."""
    return demand.price, _by_name(demand)


def used_by(demands: Sequence[NodeDemand], limits: Limits) -> Counter[str]:
    """Return what these nodes take together of budgets and owners."""
    return Counter(sum_of(limits.use(demand.load, demand.holds) for demand in demands))


def join_wave(
    wave: Sequence[NodeDemand], waiting: Sequence[NodeDemand], limits: Limits
) -> tuple[tuple[NodeDemand, ...], list[NodeDemand]]:
    """Return the wave with those of the waiting that may join it, one after another, and those that may not."""
    used, capacity = dict(used_by(wave, limits)), limits.capacity
    demands, staying = list(wave), list[NodeDemand]()
    for place, demand in enumerate(waiting):
        if len(demands) >= limits.size:
            return tuple(demands), [*staying, *waiting[place:]]
        uses = limits.use(demand.load, demand.holds)
        # A node that exceeds a limit alone may go, but with no other that uses of it.
        if any(used.get(key) and used[key] + need > capacity.get(key, 0) for key, need in uses.items()):
            staying.append(demand)
            continue
        demands.append(demand)
        for key, need in uses.items():
            used[key] = used.get(key, 0) + need
    return tuple(demands), staying


def _lower_bound(demands: Sequence[NodeDemand], limits: Limits) -> int:
    """Return a number of groups below which no packing can go: by size, and by each budget alone."""
    return max(math.ceil(len(demands) / limits.size), _budget_bound(demands, limits))


def _budget_bound(demands: Iterable[NodeDemand], limits: Limits) -> int:
    """Return how many groups the tightest budget demands: one for each node that uses it up, the rest by sum."""
    needs: dict[str, list[int]] = defaultdict(list)
    for demand in demands:
        for budget, need in limits.use(demand.load, demand.holds).items():
            needs[budget].append(need)
    return max((_groups_for(amounts, limits.capacity.get(budget, 0)) for budget, amounts in needs.items()), default=0)


def _groups_for(amounts: Sequence[int], allowed: int) -> int:
    alone = sum(1 for amount in amounts if amount >= max(1, allowed))
    together = sum(amount for amount in amounts if amount < allowed)
    return alone + (math.ceil(together / allowed) if together else 0)


def _packed(demands: Sequence[NodeDemand], limits: Limits) -> list[tuple[NodeDemand, ...]]:
    """Waves of the nodes with the fewest pods first, then the fuller ones, then by their first names.

    Whatever is evicted before any node is done goes to nodes that are still to be drained, and moves again.
    """
    waves, waiting = list[tuple[NodeDemand, ...]](), _most_contended_first(demands, limits)
    while waiting:
        wave, waiting = join_wave((), waiting, limits)
        waves.append(tuple(sorted(wave, key=_by_price)))
    return _cheapest_first(_without_smallest(_cheapest_first(waves), limits.wider))


def _without_smallest(waves: Sequence[tuple[NodeDemand, ...]], limits: Limits) -> Sequence[tuple[NodeDemand, ...]]:
    """Return the waves without the smallest, where its nodes find places in others."""
    *fuller, smallest = sorted(waves, key=lambda wave: -len(wave)) or [()]
    waiting: Sequence[NodeDemand] = smallest
    for place, wave in enumerate(fuller):
        fuller[place], waiting = join_wave(wave, waiting, limits)
    return waves if waiting else fuller


def _most_contended_first(demands: Sequence[NodeDemand], limits: Limits) -> list[NodeDemand]:
    """By how much they are in the way: the larger a node's share of a budget, and the more nodes share that budget."""
    capacity, ordered = limits.capacity, sorted(demands, key=_by_price)
    uses = [limits.use(demand.load, demand.holds) for demand in ordered]
    sharing = Counter(key for load in uses for key in load)
    contention = {
        demand.name: sum(sharing[key] * need / max(1, capacity.get(key, 0)) for key, need in load.items())
        for demand, load in zip(ordered, uses, strict=True)
    }
    return sorted(ordered, key=lambda demand: -contention[demand.name])


def _cheapest_first(waves: Iterable[tuple[NodeDemand, ...]]) -> list[tuple[NodeDemand, ...]]:
    return sorted(waves, key=lambda wave: (_price(wave), -len(wave), _by_name(wave[0])))


def _price(wave: Sequence[NodeDemand]) -> tuple[int, int]:
    pods, cpu = (sum(demand.price[part] for demand in wave) for part in (0, 1))
    return pods, cpu
