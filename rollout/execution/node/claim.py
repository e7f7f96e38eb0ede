"""Taking an untouched node: it is marked, admitted once more by what stands on all Nodes, and only then cordoned.

Between admission and cordon there is one write, and nothing slow: what is slow is asked first, and
an outage of the API server has all of it asked again. The mark comes before the look, so that of
two rollouts that do not know each other the later one to mark sees both. Whoever sees more nodes
away than may be does not cordon: of nodes that are only marked the last by name give way, and the
first wait until they have. So never both go, and never neither.

A node that an earlier process has begun is taken up where that left it. The mark on the Node says
which act was about to begin, not whether it happened; the host's boot id says whether it has
rebooted. Whatever had happened, the node enters the state machine at a phase from which every proof
is still made, and no host is asked to reboot in a boot that is not the one from before.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from rollout.execution.base.deadline import Deadline
from rollout.execution.drain.task import NodeTask
from rollout.execution.node.context import (
    NodeContext,
    Progress,
)
from rollout.execution.node.failures import NodeFailure, NotStartedError, RefusedError
from rollout.execution.node.marking import fluo_labels, is_excluded, ours, write
from rollout.execution.node.transitions import AFTER_REBOOT
from rollout.gather.cluster.snapshot import read_nodes
from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.host import HostFacts, HostObservation
from rollout.model.node_marks import UNCLEAR_HINT, annotation_problem, targets_on
from rollout.model.own_pods import ready_before, ready_of, ready_text
from rollout.model.plan import ExclusionReason
from rollout.model.progress import Edge, Outcome, Phase
from rollout.model.soft_taint import without_soft_taint
from rollout.planning.eligibility.away import is_away, is_claimed
from rollout.planning.eligibility.candidates import Candidate, exclusion
from rollout.planning.eligibility.judgement import EligibilityInputs
from rollout.ports import ClusterApi
from rollout.wording import cause, text

# Seconds that others who have only marked their nodes are given to withdraw, and between two looks
# at them.
_PATIENCE = 10.0
_PAUSE = 0.2
DELETED = "its Node was deleted since it was planned"


def claim(
    context: NodeContext, staged_version: str, facts: HostFacts, *, detected: str = ""
) -> None:
    """Mark, ask the admission, then annotate and cordon in one write, which takes the soft taint away.

    A node that was cordoned before stays marked as not ours to uncordon, and one that load
    balancers left out before as not ours to give back to them, where they are to leave nodes out.
    `detected` is the mark of what asked for the reboot. `RefusedError` where it is not admitted
    now: nothing is left on it.
    """
    if why := context.engine.why_refused(context.planned):
        raise RefusedError(text(why))
    ready = ready_of(context.pods())
    before = _marked(context)

    def change(node: Node) -> dict[str, Any]:
        _check_free(context, ours(context, node))
        _check_cordon(before, node)
        excludes = context.policy.exclude_from_load_balancers and _ours_to_include(node)
        annotations = {
            **marks_of_run(context, Phase.CORDONED),
            marks.STAGED_VERSION: staged_version or None,
            marks.DETECTED: detected or None,
            marks.CORDONED_BY_US: "true" if _ours_to_undo(node) else None,
            marks.EXCLUDED_BY_US: "true" if excludes or is_excluded(node) else None,
            marks.READY_BEFORE: ready_text({**ready_before(node), **ready}),
        }
        excluding = {marks.EXCLUDED_FROM_BALANCERS: ""} if excludes else {}
        labels = {
            **excluding,
            **fluo_labels(context.policy, facts.running_version, facts.os_id, facts.group),
        }
        body: dict[str, Any] = {"metadata": {"annotations": annotations, "labels": labels}}
        return {**body, "spec": {"unschedulable": True, **without_soft_taint(node)}}

    patience = context.cluster.deadline(_PATIENCE)
    try:
        write(context, change, partial(_admitted, context, facts, patience))
    except NodeFailure as error:
        if error.outcome is Outcome.SKIPPED:
            _withdraw(context, before)
        raise


def marks_of_run(task: NodeTask, phase: Phase) -> Mapping[str, str | None]:
    """Return the annotations that mark a Node as part of this run, in this phase."""
    return {
        marks.RUN: task.rollout,
        marks.PHASE: phase.value,
        marks.BOOT_ID_BEFORE: task.planned.boot_id,
        marks.MACHINE_ID: task.planned.machine_id,
    }


def _marked(task: NodeTask) -> Node:
    """Return the Node as it was before the mark that stands on it now; an answer that was lost makes no difference."""
    seen: list[Node] = []

    def change(node: Node) -> dict[str, Any]:
        _check_free(task, node)
        seen[:] = seen if _is_marked(task, node) and seen else [node]
        return {"metadata": {"annotations": marks_of_run(task, Phase.PENDING)}}

    write(task, change)
    return seen[0]


def _is_marked(task: NodeTask, node: Node) -> bool:
    return node.annotations.get(marks.RUN) == task.rollout and is_claimed(node)


def _withdraw(task: NodeTask, before: Node) -> None:
    """Put back what stood there before the mark; the mark of an earlier process stays for whoever goes on with it."""
    annotations = {name: before.annotations.get(name) for name in marks_of_run(task, Phase.PENDING)}

    def change(node: Node) -> dict[str, Any] | None:
        return {"metadata": {"annotations": annotations}} if _is_marked(task, node) else None

    write(task, change)


def _admitted(context: NodeContext, facts: HostFacts, patience: Deadline, api: ClusterApi) -> Node:
    """Return the Node as it is when it may be cordoned, `RefusedError` where it may not be."""
    name = context.name
    while True:
        if why := context.engine.why_refused(context.planned):
            raise RefusedError(text(why))
        nodes = {node.name: node for node in read_nodes(api)}
        if name not in nodes:
            raise NotStartedError(DELETED, ExclusionReason.DELETING)
        check_eligible(context, nodes[name], facts)
        limit = context.engine.limit(nodes.values())
        away = {node.name for node in nodes.values() if is_away(node)}
        giving_way = {other for other in away if other > name and is_claimed(nodes[other])}
        if full := limit.why_full(name, away - giving_way):
            raise RefusedError(text(full))
        full = limit.why_full(name, away)
        if full is None:
            return nodes[name]
        if patience.expired:
            raise RefusedError(text(full))
        patience.pause(_PAUSE)


def check_eligible(context: NodeContext, node: Node, observation: HostObservation) -> HostFacts:
    """Return the host's facts where the rules of a plan still take the node; else raise `NodeFailure`.

    Cordons are judged by the claim itself. A node that was planned for its update is not rebooted
    without one.
    """
    is_idle_meant = context.policy.reboot_idle and not context.planned.staged
    rules = replace(context.policy, include_cordoned=True, reboot_idle=is_idle_meant)
    left_out = exclusion(
        Candidate(node, observation, rules, EligibilityInputs(context.cluster.api.server_time()))
    )
    if left_out is not None:
        raise NotStartedError(left_out.message, left_out.reason)
    assert isinstance(observation, HostFacts)  # noqa: S101 - a node whose host gave none is left out
    return observation


def _ours_to_undo(node: Node) -> bool:
    """Whether the cordon is ours, of whichever run: one that a failed node was left with stays ours until it is undone.

    A claim whose answer was lost stands on the Node already, and must not be taken for somebody
    else's.
    """
    return node.annotations.get(marks.CORDONED_BY_US) == "true" or not node.unschedulable


def _ours_to_include(node: Node) -> bool:
    """Do the same for the load balancers' label."""
    return is_excluded(node) or marks.EXCLUDED_FROM_BALANCERS not in node.labels


