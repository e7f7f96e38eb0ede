"""What an interrupted rollout has left on the cluster: its record and its marks on Nodes."""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct, field
from msgspec.structs import replace

from rollout.execution.record.record import StoredRecord, read_record
from rollout.gather.cluster.snapshot import read_nodes
from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.node_marks import (
    UNCLEAR_HINT,
    annotation_problem,
    deferral_of,
    has_marks,
    last_result,
    targets_on,
)
from rollout.model.plan import PlannedNode
from rollout.model.progress import NodeResult, Outcome, Phase
from rollout.model.soft_taint import has_soft_taint
from rollout.ports import ClusterApi
from rollout.wording import cause_of

_GONE = "its record is gone, or is in another lock.namespace"
_ABORTED = "it was aborted, which removed its record"
_STAYS = "its cordon and its rollout annotations stay"
_NO_HOST = (
    "Add its host to the inventory (-i) and run rollout resume again, or return the node to service"
    " with rollout abort."
)
_NOT_OURS = (
    "Return the node to service with rollout abort, which also undoes this rollout, or check the"
    " node yourself."
)


class MarkedNode(Struct, frozen=True):
    node: PlannedNode
    phase: Phase
    run_id: str
    is_cordoned_now: bool


class Unfinished(Struct, frozen=True):
    """A rollout that was interrupted, or ended with nodes left over."""

    record: StoredRecord
    in_flight: tuple[MarkedNode, ...] = ()
    failed: tuple[MarkedNode, ...] = ()
    # Outcomes of nodes that failed and were uncordoned.
    failed_in_service: Mapping[str, str] = field(default_factory=dict)
    done: tuple[str, ...] = ()
    untouched_nodes: tuple[PlannedNode, ...] = ()
    # Why a node's marks are not understood; it is not touched.
    unclear: Mapping[str, str] = field(default_factory=dict)
    # Planned, but deleted.
    gone: tuple[str, ...] = ()
    # With the soft taint or conditions.
    tainted: tuple[str, ...] = ()
    conditioned: tuple[str, ...] = ()
    # The record is removed, and all marked nodes were aborted.
    is_aborted: bool = False

    @property
    def marked_nodes(self) -> tuple[MarkedNode, ...]:
        return (*self.in_flight, *self.failed)

    @property
    def is_only_taints(self) -> bool:
        """Whether only soft taints or conditions are left, which block no rollout."""
        return self.record.is_missing and not (self.marked_nodes or self.unclear)

    @property
    def blocks_others(self) -> bool:
        """Whether it must be resumed or aborted before another rollout."""
        return bool(self.in_flight or self.unclear) or not self.record.ended or self.is_garbled

    @property
    def was_stopped(self) -> bool:
        return self.record.stopped and bool(self.untouched_nodes)

    @property
    def only_failed_left(self) -> bool:
        return not (self.blocks_others or self.untouched_nodes) and bool(
            self.failed or self.failed_in_service
        )

    @property
    def is_garbled(self) -> bool:
        return bool(self.record.problem) and not self.record.is_missing

    @property
    def run_id(self) -> str:
        if self.record.run_id:
            return self.record.run_id
        nodes = self.marked_nodes
        return nodes[0].run_id if nodes else ""


class RunState(StrEnum):
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    ENDED = "ended"
    # If it is unknown whether the process lives.
    UNFINISHED = "unfinished"


def run_state(unfinished: Unfinished, *, alive: bool | None) -> RunState:
    if alive:
        return RunState.RUNNING
    if not unfinished.blocks_others:
        return RunState.ENDED
    return RunState.UNFINISHED if alive is None else RunState.INTERRUPTED


def read_unfinished(
    api: ClusterApi, namespace: str, *, include_deferred: bool
) -> Unfinished | None:
    return assess(read_record(api, namespace), read_nodes(api), include_deferred=include_deferred)


def assess(
    record: StoredRecord | None, nodes: Iterable[Node], *, include_deferred: bool = False
) -> Unfinished | None:
    """Return the unfinished rollout, or None.

    A deferred node's soft taint is for the next rollout: it counts only if `include_deferred`.
    """
    present = {node.name: node for node in nodes}
    planned = {node.name: node for node in record.plan.nodes} if record and record.plan else {}
    marked = {name: node for name, node in present.items() if has_marks(node)}
    tainted = _tainted_nodes(present.values(), include_deferred=include_deferred)
    conditioned = tuple(node.name for node in present.values() if node.has_own_conditions)
    if record is None and not (marked or tainted or conditioned):
        return None
    understood, unclear = _read_marks(marked.values(), planned)
    is_aborted = (
        record is None
        and bool(understood)
        and not unclear
        and all(_was_aborted(node) for node in marked.values())
    )
    problem = _ABORTED if is_aborted else _GONE
    stored = record or _record_from_marks(understood, unclear, problem=problem)
    outcomes = {name: _outcome(node, stored.run_id) for name, node in present.items()}
    outcomes = {name: outcome for name, outcome in outcomes.items() if outcome}
    waiting = (planned.keys() & present.keys()) - marked.keys() - outcomes.keys()
    return Unfinished(
        record=stored,
        in_flight=tuple(entry for entry in understood if entry.phase is not Phase.FAILED),
        failed=tuple(entry for entry in understood if entry.phase is Phase.FAILED),
        failed_in_service={
            name: outcome for name, outcome in outcomes.items() if outcome != Outcome.SUCCEEDED
        },
        done=tuple(name for name, outcome in outcomes.items() if outcome == Outcome.SUCCEEDED),
        untouched_nodes=tuple(node for name, node in planned.items() if name in waiting),
        unclear=unclear,
        gone=tuple(name for name in planned if name not in present),
        tainted=tainted,
        conditioned=conditioned,
        is_aborted=is_aborted,
    )


