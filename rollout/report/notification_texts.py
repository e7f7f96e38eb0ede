"""A notification's title and body in plain words; or in those of the operator's template."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from string import Template
from typing import Any, assert_never

from rollout.errors import UsageError
from rollout.model.notification import (
    NOTES,
    AnyNote,
    FinishedNote,
    HeldNote,
    NodeFailedNote,
    Note,
    NotifyEvent,
    StartedNote,
    TrialNote,
    VersionHeldNote,
    WaveDoneNote,
)
from rollout.model.text import counted, elapsed, printable, shortened
from rollout.report.summary import tallied

_PARTS = ("title", "body")
_COMMON = frozenset({"event", *(item.name for item in fields(Note))})


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


@dataclass(frozen=True, slots=True)
class Templates:
    """The operator's own words: `title` and `body` by event, those under None for every event that has none."""

    words: Mapping[NotifyEvent | None, Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> "Templates":
        """What a file says, all of it checked; `UsageError` names the first key that is wrong."""
        general = {key: value for key, value in content.items() if not isinstance(value, dict)}
        words: dict[NotifyEvent | None, Mapping[str, str]] = {None: _checked(general, "", _COMMON)}
        for name, table in content.items():
            if isinstance(table, dict):
                event = _event(name)
                words[event] = _checked(table, f"[{name}] ", frozenset(item.name for item in fields(NOTES[event])))
        return cls(words)

    def worded(self, note: AnyNote) -> AnyNote:
        """The note with title and body; in a template `$title` and `$body` are those that it would have without one."""
        note = worded(note)
        own = {**self.words.get(None, {}), **self.words.get(NotifyEvent(note.event), {})}
        values = {item.name: _text(getattr(note, item.name)) for item in fields(note)}
        texts = {part: Template(text).substitute(values) for part, text in own.items()}
        return replace(note, title=texts.get("title", note.title), body=texts.get("body", note.body))


def _event(name: str) -> NotifyEvent:
    try:
        return NotifyEvent(name)
    except ValueError:
        known = ", ".join(NotifyEvent)
        raise UsageError(f"[{name}] is not an event", hint=f"The events are {known}.") from None


def _checked(table: Mapping[str, Any], place: str, known: frozenset[str]) -> Mapping[str, str]:
    for key, text in table.items():
        if key not in _PARTS or not isinstance(text, str):
            raise UsageError(f"{place}{key} is neither a title nor a body", hint='Write title = "…" and body = "…".')
        template = Template(text)
        if not template.is_valid():
            raise UsageError(f"{place}{key}: a $ that is no field's", hint="Write $$ for a dollar sign.")
        for name in template.get_identifiers():
            if name not in known:
                raise UsageError(f"{place}{key}: unknown field ${name}", hint=f"Fields: {', '.join(sorted(known))}.")
    return table


def _text(value: object) -> str:
    """A field in a text: made safe, but for the texts that are so already and have lines."""
    if isinstance(value, str):
        return "\n".join(printable(line) for line in value.splitlines())
    if isinstance(value, tuple):
        return ", ".join(printable(str(part)) for part in value)
    if isinstance(value, Mapping):
        return tallied(value)
    return "" if value is None else str(value)
