"""What we write on a Node, and take away again.

Every write names the version of the Node that it was decided on, so that somebody else's cordon or
uncordon in between is seen instead of overwritten. Only what carries this run's id is ever undone.
"""

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

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
from rollout.model.fleetlock import is_fleetlock_run
from rollout.model.node_marks import (
    ineffective_reboots,
    ineffective_reboots_before,
    last_result,
    targets_on,
)
from rollout.model.plan import ExclusionReason
from rollout.model.policy import Policy
from rollout.model.progress import Outcome, Phase
from rollout.model.quantity import Duration
from rollout.model.selectors import is_label_value
from rollout.model.soft_taint import without_soft_taint
from rollout.model.timestamps import whole_second
from rollout.planning.eligibility.evidence import VERSION_FAILURES
from rollout.ports import ClusterApi

# How often, and for how long, others may be faster than us: a burst of writes by controllers is
# over sooner.
_ATTEMPTS = 10
_CONTENDED_SECONDS = 30.0
_MOVING = frozenset({Source.UPDATE_ENGINE, Source.RPM_OSTREE})
_TAKEN_AWAY: dict[str, str | None] = dict.fromkeys((*marks.TRANSIENT, marks.DEFERRED))
_GONE_WITH_ITS_TURN: dict[str, str | None] = dict.fromkeys((marks.HOOK_LABEL, marks.DEFERRED))


class MarksGoneError(StepError):
    """Our marks, which alone say what of a Node is ours to undo, do not stand on it any more."""


def is_excluded(node: Node) -> bool:
    """Whether load balancers leave it out because we have asked for it."""
    return node.annotations.get(marks.EXCLUDED_BY_US) == "true"


def mark_phase(task: NodeTask, phase: Phase) -> Node:
    """Write the phase that begins."""
    return write(task, lambda node: _annotations(task, node, {marks.PHASE: phase.value}))


def mark_staged(task: NodeTask, detection: Detection) -> None:
    """Mark the Node with what is staged now. The proof of the reboot, and a process that resumes, use it."""
    annotations = {
        marks.STAGED_VERSION: detection.version or None,
        marks.DETECTED: targets_text(detection.targets) or None,
    }
    write(task, lambda node: _annotations(task, node, annotations))


def mark_granted(task: NodeTask) -> None:
    """Write that the host of a drained node may reboot; `DrainError` where the node is not drained, or not cordoned.

    Of two processes, one that grants and one that gives back, the API server lets the first to
    write have its way.
    """

    def change(node: Node) -> dict[str, Any]:
        phase = ours(task, node).annotations.get(marks.PHASE)
        if phase not in (Phase.DRAINED, Phase.REBOOTING) or not node.unschedulable:
            raise DrainError(
                f"{task.name} is {phase}{'' if node.unschedulable else ', and not cordoned'}"
            )
        return _annotations(task, node, {marks.PHASE: Phase.REBOOTING.value})

    write(task, change)


def return_node(task: NodeTask, outcome: Outcome, version: str) -> Node:
    """Uncordon what we cordoned, take our marks away, and leave the result.

    Where the node has succeeded others are told. Returned is the Node as it was before.
    """

    def change(node: Node) -> dict[str, Any] | None:
        if _is_returned_already(task, node):
            return None
        labels_taken_back, taken_back = _fulfilled(node, outcome)
        further = {
            **_further(task, node, outcome, version),
            **_failed_version(node, outcome, version),
        }
        taken = {**_TAKEN_AWAY, **_result(task, outcome, version, further), **taken_back}
        body = _annotations(task, node, taken)
        body["metadata"]["labels"] = {
            **labels_taken_back,
            **(fluo_labels(task.policy, version) if outcome is Outcome.SUCCEEDED else {}),
            **_turns_labels(node),
            **({marks.EXCLUDED_FROM_BALANCERS: None} if is_excluded(node) else {}),
        }
        uncordoned = (
            {"unschedulable": None} if node.annotations.get(marks.CORDONED_BY_US) == "true" else {}
        )
        return {**body, "spec": {**uncordoned, **without_soft_taint(node)}}

    return write(task, change)


