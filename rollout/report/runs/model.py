from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct

from rollout.model.plan import TimeEstimate
from rollout.model.progress import (
    NodeFinished,
    NodeRescued,
    Notice,
    Outcome,
    Phase,
    PodBlocked,
    VersionHeld,
)
from rollout.model.timestamps import Interval
from rollout.report.lines import PlannedSummary


class Ending(StrEnum):
    """How the run ended, if it has ended."""

    COMPLETED = "completed"
    # Nodes failed or could not be taken.
    INCOMPLETE = "incomplete"
    ABORTED = "aborted"
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    # Running or interrupted, which is unknown.
    OPEN = "open"


class Part(StrEnum):
    """What the time was spent on. No node is in flight during the last three parts."""

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


class PhaseReport(Struct, frozen=True):
    phase: Phase
    begin: datetime
    end: datetime


class NodeReport(Struct, frozen=True):
    """A node that was planned or started."""

    node: str
    # The position in the report's `waves` from 1; 0 if the node was not started.
    wave: int
    # The latest outcome; empty if the node has not ended.
    outcome: str
    seconds: float
    phases: Sequence[PhaseReport]
    parts: Mapping[Part, float]
    evict: int
    version_before: str
    version_staged: str
    version_after: str
    message: str = ""

    @property
    def name(self) -> str:
        return self.node

    @property
    def has_failed(self) -> bool:
        return self.outcome not in ("", Outcome.SUCCEEDED)


@dataclass(slots=True)
class WaveReport:
    """A wave that was started."""

    # As shown; a continued wave keeps it.
    index: int
    of: int
    nodes: Sequence[str]
    because: str
    in_flight: int | None
    begun_at: datetime
    # The end of the last node.
    ended_at: datetime
    # Time between `ended_at` and the next wave.
    settle_seconds: float = 0.0
    waited_for: list[str] = field(default_factory=list)
    estimate_seconds: int | None = None

    @property
    def seconds(self) -> float:
        return (self.ended_at - self.begun_at).total_seconds() + self.settle_seconds


@dataclass(slots=True)
class BlockedEviction:
    """An eviction that was blocked for a while."""

    # The last report.
    event: PodBlocked
    # When the eviction was last known to be refused.
    until: datetime
    # False if the node continued or ended without the eviction.
    released: bool = False

    @property
    def seconds(self) -> float:
        return max(0.0, (self.until - self.event.since).total_seconds())


class EvictionReport(Struct, frozen=True):
    """A pod that was evicted."""

    node: str
    pod: str
    owner: str
    evicted_at: datetime
    # None if the pod was not gone at the end of the drain.
    seconds: float | None


class CommandReport(Struct, frozen=True):
    """A process of the run. An abort has no `version` and `format_version`."""

    command: str
    by: str
    version: str
    format_version: str
    at: datetime


class PartReport(Struct, frozen=True):
    """A part of the run's duration. Nodes that are in different parts share the time."""

    part: Part
    seconds: float
    # Of one node; 0 if nodes do not spend time here.
    median: float = 0.0
    longest: float = 0.0
    # The one that took longest.
    node: str = ""

    @property
    def is_of_nodes(self) -> bool:
        return bool(self.node)


class RunReport(Struct, frozen=True):
    """A run, as its journal shows it."""

    format_version: str
    run: str
    ending: Ending
    cluster: str
    cluster_name: str
    begun_at: datetime
    # The time of the last record.
    heard_at: datetime
    seconds: float
    commands: Sequence[CommandReport]
    policy: Mapping[str, Any] | None
    # Sentences about what the journal lacks.
    gaps: Sequence[str]
    succeeded: int
    failed: int
    # What the first plan estimated, without waits for windows.
    planned: PlannedSummary
    estimate: TimeEstimate
    parts: Sequence[PartReport]
    waves: Sequence[WaveReport]
    nodes: Sequence[NodeReport]
    failures: Sequence[NodeFinished]
    holds: Sequence[BlockedEviction]
    notices: Sequence[Notice | VersionHeld | NodeRescued]
    openings: Sequence[Interval]
    interruptions: Sequence[Interval]
    # Reasons by node.
    not_done: Mapping[str, str]
    not_started: Mapping[str, str]
    # Of `not_started`: begun, returned, and started again by a resume.
    aborted: Sequence[str]
    # Counts by reason.
    left_out: Mapping[str, int]
    evictions: int
    evicted: Sequence[EvictionReport]
    skipped: Mapping[str, str]

    @property
    def requested_count(self) -> int:
        return len(self.nodes) - len(self.skipped)

    def wave_at(self, position: int) -> WaveReport | None:
        return self.waves[position - 1] if position else None
