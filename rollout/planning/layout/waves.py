"""Pack nodes into waves, first-fit, by competition for limits."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from msgspec import Struct, field
from msgspec.structs import replace

from rollout.model.plan import Estimate, Rolling
from rollout.model.policy import ControlPlaneOrder, Policy
from rollout.model.text import NaturalKey, grouped, natural_key
from rollout.model.warning_finding import PlaceWarning
from rollout.model.wave_finding import WavePart, WaveStage
from rollout.planning.drain.budgets import Load
from rollout.planning.layout.sharing import MoveCost, NodeDemand, WaveLimits, sum_of


class Batch(Struct, frozen=True):
    """The nodes of one wave, as what they need (`demands`).

    A part is a stage, a step of the ramp or a zone. A wave that several pools share has a part of
    each.
    """

    demands: tuple[NodeDemand, ...]
    parts: tuple[WavePart, ...] = ()
    # Nodes of its parts that may be away at once.
    most: int = 1
    # Why nodes go in a later wave, by node.
    refused: Mapping[str, PlaceWarning] = field(default_factory=dict)
    # None if they go together.
    rolling: Rolling | None = None
    # Empty until played.
    estimate: Estimate = field(default_factory=Estimate)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(demand.name for demand in self.demands)

    @property
    def goes_alone(self) -> bool:
        is_canary = any(part.stage is WaveStage.CANARY for part in self.parts)
        return is_canary or any(demand.control_plane for demand in self.demands)

    def own_limits(self, limits: WaveLimits) -> WaveLimits:
        return replace(limits, size=self.most)


class Layout(Struct, frozen=True):
    waves: tuple[Batch, ...]
    # No layout with these rules has fewer waves.
    lower_bound: int
    limits: WaveLimits


def lay_out(
    demands: Sequence[NodeDemand], limits: WaveLimits, policy: Policy, ramp: Sequence[int] = ()
) -> Layout:
    """Lay out canaries, then groups; the control plane comes last or first."""
    workers = [demand for demand in demands if not demand.control_plane]
    control_plane = [demand for demand in demands if demand.control_plane]
    control_plane.sort(key=_by_name)
    waves, least_waves = _worker_waves(workers, limits, policy, ramp)
    control_plane_part = WavePart(stage=WaveStage.CONTROL_PLANE)
    control_plane_waves = [Batch((demand,), (control_plane_part,)) for demand in control_plane]
    if policy.control_plane is ControlPlaneOrder.FIRST:
        ordered = control_plane_waves + waves
    else:
        ordered = waves + control_plane_waves
    return Layout(tuple(ordered), least_waves + len(control_plane_waves), limits)


def _worker_waves(
    demands: Sequence[NodeDemand], limits: WaveLimits, policy: Policy, ramp: Sequence[int]
) -> tuple[list[Batch], int]:
    """Return the waves, and the least number that any layout needs."""
    ordered = sorted(demands, key=_by_name)
    canaries = ordered[: policy.canary]
    others = ordered[policy.canary :]
    canary_part = WavePart(stage=WaveStage.CANARY)
    waves = [Batch((demand,), (canary_part,)) for demand in canaries]
    least_waves = len(waves)
    for step, step_nodes, step_limits in _ramp_steps(others, limits, ramp):
        nodes_by_group = grouped((demand.group, demand) for demand in step_nodes)
        for group in sorted(nodes_by_group, key=natural_key):
            nodes = nodes_by_group[group]
            zone = f"{policy.spread_by}={group or '(none)'}" if policy.spread_by else ""
            part = WavePart(step=step, group=zone)
            packed = _pack(nodes, step_limits)
            waves += [Batch(wave_nodes, (part,), step_limits.size) for wave_nodes in packed]
            least_waves += _least_waves(nodes, step_limits)
    return waves, max(least_waves, _least_waves_by_limits(demands, limits))


def _ramp_steps(
    demands: Sequence[NodeDemand], limits: WaveLimits, ramp: Sequence[int]
) -> Iterator[tuple[int, Sequence[NodeDemand], WaveLimits]]:
    """Yield each step's number (0 for the rest), nodes and limits."""

    def rank(demand: NodeDemand) -> tuple[NaturalKey, tuple[MoveCost, NaturalKey]]:
        return natural_key(demand.group), _by_move_cost(demand)

    remaining = sorted(demands, key=rank)
    for number, size in enumerate(ramp[:-1], start=1):
        step_limits = replace(limits, size=min(size, limits.size))
        yield number, remaining[:size], step_limits
        remaining = remaining[size:]
    last_limits = replace(limits, size=min(ramp[-1], limits.size)) if ramp else limits
    yield 0, remaining, last_limits


def _by_name(demand: NodeDemand) -> NaturalKey:
    return natural_key(demand.name)


def _by_move_cost(demand: NodeDemand) -> tuple[MoveCost, NaturalKey]:
    return demand.move_cost, _by_name(demand)


def usage_of(demands: Sequence[NodeDemand], limits: WaveLimits) -> Counter[str]:
    return Counter(sum_of(limits.usage(demand) for demand in demands))


