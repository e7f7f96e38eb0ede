"""The JSON documents of commands that print one object each, a type each.

The schemas that the documents publish are made from these types, as from those of `lines`. Fields may be added
within a major version; what stands here stays. What each means: docs/json.md. Times are RFC 3339 in UTC.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict

from rollout.gather.updates import CheckResult
from rollout.model.progress import Phase
from rollout.planning.eligibility.status import NodeStatus


class UnfinishedRun(TypedDict):
    """A rollout that is running, was interrupted, or has left nodes over."""

    run: str
    state: Literal["running", "interrupted", "ended"]
    operating: bool
    started_by: str
    started_at: str
    nodes: Mapping[str, Phase]
    failed: Sequence[str]
    done: Sequence[str]
    not_begun: Sequence[str]
    not_understood: Mapping[str, str]
    gone: Sequence[str]
    tainted: Sequence[str]
    problem: str


class StatusSummary(TypedDict):
    """How many nodes are meant, shown or not."""

    nodes: int
    needs_reboot: int
    not_judged: int


class StatusReport(TypedDict):
    """How the nodes stand."""

    format_version: str
    nodes: Sequence[NodeStatus]
    summary: StatusSummary


class LeftNode(TypedDict):
    """A node that could not be given back."""

    node: str
    message: str


class AbortReport(TypedDict):
    """What an abort has undone."""

    run: str
    reverted: Sequence[str]
    untainted: Sequence[str]
    left: Sequence[LeftNode]


class PauseReport(TypedDict):
    """A pause that was set."""

    all: bool
    nodes: Sequence[str]
    by: str
    at: str
    reason: str
    until: str


class UnpauseReport(TypedDict):
    """Pauses that were ended."""

    all: bool
    nodes: Sequence[str]


class ReleaseReport(TypedDict):
    """Failures that were forgotten."""

    versions: Sequence[str]
    nodes: Sequence[str]
    unknown: Sequence[str]


class CheckReport(TypedDict):
    """What became of the checks for updates."""

    format_version: str
    hosts: Sequence[CheckResult]