def _read_marks(
    nodes: Iterable[Node], planned: Mapping[str, PlannedNode]
) -> tuple[list[MarkedNode], dict[str, str]]:
    understood: list[MarkedNode] = []
    unclear: dict[str, str] = {}
    for node in nodes:
        problem = annotation_problem(node)
        if problem:
            unclear[node.name] = cause_of(problem)
        else:
            understood.append(_marked_node(node, planned.get(node.name)))
    return understood, unclear


class LastRun(Struct, frozen=True):
    """The last rollout that ended on a node."""

    run_id: str
    at: str
    # How many nodes ended so.
    outcomes: Mapping[str, int]


def last_run(nodes: Iterable[Node]) -> LastRun | None:
    results = [last_result(node) for node in nodes]
    results = [result for result in results if result.get("run") and result.get("at")]
    if not results:
        return None
    # Timestamps in UTC sort as texts.
    latest = max(results, key=lambda result: result["at"])
    run_id = latest["run"]
    outcomes = Counter(result.get("outcome", "") for result in results if result["run"] == run_id)
    return LastRun(run_id, latest["at"], outcomes)


def _tainted_nodes(nodes: Iterable[Node], *, include_deferred: bool) -> tuple[str, ...]:
    """Return nodes with a soft taint, and deferred ones, with or without it, if included."""

    def counts(node: Node) -> bool:
        return include_deferred if deferral_of(node) else has_soft_taint(node)

    return tuple(node.name for node in nodes if counts(node))


def _was_aborted(node: Node) -> bool:
    """Whether an abort has ended this node's rollout, but could not return the node.

    `mark_aborted` then wrote the result beside the marks.
    """
    result = last_result(node)
    is_same_run = result.get("run") == node.annotations.get(marks.RUN)
    return is_same_run and result.get("outcome") == Outcome.ABORTED


def _record_from_marks(
    understood: Sequence[MarkedNode], unclear: Mapping[str, str], *, problem: str
) -> StoredRecord:
    """Return what the marks tell of a rollout whose record is missing."""
    # False sorts first: a node in flight, if there is one.
    first = min(understood, key=lambda node: node.phase is Phase.FAILED, default=None)
    ended = not unclear and (first is None or first.phase is Phase.FAILED)
    run_id = first.run_id if first else ""
    return StoredRecord(run_id, ended=ended, problem=problem, is_missing=True)


def _outcome(node: Node, run_id: str) -> str:
    """Return the rollout's outcome on a node without marks; empty if none or aborted."""
    result = last_result(node)
    if not run_id or result.get("run") != run_id or has_marks(node):
        return ""
    outcome = result.get("outcome", "")
    return "" if outcome == Outcome.ABORTED else outcome


def _marked_node(node: Node, planned: PlannedNode | None) -> MarkedNode:
    """Return the node by its marks, which are newer than any plan."""
    staged_version = node.annotations.get(marks.STAGED_VERSION, "")
    targets = targets_on(node)
    is_staged = bool(staged_version or targets)
    base = planned or PlannedNode(
        name=node.name,
        boot_id="",
        node_uid="",
        running_version="",
        staged_version="",
        evict=0,
        leave=0,
        staged=is_staged,
        detected_by=tuple(targets),
    )
    marked = replace(
        base,
        boot_id=node.annotations[marks.BOOT_ID_BEFORE],
        node_uid=node.uid,
        machine_id=node.annotations.get(marks.MACHINE_ID) or base.machine_id or node.machine_id,
        staged_version=staged_version,
        was_cordoned=node.annotations.get(marks.CORDONED_BY_US) != "true",
        # A staged version in the marks must be proved.
        staged=base.staged or is_staged,
        detected_by=base.detected_by or tuple(targets),
    )
    return MarkedNode(
        marked,
        Phase(node.annotations[marks.PHASE]),
        node.annotations[marks.RUN],
        node.unschedulable,
    )


def find_stranded(
    unfinished: Unfinished, marked: Iterable[MarkedNode], nodes_with_host: Container[str]
) -> tuple[NodeResult, ...]:
    """Return a result for each node that is unclear or cannot be continued."""
    results = []
    for name, why in unfinished.unclear.items():
        hint = UNCLEAR_HINT.format(name=name)
        results.append(
            _stranded_result(
                name, Phase.FAILED, f"its rollout annotations cannot be read: {why}", hint
            )
        )
    record = unfinished.record
    planned = {node.name for node in record.plan.nodes} if record.plan else set()
    for entry in marked:
        name = entry.node.name
        must_match_record = record.plan is not None and entry.phase is not Phase.FAILED
        if must_match_record and entry.run_id != record.run_id:
            message = (
                f"it was started by rollout {entry.run_id}, but the record is of another rollout"
            )
            results.append(_stranded_result(name, entry.phase, message, _NOT_OURS))
        elif must_match_record and name not in planned:
            message = "it has annotations of the rollout, but is not in its plan"
            results.append(_stranded_result(name, entry.phase, message, _NOT_OURS))
        elif name not in nodes_with_host:
            message = "it was started, but no host is known for it now"
            results.append(_stranded_result(name, entry.phase, message, _NO_HOST))
    return tuple(results)


def _stranded_result(name: str, phase: Phase, why: str, hint: str) -> NodeResult:
    return NodeResult(
        node=name,
        outcome=Outcome.STRANDED,
        phase=phase,
        seconds=0.0,
        message=f"{why}; {_STAYS}",
        hint=hint,
        left_cordoned=True,
    )
