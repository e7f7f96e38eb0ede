"""JSON lines of runs and journals, besides the engine's events.

The published schema is made from these types. Times are RFC 3339 in UTC, durations are seconds.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import IO, Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from rollout.model.cluster import ClusterIdentity
from rollout.model.json_text import json_line
from rollout.model.plan import FORMAT_VERSION, TimeEstimate, Wave
from rollout.model.progress import (
    JsonLine,
    NodeFinished,
    NodeRescued,
    NodeStep,
    NotDone,
    Notice,
    Outcome,
    PlanReady,
    PodBlocked,
    PodReleased,
    PodsEvicted,
    RunFinished,
    StepEvent,
    VersionHeld,
    WaveSettling,
    WaveStarted,
)
from rollout.model.timestamps import timestamp
from rollout.planning.plan.document import encode_plan

# Other years come from wrong clocks.
_YEARS = range(2000, 9000)
Command = Literal["apply", "resume", "operate", "fleetlock"]
Record = Mapping[str, Any]


class VersionLine(JsonLine, frozen=True, tag="version"):
    """Always the first line."""

    format_version: str


class PlannedSummary(Struct, frozen=True):
    """Totals of a plan."""

    nodes: int = 0
    waves: int = 0
    pods_to_move: int = 0
    expected_evictions: int = 0


class RecordedPlan(Struct, frozen=True):
    """What reports need of a plan in a journal."""

    plan_id: str = ""
    cluster: ClusterIdentity = ClusterIdentity("", "", "")
    policy: dict[str, Any] | None = None
    waves: tuple[Wave, ...] = ()
    summary: PlannedSummary = PlannedSummary()
    estimate: TimeEstimate = TimeEstimate()


class PlanLine(JsonLine, frozen=True, tag="plan"):
    """The plan that is about to run."""

    plan: Record

    @property
    def document(self) -> RecordedPlan:
        return msgspec.convert(self.plan, RecordedPlan)


class DryRunLine(JsonLine, frozen=True, tag="dry_run"):
    """How the API server responds to dry-run requests for a node; only with `--dry-run`."""

    node: str
    evictions: int
    objections: Sequence[str]


class SummaryLine(JsonLine, frozen=True, tag="summary"):
    """Always the last line. Each planned node is in exactly one of the first four lists.

    `not_done` lists the nodes that the plan could not include, the nodes that were skipped later
    for such a reason, and the nodes that failed before a `resume`.
    """

    succeeded: Sequence[str]
    failed: Sequence[NodeFinished]
    skipped: Sequence[str]
    not_started: Sequence[str]
    reasons: Mapping[str, str]
    not_done: Sequence[NotDone] = ()
    left_out: Mapping[str, int] = {}
    pods_to_move: int = 0
    evictions: int = 0
    kinds: Mapping[str, str] = {}

    @property
    def aborted(self) -> frozenset[str]:
        """Return the begun nodes that a resume starts again."""
        return frozenset(
            node for node in self.not_started if self.kinds.get(node) == Outcome.ABORTED
        )

    @property
    def why_not_done(self) -> Mapping[str, str]:
        return {entry.node: f"{entry.message} ({entry.reason})" for entry in self.not_done}

    @property
    def why_not_started(self) -> Mapping[str, str]:
        return self._reasons_of(self.not_started)

    @property
    def why_skipped(self) -> Mapping[str, str]:
        return self._reasons_of(self.skipped)

    def _reasons_of(self, nodes: Sequence[str]) -> Mapping[str, str]:
        not_done = {entry.node for entry in self.not_done}
        return {node: self.reasons.get(node, "") for node in nodes if node not in not_done}


class JournalHeader(JsonLine, frozen=True, kw_only=True, tag="run"):
    """A process has started to work on the rollout.

    Percentages in the policy are calculated from the `selected` nodes.
    """

    format_version: str = ""
    run: str
    command: Command = "apply"
    by: str = ""
    version: str = ""
    cluster: Mapping[str, Any] = {}
    policy: Mapping[str, Any] = {}
    process: str | UnsetType = UNSET
    cluster_name: str | UnsetType = UNSET
    selected: int | UnsetType = UNSET


class AbortedRecord(JsonLine, frozen=True, tag="aborted"):
    """The rollout was aborted."""

    by: str
    run: str
    reverted: Sequence[str]
    left: Sequence[str]
    versions: Mapping[str, str] | UnsetType = UNSET


EventLine = (
    PlanLine
    | WaveStarted
    | NodeStep
    | PodBlocked
    | PodReleased
    | PodsEvicted
    | NodeFinished
    | NodeRescued
    | WaveSettling
    | VersionHeld
    | Notice
    | SummaryLine
)
AnyLine = VersionLine | JournalHeader | DryRunLine | AbortedRecord | EventLine


def journal_record(line: AnyLine) -> Record:
    # msgspec would write microseconds.
    record: Record = _with_timestamps(msgspec.to_builtins(line, builtin_types=(datetime,)))
    return record


def _with_timestamps(value: Any) -> Any:
    match value:
        case datetime():
            return timestamp(value)
        case dict():
            return {name: _with_timestamps(item) for name, item in value.items()}
        case list() | tuple():
            return [_with_timestamps(item) for item in value]
        case _:
            return value


def parse_records(records: Iterable[Record]) -> Iterator[AnyLine | None]:
    """Yield None for a record that is not understood."""
    for record in records:
        try:
            line = msgspec.convert(record, AnyLine)
            if isinstance(line, PlanLine):
                line.document  # noqa: B018 - this raises if the plan is not understood
        except (msgspec.ValidationError, OverflowError):
            yield None
        else:
            yield line if line.at.year in _YEARS else None


class JsonLines:
    """Safe to use from many threads."""

    def __init__(self, stream: IO[str], at: datetime) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self.write(VersionLine(at, FORMAT_VERSION))

    def notify(self, event: StepEvent) -> None:
        self.write(event_line(event))

    def write(self, content: AnyLine) -> None:
        text = json_line(journal_record(content)).decode() + "\n"
        with self._lock:
            self._stream.write(text)
            self._stream.flush()


def event_line(event: StepEvent) -> EventLine:
    match event:
        case PlanReady():
            return PlanLine(event.at, msgspec.json.decode(encode_plan(event.plan)))
        case RunFinished():
            result = event.result
            skipped_or_not_started = (*result.skipped, *result.not_started)
            kinds = {entry.node: entry.kind for entry in skipped_or_not_started if entry.kind}
            kinds |= dict.fromkeys(result.aborted, Outcome.ABORTED)
            return SummaryLine(
                at=event.at,
                succeeded=[success.node for success in result.succeeded],
                failed=[NodeFinished.of(event.at, failure) for failure in result.failed],
                skipped=[entry.node for entry in result.skipped],
                not_started=[entry.node for entry in result.not_started],
                reasons={entry.node: entry.message for entry in skipped_or_not_started},
                not_done=result.not_done,
                left_out=result.left_out,
                pods_to_move=result.pods_to_move,
                evictions=result.evictions,
                kinds=kinds,
            )
        case _:
            return event
