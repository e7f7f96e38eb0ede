"""What journals tell: each folded, record by record, into the history of a run."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import msgspec

from rollout.model.progress import Findings
from rollout.model.text import elapsed, shortened
from rollout.report.summary import findings_text

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened: when, to which node (empty: to the run), and what.

    `further` are lines that belong to it; `detail` tells what only a close reader wants, `repeats` what is told again
    and again for as long as it lasts.
    """

    at: str
    node: str
    what: str
    further: tuple[str, ...] = ()
    detail: bool = False
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class RunHistory:
    """A run as its journal has it. `ended` is when its last command came to its own end, empty where it did not.

    `aborted` is when it was undone, empty where it was not. `state` is the one word for all that: `running`,
    `interrupted`, `ended` or `aborted`; empty where nobody has looked whether a process writes the journal.
    `policy`, `version` and `cluster` are those of the command that began it, `cluster_name` is of the first that gives
    one; `outcomes` are by node, the last one each;
    `planned` counts the nodes of all its plans; `heard_at` is the time of the last record. As the last summary has
    them: `not_started` and `not_done` are by node, with the reason; `left_out` counts nodes by reason. `evictions`, and
    those of pods that came while its commands ran, are summed up over the summaries; `pods_to_move` had to go by the
    first plan.
    """

    run: str = ""
    started_at: str = ""
    by: str = ""
    version: str = ""
    cluster: str = ""
    cluster_name: str = ""
    policy: Record | None = None
    commands: tuple[str, ...] = ()
    outcomes: tuple[tuple[str, str], ...] = ()
    ended: str = ""
    heard_at: str = ""
    planned: frozenset[str] = frozenset()
    waves: int = 0
    not_started: Mapping[str, str] = field(default_factory=dict)
    not_done: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    pods_to_move: int = 0
    evictions: int = 0
    moved_twice: int = 0
    moments: tuple[Moment, ...] = ()
    aborted: str = ""
    state: str = ""


def with_state(history: RunHistory, *, is_being_written: bool) -> RunHistory:
    """The history with its state, where it is known whether a process is at work on it."""
    if is_being_written:
        return replace(history, state="running")
    return replace(history, state="aborted" if history.aborted else "ended" if history.ended else "interrupted")


def replay(records: Iterable[Record]) -> RunHistory:
    """The history that these records tell; those of unknown types are passed over."""
    history = tuple(records)
    moments = tuple(moment for record in history if (moment := _moment(record)) is not None)
    return replace(reduce(_after, history, RunHistory()), moments=moments)


def _after(history: RunHistory, record: Record) -> RunHistory:
    history = replace(history, heard_at=_text(record, "at") or history.heard_at)
    match record.get("type"):
        case "run":
            return _begun(history, record)
        case "plan":
            return _planned(history, record)
        case "node_finished":
            outcomes = {**dict(history.outcomes), _text(record, "node"): _text(record, "outcome")}
            return replace(history, outcomes=tuple(outcomes.items()))
        case "summary":
            return _ended(history, record)
        case "aborted":
            return replace(history, aborted=_text(record, "at"), commands=(*history.commands, "abort"))
        case _:
            return history


def _ended(history: RunHistory, record: Record) -> RunHistory:
    return replace(
        history,
        ended=_text(record, "at"),
        not_started=_not_started(record),
        not_done=_not_done(record),
        left_out=_left_out(record),
        evictions=history.evictions + _number(record, "evictions"),
        moved_twice=history.moved_twice + _number(record, "moved_twice"),
    )


def _begun(history: RunHistory, record: Record) -> RunHistory:
    commands = (*history.commands, _text(record, "command"))
    history = replace(history, cluster_name=history.cluster_name or _text(record, "cluster_name"))
    if history.run:
        return replace(history, commands=commands, ended="", aborted="", not_started={}, not_done={}, left_out={})
    cluster = record.get("cluster")
    return replace(
        history,
        run=_text(record, "run"),
        started_at=_text(record, "at"),
        by=_text(record, "by"),
        version=_text(record, "version"),
        cluster=_text(cluster, "server") if isinstance(cluster, dict) else "",
        policy=record.get("policy"),
        commands=commands,
    )


def _planned(history: RunHistory, record: Record) -> RunHistory:
    try:
        plan = msgspec.convert(record.get("plan"), _Plan)
    except msgspec.ValidationError:
        return history
    names = frozenset(node.name for wave in plan.waves for node in wave.nodes)
    return replace(
        history,
        planned=history.planned | names,
        waves=history.waves or len(plan.waves),
        pods_to_move=history.pods_to_move or plan.summary.pods_to_move,
    )


class _Node(msgspec.Struct, frozen=True):
    name: str


class _Wave(msgspec.Struct, frozen=True):
    nodes: tuple[_Node, ...]


class _PlanSummary(msgspec.Struct, frozen=True):
    pods_to_move: int = 0