def _fulfilled(
    node: Node, outcome: Outcome
) -> tuple[Mapping[str, str | None], Mapping[str, str | None]]:
    """Take back the labels and annotations that asked for this reboot: a person's, and others' as by them.

    Where an agent of theirs runs, it has done so: see the proof.
    """
    targets = targets_on(node)
    if outcome is not Outcome.SUCCEEDED or Source.ANNOTATION not in targets:
        return {}, {}
    labels, annotations = (
        {name: "false" for name in marks.OTHERS_REQUESTS if words.get(name) == "true"}
        for words in (node.labels, node.annotations)
    )
    return labels, {**annotations, marks.REBOOT_NEEDED: None}


def _is_returned_already(task: NodeTask, node: Node) -> bool:
    """Whether a write of ours, whose answer was lost, has done it: our result stands there and our marks do not."""
    return marks.RUN not in node.annotations and last_result(node).get("run") == task.rollout


def leave_failed(task: NodeTask, outcome: Outcome, version: str) -> Node:
    """Leave the node cordoned and marked as failed, for somebody to look at."""
    annotations = {marks.PHASE: Phase.FAILED.value, **_GONE_WITH_ITS_TURN}

    def change(node: Node) -> dict[str, Any]:
        result = _result(task, outcome, version, _failed_version(node, outcome, version))
        body = _annotations(task, node, {**result, **annotations})
        body["metadata"]["labels"] = _turns_labels(node)
        return {**body, "spec": without_soft_taint(node)}

    return write(task, change)


def leave_aborted(task: NodeTask) -> Node:
    """Leave the node as it is, with the result that its rollout was aborted: its record is about to be removed."""

    def change(node: Node) -> dict[str, Any]:
        result = _result(task, Outcome.ABORTED, "", _failed_version(node, Outcome.ABORTED, ""))
        return _annotations(task, node, result)

    return write(task, change)


def fluo_labels(
    policy: Policy, version: str, os_id: str = "", group: str = ""
) -> Mapping[str, str]:
    """Return what FLUO's agent would say of a host, as far as a label can hold it; nothing where nobody asks for it."""
    said = {marks.FLUO_ID: os_id, marks.FLUO_GROUP: group, marks.FLUO_VERSION: version}
    known = {name: value for name, value in said.items() if value and is_label_value(value)}
    return known if policy.courtesy.fluo_labels else {}


def _turns_labels(node: Node) -> dict[str, None]:
    """Take the labels away that were for its turn: by which pods of ours kept away, and had checks run."""
    hook = node.annotations.get(marks.HOOK_LABEL, "")
    is_ours = hook.endswith(("/before-reboot", "/after-reboot"))
    return {
        label: None for label in (marks.DEFERRED, hook if is_ours else "") if label in node.labels
    }


def _result(
    task: NodeTask, outcome: Outcome, version: str, more: Mapping[str, str]
) -> dict[str, str | None]:
    at = whole_second(task.report.now)
    took = Duration(round(task.seconds))
    known = {"version": version} if version else {}
    value = {
        "outcome": outcome.value,
        "at": at,
        **known,
        "run": task.rollout,
        "took": str(took),
        **more,
    }
    return {marks.LAST_RESULT: msgspec.json.encode(value).decode()}


def unmoved_by_now(task: NodeTask, node: Node, version: str) -> int:
    """How many proven reboots in a row, with this one, were asked for and brought no other version.

    0 where this one has, where its own proof is another version or deployment, and where nothing
    had asked for it. `node` is as it was before it was given back.
    """
    if _is_returned_already(task, node):
        return ineffective_reboots(node)
    targets = targets_on(node)
    is_asked_for = is_fleetlock_run(task.rollout) or (
        bool(targets) and not _MOVING & targets.keys()
    )
    if not is_asked_for or version != task.planned.running_version:
        return 0
    return 1 + ineffective_reboots_before(node, version, task.cluster.api.server_time())


def _further(task: NodeTask, node: Node, outcome: Outcome, version: str) -> Mapping[str, str]:
    """Return what the result tells besides of a node that is given back: rolled back from what, or not moved."""
    if outcome is Outcome.ROLLED_BACK:
        staged = node.annotations.get(marks.STAGED_VERSION, "")
        return {"from": staged} if staged and staged != version else {}
    unmoved = unmoved_by_now(task, node, version) if outcome is Outcome.SUCCEEDED else 0
    return {"unmoved": str(unmoved)} if unmoved else {}


