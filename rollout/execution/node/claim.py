"""Claims a node: marks it, admits it by the gates and the limit, and cordons it.

A rollout marks its node before it reads the others, so the later of two unrelated rollouts sees
both marks. If the limit is full, the marked node that sorts later by name gives way, and the other
waits for that: never do both continue or both give up.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from rollout.execution.base.deadline import Deadline
from rollout.execution.drain.controllers import gives_way
from rollout.execution.drain.task import NodeTask
from rollout.execution.node.context import NodeContext, Progress
from rollout.execution.node.failures import NodeFailure, NotStartedError, RefusedError
from rollout.execution.node.marking import (
    change_node,
    fluo_agent_labels,
    is_excluded_by_us,
    patch_unchanged,
    require_mark,
    retry_conflicts,
)
from rollout.execution.node.rollback import undo_earlier_rollback
from rollout.execution.node.transitions import AFTER_REBOOT
from rollout.gather.cluster.snapshot import read_nodes
from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.host import HostFacts, HostObservation
from rollout.model.node_marks import UNCLEAR_HINT, annotation_problem, targets_on
from rollout.model.own_pods import ready_before, ready_of, ready_text
from rollout.model.plan import ExclusionReason
from rollout.model.progress import Edge, Outcome, Phase
from rollout.model.soft_taint import Patch, soft_taint_removal_patch
from rollout.planning.eligibility.away import away_reasons, is_only_marked
from rollout.planning.eligibility.candidates import Candidate, why_excluded
from rollout.planning.eligibility.judgement import EligibilityInputs
from rollout.ports import ClusterApi
from rollout.wording import cause_of

# Other rollouts withdraw from marked nodes in this time.
_WITHDRAW_SECONDS = 10.0
_PAUSE = 0.2
DELETED = "its Node was deleted since the plan was made"


def claim_and_cordon(
    context: NodeContext, staged_version: str, facts: HostFacts, *, detected: str = ""
) -> None:
    """`RefusedError` if the node is to be tried again, `NotStartedError` if skipped.

    Only other errors may leave a mark. `detected` is an annotation of what requires the reboot.
    """
    _check_gates_before_mark(context)
    ready_now = ready_of(context.read_pods())
    node_before = _write_first_mark(context)
    withdrawal_deadline = context.cluster.deadline(_WITHDRAW_SECONDS)

    def admit_and_cordon(api: ClusterApi) -> Node:
        context.check_may_act()
        node = _await_admission(context, facts, withdrawal_deadline, api)
        require_mark(context, node)
        _check_is_as_planned(context, node)
        _check_not_cordoned_since(node_before, node)
        # An earlier rollout may have marked pods that are not ready now.
        ready_pods = {**ready_before(node), **ready_now}
        marks_of_update = {
            marks.STAGED_VERSION: staged_version or None,
            marks.DETECTED: detected or None,
            marks.READY_BEFORE: ready_text(ready_pods),
        }
        patch = _cordon_patch(context, node, facts, marks_of_update)
        # Nothing slow may happen between the admission and this write.
        patch_unchanged(api, node, patch, context.check_may_act)
        return node

    try:
        retry_conflicts(context.cluster, context.name, admit_and_cordon)
    except RefusedError:
        # The node waits again without an earlier process's mark.
        had_our_mark = _has_only_our_mark(context, node_before)
        _remove_first_mark(context, {} if had_our_mark else node_before.annotations)
        raise
    except NotStartedError:
        # `end_without_success` removes an earlier process's mark.
        _remove_first_mark(context, node_before.annotations)
        raise


def _cordon_patch(
    context: NodeContext,
    node: Node,
    facts: HostFacts,
    marks_of_update: Mapping[str, str | None],
) -> Patch:
    policy = context.policy
    is_our_exclusion = _is_our_exclusion(context, node)
    annotations = {
        **marks_of_run(context, Phase.CORDONED),
        **marks_of_update,
        marks.CORDONED_BY_US: "true" if _is_our_cordon(node) else None,
        marks.EXCLUDED_BY_US: "true" if is_our_exclusion else None,
    }
    labels = dict(fluo_agent_labels(policy, facts.running_version, facts.os_id, facts.group))
    if is_our_exclusion and policy.exclude_from_load_balancers:
        labels[marks.EXCLUDED_FROM_BALANCERS] = ""
    return {
        "metadata": {"annotations": annotations, "labels": labels},
        "spec": {"unschedulable": True, **soft_taint_removal_patch(node)},
    }


def _is_our_exclusion(context: NodeContext, node: Node) -> bool:
    """Whether the load balancers' label is rollout's, or is about to be."""
    if is_excluded_by_us(node):
        return True
    is_excluded_by_others = marks.EXCLUDED_FROM_BALANCERS in node.labels
    if is_excluded_by_others:
        return False
    return bool(context.policy.exclude_from_load_balancers)


def marks_of_run(task: NodeTask, phase: Phase) -> Mapping[str, str | None]:
    return {
        marks.RUN: task.run_id,
        marks.PHASE: phase.value,
        marks.BOOT_ID_BEFORE: task.planned.boot_id,
        marks.MACHINE_ID: task.planned.machine_id,
    }


def _write_first_mark(task: NodeTask) -> Node:
    """Return the Node as it was before."""
    before: Node | None = None

    def patch_to_mark(node: Node) -> Patch:
        nonlocal before
        _check_is_as_planned(task, node)
        # After a conflict or an outage, our mark may be on the Node already.
        has_new_mark = before is not None and _has_only_our_mark(task, node)
        if not has_new_mark:
            before = node
        return {"metadata": {"annotations": marks_of_run(task, Phase.PENDING)}}

    change_node(task, patch_to_mark)
    assert before is not None  # noqa: S101 - `change` has set it
    return before


def _has_only_our_mark(task: NodeTask, node: Node) -> bool:
    return node.annotations.get(marks.RUN) == task.run_id and is_only_marked(node)


def _remove_first_mark(task: NodeTask, annotations_before: Mapping[str, str]) -> None:
    restored = {name: annotations_before.get(name) for name in marks.OF_RUN}

    def patch_to_unmark(node: Node) -> Patch | None:
        if not _has_only_our_mark(task, node):
            return None
        return {"metadata": {"annotations": restored}}

    change_node(task, patch_to_unmark)


def _check_gates(context: NodeContext) -> None:
    refusal = context.engine.why_not_to_cordon(context.planned)
    if refusal:
        raise RefusedError(finding=refusal)


def _check_gates_before_mark(context: NodeContext) -> None:
    """A gate that holds the node also removes an earlier process's mark."""
    try:
        _check_gates(context)
    except RefusedError:
        if context.started_by_earlier_process:
            _remove_first_mark(context, {})
        raise


