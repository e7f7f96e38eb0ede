"""Writes rollout's marks on a Node; `return_node` removes them and uncordons it.

Every write names the Node's version, so it never overwrites someone's cordon. Nothing is undone on
a Node without this rollout's ID.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum

import msgspec

from rollout.errors import (
    ApiConflictError,
    ApiError,
    ApiNotFoundError,
    DrainError,
    FencedError,
    StepError,
)
from rollout.execution.base.deadline import Deadline, Guard, PatientApi
from rollout.execution.drain.task import NodeTask
from rollout.execution.node.transitions import AFTER_REBOOT
from rollout.gather.cluster.snapshot import node_path, read_node
from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.detection import Detection, Source, targets_text
from rollout.model.finding import NodeMarkedByOther
from rollout.model.fleetlock import is_fleetlock_run
from rollout.model.node_marks import (
    announced_version,
    earlier_ineffective_reboots,
    has_grant,
    ineffective_reboots,
    is_check_label,
    is_returned_by,
    last_result,
    targets_on,
)
from rollout.model.policy import Policy
from rollout.model.progress import Outcome, Phase
from rollout.model.quantity import Duration
from rollout.model.selectors import is_label_value
from rollout.model.soft_taint import Patch, soft_taint_removal_patch
from rollout.model.timestamps import whole_second
from rollout.planning.eligibility.evidence import VERSION_FAILURES
from rollout.ports import ClusterApi

# Give up only after both limits.
_MOST_CONFLICTS = 10
_CONTENDED_SECONDS = 30.0
# They name what the reboot must bring.
_WITH_VERSION = frozenset({Source.UPDATE_ENGINE, Source.RPM_OSTREE, Source.BOOTC, Source.ROLLBACK})

Change = Callable[[Node], Patch | None]
"""Returns what to write on a Node, None for nothing."""


class MarksGoneError(StepError):
    """The Node lacks this rollout's marks, so rollout must not change it."""


class MarkedByOtherError(FencedError):
    """Another rollout has marked the Node, although this process may hold the lock."""

    def __init__(self, node: str, run_id: str) -> None:
        super().__init__(
            f"the Node {node} now has the annotations of rollout {run_id}, not of this one",
            hint="This node is left as it is.",
        )
        self.finding = NodeMarkedByOther(node, run_id)


class NodeLoss(StrEnum):
    """Only a recreated Node needs a reboot."""

    DELETED = "deleted"
    RECREATED = "deleted and created again"


def is_excluded_by_us(node: Node) -> bool:
    return node.annotations.get(marks.EXCLUDED_BY_US) == "true"


def mark_phase(task: NodeTask, phase: Phase) -> Node:
    """Return the Node as it was before."""
    return change_node(task, lambda node: _patch_if_marked(task, node, {marks.PHASE: phase.value}))


def mark_staged(task: NodeTask, detection: Detection) -> None:
    annotations = {
        # None removes an earlier value.
        marks.STAGED_VERSION: detection.staged_version or None,
        marks.DETECTED: targets_text(detection.targets) or None,
    }
    change_node(task, lambda node: _patch_if_marked(task, node, annotations))


def mark_granted(task: NodeTask) -> None:
    """`DrainError` unless the node is drained and cordoned.

    If another process returns the node meanwhile, the first write wins.
    """

    def patch_to_grant(node: Node) -> Patch:
        require_mark(task, node)
        phase = node.annotations.get(marks.PHASE)
        if not node.unschedulable:
            raise DrainError(f"{task.name} is {phase}, and not cordoned")
        # A host that did not get the answer repeats its request.
        is_granted_before = phase == Phase.REBOOTING
        if phase != Phase.DRAINED and not is_granted_before:
            raise DrainError(f"{task.name} is {phase}")
        return _patch_if_marked(task, node, {marks.PHASE: Phase.REBOOTING.value})

    change_node(task, patch_to_grant)


def mark_cordoned_unless_granted(task: NodeTask) -> Node:
    """Let FleetLock grant no reboot before the next drain.

    Nothing changes if the returned Node has its grant.
    """

    def patch_to_mark_cordoned(node: Node) -> Patch | None:
        require_mark(task, node)
        if has_grant(node):
            return None
        return _patch_if_marked(task, node, {marks.PHASE: Phase.CORDONED.value})

    return change_node(task, patch_to_mark_cordoned)


def return_node(task: NodeTask, outcome: Outcome, running_version: str) -> Node:
    """Return the Node as it was before. `running_version` is empty if unknown."""

    def patch_to_return(node: Node) -> Patch | None:
        if is_returned_by(node, task.run_id):
            # The answer to an earlier write was lost.
            return None
        require_mark(task, node)
        return _return_patch(task, node, outcome, running_version)

    return change_node(task, patch_to_return)


