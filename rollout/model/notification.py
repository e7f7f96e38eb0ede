"""What is sent to those who do not watch: one value a notification, as webhooks get it in JSON.

The schema that the documents publish is made from this type. Fields and types may be added within a
major version; what stands here stays. Times are RFC 3339 in UTC, durations seconds.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from rollout.model.text import printable

NOTIFICATION_VERSION = "1.0"


class NotifyEvent(StrEnum):
    """What there are notifications of; the words of notify.on."""

    STARTED = "started"
    WAVE_DONE = "wave-done"
    HELD = "held"
    NODE_FAILED = "node-failed"
    VERSION_HELD = "version-held"
    DEADLINE = "deadline"
    FINISHED = "finished"


class Level(StrEnum):
    """How much it matters."""

    INFO = "info"
    SUCCESS = "success"
    WARNING = "warning"
    FAILURE = "failure"


class RolloutState(StrEnum):
    """How a rollout ended: all that was asked for is done, or something is not, or it was stopped before the end."""

    COMPLETED = "completed"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One notification. `body` is what happened; `render_note` adds to it what to do next, and where.

    `event` is a `NotifyEvent`, or `test`. `node` is the one that it is of, and `state` how the
    rollout ended; empty where it is of none, or has not.
    """

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
    body: str
    next: str = ""


def render_note(note: Note) -> Note:
    """Return the note as it is sent: its cluster in the title, and the next command and the rollout in the body."""
    rollout = f", rollout {printable(note.run)}" if note.run else ""
    following = f"Next: {printable(note.next)}" if note.next else ""
    lines = filter(None, (note.body, following, f"Cluster {printable(note.cluster)}{rollout}"))
    return replace(note, title=f"{printable(note.cluster)}: {note.title}", body="\n".join(lines))
