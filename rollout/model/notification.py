"""What is sent to those who do not watch: one value a notification, as webhooks get it in JSON.

The schema that the documents publish is made from these types. Fields and types may be added within a major version;
what stands here stays. Times are RFC 3339 in UTC, durations seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from rollout.model.progress import Outcome, Phase

NOTIFICATION_VERSION = "1.0"


class NotifyEvent(StrEnum):
    """What there are notifications of; the words of notify.on."""

    STARTED = "started"
    WAVE_DONE = "wave-done"
    HELD = "held"
    NODE_FAILED = "node-failed"
    VERSION_HELD = "version-held"
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
    """What every notification has."""

    format_version: str = NOTIFICATION_VERSION
    at: str = ""
    level: Level = Level.INFO
    cluster: str = ""
    server: str = ""
    run: str = ""
    title: str = ""
    body: str = ""
    next: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedNote(Note):
    """A rollout begins, or is resumed."""

    event: Literal["started"] = "started"
    resumed: bool
    nodes: int
    waves: int
    versions: tuple[str, ...]
    estimate_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveDoneNote(Note):
    """A wave's nodes have ended; rolling, a further quarter of them."""

    event: Literal["wave-done"] = "wave-done"
    wave: int
    waves: int
    wave_nodes: int
    wave_ended: int
    wave_failed: int
    ended: int
    failed: int
    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldNote(Note):
    """A pod's eviction is not allowed for longer than notify.held-after."""

    event: Literal["held"] = "held"
    node: str
    phase: Phase
    pod: str
    owner: str
    budget: str
    needs: int | None
    has: int | None
    message: str
    since: str
    held_seconds: int
    seconds_left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFailedNote(Note):
    """A node failed."""

    event: Literal["node-failed"] = "node-failed"
    node: str
    phase: Phase
    outcome: Outcome
    message: str
    hint: str
    version: str
    left_cordoned: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionHeldNote(Note):
    """A version failed on so many nodes that no further one is taken to it."""

    event: Literal["version-held"] = "version-held"
    version: str
    failed_nodes: tuple[str, ...]
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedNote(Note):
    """The end of a run, or the error that kept it from its end."""

    event: Literal["finished"] = "finished"
    state: RolloutState
    succeeded: int
    failed: int
    not_done: int
    not_started: int
    left_out: Mapping[str, int]
    failed_nodes: tuple[str, ...]
    not_done_nodes: tuple[str, ...]
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialNote(Note):
    """A test: `rollout doctor --notify-test` was run, and nothing happened to any cluster."""

    event: Literal["test"] = "test"


AnyNote = StartedNote | WaveDoneNote | HeldNote | NodeFailedNote | VersionHeldNote | FinishedNote | TrialNote
