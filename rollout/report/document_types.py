"""The JSON documents of commands that print one object each, and the lines of `check-update`, a type each.

The schemas that the documents publish are made from these types, as from those of `lines`. Fields may be added
within a major version; what stands here stays. Times are RFC 3339 in UTC.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, TypedDict

from msgspec import Meta

from rollout.gather.updates.check import CheckOutcome
from rollout.model.host import UpdateOperation
from rollout.model.progress import Phase
from rollout.report.lines import VersionLine

_Names = Annotated[Sequence[str], Meta(description="names of Nodes")]


class UnfinishedRun(TypedDict):
    """A rollout that is running, was interrupted, or has left nodes over."""

    run: Annotated[str, Meta(description="the id of the rollout; empty where nothing tells it")]
    state: Annotated[
        Literal["running", "interrupted", "ended"],
        Meta(description="`ended`: it has left nodes over, and keeps no other from beginning"),
    ]
    operating: Annotated[bool, Meta(description="an operating process goes on with it by itself")]
    started_by: Annotated[str, Meta(description="user and machine; empty where that is not known")]
    started_at: Annotated[str, Meta(description="empty where that is not known")]
    nodes: Annotated[Mapping[str, Phase], Meta(description="by name, where each stands that is under way or failed")]
    failed: Annotated[Sequence[str], Meta(description="names: left cordoned, or given back")]
    done: Annotated[Sequence[str], Meta(description="names: succeeded")]
    not_begun: Annotated[Sequence[str], Meta(description="names: planned, and never begun")]
    not_understood: Annotated[Mapping[str, str], Meta(description="by name, why its marks are not understood")]
    gone: Annotated[Sequence[str], Meta(description="names: planned, and in the cluster no more")]
    tainted: Annotated[Sequence[str], Meta(description="names: with its soft taint")]
    problem: Annotated[str, Meta(description="why its record cannot be used; else empty")]


class LeftNode(TypedDict):
    """A node that could not be given back."""

    node: str
    message: Annotated[str, Meta(description="why")]


class AbortReport(TypedDict):
    """What an abort has undone."""

    run: Annotated[str, Meta(description="the id of the rollout; empty where nothing tells it")]
    reverted: Annotated[Sequence[str], Meta(description="names: as they were before")]
    untainted: Annotated[Sequence[str], Meta(description="names: rid of the soft taint")]
    left: Annotated[Sequence[LeftNode], Meta(description="those that stay as they are")]


class PauseReport(TypedDict):
    """A pause that was set."""

    all: Annotated[bool, Meta(description="of all nodes, also those that join later")]
    nodes: _Names
    by: Annotated[str, Meta(description="user and machine")]
    at: Annotated[str, Meta(description="when it was set")]
    reason: Annotated[str, Meta(description="`--reason`; may be empty")]
    until: Annotated[str, Meta(description="when it ends by itself; empty where it does not")]


class UnpauseReport(TypedDict):
    """Pauses that were ended."""

    all: Annotated[bool, Meta(description="the pause of all nodes was one of them")]
    nodes: _Names


class ReleaseReport(TypedDict):
    """Failures that were forgotten."""

    versions: Annotated[Sequence[str], Meta(description="that are taken again")]
    nodes: _Names
    unknown: Annotated[Sequence[str], Meta(description="versions and names that nothing was held against")]


class UpdateLine(TypedDict):
    """A host does something else now, or is further with it."""

    type: Literal["update"]
    at: str
    node: str
    operation: Annotated[UpdateOperation, Meta(description="update_engine's word")]
    progress: Annotated[float, Meta(description="of the operation, from 0 to 1")]
    version: Annotated[str, Meta(description="that is loaded; empty where that is not known")]
    problem: Annotated[str, Meta(description="why the host does not answer now; else empty")]


class ResultLine(TypedDict):
    """The end of one host's check."""

    type: Literal["result"]
    at: str
    node: str
    outcome: Annotated[CheckOutcome, Meta(description="how it ended")]
    version: Annotated[str, Meta(description="that is staged; empty where that is not known")]
    message: Annotated[str, Meta(description="what went wrong; else empty")]
    last_checked: Annotated[
        int, Meta(description="when its server last answered, in seconds since 1970 by the host's clock; 0: not known")
    ]


class CheckSummaryLine(TypedDict):
    """Always the last line: each node in one list."""

    type: Literal["summary"]
    at: str
    asked: Annotated[Sequence[str], Meta(description="names: without `--wait`, hosts that took the question")]
    staged: Annotated[Sequence[str], Meta(description="names: an update waits for a reboot")]
    up_to_date: Annotated[Sequence[str], Meta(description="names: nothing was found")]
    unreachable: Annotated[Sequence[str], Meta(description="names: no answer over SSH")]
    refused: Annotated[Sequence[str], Meta(description="names: the question was not taken")]
    failed: Annotated[Sequence[str], Meta(description="names: update_engine failed")]
    stalled: Annotated[Sequence[str], Meta(description="names: no progress within `--stall-timeout`")]
    timed_out: Annotated[Sequence[str], Meta(description="names: not at an end within `--timeout`")]


CheckLine = VersionLine | UpdateLine | ResultLine | CheckSummaryLine
