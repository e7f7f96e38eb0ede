"""What an interrupted rollout has left on the cluster: its record and its marks."""

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
    """A rollout that was interrupted, or ended with nodes left over.

    in flight          started, and neither returned nor failed
    failed             failed, and still marked; usually cordoned
    failed in service  failed, but uncordoned and without marks
    untouched          planned, but never started
    unclear            marked, but the marks are not understood, so it is not touched
    """

    record: StoredRecord
    in_flight: tuple[MarkedNode, ...] = ()
    failed: tuple[MarkedNode, ...] = ()
    # Outcomes by node.
    failed_in_service: Mapping[str, str] = field(default_factory=dict)
    done: tuple[str, ...] = ()
    untouched_nodes: tuple[PlannedNode, ...] = ()
    # Why the marks are not understood, by node.
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
        """Soft taints and conditions block no rollout."""
        return self.record.is_missing and not (self.marked_nodes or self.unclear)

    @property
    def blocks_others(self) -> bool:
        has_node_in_flight = bool(self.in_flight or self.unclear)
        return has_node_in_flight or not self.record.ended or self.is_garbled

    @property
    def was_stopped(self) -> bool:
        return self.record.stopped and bool(self.untouched_nodes)

    @property
    def only_failed_left(self) -> bool:
        has_failed_nodes = bool(self.failed or self.failed_in_service)
        has_other_nodes = self.blocks_others or bool(self.untouched_nodes)
        return has_failed_nodes and not has_other_nodes

    @property
    def is_garbled(self) -> bool:
        return bool(self.record.problem) and not self.record.is_missing

    @property
    def run_id(self) -> str:
        """From the record, otherwise from the marks; may be empty."""
        if self.record.run_id:
            return self.record.run_id
        nodes = self.marked_nodes
        return nodes[0].run_id if nodes else ""


class RunState(StrEnum):
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    ENDED = "ended"
    # It is unknown whether the process lives.
    UNFINISHED = "unfinished"


def run_state(unfinished: Unfinished, *, alive: bool | None) -> RunState:
    """`alive`: whether a process holds the lock; None if unknown."""
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
    present = {node.name: node for node in nodes}
    plan = record.plan if record is not None else None
    planned = {node.name: node for node in plan.nodes} if plan is not None else {}
    marked = {name: node for name, node in present.items() if has_marks(node)}
    tainted = _tainted_nodes(present.values(), include_deferred=include_deferred)
    conditioned = tuple(node.name for node in present.values() if node.has_own_conditions)
    if record is None and not (marked or tainted or conditioned):
        return None
    understood, unclear = _read_marks(marked.values(), planned)
    is_aborted = False
    if record is None:
        has_readable_marks = bool(understood) and not unclear
        is_aborted = has_readable_marks and all(_was_aborted(node) for node in marked.values())
        problem = _ABORTED if is_aborted else _GONE
        record = _record_from_marks(understood, unclear, problem=problem)
    outcomes = _outcomes(present.values(), record.run_id)
    untouched = (planned.keys() & present.keys()) - marked.keys() - outcomes.keys()
    return Unfinished(
        record=record,
        in_flight=tuple(entry for entry in understood if entry.phase is not Phase.FAILED),
        failed=tuple(entry for entry in understood if entry.phase is Phase.FAILED),
        failed_in_service={
            name: outcome for name, outcome in outcomes.items() if outcome != Outcome.SUCCEEDED
        },
        done=tuple(name for name, outcome in outcomes.items() if outcome == Outcome.SUCCEEDED),
        untouched_nodes=tuple(node for name, node in planned.items() if name in untouched),
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
    run_id: str
    at: str
    outcomes: Mapping[str, int]


def last_run(nodes: Iterable[Node]) -> LastRun | None:
    results = []
    for node in nodes:
        result = last_result(node)
        if result.get("run") and result.get("at"):
            results.append(result)
    if not results:
        return None
    # Timestamps in UTC sort as texts.
    latest = max(results, key=lambda result: result["at"])
    run_id = latest["run"]
    outcomes = Counter(result.get("outcome", "") for result in results if result["run"] == run_id)
    return LastRun(run_id, latest["at"], outcomes)


def _tainted_nodes(nodes: Iterable[Node], *, include_deferred: bool) -> tuple[str, ...]:
    """A deferred node counts only by `include_deferred`, even without the taint."""
    names = []
    for node in nodes:
        is_deferred = deferral_of(node) is not None
        is_in = include_deferred if is_deferred else has_soft_taint(node)
        if is_in:
            names.append(node.name)
    return tuple(names)


def _was_aborted(node: Node) -> bool:
    """An abort could not return this node."""
    result = last_result(node)
    is_same_run = result.get("run") == node.annotations.get(marks.RUN)
    return is_same_run and result.get("outcome") == Outcome.ABORTED


def _record_from_marks(
    understood: Sequence[MarkedNode], unclear: Mapping[str, str], *, problem: str
) -> StoredRecord:
    in_flight = [marked for marked in understood if marked.phase is not Phase.FAILED]
    has_ended = not in_flight and not unclear
    in_flight_first = [*in_flight, *understood]
    run_id = in_flight_first[0].run_id if in_flight_first else ""
    return StoredRecord(run_id, ended=has_ended, problem=problem, is_missing=True)


def _outcomes(nodes: Iterable[Node], run_id: str) -> Mapping[str, str]:
    outcomes = {}
    for node in nodes:
        result = last_result(node)
        is_of_run = bool(run_id) and result.get("run") == run_id
        outcome = result.get("outcome", "")
        has_ended = bool(outcome) and outcome != Outcome.ABORTED
        if is_of_run and has_ended and not has_marks(node):
            outcomes[node.name] = outcome
    return outcomes


def _marked_node(node: Node, planned: PlannedNode | None) -> MarkedNode:
    """The marks are newer than any plan."""
    staged_version = node.annotations.get(marks.STAGED_VERSION, "")
    targets = targets_on(node)
    is_staged = bool(staged_version or targets)
    as_planned = planned or PlannedNode(
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
        as_planned,
        boot_id=node.annotations[marks.BOOT_ID_BEFORE],
        node_uid=node.uid,
        machine_id=node.annotations.get(marks.MACHINE_ID)
        or as_planned.machine_id
        or node.machine_id,
        staged_version=staged_version,
        was_cordoned=node.annotations.get(marks.CORDONED_BY_US) != "true",
        # A staged version in the marks must be proved.
        staged=as_planned.staged or is_staged,
        detected_by=as_planned.detected_by or tuple(targets),
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
    """A node needs a host and, in flight, a place in the record's plan to be continued."""
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
        is_in_flight = entry.phase is not Phase.FAILED
        must_match_record = is_in_flight and record.plan is not None
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