def _return_patch(task: NodeTask, node: Node, outcome: Outcome, running_version: str) -> Patch:
    details = {
        **_details_of_return(task, node, outcome, running_version),
        **_details_of_failure(task, node, outcome, running_version),
    }
    removed_marks = dict.fromkeys((*marks.TRANSIENT, marks.DEFERRED))
    annotations = {**removed_marks, **_last_result(task, outcome, running_version, details)}
    labels = _removals_of_temporary_labels(node)
    if is_excluded_by_us(node):
        labels[marks.EXCLUDED_FROM_BALANCERS] = None
    if outcome is Outcome.SUCCEEDED:
        labels.update(fluo_agent_labels(task.policy, running_version))
        was_requested_on_node = Source.ANNOTATION in targets_on(node)
        if was_requested_on_node:
            labels.update(_fulfilled_requests(node.labels))
            annotations.update(_fulfilled_requests(node.annotations))
            annotations[marks.REBOOT_NEEDED] = None
    spec = soft_taint_removal_patch(node)
    is_our_cordon = node.annotations.get(marks.CORDONED_BY_US) == "true"
    if is_our_cordon:
        spec["unschedulable"] = None
    return {"metadata": {"annotations": annotations, "labels": labels}, "spec": spec}


def _fulfilled_requests(present: Mapping[str, str]) -> dict[str, str]:
    return {name: "false" for name in marks.OTHERS_REQUESTS if present.get(name) == "true"}


def mark_failed(task: NodeTask, outcome: Outcome, running_version: str) -> None:
    """The node stays cordoned."""

    def patch_to_fail(node: Node) -> Patch:
        require_mark(task, node)
        details = _details_of_failure(task, node, outcome, running_version)
        annotations = {
            **_last_result(task, outcome, running_version, details),
            marks.PHASE: Phase.FAILED.value,
            marks.HOOK_LABEL_ANNOTATION: None,
            marks.DEFERRED: None,
        }
        metadata = {"annotations": annotations, "labels": _removals_of_temporary_labels(node)}
        return {"metadata": metadata, "spec": soft_taint_removal_patch(node)}

    change_node(task, patch_to_fail)


def mark_aborted(task: NodeTask) -> None:
    """The other marks and the cordon stay."""

    def patch_to_abort(node: Node) -> Patch:
        details = _earlier_failure(node)
        result = _last_result(task, Outcome.ABORTED, running_version="", details=details)
        return _patch_if_marked(task, node, result)

    change_node(task, patch_to_abort)


def fluo_agent_labels(
    policy: Policy, running_version: str, os_id: str = "", group: str = ""
) -> Mapping[str, str]:
    """FLUO's agent would set these labels."""
    if not policy.courtesy.fluo_labels:
        return {}
    labels = {marks.FLUO_ID: os_id, marks.FLUO_GROUP: group, marks.FLUO_VERSION: running_version}
    return {name: value for name, value in labels.items() if value and is_label_value(value)}


def _removals_of_temporary_labels(node: Node) -> dict[str, str | None]:
    names = [marks.DEFERRED]
    check_label = node.annotations.get(marks.HOOK_LABEL_ANNOTATION, "")
    # Anyone may have written the annotation.
    if is_check_label(check_label):
        names.append(check_label)
    return {name: None for name in names if name in node.labels}


def _last_result(
    task: NodeTask, outcome: Outcome, running_version: str, details: Mapping[str, str]
) -> dict[str, str | None]:
    """Return an annotation such as `{"outcome": "succeeded", "at": …, "run": …}`."""
    result = {"outcome": outcome.value, "at": whole_second(task.report.now)}
    if running_version:
        result["version"] = running_version
    result["run"] = task.run_id
    result["took"] = str(Duration(round(task.seconds)))
    result.update(details)
    return {marks.LAST_RESULT: msgspec.json.encode(result).decode()}


def count_ineffective_reboots(task: NodeTask, node: Node, running_version: str) -> int:
    """Count reboots in a row, with this one, that have not changed the version.

    Requests that name a version do not count, because such a reboot has failed already. `node` is
    as it was before `return_node`.
    """
    if is_returned_by(node, task.run_id):
        # A write whose answer was lost has counted this reboot.
        return ineffective_reboots(node)
    if running_version != task.planned.running_version or _names_version(task, node):
        return 0
    return 1 + earlier_ineffective_reboots(node, running_version, task.cluster.api.server_time())


def _names_version(task: NodeTask, node: Node) -> bool:
    if is_fleetlock_run(task.run_id):
        return False
    sources = targets_on(node).keys()
    is_update_engine_alone = not sources
    return is_update_engine_alone or bool(sources & _WITH_VERSION)


def _details_of_return(
    task: NodeTask, node: Node, outcome: Outcome, running_version: str
) -> Mapping[str, str]:
    if outcome is Outcome.SUCCEEDED:
        count = count_ineffective_reboots(task, node, running_version)
        return {"unmoved": str(count)} if count else {}
    # After `rollout rollback`, the host has never left the version to leave.
    has_fallen_back = outcome is Outcome.ROLLED_BACK and not task.policy.rollback
    staged_version = node.annotations.get(marks.STAGED_VERSION, "")
    if has_fallen_back and staged_version not in ("", running_version):
        return {"from": staged_version}
    return {}


