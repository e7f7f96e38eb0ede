"""Notifications, in JSON for webhooks; durations are in seconds."""

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from rollout.model.text import printable

NOTIFICATION_VERSION = "1.0"


class NotifyEvent(StrEnum):
    """Events, by the words of notify.on."""

    STARTED = "started"
    WAVE_DONE = "wave-done"
    HELD = "held"
    RESCUED = "rescued"
    NODE_FAILED = "node-failed"
    VERSION_HELD = "version-held"
    DEADLINE = "deadline"
    FINISHED = "finished"


class Level(StrEnum):
    """How serious a notification is."""

    INFO = "info"
    SUCCESS = "success"
    WARNING = "warning"
    FAILURE = "failure"


class RolloutState(StrEnum):
    """How a rollout ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


class Note(Struct, frozen=True, kw_only=True):
    """One notification."""

    format_version: str = NOTIFICATION_VERSION
    event: str
    at: str = ""
    level: Level = Level.INFO
    cluster: str = ""
    server: str = ""
    run: str = ""
    node: str = ""
    state: str = ""
    title: str
    # Without the next step.
    body: str
    next: str = ""


def render_note(note: Note) -> Note:
    """Return the note as sent."""
    cluster = printable(note.cluster)
    rollout = f", rollout {printable(note.run)}" if note.run else ""
    next_step = f"Next: {printable(note.next)}" if note.next else ""
    lines = (note.body, next_step, f"Cluster {cluster}{rollout}")
    body = "\n".join(line for line in lines if line)
    return replace(note, title=f"{cluster}: {note.title}", body=body)
