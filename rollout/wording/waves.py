from collections.abc import Sequence
from typing import assert_never

from rollout.model import wave_finding as findings
from rollout.model.cluster import CRITICAL
from rollout.model.quantity import Duration
from rollout.model.text import counted, joined
from rollout.model.warning_finding import PlaceWarning
from rollout.wording.words import Words, cause_of, object_name


def full_reason(reason: findings.WaveReason) -> str:
    limit = joined(": ", title(reason.parts), limit_words(reason.limit).cause)
    return joined("; ", limit, _delay_words(reason.delay).cause)


def table_note(reason: findings.WaveReason) -> str:
    return joined("; ", table_note_without_delay(reason), _delay_words(reason.delay).note or "")


def table_note_without_delay(reason: findings.WaveReason) -> str:
    return joined(": ", title(reason.parts), limit_words(reason.limit).note or "")


def title(parts: Sequence[findings.WavePart]) -> str:
    return joined("; ", *map(_part_title, parts))


def _part_title(part: findings.WavePart) -> str:
    pool = f"pool {part.pool}" if part.pool else ""
    stage = "" if part.stage is findings.WaveStage.WORKERS else part.stage.value
    step = f"step {part.step} of the ramp" if part.step else ""
    return joined(", ", pool, stage, step, part.group)


def limit_words(limit: findings.WaveLimit) -> Words:
    match limit:
        case findings.OneAtATime():
            phrase = Words("one at a time", note="")
        case findings.FullWave(size=size):
            phrase = Words(f"full wave: at most {size} at once", note="")
        case findings.RemainingNodes():
            phrase = Words("the remaining nodes", note="")
        case findings.NextOnReturn(in_flight=nodes):
            phrase = _with_same_note(
                f"the next starts as soon as one of the {nodes} nodes in flight is back"
            )
        case findings.PoolsTogether():
            phrase = _with_same_note(
                "in parallel, within their own limits and those of the rollout"
            )
        case findings.NoRoomForMore():
            room = "no room for the pods of more nodes"
            phrase = Words("with more nodes, their pods would not fit on the others", note=room)
        case _:
            phrase = _conflict_words(limit)
    return phrase


def _conflict_words(conflict: findings.WaveConflict) -> Words:
    match conflict:
        case findings.PoolFull(pool=pool, allowed=allowed):
            return _with_same_note(f"at most {counted(allowed, 'node')} of the pool {pool} at once")
        case findings.ControllerBusy(controller=controller):
            return _with_same_note(f"one node with pods of {controller} at a time")
        case findings.CopiesShort(data=data):
            return _limited(data, f"{data} would not have enough healthy replicas")
        case findings.OwnerDown(owner=owner, pods=pods):
            name = object_name(owner)
            return _limited(name, f"{name} would lose all its {pods} pods at once")
        case findings.BudgetExceeded(budget=budget, allowed=allowed):
            name = _budget_name(budget)
            consequence = f"more pods of {name} would be unavailable than it allows ({allowed})"
            return _limited(name, consequence)
        case findings.BudgetSlow(budget=budget, allowed=allowed):
            name = _budget_name(budget)
            allows = f"which allows {_at_a_time(allowed)}"
            return _limited(name, f"drains would wait too long for {name}, {allows}")
        case _:
            assert_never(conflict)


def _with_same_note(sentence: str) -> Words:
    return Words(sentence, note=sentence)


def _limited(name: str, consequence: str) -> Words:
    return Words(f"with more nodes, {consequence}", note=f"limited by {name}")


def _delay_words(delay: findings.BudgetDelay | None) -> Words:
    if delay is None:
        return Words("")
    name = _budget_name(delay.budget)
    if not delay.permits:
        note = f"{name} currently allows no evictions"
        return Words(f"the {note}", note=note)
    added_time = f"+{Duration(delay.seconds)}"
    return Words(
        f"waits for {name}, {_at_a_time(delay.permits)}: {added_time}",
        note=f"waits for {name}, {added_time}",
    )


def _budget_name(key: str) -> str:
    return key if key.startswith(CRITICAL) else f"PDB {key}"


def _at_a_time(pods: int) -> str:
    return "one eviction at a time" if pods == 1 else f"{pods} evictions at a time"


def crowding_clause(crowded: PlaceWarning) -> str:
    return f"together with these nodes, {object_name(crowded.subject)} {cause_of(crowded.finding)}"
