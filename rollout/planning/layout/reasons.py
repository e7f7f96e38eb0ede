"""Explain the waves of a finished layout, to users."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from rollout.model.cluster import CRITICAL
from rollout.model.quantity import Duration
from rollout.model.text import joined
from rollout.planning.drain.controllers import controller_in
from rollout.planning.eligibility.away import is_storage
from rollout.planning.layout.sharing import NodeDemand, WaveLimits, is_owner, pool_of, sum_of
from rollout.planning.layout.waves import Batch, usage_of


@dataclass(frozen=True, slots=True)
class WaveReason:
    """Why a wave is as it is; `note` is short, and only for what is unexpected."""

    sentence: str
    note: str = ""


_ALONE = WaveReason("one at a time")
_NO_ROOM = WaveReason(
    "with more nodes, their pods would not fit on the others", "no room for the pods of more nodes"
)
_TOGETHER = "side by side, as far as their limits and the rollout's allow"
_NOTHING = WaveReason("")


def with_reasons(waves: Sequence[Batch], limits: WaveLimits) -> tuple[Batch, ...]:
    explained = list[Batch]()
    for wave, following in zip_longest(waves, waves[1:]):
        is_same_part = following is not None and following.part == wave.part
        next_nodes = following.demands if is_same_part else ()
        explained.append(_with_reason(wave, next_nodes, limits))
    return tuple(explained)


def _with_reason(wave: Batch, next_nodes: Sequence[NodeDemand], limits: WaveLimits) -> Batch:
    """`next_nodes` are those of the following wave in the same part."""
    own = wave.own(limits)
    why = _why(wave, next_nodes, own)
    price = _NOTHING if wave.rolling else _price(wave.demands, own)
    limit = joined(": ", wave.part, why.note)
    return replace(
        wave,
        because=joined("; ", joined(": ", wave.part, why.sentence), price.sentence),
        note=joined("; ", limit, price.note),
        limit=limit,
    )


def _why(wave: Batch, next_nodes: Sequence[NodeDemand], own: WaveLimits) -> WaveReason:
    if wave.goes_alone or (wave.rolling and wave.rolling.in_flight == 1):
        return _ALONE
    if wave.rolling:
        return _short_reason(f"the next begins as soon as one of {wave.rolling.in_flight} is back")
    if len(wave.demands) >= own.size:
        return _full(own)
    if wave.refused:
        return _NO_ROOM
    if len({demand.pool for demand in wave.demands}) > 1:
        return _short_reason(_TOGETHER)
    return _first_conflict(wave, next_nodes, own) or WaveReason("the remaining nodes")


def _first_conflict(
    wave: Batch, next_nodes: Sequence[NodeDemand], limits: WaveLimits
) -> WaveReason | None:
    for demand in next_nodes:
        conflicts = _conflicts(wave.demands, demand, limits)
        if conflicts:
            return conflicts[0]
    return None


def _short_reason(sentence: str) -> WaveReason:
    return WaveReason(sentence, sentence)


def _full(limits: WaveLimits) -> WaveReason:
    return WaveReason(f"full wave: at most {limits.size} at once")


def obstacles(
    wave: Sequence[NodeDemand], demand: NodeDemand, limits: WaveLimits
) -> tuple[str, ...]:
    reasons = list(_conflicts(wave, demand, limits))
    if len(wave) >= limits.size:
        reasons.append(_full(limits))
    return tuple(reason.sentence for reason in reasons)


def _conflicts(
    wave: Sequence[NodeDemand], demand: NodeDemand, limits: WaveLimits
) -> tuple[WaveReason, ...]:
    used = usage_of(wave, limits)
    uses = limits.use(demand.load, demand.holds)
    held = demand.holds.keys() | {key for other in wave for key in other.holds}
    reasons = list[WaveReason]()
    for key, need in sorted(uses.items()):
        if used[key] and used[key] + need > limits.capacity.get(key, 0):
            reasons.append(_conflict(key, limits, held=key in held))
    return tuple(dict.fromkeys(reasons))


def _conflict(key: str, limits: WaveLimits, *, held: bool) -> WaveReason:
    allowed = limits.allowed.get(key, 0)
    name = _name(key)
    pool = pool_of(key)
    if pool:
        return _short_reason(f"at most {allowed} at once of the pool {pool}")
    controller = controller_in(key)
    if controller:
        return _short_reason(f"one at a time with pods of {controller}")
    if is_storage(key):
        price = f"{key} would not have enough healthy replicas"
    elif is_owner(key):
        price = f"{key} would lose all its {allowed + 1} pods at once"
    elif held:
        price = f"more pods of {name} would be unavailable than it allows ({allowed})"
    else:
        price = f"drains would wait too long for {name}, which allows {_at_a_time(allowed)}"
    return WaveReason(f"with more nodes, {price}", f"limited by {name}")


def _name(key: str) -> str:
    """Return the name of what limits a wave; only a budget of the cluster is a PDB."""
    is_budget = not (is_storage(key) or is_owner(key) or key.startswith(CRITICAL))
    return f"PDB {key}" if is_budget else key


def _at_a_time(pods: int) -> str:
    return "one eviction at a time" if pods == 1 else f"{pods} evictions at a time"


def _price(wave: Sequence[NodeDemand], limits: WaveLimits) -> WaveReason:
    """Return which budget delays these drains most, and for how long."""
    load = sum_of(demand.load for demand in wave)
    rates = limits.rates
    over = [key for key, need in load.items() if key in rates and need > limits.allowed[key]]
    if not over:
        return _NOTHING
    key = min(over, key=lambda key: (rates[key].permits > 0, -rates[key].seconds(load[key]), key))
    permits = rates[key].permits
    if not permits:
        note = f"{_name(key)} allows no evictions now"
        return WaveReason(f"the {note}", note)
    seconds = limits.drain(wave) - max(demand.ending for demand in wave)
    if not seconds:
        return _NOTHING
    more = f"+{Duration(seconds)}"
    name = _name(key)
    sentence = f"waits for {name}, {_at_a_time(permits)}: {more}"
    return WaveReason(sentence, f"waits for {name}, {more}")
