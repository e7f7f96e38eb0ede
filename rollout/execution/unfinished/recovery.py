"""What an interrupted rollout has left on the cluster: its record, and its marks on the Nodes.

Nothing else is needed to go on with it or to undo it, from any machine. Where the record is gone, the marks alone say
which nodes were begun.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from rollout.execution.unfinished.record import StandingRecord, read_record
from rollout.gather.cluster.snapshot import read_nodes
from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.plan import PlannedNode
from rollout.model.progress import Outcome, Phase
from rollout.ports import ClusterApi


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

    `begun` are under way, `failed` were left cordoned, `given_back` failed and are in service (name to outcome),
    `done` succeeded; `untouched` are planned nodes that were never begun. Where the record is gone, one that the marks
    imply stands for it.
    """

    record: StandingRecord
    begun: tuple[Begun, ...] = ()
    failed: tuple[Begun, ...] = ()
    given_back: Mapping[str, str] = field(default_factory=dict)
    done: tuple[str, ...] = ()
    untouched: tuple[PlannedNode, ...] = ()

    @property
    def blocks(self) -> bool:
        """Whether it has to be gone on with, or undone, before another rollout may begin."""
        return bool(self.begun) or not self.record.ended


def look(api: ClusterApi, namespace: str) -> Unfinished | None:
    """What stands on the cluster now, or None; `ApiError` where it cannot be read."""
    return assess(read_record(api, namespace), read_nodes(api))


def assess(record: StandingRecord | None, nodes: Iterable[Node]) -> Unfinished | None:
    """What a record and the marks on the Nodes say together; None where there is neither."""
    present = {node.name: node for node in nodes}
    planned = {node.name: node for node in record.plan.nodes} if record and record.plan else {}
    marked = [_begun(node, planned.get(node.name)) for node in present.values() if marks.RUN in node.annotations]
    if record is None and not marked:
        return None
    standing = record or _implied(marked)
    outcomes = {name: outcome for name, node in present.items() if (outcome := _outcome(node, standing.run))}
    known = outcomes.keys() | {begun.node.name for begun in marked}
    return Unfinished(
        record=standing,
        begun=tuple(begun for begun in marked if begun.phase is not Phase.FAILED),
        failed=tuple(begun for begun in marked if begun.phase is Phase.FAILED),
        given_back={name: word for name, word in outcomes.items() if word != Outcome.SUCCEEDED},
        done=tuple(name for name, word in outcomes.items() if word == Outcome.SUCCEEDED),
        untouched=tuple(node for name, node in planned.items() if name in present and name not in known),
    )


def _implied(marked: Iterable[Begun]) -> StandingRecord:
    """The record of the run that has nodes under way; else of one that has failed ones, and is as good as ended."""
    first = min(marked, key=lambda begun: begun.phase is Phase.FAILED)
    ended = first.phase is Phase.FAILED
    return StandingRecord(first.run, "", "", ended=ended, plan=None, problem="its record is gone")


def _outcome(node: Node, run: str) -> str:
    """How this run ended for a node that carries no marks any more; empty where it did not, or was made to stop."""
    result = last_result(node)
    if marks.RUN in node.annotations or result.get("run") != run or result.get("outcome") == Outcome.ABORTED:
        return ""
    return result.get("outcome", "")


def last_result(node: Node) -> Mapping[str, str]:
    """What the last rollout wrote of the node's end; empty where nothing legible stands there."""
    try:
        return msgspec.json.decode(node.annotations.get(marks.LAST_RESULT, "{}"), type=dict[str, str])
    except msgspec.MsgspecError:
        return {}


def phase_on(node: Node) -> Phase:
    """The phase that the Node's mark names; a word that is not one of ours counts as failed: nothing is presumed."""
    word = node.annotations.get(marks.PHASE, "")
    return Phase(word) if word in set(Phase) else Phase.FAILED


def _begun(node: Node, planned: PlannedNode | None) -> Begun:
    """The node as its marks describe it, which are younger than any plan."""
    staged_version = node.annotations.get(marks.STAGED_VERSION, "")
    base = planned or PlannedNode(node.name, "", "", "", "", 0, 0, staged=bool(staged_version))
    marked = replace(
        base,
        boot_id=node.annotations.get(marks.BOOT_ID_BEFORE, base.boot_id),
        node_uid=node.uid,
        machine_id=node.annotations.get(marks.MACHINE_ID) or base.machine_id or node.machine_id,
        staged_version=staged_version,
        cordoned=node.annotations.get(marks.CORDONED_BY_US) != "true",
    )
    return Begun(marked, phase_on(node), node.annotations[marks.RUN], node.unschedulable)