def join_wave(
    wave: Sequence[NodeDemand], waiting_nodes: Sequence[NodeDemand], limits: WaveLimits
) -> tuple[tuple[NodeDemand, ...], list[NodeDemand]]:
    """Return the wave with the waiting nodes that fit, and the rest."""
    used = dict(usage_of(wave, limits))
    demands = list(wave)
    still_waiting = list[NodeDemand]()
    for index, demand in enumerate(waiting_nodes):
        is_full = len(demands) >= limits.size
        if is_full:
            return tuple(demands), [*still_waiting, *waiting_nodes[index:]]
        needs = limits.usage(demand)
        if not _fits(needs, used, limits.allowed_in_all_rounds):
            still_waiting.append(demand)
            continue
        demands.append(demand)
        for key, need in needs.items():
            used[key] = used.get(key, 0) + need
    return tuple(demands), still_waiting


def _fits(needs: Load, used: Load, capacity: Mapping[str, int]) -> bool:
    shared_keys = [key for key in needs if used.get(key)]
    return all(used[key] + needs[key] <= capacity.get(key, 0) for key in shared_keys)


def _least_waves(demands: Sequence[NodeDemand], limits: WaveLimits) -> int:
    least_by_size = math.ceil(len(demands) / limits.size)
    return max(least_by_size, _least_waves_by_limits(demands, limits))


def _least_waves_by_limits(demands: Iterable[NodeDemand], limits: WaveLimits) -> int:
    least = 0
    usages = [limits.usage(demand) for demand in demands]
    amounts_by_key = grouped(chain.from_iterable(usage.items() for usage in usages))
    for key, amounts in amounts_by_key.items():
        allowed = limits.allowed_in_all_rounds.get(key, 0)
        least = max(least, _least_waves_by_limit(amounts, allowed))
    return least


def _least_waves_by_limit(amounts: Sequence[int], allowed: int) -> int:
    nodes_alone = sum(1 for amount in amounts if amount >= max(1, allowed))
    shared_amount = sum(amount for amount in amounts if amount < allowed)
    shared_waves = math.ceil(shared_amount / allowed) if shared_amount else 0
    return nodes_alone + shared_waves


def _pack(demands: Sequence[NodeDemand], limits: WaveLimits) -> list[tuple[NodeDemand, ...]]:
    """Pack nodes into few waves, those that move the fewest pods first.

    A pod that is evicted early often moves to a node that is drained later.
    """
    waves = list[tuple[NodeDemand, ...]]()
    waiting_nodes = _most_contended_first(demands, limits)
    while waiting_nodes:
        wave, waiting_nodes = join_wave((), waiting_nodes, limits)
        waves.append(tuple(sorted(wave, key=_by_move_cost)))
    # Using up budgets once more is faster than another wave.
    merged = _merge_smallest(_cheapest_first(waves), limits.with_another_round)
    return _cheapest_first(merged)


def _merge_smallest(
    waves: Sequence[tuple[NodeDemand, ...]], limits: WaveLimits
) -> Sequence[tuple[NodeDemand, ...]]:
    """Divide the smallest wave among the others, if all its nodes fit."""
    if not waves:
        return waves
    larger = sorted(waves, key=len, reverse=True)
    smallest = larger.pop()
    waiting_nodes: Sequence[NodeDemand] = smallest
    for index, wave in enumerate(larger):
        larger[index], waiting_nodes = join_wave(wave, waiting_nodes, limits)
    return waves if waiting_nodes else larger


def _most_contended_first(demands: Sequence[NodeDemand], limits: WaveLimits) -> list[NodeDemand]:
    """Sort by wait for completion, so that nodes wait together, then by contention."""
    capacity = limits.allowed_in_all_rounds
    cheapest_first = sorted(demands, key=_by_move_cost)
    usages = {demand.name: limits.usage(demand) for demand in demands}
    users_of_limit = Counter(chain.from_iterable(usages.values()))

    def contention(demand: NodeDemand) -> float:
        """Add up the shares of limits that it takes, each times the limit's users."""
        weighted_shares = list[float]()
        for key, need in usages[demand.name].items():
            weighted_shares.append(users_of_limit[key] * need / max(1, capacity.get(key, 0)))
        return sum(weighted_shares)

    def rank(demand: NodeDemand) -> tuple[int, float]:
        return demand.wait_seconds, contention(demand)

    return sorted(cheapest_first, key=rank, reverse=True)


def _cheapest_first(waves: Iterable[tuple[NodeDemand, ...]]) -> list[tuple[NodeDemand, ...]]:
    def rank(wave: tuple[NodeDemand, ...]) -> tuple[int, MoveCost, int, NaturalKey]:
        longest_wait = max(demand.wait_seconds for demand in wave)
        return -longest_wait, _total_move_cost(wave), -len(wave), _by_name(wave[0])

    return sorted(waves, key=rank)


def _total_move_cost(wave: Sequence[NodeDemand]) -> MoveCost:
    pods = sum(demand.move_cost.pods for demand in wave)
    cpu_milli = sum(demand.move_cost.cpu_milli for demand in wave)
    return MoveCost(pods, cpu_milli)
