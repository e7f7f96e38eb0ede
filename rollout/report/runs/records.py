"""The records of a journal, as far as a report tells of them; what a newer version adds to them is passed over."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any

import msgspec

from rollout.model.progress import NodeCondition, Phase

# Others come of clocks that lie, and cannot be reckoned with.
_YEARS = range(2000, 9000)
Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class Cluster(msgspec.Struct, frozen=True):
    """Which cluster."""

    server: str = ""


class Run(msgspec.Struct, frozen=True, tag_field="type", tag="run"):
    """A process that begins its work."""

    at: Moment
    run: str
    command: str = ""
    by: str = ""
    version: str = ""
    format_version: str = ""
    cluster: Cluster = Cluster()
    policy: dict[str, Any] | None = None


class PlannedNode(msgspec.Struct, frozen=True):
    """A node of a plan."""

    name: str
    running_version: str = ""
    staged_version: str = ""
    evict: int = 0


class Estimate(msgspec.Struct, frozen=True):
    """How long something is likely to take."""

    seconds: int = 0
    basis: tuple[str, ...] = ()


class PlannedWave(msgspec.Struct, frozen=True):
    """A wave of a plan."""

    index: int
    nodes: tuple[PlannedNode, ...] = ()
    estimate: Estimate = Estimate()


class PlanSummary(msgspec.Struct, frozen=True):
    """Figures of a plan."""

    nodes: int = 0
    waves: int = 0
    pods_to_move: int = 0
    expected_evictions: int = 0


class PlanDocument(msgspec.Struct, frozen=True):
    """As much of a plan as is told of it."""

    plan_id: str = ""
    created_at: str = ""
    cluster: Cluster = Cluster()
    policy: dict[str, Any] | None = None
    waves: tuple[PlannedWave, ...] = ()
    summary: PlanSummary = PlanSummary()
    estimate: Estimate = Estimate()


class Plan(msgspec.Struct, frozen=True, tag_field="type", tag="plan"):
    """The plan that is about to run."""

    at: Moment
    plan: PlanDocument


class WaveStarted(msgspec.Struct, frozen=True, tag_field="type", tag="wave_started"):
    """A wave begins."""

    at: Moment
    index: int
    waves: int
    nodes: tuple[str, ...]
    because: str = ""
    in_flight: int | None = None


class WaveSettling(msgspec.Struct, frozen=True, tag_field="type", tag="wave_settling"):
    """What keeps the next wave waiting."""

    at: Moment
    index: int
    waiting_for: str = ""


class Step(msgspec.Struct, frozen=True, tag_field="type", tag="step"):
    """A node entered a phase, or goes on in it."""

    at: Moment
    node: str
    phase: Phase


class Blocked(msgspec.Struct, frozen=True, tag_field="type", tag="blocked"):
    """An eviction that is not allowed now."""

    at: Moment
    node: str
    pod: str
    since: Moment
    budget: str = ""
    needs: int | None = None
    has: int | None = None
    owner: str = ""
    message: str = ""


class Released(msgspec.Struct, frozen=True, tag_field="type", tag="released"):
    """A pod that may go, or is gone."""

    at: Moment
    node: str
    pod: str
    since: Moment


class NodeFinished(msgspec.Struct, frozen=True, tag_field="type", tag="node_finished"):
    """A node's end."""

    at: Moment
    node: str
    outcome: str
    phase: str = ""
    message: str = ""
    hint: str = ""
    version: str = ""
    left_cordoned: bool = False
    ssh_error: str = ""
    conditions: tuple[NodeCondition, ...] = ()
    console: str = ""


class VersionHeld(msgspec.Struct, frozen=True, tag_field="type", tag="version_held"):
    """A version that no further node is taken to."""

    at: Moment
    message: str


class Notice(msgspec.Struct, frozen=True, tag_field="type", tag="notice"):
    """Something about the whole run."""

    at: Moment
    message: str


class Aborted(msgspec.Struct, frozen=True, tag_field="type", tag="aborted"):
    """The run was undone."""

    at: Moment
    by: str = ""


class Summary(msgspec.Struct, frozen=True, tag_field="type", tag="summary"):
    """A command's end."""

    at: Moment


class Version(msgspec.Struct, frozen=True, tag_field="type", tag="version"):
    """The first line of `apply -o json`, whose lines may be read as a journal, too."""

    at: Moment


Entry = (
    Run
    | Plan
    | WaveStarted
    | WaveSettling
    | Step
    | Blocked
    | Released
    | NodeFinished
    | VersionHeld
    | Notice
    | Aborted
    | Summary
    | Version
)


def entries(records: Iterable[Mapping[str, Any]]) -> Iterator[Entry | None]:
    """Each record with its fields; None for one that is not understood."""
    for record in records:
        try:
            entry = msgspec.convert(record, Entry)
        except (msgspec.ValidationError, OverflowError):
            yield None
        else:
            yield entry if entry.at.year in _YEARS else None