def _check_free(task: NodeTask, node: Node) -> None:
    """`NodeFailure` where the Node is not what was planned any more: its turn is skipped, nothing was done to it."""
    if mark := annotation_problem(node):
        raise NotStartedError(f"its marks are not understood: {cause(mark)}", mark.kind)
    if node.uid != task.planned.node_uid:
        raise NotStartedError("the Node was deleted and created again since it was planned")
    if node.boot_id != task.planned.boot_id:
        raise NotStartedError("its kubelet has reported another boot since it was planned")
    run = node.annotations.get(marks.RUN)
    if run not in (None, task.rollout) and node.annotations.get(marks.PHASE) != Phase.FAILED.value:
        raise NotStartedError(f"it is marked by the unfinished rollout {run}")
    if node.unschedulable and not task.planned.cordoned and run != task.rollout:
        raise _cordoned_meanwhile()


def _check_cordon(before: Node, node: Node) -> None:
    """`NodeFailure` where another party has cordoned it after it was marked."""
    if node.unschedulable and not before.unschedulable and is_claimed(node):
        raise _cordoned_meanwhile()


def _cordoned_meanwhile() -> NodeFailure:
    return NotStartedError(
        "it was cordoned outside this rollout after it was planned", ExclusionReason.CORDONED
    )


def take_up(context: NodeContext) -> Progress:
    """Where to go on; `NodeFailure` where somebody else has finished or undone it, or changed its marks, meanwhile."""
    context.check()
    node = context.node()
    if node.annotations.get(marks.RUN) != context.rollout:
        raise NodeFailure(
            Outcome.SKIPPED, "its marks are gone: another process finished it, or they were removed"
        )
    if mark := annotation_problem(node):
        raise NodeFailure(
            Outcome.STRANDED,
            f"{cause(mark)}: nothing was done to it",
            hint=UNCLEAR_HINT.format(name=node.name),
        )
    phase = Phase(node.annotations[marks.PHASE])
    progress = Progress(
        phase=phase,
        staged_version=node.annotations.get(marks.STAGED_VERSION, ""),
        marked=True,
        in_doubt=phase is Phase.REBOOTING,
        targets=targets_on(node),
    )
    if phase not in AFTER_REBOOT:
        return progress.move(_edge_before_reboot(context, node, phase))
    if context.own is not None and node.boot_id == context.planned.boot_id:
        message = (
            "its reboot may have been requested, and this process runs on it: its cordon and its"
            " marks stay"
        )
        raise NodeFailure(
            Outcome.STRANDED, message, hint="Go on from another node: rollout resume."
        )
    return progress.move(Edge.TAKEN_UP)


def _edge_before_reboot(context: NodeContext, node: Node, phase: Phase) -> Edge:
    """Return how a node is taken up whose reboot nobody has requested, or that has failed.

    A host that has rebooted by itself needs no other reboot.
    """
    boot = context.host.boot_now()
    has_rebooted = boot is not None and boot.boot_id != context.planned.boot_id
    if has_rebooted or (boot is None and phase is Phase.FAILED):
        return Edge.TAKEN_UP_REBOOTING
    if phase is Phase.FAILED and not node.unschedulable:
        return Edge.TAKEN_UP_UNCORDONED
    return Edge.TAKEN_UP
