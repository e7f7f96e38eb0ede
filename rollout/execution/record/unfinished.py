"""What an interrupted rollout has left on the cluster: its record, and its marks on the Nodes.

Nothing else is needed to go on with it or to undo it, from any machine. Where the record is gone,
or not understood, the marks alone say which nodes were begun.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from rollout.execution.record.record import StoredRecord, read_record
from rollout.gather.cluster.snapshot import read_nodes
from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.node_marks import (
    UNCLEAR_HINT,
    annotation_problem,
    is_begun,
    is_deferred,
    last_result,
    targets_on,
)
from rollout.model.plan import PlannedNode
from rollout.model.progress import NodeResult, Outcome, Phase
from rollout.model.soft_taint import has_soft_taint
from rollout.ports import ClusterApi
from rollout.wording import cause

_GONE = "its record is gone, or stands in another lock.namespace"
_ABORTED = "it was aborted, which removed its record"
_STAYS = "its cordon and its marks stay"
_NO_HOST = (
    "Add its host to the inventory (-i) and run rollout resume again, or return it with rollout"
    " abort."
)
_NOT_OURS = "Return it with rollout abort, which undoes this rollout as well; or look at the node."


@dataclass(frozen=True, slots=True)
class Begun:
    """A node that carries marks: of which run, how far it had come, and what was planned for it."""

    node: PlannedNode
    phase: Phase
    run: str
    cordoned: bool


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A run that has not come to its end, or ended with nodes left over.

    `begun` are under way, `failed` were left cordoned, `given_back` failed and are in service (name
    to outcome), `done` succeeded; `untouched` are planned nodes that were never begun. `unclear`
    are nodes whose marks are not understood, with why: nothing is done to them. `gone` are planned
    nodes that are not in the cluster any more, `tainted` are all nodes with our soft taint.
    `is_aborted`: an abort removed the record and had to leave every node that still has marks.
    Where the record is gone, one that the marks imply stands for it.
    """

    record: StoredRecord
    begun: tuple[Begun, ...] = ()
    failed: tuple[Begun, ...] = ()
    given_back: Mapping[str, str] = field(default_factory=dict)
    done: tuple[str, ...] = ()
    untouched: tuple[PlannedNode, ...] = ()
    unclear: Mapping[str, str] = field(default_factory=dict)
    gone: tuple[str, ...] = ()
    tainted: tuple[str, ...] = ()
    is_aborted: bool = False

    @property
    def is_only_taints(self) -> bool:
        """Whether nothing is left of a run but its soft taint, which keeps nobody from anything."""
        return self.record.is_missing and not (self.begun or self.failed or self.unclear)

    @property
    def blocks(self) -> bool:
        """Whether it has to be gone on with, or undone, before another rollout may begin."""
        return bool(self.begun or self.unclear) or not self.record.ended or self.is_garbled

    @property
    def was_stopped(self) -> bool:
        """Whether someone stopped it before all its nodes were started."""
        return self.record.stopped and bool(self.untouched)

    @property
    def only_failed_left(self) -> bool:
        """Whether the rollout ended and only its failed nodes are left."""
        return not (self.blocks or self.untouched) and bool(self.failed or self.given_back)

    @property
    def is_garbled(self) -> bool:
        """Whether a record stands there that is not understood."""
        return bool(self.record.problem) and not self.record.is_missing

    @property
    def run(self) -> str:
        """Its id; that of a node's marks where the record does not say, empty where nothing does."""
        return self.record.run or next((begun.run for begun in (*self.begun, *self.failed)), "")


class RunWord(StrEnum):
    """How a rollout stands, in one word; it is `UNFINISHED` where nobody has looked whether its process lives."""

    RUNNING = "running"
    INTERRUPTED = "interrupted"
    ENDED = "ended"
    UNFINISHED = "unfinished"


def word_of(unfinished: Unfinished, *, alive: bool | None) -> RunWord:
    """Return the one word, by whether a process works on it; None where that is not known."""
    if alive:
        return RunWord.RUNNING
    if not unfinished.blocks:
        return RunWord.ENDED
    return RunWord.UNFINISHED if alive is None else RunWord.INTERRUPTED


def look(api: ClusterApi, namespace: str, *, deferred: bool = False) -> Unfinished | None:
    """Return what stands on the cluster now, or None; `ApiError` where it cannot be read. `deferred` as of `assess`."""
    return assess(read_record(api, namespace), read_nodes(api), deferred=deferred)


def assess(
    record: StoredRecord | None, nodes: Iterable[Node], *, deferred: bool = False
) -> Unfinished | None:
    """Return what a record, the marks and the soft taint on the Nodes say together; None where there is none of them.

    The soft taint of a node that was deferred stays for the next run: it is nothing left over,
    unless these are asked for too.
    """
    present = {node.name: node for node in nodes}
    planned = {node.name: node for node in record.plan.nodes} if record and record.plan else {}
    marked = {name: node for name, node in present.items() if is_begun(node)}
    unclear = {
        name: cause(mark) for name, node in marked.items() if (mark := annotation_problem(node))
    }
    begun = [
        _begun_node(node, planned.get(name)) for name, node in marked.items() if name not in unclear
    ]
    tainted = _tainted_nodes(present.values(), deferred=deferred)
    if record is None and not (marked or tainted):
        return None
    is_aborted = (
        record is None
        and bool(begun)
        and not unclear
        and all(_was_aborted(node) for node in marked.values())
    )
    stored = record or _record_from_marks(begun, unclear, problem=_ABORTED if is_aborted else _GONE)
    outcomes = {
        name: outcome for name, node in present.items() if (outcome := _outcome(node, stored.run))
    }
    return Unfinished(
        record=stored,
        begun=tuple(node_begun for node_begun in begun if node_begun.phase is not Phase.FAILED),
        failed=tuple(node_begun for node_begun in begun if node_begun.phase is Phase.FAILED),
        given_back={name: word for name, word in outcomes.items() if word != Outcome.SUCCEEDED},
        done=tuple(name for name, word in outcomes.items() if word == Outcome.SUCCEEDED),
        untouched=tuple(
            node
            for name, node in planned.items()
            if name in present and name not in {*outcomes, *marked}
        ),
        unclear=unclear,
        gone=tuple(name for name in planned if name not in present),
        tainted=tainted,
        is_aborted=is_aborted,
    )


