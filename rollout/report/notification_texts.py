"""A notification's title and body in plain words."""

from dataclasses import replace
from typing import assert_never

from rollout.model.notification import (
    AnyNote,
    FinishedNote,
    HeldNote,
    NodeFailedNote,
    StartedNote,
    TrialNote,
    VersionHeldNote,
    WaveDoneNote,
)
from rollout.model.text import counted, elapsed, printable, shortened
from rollout.report.summary import tallied


def worded(note: AnyNote) -> AnyNote:
    """The note with title and body."""
    title, detail = _words(note)
    lines = [detail, f"Next: {printable(note.next)}" if note.next else ""]
    rollout = f", rollout {printable(note.run)}" if note.run else ""
    lines.append(f"Cluster {printable(note.cluster)}{rollout}")
    return replace(note, title=f"{printable(note.cluster)}: {title}", body="\n".join(filter(None, lines)))


def _words(note: AnyNote) -> tuple[str, str]:  # noqa: PLR0911 - one return a type of notification
    """What the title says beside the cluster's name, and the first lines of the body."""
    match note:
        case StartedNote():
            return _started(note)
        case WaveDoneNote():
            return _wave_done(note)
        case HeldNote():
            return _held(note)
        case NodeFailedNote():
            return _failed(note)
        case VersionHeldNote():
            return f"version {printable(note.version)} is held", f"{printable(note.message)}."
        case FinishedNote():
            return _finished(note)
        case TrialNote():
            return "test of notifications", "rollout doctor --notify-test sent this. Nothing has happened."
        case _:
            assert_never(note)


def _started(note: StartedNote) -> tuple[str, str]:
    title = f"rollout {'resumed' if note.resumed else 'started'}: {counted(note.nodes, 'node')}"
    versions = f" to {shortened(note.versions)}" if note.versions else ""
    estimate = f", about {elapsed(note.estimate_seconds)}" if note.estimate_seconds else ""
    return f"{title}{versions}", f"{counted(note.nodes, 'node')} in {counted(note.waves, 'wave')}{estimate}."


def _wave_done(note: WaveDoneNote) -> tuple[str, str]:
    title = f"wave {note.wave} of {note.waves}: {note.wave_ended} of {counted(note.wave_nodes, 'node')} ended"
    failed = f", {note.wave_failed} failed" if note.wave_failed else ""
    whole = f"Of the rollout: {note.ended} of {counted(note.nodes, 'node')} ended, {note.failed} failed."
    return f"{title}{failed}", whole


def _held(note: HeldNote) -> tuple[str, str]:
    by = printable(note.budget) or "the API server"
    title = f"{printable(note.node)} is held by {by} for {elapsed(note.held_seconds)}"
    owner = f" ({printable(note.owner)})" if note.owner else ""
    known = note.needs is not None and note.has is not None
    why = f"needs {note.needs} healthy pods, has {note.has}" if known else printable(note.message)
    left = f"The drain fails in {elapsed(note.seconds_left)}."
    return title, f"Pod {printable(note.pod)}{owner} cannot be evicted: {why}.\n{left}"


def _failed(note: NodeFailedNote) -> tuple[str, str]:
    lines = [f"Phase {note.phase}: {printable(note.message)}"]
    lines += [f"Hint: {printable(note.hint)}"] if note.hint else []
    lines += ["It was left cordoned."] if note.left_cordoned else []
    return f"{printable(note.node)} failed: {note.outcome}", "\n".join(lines)


def _finished(note: FinishedNote) -> tuple[str, str]:
    counts = [(note.failed, "failed"), (note.not_done, "not done"), (note.not_started, "not started")]
    figures = [f"{count} {word}" for count, word in counts if count]
    if note.succeeded or figures:
        figures.insert(0, f"{counted(note.succeeded, 'node')} succeeded")
    lines = [f"{printable(note.message)}."] if note.message else []
    lines += [f"Failed: {shortened(note.failed_nodes)}."] if note.failed_nodes else []
    lines += [f"Not done: {shortened(note.not_done_nodes)}."] if note.not_done_nodes else []
    lines += [f"Left out: {tallied(note.left_out)}."] if note.left_out else []
    return f"rollout {note.state}" + (f": {', '.join(figures)}" if figures else ""), "\n".join(lines)
