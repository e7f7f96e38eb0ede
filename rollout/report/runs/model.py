"""The report of a run. Its JSON has the same field names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from rollout.model.plan import TimeEstimate
from rollout.model.progress import (
    NodeFinished,
    NodeRescued,
    Notice,
    Phase,
    PodBlocked,
    VersionHeld,
)
from rollout.report.lines import ToldSummary


class Ending(StrEnum):
    """How far the run came.

    `incomplete`: nodes failed or could not be taken. `open`: running or interrupted, which is
    unknown.
    """

    COMPLETED = "completed"
    INCOMPLETE = "incomplete"
    ABORTED = "aborted"
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    OPEN = "open"


class Part(StrEnum):
    """Where time goes. No node is in flight during the last three."""

    PREPARE = "prepare"
    DRAIN = "drain"
    REBOOT = "reboot"
    READY = "ready"
    GIVE_BACK = "give-back"
    SETTLE = "settle"
    WINDOW = "window"
    INTERRUPTED = "interrupted"

    @property
    def heading(self) -> str:
        if self is Part.GIVE_BACK:
            return "Return"
        if self is Part.WINDOW:
            return "Outside the window"
        return self.value.capitalize()


PART_OF: Mapping[Phase, Part] = {
    Phase.PENDING: Part.PREPARE,
    Phase.CORDONED: Part.PREPARE,
    Phase.DRAINING: Part.DRAIN,
    Phase.DRAINED: Part.DRAIN,
    Phase.REBOOTING: Part.REBOOT,
    Phase.BOOTED: Part.READY,
    Phase.READY: Part.GIVE_BACK,
}
"""What a node does in the phases that take time."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A span of time, without its end."""

    begin: datetime
    end: datetime

    @property
    def seconds(self) -> float:
        return (self.end - self.begin).total_seconds()


@dataclass(frozen=True, slots=True)
class PhaseReport:
    phase: Phase
    begin: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class NodeReport:
    """A node that was planned or started. `outcome` is its last, or empty.

    `wave` is the place in `waves` from 1, 0 if it was not started; `seconds` is how long it took.
    """

    node: str
    wave: int
    outcome: str
    seconds: float
    phases: Sequence[PhaseReport]
    parts: Mapping[Part, float]
    evict: int
    version_before: str
    version_staged: str
    version_after: str
    message: str = ""


@dataclass(slots=True)
class WaveReport:
    """A started wave.

    `ended_at` is the end of its last node, `settle_seconds` the time after it. `waited_for` is what
    had to settle; `estimate_seconds` is None without an estimate.
    """

    index: int
    of: int
    nodes: Sequence[str]
    because: str
    in_flight: int | None
    begun_at: datetime
    ended_at: datetime
    settle_seconds: float = 0.0
    waited_for: list[str] = field(default_factory=list)
    estimate_seconds: int | None = None

    @property
    def seconds(self) -> float:
        return (self.ended_at - self.begun_at).total_seconds() + self.settle_seconds


@dataclass(slots=True)
class BlockedEviction:
    """An eviction that was refused for a while, as last reported.

    `until` is when it was last known to be refused. `released` is False if its node continued or
    ended without it.
    """

    event: PodBlocked
    until: datetime
    released: bool = False

    @property
    def seconds(self) -> float:
        return max(0.0, (self.until - self.event.since).total_seconds())


@dataclass(frozen=True, slots=True)
class EvictionReport:
    """A pod that was evicted; `seconds` is None if it was not gone at the end of the drain."""

    node: str
    pod: str
    owner: str
    evicted_at: datetime
    seconds: float | None


@dataclass(frozen=True, slots=True)
class CommandReport:
    """A process of the run. An abort has no `version` and `format_version`."""

    command: str
    by: str
    version: str
    format_version: str
    at: datetime


@dataclass(frozen=True, slots=True)
class PartReport:
    """A part of the run's time. Concurrent work of several nodes shares the time.

    `median`, `longest` and `node`, the slowest, are of single nodes; 0 and empty if none does it.
    """

    part: Part
    seconds: float
    median: float = 0.0
    longest: float = 0.0
    node: str = ""


@dataclass(frozen=True, slots=True)
class RunReport:
    """A whole run, as far as its journal shows.

    `gaps` are sentences about what the journal lacks; `heard_at` is the time of its last record.
    `seconds` are from the first record to the last. `openings` are of windows; no process worked on
    the run in `interruptions`. `planned` and `estimate` are of the first plan, without waits for
    windows. `not_done`, `not_started` and `skipped` are reasons by node, `left_out` counts by
    reason.
    """

    format_version: str
    run: str
    ending: Ending
    cluster: str
    cluster_name: str
    begun_at: datetime
    heard_at: datetime
    seconds: float
    commands: Sequence[CommandReport]
    policy: Mapping[str, Any] | None
    gaps: Sequence[str]
    succeeded: int
    failed: int
    planned: ToldSummary
    estimate: TimeEstimate
    parts: Sequence[PartReport]
    waves: Sequence[WaveReport]
    nodes: Sequence[NodeReport]
    failures: Sequence[NodeFinished]
    holds: Sequence[BlockedEviction]
    notices: Sequence[Notice | VersionHeld | NodeRescued]
    openings: Sequence[Stretch]
    interruptions: Sequence[Stretch]
    not_done: Mapping[str, str]
    not_started: Mapping[str, str]
    left_out: Mapping[str, int]
    evictions: int
    evicted: Sequence[EvictionReport]
    skipped: Mapping[str, str]

    @property
    def asked_for(self) -> int:
        return len(self.nodes) - len(self.skipped)