class _Plan(msgspec.Struct, frozen=True):
    """As much of a plan as is told of it."""

    waves: tuple[_Wave, ...]
    summary: _PlanSummary = _PlanSummary()


class _NotDone(msgspec.Struct, frozen=True):
    node: str
    reason: str = ""
    message: str = ""


def _not_done(record: Record) -> Mapping[str, str]:
    """By node, why it was not done; nothing in the journals of versions that did not tell."""
    try:
        entries = msgspec.convert(record.get("not_done") or [], tuple[_NotDone, ...])
    except msgspec.ValidationError:
        return {}
    return {entry.node: f"{entry.reason}, {entry.message}" for entry in entries}


def _not_started(record: Record) -> Mapping[str, str]:
    """By node, why it was not begun; without those that are told of as not done."""
    reasons, not_done = record.get("reasons"), _not_done(record)
    if not isinstance(reasons, dict):
        return {}
    return {node: str(why) for node, why in reasons.items() if node not in not_done}


def _left_out(record: Record) -> Mapping[str, int]:
    counts = record.get("left_out")
    if not isinstance(counts, dict):
        return {}
    return {reason: number for reason, number in counts.items() if isinstance(number, int)}


def _number(record: Record, name: str) -> int:
    number = record.get(name)
    return number if isinstance(number, int) else 0


def _text(record: Record, name: str) -> str:
    return str(record.get(name, ""))


def _moment(record: Record) -> Moment | None:
    what = _what(record)
    if not what:
        return None
    kind = record.get("type")
    is_detail = kind == "step" and bool(record.get("detail") or record.get("phase") in ("pending", "done"))
    repeats = kind in ("blocked", "released", "wave_settling")
    return Moment(_text(record, "at"), _text(record, "node"), what, _further(record), is_detail, repeats)


def _what(record: Record) -> str:
    """What a record says in words; empty where it is nothing to tell."""
    parts = _WORDS.get(_text(record, "type"), ())
    words = _Forgiving({**record, **_prepared(record)})
    return ": ".join(text for part in parts if (text := part.format_map(words).strip()))


def _prepared(record: Record) -> Record:
    """Values that are no words yet."""
    nodes, seconds = record.get("nodes"), record.get("seconds")
    ends = _ENDS if "not_done" in record else _ENDS_BEFORE
    groups = ((name.replace("_", " "), record.get(name)) for name in ends)
    counts = (f"{len(group)} {word}" for word, group in groups if isinstance(group, list) and group)
    return {
        "nodes": ", ".join(str(name) for name in nodes) if isinstance(nodes, list) else "",
        "took": f" after {elapsed(seconds)}" if isinstance(seconds, int | float) else "",
        "now_on": f", now on {record.get('version')}" if record.get("outcome") == "succeeded" else "",
        "counts": ", ".join(counts),
        "given_back": _given_back(record),
    }


def _given_back(record: Record) -> str:
    groups = ((record.get("reverted"), "given back"), (record.get("left"), "left as they are"))
    return "; ".join(f"{shortened(nodes)} {word}" for nodes, word in groups if isinstance(nodes, list) and nodes)


def _further(record: Record) -> tuple[str, ...]:
    """What stands below: of a failed node what was seen of it, of the end who was left."""
    match record.get("type"):
        case "node_finished":
            hint = _text(record, "hint")
            return (*_seen(record), *((f"hint: {hint}",) if hint else ()))
        case "summary":
            not_done = (f"{node} was not done: {why}" for node, why in _not_done(record).items())
            return (*not_done, *(f"{node} was left: {why}" for node, why in _not_started(record).items()))
        case _:
            return ()


def _seen(record: Record) -> tuple[str, ...]:
    try:
        return tuple(findings_text(msgspec.convert(record, Findings)))
    except msgspec.ValidationError:
        return ()


class _Forgiving(dict[str, Any]):
    """Words of a record; one that it has not is empty."""

    def __missing__(self, _key: str) -> str:
        return ""


_WORDS: Mapping[str, Sequence[str]] = {
    "run": ("{command} by {by}",),
    "wave_started": ("wave {index} of {waves}", "{nodes}"),
    "wave_settling": ("wave {index} settles", "{waiting_for}"),
    "step": ("{phase}", "{detail}"),
    "blocked": ("{pod} is held back by {budget}",),
    "released": ("{pod} may go",),
    "node_finished": ("{outcome}{took}{now_on}", "{message}"),
    "version_held": ("{message}",),
    "notice": ("{message}",),
    "aborted": ("aborted by {by}", "{given_back}"),
    "summary": ("the end", "{counts}"),
}
_ENDS = ("succeeded", "failed", "not_done", "not_started")
# of the versions whose journals do not tell what was not done
_ENDS_BEFORE = ("succeeded", "failed", "skipped", "not_started")
