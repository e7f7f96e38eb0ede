"""The JSON lines of a run, a type each: what `apply -o json` and `resume -o json` write, and journals keep.

The schema that the documents publish is made from these types. Fields and types may be added within a major version;
what stands here stays. Times are RFC 3339 in UTC, durations seconds.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from msgspec import Meta, Raw

from rollout.model.progress import NodeCondition, Outcome, Phase

_Cluster = Annotated[
    Mapping[str, Any],
    Meta(description="which cluster it is", extra_json_schema={"$ref": "#/$defs/ClusterIdentity"}),
]
_Policy = Annotated[
    Mapping[str, Any], Meta(description="the rules of its plan", extra_json_schema={"$ref": "#/$defs/Policy"})
]
_Plan = Annotated[Raw, Meta(description="the plan as above", extra_json_schema={"$ref": "#/$defs/RolloutPlan"})]
_Hint = Annotated[str, Meta(description="what to do next; empty for a success")]
_Message = Annotated[str, Meta(description="what went wrong; empty for a success")]
_LeftCordoned = Annotated[bool, Meta(description="our cordon had to stay")]
_SshError = Annotated[str, Meta(description="why its host did not answer when it was last asked; else empty")]
_Conditions = Annotated[Sequence[NodeCondition], Meta(description="of the Node, those that are not as they should be")]
_Console = Annotated[str, Meta(description="where its machine's console is; empty where that is not known")]
_Process = Annotated[str, Meta(description="a word that no other process has, as on the lock")]
_Pod = Annotated[str, Meta(description="namespace/name")]
_Budget = Annotated[str, Meta(description="namespace/name; empty where no budget is the reason, all where several are")]
_Since = Annotated[str, Meta(description="when it was first held back")]


Command = Literal["apply", "resume", "operate", "fleetlock"]


class VersionLine(TypedDict):
    """Always the first line."""

    type: Literal["version"]
    at: str
    format_version: Annotated[str, Meta(description="`major.minor` of this format")]


class PlanLine(TypedDict):
    """The plan that is about to run."""

    type: Literal["plan"]
    at: str
    plan: _Plan


class WaveStartedLine(TypedDict):
    """A wave begins."""

    type: Literal["wave_started"]
    at: str
    index: Annotated[int, Meta(description="from 1")]
    waves: Annotated[int, Meta(description="how many there are")]
    nodes: Sequence[str]
    because: Annotated[str, Meta(description="why these nodes are together")]
    in_flight: Annotated[int | None, Meta(description="the most that are under way at once; null: all, side by side")]


class WaveSettlingLine(TypedDict):
    """A wave's nodes are done, its moved pods are not all available again."""

    type: Literal["wave_settling"]
    at: str
    index: int
    waiting_for: str


class StepLine(TypedDict):
    """A node entered a phase, or something worth telling happened within it."""

    type: Literal["step"]
    at: str
    node: str
    phase: Phase
    detail: str
    endings: NotRequired[
        Annotated[
            Mapping[str, float],
            Meta(
                description="only of a node that was drained: by owner, as kind/namespace/name, the most seconds that "
                "a pod took to end"
            ),
        ]
    ]


class BlockedLine(TypedDict):
    """An eviction that is not allowed now."""

    type: Literal["blocked"]
    at: str
    node: str
    pod: _Pod
    budget: _Budget
    since: _Since
    needs: Annotated[int | None, Meta(description="healthy pods that the budget demands")]
    has: Annotated[int | None, Meta(description="healthy pods that it counts")]
    owner: Annotated[str, Meta(description="Kind/name of the pod's controller; empty where it has none")]
    message: Annotated[str, Meta(description="the API server's, or what else the reason is")]
    seconds_left: Annotated[float, Meta(description="until the drain's deadline")]


class ReleasedLine(TypedDict):
    """A pod that was held back may go, or is gone."""

    type: Literal["released"]
    at: str
    node: str
    pod: _Pod
    budget: _Budget
    since: _Since


class NodeFinishedLine(TypedDict):
    """A node's run ended.

    The last three fields stand in it only where it did not succeed.
    """

    type: Literal["node_finished"]
    at: str
    node: str
    outcome: Outcome
    phase: Annotated[Phase, Meta(description="the last one it reached")]
    message: _Message
    hint: _Hint
    version: Annotated[str, Meta(description="that it runs now, where this is known")]
    seconds: Annotated[float, Meta(description="how long it took")]
    left_cordoned: _LeftCordoned
    ssh_error: NotRequired[_SshError]
    conditions: NotRequired[_Conditions]
    console: NotRequired[_Console]