def _await_admission(
    context: NodeContext, facts: HostFacts, withdrawal_deadline: Deadline, api: ClusterApi
) -> Node:
    """Wait only for nodes that give way, because other rollouts soon withdraw from them."""
    name = context.name
    while True:
        _check_gates(context)
        nodes = {node.name: node for node in read_nodes(api)}
        if name not in nodes:
            raise NotStartedError(DELETED, ExclusionReason.DELETING)
        check_eligible(context, nodes[name], facts)
        giving_way = {other for other in nodes if gives_way(nodes[other], name)}
        limit = context.engine.away_limit_of(nodes.values())
        # `why_full` does not count the node itself.
        unavailable = away_reasons(nodes.values(), context.policy, api.server_time()).keys()
        lasting_obstacle = limit.why_full(name, unavailable - giving_way)
        if lasting_obstacle:
            raise RefusedError(finding=lasting_obstacle)
        busy_controller = context.engine.find_busy_controller(name, nodes.values())
        if busy_controller and busy_controller.node not in giving_way:
            raise RefusedError(finding=busy_controller)
        # The withdrawals end this obstacle.
        brief_obstacle = limit.why_full(name, unavailable) or busy_controller
        if brief_obstacle is None:
            return nodes[name]
        if withdrawal_deadline.expired:
            raise RefusedError(finding=brief_obstacle)
        withdrawal_deadline.pause(_PAUSE)


def check_eligible(context: NodeContext, node: Node, observation: HostObservation) -> HostFacts:
    may_have_no_update = context.policy.reboot_idle and not context.planned.staged
    # `_check_is_as_planned` decides whether a cordon matters.
    policy = replace(context.policy, include_cordoned=True, reboot_idle=may_have_no_update)
    inputs = EligibilityInputs(context.cluster.api.server_time())
    finding = why_excluded(Candidate(node, observation, policy, inputs))
    if finding:
        raise NotStartedError(finding=finding)
    assert isinstance(observation, HostFacts)  # noqa: S101 - a node without facts is left out
    return observation


