"""Runs that are over, for people: a row each, or one as a timeline. Times are those of the reader's own clock."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from tabulate import tabulate

from rollout.model.progress import Moves
from rollout.model.text import NOTHING, counted, elapsed, or_nothing, printable, shortened
from rollout.report.columns import Column, table_text
from rollout.report.history import Moment, RunHistory
from rollout.report.rules import changed_rules
from rollout.report.summary import moves_text, tallied

_COLUMNS = (
    Column("RUN"),
    Column("STARTED"),
    Column("TOOK", leaves=4),
    Column("BY", leaves=1),
    Column("COMMANDS", leaves=2, wraps=True),
    Column("NODES", leaves=6),
    Column("SUCCEEDED", leaves=5),
    Column("FAILED", leaves=7),
    Column("CLUSTER", leaves=3),
    Column("END", note=True),
)
_SUCCEEDED = "succeeded"


def history_text(histories: Sequence[RunHistory], *, width: int | None = None) -> str:
    """One row a run. `width` in columns, None for no limit."""
    if not histories:
        return "No run is recorded here."
    return table_text(_COLUMNS, [_row(history) for history in histories], width)


def _row(history: RunHistory) -> tuple[str, ...]:
    failed = _failed(history)
    return (
        printable(history.run),
        _written(history.started_at, "%Y-%m-%d %H:%M:%S"),
        _took(history),
        or_nothing(history.by),
        printable(", ".join(history.commands)),
        str(len(history.planned)) if history.planned else NOTHING,
        str(len(history.outcomes) - len(failed)),
        str(len(failed)),
        or_nothing(history.cluster_name or history.cluster.removeprefix("https://")),
        _end(history),
    )


def _failed(history: RunHistory) -> tuple[str, ...]:
    return tuple(node for node, outcome in history.outcomes if outcome != _SUCCEEDED)


def _end(history: RunHistory) -> str:
    if history.state in ("running", "interrupted"):
        return history.state
    if history.aborted:
        return "aborted"
    if not history.ended:
        return "running or interrupted"
    left = len(history.not_started) + len(history.not_done)
    return f"ended, {counted(left, 'node')} left" if left else "ended"


def _took(history: RunHistory) -> str:
    begun, ended = _moment(history.started_at), _moment(history.heard_at)
    return elapsed((ended - begun).total_seconds()) if begun and ended else NOTHING


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _written(text: str, form: str) -> str:
    at = _moment(text)
    return format(at.astimezone(), form) if at else or_nothing(text)


def timeline_text(history: RunHistory, *, details: bool = False) -> str:
    """One run: what it was, then a line a moment; with `details` every word of it."""
    head = tabulate(_head(history), tablefmt="plain", disable_numparse=True)
    moments = history.moments if details else tuple(_once(history.moments))
    rows = tabulate(list(_rows(moments)), tablefmt="plain", disable_numparse=True)
    cluster = named_cluster(history.cluster_name, or_nothing(history.cluster))
    return f"Run {printable(history.run)} on {cluster}\n{head}\n\n{rows}"


def named_cluster(name: str, server: str) -> str:
    """A cluster by its name, where the operator gave one, and its address."""
    return f"{printable(name)} ({server})" if name else server


def _head(history: RunHistory) -> list[tuple[str, str]]:
    program = f", rollout {printable(history.version)}" if history.version else ""
    begun = _written(history.started_at, "%a %Y-%m-%d %H:%M:%S %Z")
    rows = [
        ("  begun", f"{begun} by {or_nothing(history.by)}{program}"),
        ("  rules", changed_rules(history.policy)),
        ("  nodes", _nodes(history)),
    ]
    moves = moves_text(Moves(history.pods_to_move, history.evictions, history.moved_twice))
    rows += [("  pods", moves)] if moves else []
    return [*rows, ("  end", f"{_end(history)}, after {_took(history)}")]


def _nodes(history: RunHistory) -> str:
    failed = _failed(history)
    parts = [f"{len(history.planned)} planned in {counted(history.waves, 'wave')}"]
    parts += [f"{len(history.outcomes) - len(failed)} succeeded"]
    parts += [f"{len(failed)} failed ({shortened(failed)})"] if failed else []
    groups = (("not done", tuple(history.not_done)), ("not started", tuple(history.not_started)))
    parts += [f"{len(group)} {word} ({shortened(group)})" for word, group in groups if group]
    return ", ".join(parts) + (f"; left out: {tallied(history.left_out)}" if history.left_out else "")


def _once(moments: Iterable[Moment]) -> Iterator[Moment]:
    """What a reader wants first: no details, and nothing of a node that was told of it already."""
    seen: set[tuple[str, str]] = set()
    for moment in moments:
        key = (moment.node, moment.what)
        if moment.detail or (moment.repeats and key in seen):
            continue
        seen.add(key)
        yield moment


def _rows(moments: Iterable[Moment]) -> Iterator[tuple[str, str, str]]:
    """Times of the day; where a day begins, its date; what belongs to a moment stands below it."""
    day = ""
    for moment in moments:
        at = _moment(moment.at)
        today = f"{at.astimezone():%a %Y-%m-%d}" if at else day
        if today != day and day:
            yield (today, "", "")
        day = today
        yield (_written(moment.at, "%H:%M:%S"), printable(moment.node), printable(moment.what))
        yield from (("", "", f"  {printable(line)}") for line in moment.further)
