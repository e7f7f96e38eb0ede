"""Explain the waves of a finished layout, to users."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from rollout.model.quantity import Duration
from rollout.planning.eligibility.away import is_storage
from rollout.planning.layout.sharing import NodeDemand, WaveLimits, is_owner, is_pool, sum_of
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
    return tuple(
        _with_reason(
            wave, following.demands if following and following.part == wave.part else (), limits
        )
        for wave, following in zip_longest(waves, waves[1:])
    )


def _with_reason(wave: Batch, following: Sequence[NodeDemand], limits: WaveLimits) -> Batch:
    """`following` are the next nodes of the wave's part."""
    own = wave.own(limits)
    why = _why(wave, following, own)
    price = _NOTHING if wave.rolling else _price(wave.demands, own)

    def text(reason: str, cost: str) -> str:
        named = ": ".join(filter(None, (wave.part, reason)))
        return "; ".join(filter(None, (named, cost)))

    return replace(
        wave,
        because=text(why.sentence, price.sentence),
        note=text(why.note, price.note),
        limit=text(why.note, ""),
    )


def _why(wave: Batch, following: Sequence[NodeDemand], own: WaveLimits) -> WaveReason:
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
    conflicts = (reason for demand in following for reason in _conflicts(wave.demands, demand, own))
    return next(conflicts, WaveReason("the remaining nodes"))


def _short_reason(sentence: str) -> WaveReason:
    return WaveReason(sentence, sentence)


def _full(limits: WaveLimits) -> WaveReason:
    return WaveReason(f"full wave: at most {limits.size} at once")


def obstacles(
    wave: Sequence[NodeDemand], demand: NodeDemand, limits: WaveLimits
) -> tuple[str, ...]:
    """Return all reasons that keep the node out of the wave, as sentences."""
    full = [_full(limits)] if len(wave) >= limits.size else []
    return tuple(reason.sentence for reason in (*_conflicts(wave, demand, limits), *full))


def _conflicts(
    wave: Sequence[NodeDemand], demand: NodeDemand, limits: WaveLimits
) -> tuple[WaveReason, ...]:
    used = usage_of(wave, limits)
    uses = limits.use(demand.load, demand.holds)
    held = demand.holds.keys() | {key for other in wave for key in other.holds}
    barring = (
        key
        for key, need in uses.items()
        if used[key] and used[key] + need > limits.capacity.get(key, 0)
    )
    return tuple(dict.fromkeys(_in_words(key, limits, held=key in held) for key in sorted(barring)))


def _in_words(key: str, limits: WaveLimits, *, held: bool) -> WaveReason:
    allowed = limits.allowed.get(key, 0)
    if pool := is_pool(key):
        return _short_reason(f"at most {allowed} at once of the pool {pool}")
    if is_storage(key):
        price = f"{key} would lack copies"
    elif is_owner(key):
        price = f"{key} would lose all its {allowed + 1} pods at once"
    elif held:
        price = (
            f"{key} would lack more pods than its budget allows ({allowed}) until nodes are back"
        )
    else:
        price = f"drains would wait too long for {key}, which lets {_at_a_time(allowed)} go"
    return WaveReason(f"with more nodes, {price}", f"limited by PDB {key}")


def _at_a_time(pods: int) -> str:
    return f"{'one pod' if pods == 1 else f'{pods} pods'} at a time"


def _price(wave: Sequence[NodeDemand], limits: WaveLimits) -> WaveReason:
    """Return which budget delays these drains most, and for how long."""
    load = sum_of(demand.load for demand in wave)
    over = {
        key: limits.rates[key]
        for key, need in load.items()
        if key in limits.rates and need > limits.allowed[key]
    }
    if not over:
        return _NOTHING
    key = min(over, key=lambda key: (over[key].permits > 0, -over[key].seconds(load[key]), key))
    if not over[key].permits:
        note = f"budget {key} allows nothing now"
        return WaveReason(f"the {note}", note)
    if not (seconds := limits.drain(wave) - max(demand.ending for demand in wave)):
        return _NOTHING
    more = f"+{Duration(seconds)}"
    return WaveReason(
        f"waits for {key}, {_at_a_time(over[key].permits)}: {more}",
        f"waits for budget {key}, {more}",
    )
