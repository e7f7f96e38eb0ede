"""The rows of `rollout status`, which are also its JSON."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import force_setattr

from rollout.model.cluster import Node
from rollout.model.detection import Detection, Source
from rollout.model.finding import NodeFinding
from rollout.model.host import (
    Host,
    HostObservation,
    LoggedInUser,
    ProbeFailure,
    UpdateOperation,
    UpdateStanding,
    UpdateState,
)
from rollout.model.memory import Pause
from rollout.model.node_marks import deferral_of, pause_on, sources_not_asked
from rollout.model.plan import ExclusionReason
from rollout.model.policy import Policy
from rollout.model.progress import Phase
from rollout.model.text import joined, natural_key
from rollout.model.timestamps import whole_second
from rollout.planning.eligibility.candidates import Candidate, update_standing, why_excluded
from rollout.planning.eligibility.judgement import EligibilityInputs
from rollout.planning.eligibility.memory import backoff_end
from rollout.planning.eligibility.pools import pools_of
from rollout.wording import fix_of, note_of, text


class NodeState(StrEnum):
    """The STATE column of `rollout status`."""

    UP_TO_DATE = "up to date"
    BEHIND = "behind"
    ROLLED_BACK = "rolled back"
    CHECK_FAILED = "check failed"
    NOT_CHECKING = "not checking"
    IDLE = "idle"
    UPDATE_AVAILABLE = "update available"
    DOWNLOADING = "downloading"
    VERIFYING = "verifying"
    FINALIZING = "finalizing"
    PENDING = "pending"
    CORDONED = "cordoned"
    DRAINING = "draining"
    DRAINED = "drained"
    REBOOTING = "rebooting"
    BOOTED = "booted"
    READY = "ready"
    DONE = "done"
    FAILED = "failed"
    UNREACHABLE = "unreachable"
    UNKNOWN = "unknown"
    NOT_READY = "not ready"
    DELETING = "deleting"
    UNSUPPORTED = "unsupported"
    LEFT_CORDONED = "left cordoned"
    PAUSED = "paused"
    WRONG_HOST = "wrong host"
    NO_SUDO = "no sudo"
    INHIBITED = "inhibited"
    SHUTDOWN_PENDING = "shutdown pending"
    EXCLUDED = "excluded"
    RIVAL = "rival"
    UNKNOWN_MARKS = "unknown marks"
    BLOCKED = "blocked"
    DEFERRED = "deferred"
    OWN_NODE = "own node"
    HELD = "held"
    FAILED_RECENTLY = "failed recently"
    UNPROVEN = "unproven"


_STATE_BY_UPDATE = {
    UpdateState.UP_TO_DATE: NodeState.UP_TO_DATE,
    UpdateState.BEHIND: NodeState.BEHIND,
    UpdateState.ROLLED_BACK: NodeState.ROLLED_BACK,
    UpdateState.CHECK_FAILED: NodeState.CHECK_FAILED,
    UpdateState.NOT_CHECKING: NodeState.NOT_CHECKING,
    UpdateState.UPDATING: NodeState.DOWNLOADING,
    UpdateState.IDLE: NodeState.IDLE,
}
_STATE_BY_OPERATION = {
    UpdateOperation.AVAILABLE: NodeState.UPDATE_AVAILABLE,
    UpdateOperation.DOWNLOADING: NodeState.DOWNLOADING,
    UpdateOperation.VERIFYING: NodeState.VERIFYING,
    UpdateOperation.FINALIZING: NodeState.FINALIZING,
}
_STATE_BY_REASON: Mapping[str, NodeState] = {
    ExclusionReason.NOT_READY: NodeState.NOT_READY,
    ExclusionReason.DELETING: NodeState.DELETING,
    ExclusionReason.UNSUPPORTED: NodeState.UNSUPPORTED,
    ExclusionReason.CORDONED: NodeState.CORDONED,
    ExclusionReason.LEFT_CORDONED: NodeState.LEFT_CORDONED,
    ExclusionReason.PAUSED: NodeState.PAUSED,
    ExclusionReason.UNREACHABLE: NodeState.UNREACHABLE,
    ExclusionReason.WRONG_HOST: NodeState.WRONG_HOST,
    ExclusionReason.UNKNOWN_STATUS: NodeState.UNKNOWN,
    ExclusionReason.NO_SUDO: NodeState.NO_SUDO,
    ExclusionReason.INHIBITED: NodeState.INHIBITED,
    ExclusionReason.SHUTDOWN_PENDING: NodeState.SHUTDOWN_PENDING,
    ExclusionReason.EXCLUDED: NodeState.EXCLUDED,
    ExclusionReason.RIVAL: NodeState.RIVAL,
    ExclusionReason.UNKNOWN_MARKS: NodeState.UNKNOWN_MARKS,
    ExclusionReason.BLOCKED: NodeState.BLOCKED,
    ExclusionReason.DEFERRED: NodeState.DEFERRED,
    ExclusionReason.OWN_NODE: NodeState.OWN_NODE,
    ExclusionReason.VERSION_HELD: NodeState.HELD,
    ExclusionReason.FAILED_RECENTLY: NodeState.FAILED_RECENTLY,
    ExclusionReason.UNPROVEN: NodeState.UNPROVEN,
}
# An unreachable host matters more than these.
_REASONS_BEFORE_HOST = (
    ExclusionReason.PAUSED,
    ExclusionReason.CORDONED,
    ExclusionReason.LEFT_CORDONED,
    ExclusionReason.UNKNOWN_MARKS,
)


class UnderWay(Struct, frozen=True):
    phase: Phase
    wave: int = 0
    waves: int = 0
    # How long its host is down, or which pods its drain awaits.
    wait: str = ""

    @property
    def progress(self) -> str:
        wave = f"wave {self.wave} of {self.waves}" if self.wave else ""
        return joined(", ", self.wait, wave)

    def __str__(self) -> str:
        return joined(", ", self.phase, self.progress)


class NodeStatus(Struct, frozen=True):
    """The state of a node. For the fields, see docs/json.md."""

    node: str
    host: str
    ready: bool
    schedulable: bool
    needs_reboot: bool
    operation: str
    running_version: str
    staged_version: str
    boot_id: str
    reason: str
    error: str
    state: NodeState = NodeState.UNKNOWN
    pool: str = ""
    failures: int = 0
    retry_after: str = ""
    deferred: str = ""
    group: str = ""
    users: tuple[LoggedInUser, ...] | None = None
    detected_by: tuple[Source, ...] = ()
    detail: str = ""
    under_way: str = ""
    judged: bool = True
    # On the host or Node, but not in `detect.sources`.
    shows: tuple[Source, ...] = ()
    message: str = ""
    update: UpdateStanding | None = None
    pause: Pause | None = None
    phase: str = ""
    progress: str = ""
    fix: str = ""
    note: str = ""
    behind: bool = False
    last_checked: str = ""

    def __post_init__(self) -> None:
        force_setattr(self, "state", _state(self))

    @property
    def is_paused(self) -> bool:
        return self.reason == ExclusionReason.PAUSED

    @property
    def is_rolled_back(self) -> bool:
        return self.update is not None and self.update.state is UpdateState.ROLLED_BACK

    @property
    def is_judged_by_its_version(self) -> bool:
        reasons = ("", ExclusionReason.NO_UPDATE, ExclusionReason.UNKNOWN_STATUS)
        return self.update is not None and self.reason in reasons

    @property
    def is_rebooting(self) -> bool:
        return self.phase == Phase.REBOOTING

    @property
    def is_pending(self) -> bool:
        return self.needs_reboot or bool(self.under_way)


def _state(status: NodeStatus) -> NodeState:
    is_under_way = bool(status.phase)
    if is_under_way:
        return NodeState(status.phase)
    if status.error and status.reason in _REASONS_BEFORE_HOST:
        return NodeState.UNREACHABLE
    if status.is_judged_by_its_version:
        return _update_state(status)
    if status.reason and status.reason != ExclusionReason.NO_UPDATE:
        return _STATE_BY_REASON[status.reason]
    if status.needs_reboot:
        return NodeState.PENDING
    return _update_state(status)


def _update_state(status: NodeStatus) -> NodeState:
    if status.update is None:
        return NodeState.UNKNOWN
    if status.update.state is UpdateState.UPDATING:
        return _STATE_BY_OPERATION.get(UpdateOperation(status.operation), NodeState.DOWNLOADING)
    return _STATE_BY_UPDATE[status.update.state]


def node_statuses(
    nodes: Sequence[Node],
    hosts: Mapping[str, Host],
    observations: Mapping[str, HostObservation],
    policy: Policy,
    inputs: EligibilityInputs,
    under_way: Mapping[str, UnderWay] = MappingProxyType({}),
) -> tuple[NodeStatus, ...]:
    pools = pools_of(policy)
    rows = []
    for node in sorted(nodes, key=lambda node: natural_key(node.name)):
        pool = pools.pool_of(node.labels)
        candidate = Candidate(
            node,
            observation=observations.get(node.name),
            policy=pools.rules(pool),
            inputs=inputs,
            pool=pool,
        )
        rows.append(_row(candidate, hosts.get(node.name), under_way.get(node.name)))
    return tuple(rows)


def _row(candidate: Candidate, host: Host | None, under_way: UnderWay | None) -> NodeStatus:
    node = candidate.node
    observation = candidate.observation
    facts = candidate.facts
    inputs = candidate.inputs
    finding = why_excluded(candidate)
    detection = facts.detection if facts else Detection()
    failures = inputs.memory.nodes.get(node.name)
    update = update_standing(candidate)
    last_checked = facts.checks.last if facts else None
    is_known = facts is not None and not detection.unanswered
    is_unsupported = finding is not None and finding.kind is ExclusionReason.UNSUPPORTED
    return NodeStatus(
        node=node.name,
        host=host.address if host else "",
        ready=node.is_ready,
        schedulable=not node.unschedulable,
        needs_reboot=detection.needs_reboot,
        operation=facts.update.operation.value if facts else "",
        running_version=facts.running_version if facts else "",
        staged_version=detection.staged_version,
        boot_id=facts.boot_id if facts else node.boot_id,
        reason=finding.kind if finding else "",
        error=observation.message if isinstance(observation, ProbeFailure) else "",
        pool=candidate.pool,
        failures=failures.failures if failures else 0,
        retry_after=backoff_end(inputs.memory, node.name, inputs.now),
        deferred=_deferral_text(node),
        group=facts.group if facts else "",
        users=facts.users if facts else None,
        detected_by=detection.needed_by,
        detail=detection.detail,
        judged=is_known or is_unsupported,
        shows=sources_not_asked(node, facts) if facts else (),
        message=text(finding) if finding else "",
        fix=fix_of(finding) if finding else "",
        note=_brief_note(observation, finding),
        update=update,
        behind=update is not None and update.behind,
        last_checked=whole_second(last_checked) if last_checked else "",
        pause=_current_pause(candidate),
        under_way=str(under_way or ""),
        phase=under_way.phase if under_way else "",
        progress=under_way.progress if under_way else "",
    )


def _brief_note(observation: HostObservation | None, finding: NodeFinding | None) -> str:
    if isinstance(observation, ProbeFailure):
        return observation.brief
    return note_of(finding) if finding else ""


def _current_pause(candidate: Candidate) -> Pause | None:
    """A node's pause comes before one of all nodes."""
    inputs = candidate.inputs
    for pause in (pause_on(candidate.node), inputs.memory.pause):
        if pause and not pause.is_over(inputs.now):
            return pause
    return None


def _deferral_text(node: Node) -> str:
    deferral = deferral_of(node)
    if deferral is None:
        return ""
    by = f"by {deferral.by}" if deferral.by else ""
    at = f"at {deferral.at}" if deferral.at else ""
    return joined(" ", "left for a run from another node", by, at)