def _details_of_failure(
    task: NodeTask, node: Node, outcome: Outcome, running_version: str
) -> Mapping[str, str]:
    if outcome is Outcome.SUCCEEDED:
        return {}
    failed_version = _version_at_fault(task, node, outcome, running_version)
    if failed_version:
        return {"failed_version": failed_version, "failed_as": outcome.value}
    return _earlier_failure(node)


def _earlier_failure(node: Node) -> Mapping[str, str]:
    result = last_result(node)
    return {name: result[name] for name in ("failed_version", "failed_as") if name in result}


def _version_at_fault(task: NodeTask, node: Node, outcome: Outcome, running_version: str) -> str:
    is_after_reboot = node.annotations.get(marks.PHASE) in AFTER_REBOOT
    if outcome not in VERSION_FAILURES or not is_after_reboot:
        return ""
    is_rolled_back = outcome is Outcome.ROLLED_BACK
    if task.policy.rollback:
        has_not_left = is_rolled_back or running_version == task.planned.running_version
        if has_not_left:
            # The host has not booted the version to go back to.
            return ""
    staged_version = node.annotations.get(marks.STAGED_VERSION, "")
    if is_rolled_back and staged_version == running_version:
        # Only another source lacks proof that this reboot worked.
        return ""
    if is_rolled_back or staged_version:
        return staged_version
    # With FleetLock, no mark says what was staged.
    return running_version or announced_version(node)


def _patch_if_marked(task: NodeTask, node: Node, annotations: Mapping[str, str | None]) -> Patch:
    require_mark(task, node)
    return {"metadata": {"annotations": annotations}}


def require_mark(task: NodeTask, node: Node) -> None:
    """`MarkedByOtherError` for another rollout's mark, `MarksGoneError` without any."""
    run_id = node.annotations.get(marks.RUN)
    if run_id == task.run_id:
        return
    if run_id:
        raise MarkedByOtherError(node.name, run_id)
    raise MarksGoneError(
        f"rollout's annotations on the Node {node.name} are gone: they were removed, or the"
        " Node was deleted",
        hint="This node is left as it is.",
    )


def is_marked_now(task: NodeTask) -> bool:
    """False if the Node cannot be read."""
    try:
        return read_node(task.cluster.api, task.name).annotations.get(marks.RUN) == task.run_id
    except ApiError:
        return False


def find_node_loss(task: NodeTask) -> NodeLoss | None:
    """None if the planned Node is there, or cannot be read."""
    try:
        uid = read_node(task.cluster.api, task.name).uid
    except ApiNotFoundError:
        return NodeLoss.DELETED
    except ApiError:
        return None
    # Empty if planned from marks, which lack the UID, or by an older rollout.
    planned_uid = task.planned.node_uid
    is_another = planned_uid not in ("", uid)
    return NodeLoss.RECREATED if is_another else None


def is_cordoned_now(task: NodeTask) -> bool:
    """True if the Node cannot be read, False if it is gone."""
    try:
        return read_node(task.cluster.api, task.name).unschedulable
    except ApiNotFoundError:
        return False
    except ApiError:
        return True


def change_node(task: NodeTask, change: Change) -> Node:
    return write_node(task.cluster, task.check_may_act, task.name, change)


def write_node(
    cluster: PatientApi,
    check_may_act: Guard,
    name: str,
    change: Change,
    *,
    within: Deadline | None = None,
) -> Node:
    """Return the Node as it was read.

    After a conflict or an outage, `change` may meet its own earlier write.
    """

    def read_and_write(api: ClusterApi) -> Node:
        check_may_act()
        node = read_node(api, name)
        patch = change(node)
        if patch is not None:
            patch_unchanged(api, node, patch, check_may_act)
        return node

    return retry_conflicts(cluster, name, read_and_write, within=within)


def patch_unchanged(api: ClusterApi, node: Node, patch: Patch, check_may_act: Guard) -> None:
    """`ApiConflictError` if anyone has changed the Node since it was read."""
    metadata = {**patch.get("metadata", {}), "resourceVersion": node.resource_version}
    # The read may have been slow.
    check_may_act()
    api.patch(node_path(node.name), {**patch, "metadata": metadata})


def retry_conflicts(
    cluster: PatientApi,
    name: str,
    read_and_write: Callable[[ClusterApi], Node],
    *,
    within: Deadline | None = None,
) -> Node:
    """Repeat `read_and_write`, which returns the Node as read, after conflicts and outages."""
    deadline = within or cluster.deadline()
    conflict_deadline = cluster.deadline(_CONTENDED_SECONDS)
    conflicts = 0
    while True:
        try:
            return cluster.ask(read_and_write, deadline)
        except ApiConflictError as error:
            conflicts += 1
            if conflicts >= _MOST_CONFLICTS and conflict_deadline.expired:
                raise StepError(f"the Node {name} changes too often to be written") from error