class VersionHeldLine(TypedDict):
    """A version failed on as many nodes as may fail: no other is started with it."""

    type: Literal["version_held"]
    at: str
    version: Annotated[str, Meta(description="that they have staged")]
    nodes: Annotated[Sequence[str], Meta(description="on which it failed, in that order")]
    message: Annotated[str, Meta(description="the same as a sentence, with what ends it")]


class NoticeLine(TypedDict):
    """Something about the whole run: an outage, a stop request, a protection given up."""

    type: Literal["notice"]
    at: str
    message: str


class DryRunLine(TypedDict):
    """What the API server would do with a node; only with `--dry-run`."""

    type: Literal["dry_run"]
    at: str
    node: str
    evictions: Annotated[int, Meta(description="that it would allow now")]
    objections: Annotated[Sequence[str], Meta(description="to the others, and to the cordon")]


class FailedNode(TypedDict):
    """A failed node of the summary."""

    node: str
    phase: Phase
    message: str
    outcome: Outcome
    hint: _Hint
    left_cordoned: _LeftCordoned
    ssh_error: _SshError
    conditions: _Conditions
    console: _Console


class NotDoneNode(TypedDict):
    """A node that was asked for and not begun, for another reason than that its turn did not come."""

    node: str
    reason: Annotated[str, Meta(description="the word of a reason, or of an outcome")]
    message: str


class Summary(TypedDict):
    """The end of a run: each planned node is in exactly one of the first four lists.

    `not_done` are the nodes that the plan could not take, those skipped for such a reason, and those that failed
    before a `resume`.
    """

    succeeded: Sequence[str]
    failed: Sequence[FailedNode]
    skipped: Sequence[str]
    not_started: Sequence[str]
    reasons: Annotated[Mapping[str, str], Meta(description="of the skipped and the not started, by node")]
    not_done: Annotated[
        Sequence[NotDoneNode],
        Meta(description="asked for and not taken: by the plan, when their turn came, or failed before a `resume`"),
    ]
    left_out: Annotated[
        Mapping[str, int], Meta(description="nodes with nothing to do, or held back: how many, by reason")
    ]
    pods_to_move: Annotated[int, Meta(description="that stood on the planned nodes and had to go, by the plan")]
    evictions: Annotated[int, Meta(description="by this command; deletions with `--disable-eviction`")]
    moved_twice: Annotated[int, Meta(description="those of pods that came during the run, mostly for evicted ones")]


class SummaryLine(Summary):
    """Always the last line."""

    type: Literal["summary"]
    at: str


EventLine = (
    PlanLine
    | WaveStartedLine
    | StepLine
    | BlockedLine
    | ReleasedLine
    | NodeFinishedLine
    | WaveSettlingLine
    | VersionHeldLine
    | NoticeLine
    | SummaryLine
)


class RunRecord(TypedDict):
    """A process begins to work on the rollout; the lines that it writes follow."""

    type: Literal["run"]
    at: str
    format_version: Annotated[str, Meta(description="`major.minor` of this format")]
    run: Annotated[str, Meta(description="the id of the rollout")]
    command: Annotated[Command, Meta(description="which command it is")]
    by: Annotated[str, Meta(description="user, machine and process")]
    process: NotRequired[_Process]
    version: Annotated[str, Meta(description="of the program")]
    cluster: _Cluster
    cluster_name: NotRequired[Annotated[str, Meta(description="`cluster.name`; empty where none was given")]]
    policy: _Policy


class AbortedRecord(TypedDict):
    """The rollout was undone."""

    type: Literal["aborted"]
    at: str
    by: Annotated[str, Meta(description="user, machine and process")]
    run: Annotated[str, Meta(description="the id of the rollout")]
    reverted: Annotated[Sequence[str], Meta(description="names: as they were before")]
    left: Annotated[Sequence[str], Meta(description="names: as they are")]


RunLine = VersionLine | RunRecord | DryRunLine | EventLine
JournalLine = RunRecord | EventLine | AbortedRecord
