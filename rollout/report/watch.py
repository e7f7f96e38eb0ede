"""A rollout that is watched from elsewhere: how it stands, and how it ended, in words."""

from collections.abc import Sequence
from typing import assert_never

from rollout.execution.record.unfinished import RunWord
from rollout.execution.rollout.account import UNDONE
from rollout.execution.rollout.watch import LastRun, Standing, Watched
from rollout.model.text import counted, printable
from rollout.report.summary import counts, summary_text
from rollout.report.unfinished import heading, ways_out

_AWAY = "the API server does not answer: this is how it was last seen"
_LEAVE = "Ctrl-C ends this view, not the rollout"


def standing_text(standing: Standing) -> str:
    """How it stands now, as a line that begins with the one word; empty where there is nothing to tell."""
    if standing.away:
        return _AWAY
    if standing.waits:
        return "waiting for a rollout to begin: none is running or interrupted" + (
            f"; the last was {_last(standing.last)}" if standing.last else ""
        )
    match standing.word:
        case RunWord.RUNNING:
            doing = "works on it" if standing.begun else "holds the lock, and has begun nothing yet"
            return f"{standing.word}: {printable(standing.holder)} {doing}"
        case RunWord.INTERRUPTED:
            out = f": {ways_out(standing.unfinished)}" if standing.unfinished else ""
            return f"{standing.word}: no process is working on it{out}"
        case RunWord.UNFINISHED:
            return f"{standing.word}: {printable(standing.holder)} is late to renew the lock, and may be gone"
        case RunWord.ENDED:
            return ""
        case _:
            assert_never(standing.word)


def footer(standing: Standing) -> Sequence[str]:
    """The same for the last line of a board, the longest form first."""
    text = standing_text(standing)
    short = _AWAY if standing.away else text if standing.waits else str(standing.word)
    short = short.partition(":")[0]
    return (f"{text} · {_LEAVE}", f"{short} · {_LEAVE}", f"{short} · Ctrl-C ends this view", short) if text else ()


def watched_text(watched: Watched, *, width: int | None) -> str:
    """How it ended, or that there was none."""
    result = watched.result
    if result is None:
        left = f" Left over: {heading(watched.left)}." if watched.left else ""
        last = f" The last was {_last(watched.last)}." if watched.last else ""
        return f"No rollout is running or interrupted.{left}{last}"
    if watched.aborted_by:
        undone = sum(node.message == UNDONE for node in result.not_started)
        return f"Aborted by {printable(watched.aborted_by)}: {counted(undone, 'node')} given back; {counts(result)}."
    if watched.plan is None:
        return f"Ended: {counts(result)}."
    return f"\n{summary_text(watched.plan, result, width=width)}"


def _last(last: LastRun) -> str:
    """Which it was, and how it ended for its nodes."""
    outcomes = ", ".join(f"{number} {printable(outcome)}" for outcome, number in sorted(last.outcomes.items()))
    return f"{printable(last.run)}, until {printable(last.at)}: {outcomes}"
