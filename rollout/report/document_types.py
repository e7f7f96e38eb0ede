"""The JSON documents of commands that print one object each, a type each.

The schemas that the documents publish are made from these types, as from those of `lines`. Fields may be added
within a major version; what stands here stays. Times are RFC 3339 in UTC.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, TypedDict

from msgspec import Meta

from rollout.gather.updates import CheckResult
from rollout.model.progress import Phase
from rollout.planning.eligibility.status import NodeStatus

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


class StatusSummary(TypedDict):
    """How many nodes are meant, shown or not."""

    nodes: Annotated[int, Meta(description="that are selected")]
    needs_reboot: Annotated[int, Meta(description="of these, that wait for a reboot")]
    not_judged: Annotated[int, Meta(description="of these, of which that is not known")]


class StatusReport(TypedDict):
    """How the nodes stand."""

    format_version: Annotated[str, Meta(description="`major.minor` of this format")]
    nodes: Annotated[Sequence[NodeStatus], Meta(description="in the natural order of their names")]
    summary: Annotated[StatusSummary, Meta(description="of all that are selected, shown or not")]


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


class CheckReport(TypedDict):
    """What became of the checks for updates."""

    format_version: str
    hosts: Sequence[CheckResult]