@dataclass(frozen=True, slots=True)
class LastRun:
    """The rollout that ended a node last, as Nodes tell: when, RFC 3339 in UTC, and how many nodes ended how."""

    run: str
    at: str
    outcomes: Mapping[str, int]


def last_run(nodes: Iterable[Node]) -> LastRun | None:
    """None where no Node tells of any."""
    results = [
        result for node in nodes if (result := last_result(node)).get("run") and result.get("at")
    ]
    if not results:
        return None
    latest = max(results, key=lambda result: result["at"])
    outcomes = Counter(
        result.get("outcome", "") for result in results if result["run"] == latest["run"]
    )
    return LastRun(latest["run"], latest["at"], outcomes)


def _tainted_nodes(nodes: Iterable[Node], *, deferred: bool) -> tuple[str, ...]:
    return tuple(
        node.name for node in nodes if (deferred if is_deferred(node) else has_soft_taint(node))
    )


def _was_aborted(node: Node) -> bool:
    """Whether the rollout whose marks it has was aborted, which left the node as it was."""
    result = last_result(node)
    return result.get("outcome") == Outcome.ABORTED and result.get("run") == node.annotations.get(
        marks.RUN
    )


def _record_from_marks(
    begun: Sequence[Begun], unclear: Mapping[str, str], *, problem: str
) -> StoredRecord:
    """Return the record of the run that has nodes under way; else of one with failed ones or none, as ended."""
    first = min(begun, key=lambda node: node.phase is Phase.FAILED, default=None)
    ended = not unclear and (first is None or first.phase is Phase.FAILED)
    run = first.run if first else ""
    return StoredRecord(run, "", "", ended=ended, plan=None, problem=problem, is_missing=True)


def _outcome(node: Node, run: str) -> str:
    """How this run ended for a node that carries no marks any more; empty where it did not, or was made to stop."""
    result = last_result(node)
    if (
        not run
        or is_begun(node)
        or result.get("run") != run
        or result.get("outcome") == Outcome.ABORTED
    ):
        return ""
    return result.get("outcome", "")


def _begun_node(node: Node, planned: PlannedNode | None) -> Begun:
    """Return the node as its marks describe it, which are younger than any plan, and are understood."""
    staged_version = node.annotations.get(marks.STAGED_VERSION, "")
    targets = targets_on(node)
    is_staged = bool(staged_version or targets)
    base = planned or PlannedNode(
        node.name, "", "", "", "", 0, 0, staged=is_staged, detected_by=tuple(targets)
    )
    marked = replace(
        base,
        boot_id=node.annotations[marks.BOOT_ID_BEFORE],
        node_uid=node.uid,
        machine_id=node.annotations.get(marks.MACHINE_ID) or base.machine_id or node.machine_id,
        staged_version=staged_version,
        cordoned=node.annotations.get(marks.CORDONED_BY_US) != "true",
        # no record takes its proof from a node whose marks say what was staged
        staged=base.staged or is_staged,
        detected_by=base.detected_by or tuple(targets),
    )
    return Begun(
        marked,
        Phase(node.annotations[marks.PHASE]),
        node.annotations[marks.RUN],
        node.unschedulable,
    )


def stranded(
    unfinished: Unfinished, begun: Iterable[Begun], hosts: Container[str]
) -> tuple[NodeResult, ...]:
    """Return the ends of those `begun` nodes that cannot be taken on, and of all whose marks are not understood.

    `hosts` are the Nodes for which a host is known.
    """
    ends = [
        _result(
            name,
            Phase.FAILED,
            f"its marks are not understood: {why}",
            UNCLEAR_HINT.format(name=name),
        )
        for name, why in unfinished.unclear.items()
    ]
    plan = unfinished.record.plan
    record = unfinished.record
    for entry in begun:
        name = entry.node.name
        is_judged = plan is not None and entry.phase is not Phase.FAILED
        if is_judged and entry.run != record.run:
            message = f"it was started by rollout {entry.run}, and the record is of another rollout"
            ends.append(_result(name, entry.phase, message, _NOT_OURS))
        elif is_judged and plan is not None and name not in {node.name for node in plan.nodes}:
            message = "it carries the rollout's marks, but is not in its plan"
            ends.append(_result(name, entry.phase, message, _NOT_OURS))
        elif name not in hosts:
            ends.append(
                _result(
                    name, entry.phase, "it was started, but no host is known for it now", _NO_HOST
                )
            )
    return tuple(ends)


def _result(name: str, phase: Phase, why: str, hint: str) -> NodeResult:
    return NodeResult(
        name, Outcome.STRANDED, phase, 0.0, f"{why}; {_STAYS}", hint, left_cordoned=True
    )