def _is_our_cordon(node: Node) -> bool:
    """Whether the cordon is rollout's, or is about to be."""
    return node.annotations.get(marks.CORDONED_BY_US) == "true" or not node.unschedulable


def _check_is_as_planned(task: NodeTask, node: Node) -> None:
    problem = annotation_problem(node)
    if problem:
        raise NotStartedError(
            f"its rollout annotations cannot be read: {cause_of(problem)}", problem.kind
        )
    if node.uid != task.planned.node_uid:
        raise NotStartedError("the Node was deleted and created again since the plan was made")
    if node.boot_id != task.planned.boot_id:
        raise NotStartedError("its kubelet has reported a new boot since the plan was made")
    run_id = node.annotations.get(marks.RUN)
    is_of_other_run = run_id not in (None, task.run_id)
    # Any rollout may start a failed node again.
    has_failed = node.annotations.get(marks.PHASE) == Phase.FAILED
    if is_of_other_run and not has_failed:
        raise NotStartedError(f"it has annotations of the unfinished rollout {run_id}")
    is_cordoned_since = node.unschedulable and not task.planned.was_cordoned
    if is_cordoned_since and run_id != task.run_id:
        raise _cordoned_by_others()


def _check_not_cordoned_since(before: Node, node: Node) -> None:
    is_cordoned_since = node.unschedulable and not before.unschedulable
    if is_cordoned_since and is_only_marked(node):
        raise _cordoned_by_others()


def _cordoned_by_others() -> NotStartedError:
    return NotStartedError(
        "it was cordoned outside this rollout after the plan was made", ExclusionReason.CORDONED
    )


def continue_from_marks(context: NodeContext) -> Progress:
    context.check_may_act()
    node = context.read_node()
    if node.annotations.get(marks.RUN) != context.run_id:
        raise NodeFailure(
            Outcome.SKIPPED,
            "its rollout annotations are gone: another process finished it, or they were removed",
        )
    problem = annotation_problem(node)
    if problem:
        raise NodeFailure(
            Outcome.STRANDED,
            f"{cause_of(problem)}: the node was not changed",
            hint=UNCLEAR_HINT.format(name=node.name),
        )
    phase = Phase(node.annotations[marks.PHASE])
    progress = Progress(
        phase=phase,
        staged_version=node.annotations.get(marks.STAGED_VERSION, ""),
        marked=True,
        # The earlier process may have ended before the request.
        in_doubt=phase is Phase.REBOOTING,
        targets=targets_on(node),
    )
    if phase in AFTER_REBOOT:
        _refuse_own_node_in_old_boot(context, node)
        return progress.move(Edge.TAKEN_UP)
    edge = _edge_before_reboot(context, node, phase)
    may_have_rebooted = edge is Edge.TAKEN_UP_REBOOTING
    if phase is Phase.FAILED and not may_have_rebooted:
        undo_earlier_rollback(context)
    return progress.move(edge)


def _refuse_own_node_in_old_boot(context: NodeContext, node: Node) -> None:
    has_rebooted = node.boot_id != context.planned.boot_id
    if context.own_node is None or has_rebooted:
        return
    raise NodeFailure(
        Outcome.STRANDED,
        "its reboot may have been requested, and this process runs on it: its cordon and its"
        " rollout annotations stay",
        hint="Continue from another node: rollout resume.",
    )


def _edge_before_reboot(context: NodeContext, node: Node, phase: Phase) -> Edge:
    boot = context.host.boot_now()
    has_rebooted = boot is not None and boot.boot_id != context.planned.boot_id
    # A silent host of a failed node may be rebooting.
    may_be_rebooting = boot is None and phase is Phase.FAILED
    if has_rebooted or may_be_rebooting:
        return Edge.TAKEN_UP_REBOOTING
    # Someone has uncordoned the node, so it needs a new claim.
    if phase is Phase.FAILED and not node.unschedulable:
        return Edge.TAKEN_UP_UNCORDONED
    return Edge.TAKEN_UP
