"""What journals tell: each folded, record by record, into the history of a run."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from tabulate import tabulate

from rollout.report.text import NOTHING, or_nothing, printable

Record = Mapping[str, Any]
_HEADERS = ("RUN", "STARTED", "BY", "COMMANDS", "SUCCEEDED", "FAILED", "END")


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened: when, to which node (empty: to the run), and what."""

    at: str
    node: str
    what: str


@dataclass(frozen=True, slots=True)
class RunHistory:
    """A run as its journal has it. `ended` is when its last command came to its own end, empty where it did not.

    `policy` and `version` are those of the command that began it; `outcomes` are by node, the last one each.
    """

    run: str = ""
    started_at: str = ""
    by: str = ""
    version: str = ""
    policy: Record | None = None
    commands: tuple[str, ...] = ()
    outcomes: tuple[tuple[str, str], ...] = ()
    ended: str = ""
    moments: tuple[Moment, ...] = ()


def replay(records: Iterable[Record]) -> RunHistory:
    """The history that these records tell; those of unknown types are passed over."""
    return reduce(_after, records, RunHistory())


def _after(history: RunHistory, record: Record) -> RunHistory:
    moment = _moment(record)
    told = replace(history, moments=(*history.moments, moment)) if moment else history
    match record.get("type"):
        case "run":
            return _begun(told, record)
        case "node_finished":
            outcomes = {**dict(told.outcomes), str(record.get("node")): str(record.get("outcome"))}
            return replace(told, outcomes=tuple(outcomes.items()))
        case "summary":
            return replace(told, ended=str(record.get("at", "")))
        case _:
            return told


def _begun(history: RunHistory, record: Record) -> RunHistory:
    commands = (*history.commands, str(record.get("command", "")))
    if history.run:
        return replace(history, commands=commands, ended="")
    return replace(
        history,
        run=str(record.get("run", "")),
        started_at=str(record.get("at", "")),
        by=str(record.get("by", "")),
        version=str(record.get("version", "")),
        policy=record.get("policy"),
        commands=commands,
    )


def _moment(record: Record) -> Moment | None:
    what = _what(record)
    return Moment(str(record.get("at", "")), str(record.get("node", "")), what) if what else None


def _what(record: Record) -> str:
    """What a record says in words; empty where it is nothing to tell."""
    parts = _WORDS.get(str(record.get("type")), ())
    return ": ".join(text for part in parts if (text := part.format_map(_Forgiving(record)).strip()))


class _Forgiving(dict[str, Any]):
    """Words of a record; one that it has not is empty."""

    def __missing__(self, _key: str) -> str:
        return ""


_WORDS: Mapping[str, Sequence[str]] = {
    "run": ("{command} by {by}",),
    "wave_started": ("wave {index} of {waves}",),
    "wave_settling": ("wave {index} settles", "{waiting_for}"),
    "step": ("{phase}", "{detail}"),
    "blocked": ("{pod} is held back by {budget}",),
    "node_finished": ("{outcome}", "{message}"),
    "notice": ("{message}",),
    "summary": ("the end",),
}


def history_text(histories: Sequence[RunHistory]) -> str:
    """One row a run."""
    if not histories:
        return "No run was written down here."
    return tabulate([_row(history) for history in histories], headers=_HEADERS, tablefmt="plain", disable_numparse=True)


def _row(history: RunHistory) -> tuple[str, ...]:
    succeeded = sum(1 for _node, outcome in history.outcomes if outcome == "succeeded")
    return (
        printable(history.run),
        or_nothing(history.started_at),
        or_nothing(history.by),
        printable(", ".join(history.commands)),
        str(succeeded),
        str(len(history.outcomes) - succeeded),
        printable(history.ended) or "interrupted",
    )


def timeline_text(history: RunHistory) -> str:
    """One run, a line a moment."""
    head = f"Run {printable(history.run)}, begun {printable(history.started_at)} by {printable(history.by)}"
    rows = [(printable(each.at), printable(each.node) or NOTHING, printable(each.what)) for each in history.moments]
    return f"{head}\n\n" + tabulate(rows, tablefmt="plain", disable_numparse=True)