def _failed_version(node: Node, outcome: Outcome, version: str) -> Mapping[str, str]:
    """Return the version that last failed on the node, and how; nothing after a success."""
    if outcome is Outcome.SUCCEEDED:
        return {}
    if outcome in VERSION_FAILURES and node.annotations.get(marks.PHASE) in AFTER_REBOOT:
        # A host that asks FleetLock for its reboot does not tell what it has staged.
        booted = "" if outcome is Outcome.ROLLED_BACK else version
        failed = node.annotations.get(marks.STAGED_VERSION) or booted
        if failed and not (outcome is Outcome.ROLLED_BACK and failed == version):
            return {"failed_version": failed, "failed_as": outcome.value}
    before = last_result(node)
    return {name: before[name] for name in ("failed_version", "failed_as") if name in before}


def _annotations(
    task: NodeTask, node: Node, annotations: Mapping[str, str | None]
) -> dict[str, Any]:
    """Annotate a Node that bears this run's mark."""
    ours(task, node)
    return {"metadata": {"annotations": annotations}}


def ours(task: NodeTask, node: Node) -> Node:
    """Return the Node with this run's mark; `FencedError` where it bears another's, `MarksGoneError` where none."""
    run = node.annotations.get(marks.RUN)
    if run == task.rollout:
        return node
    if run:
        raise FencedError(
            f"the Node {node.name} is marked by the rollout {run} now, not by this one",
            hint="This node is left as it is.",
        )
    raise MarksGoneError(
        f"our marks on the Node {node.name} are gone: they were removed, or the Node was deleted",
        hint="This node is left as it is.",
    )


def is_marked(task: NodeTask) -> bool:
    """Whether this run's mark stands on the Node; not where that cannot be seen."""
    try:
        return read_node(task.cluster.api, task.name).annotations.get(marks.RUN) == task.rollout
    except ApiError:
        return False


def why_lost(task: NodeTask) -> tuple[str, ExclusionReason | None]:
    """Tell that the Node is not there any more, or is another one; empty where it is, or where that cannot be seen.

    One that is not there needs no reboot; one that was created again still waits for it.
    """
    try:
        uid = read_node(task.cluster.api, task.name).uid
    except ApiNotFoundError:
        return "its Node was deleted", ExclusionReason.DELETING
    except ApiError:
        return "", None
    # marks and older plans may not say which Node was meant
    is_another = task.planned.node_uid not in ("", uid)
    return ("its Node was deleted and created again" if is_another else ""), None


def stays_cordoned(task: NodeTask) -> bool:
    """Whether the Node is cordoned, whoever did it; that it cannot be seen counts as such, that it is gone does not."""
    try:
        return read_node(task.cluster.api, task.name).unschedulable
    except ApiNotFoundError:
        return False
    except ApiError:
        return True


def write(
    task: NodeTask,
    change: Callable[[Node], dict[str, Any] | None],
    read: Callable[[ClusterApi], Node] | None = None,
) -> Node:
    """Write the change of a task's Node as `write_node` does."""
    return write_node(task.cluster, task.check, task.name, change, read)


def write_node(
    cluster: PatientApi,
    check: Guard,
    name: str,
    change: Callable[[Node], dict[str, Any] | None],
    read: Callable[[ClusterApi], Node] | None = None,
    within: Deadline | None = None,
) -> Node:
    """Read, decide, write; again where the Node changed in between. No change: no write.

    An outage repeats all three: what was read before it may be true no longer. `read` may read more
    than the Node.
    """
    deadline, contended = within or cluster.deadline(), cluster.deadline(_CONTENDED_SECONDS)

    def attempt(api: ClusterApi) -> Node:
        check()
        node = read(api) if read else read_node(api, name)
        if (body := change(node)) is not None:
            metadata = {**body.get("metadata", {}), "resourceVersion": node.resource_version}
            check()
            api.patch(node_path(name), {**body, "metadata": metadata})
        return node

    for number in count(1):
        try:
            return cluster.ask(attempt, deadline)
        except ApiConflictError as error:
            if number >= _ATTEMPTS and contended.expired:
                raise StepError(f"the Node {name} changes too often to be written") from error
    raise AssertionError("attempts do not end by themselves")
