"""What we write on a Node, and take away again.

Every write names the version of the Node that it was decided on, so that somebody else's cordon or uncordon in between
is seen instead of overwritten. Only what carries this run's id is ever undone.
"""

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import msgspec

from rollout.errors import ApiConflictError, ApiError, ApiNotFoundError, DrainError, FencedError, StepError
from rollout.execution.node.failures import NodeFailure
from rollout.execution.node.task import NodeTask
from rollout.gather.cluster.snapshot import read_node
from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.detection import Source, read_targets
from rollout.model.fleetlock import is_fleetlock_run
from rollout.model.host import HostFacts
from rollout.model.node_marks import last_result, misunderstanding, unmoved_before
from rollout.model.plan import ExclusionReason
from rollout.model.progress import Outcome, Phase
from rollout.model.quantity import Duration
from rollout.model.replaced import Values, replaced_on, replacing
from rollout.model.soft_taint import without_soft_taint
from rollout.planning.announcements import announced, own_names, proven
from rollout.ports import ClusterApi

# How often, and for how long, others may be faster than us: a burst of writes by controllers is over sooner.
_ATTEMPTS, _CONTENDED_SECONDS = 10, 30.0
_MOVING = frozenset({Source.UPDATE_ENGINE, Source.RPM_OSTREE})
_TAKEN_AWAY: dict[str, str | None] = dict.fromkeys((*marks.TRANSIENT, marks.DEFERRED))
_GONE_WITH_ITS_TURN: dict[str, str | None] = dict.fromkeys((marks.HOOK_LABEL, marks.DEFERRED))


class MarksGoneError(StepError):
    """Our marks, which alone say what of a Node is ours to undo, do not stand on it any more."""


def claim(
    task: NodeTask, staged_version: str, facts: HostFacts | None, *, detected: str = "", exclude: bool = False
) -> Node:
    """Annotate and cordon, in one write, which takes the soft taint away: the node waits no longer.

    `detected` is the mark of what asked for the reboot.

    A node that was cordoned before stays marked as not ours to uncordon. `exclude` has load balancers leave it out
    from now on; one that they left out before stays marked as not ours to give back to them. `facts` are what others
    are told of its host, where the rules ask for it. Returned is the Node as it was before.
    """
    fields = announced(task.courtesy, facts, task.report.now)

    def change(node: Node) -> dict[str, Any]:
        _check_free(task, node)
        excludes = exclude and _ours_to_include(node)
        annotations = {
            marks.RUN: task.rollout,
            marks.PHASE: Phase.CORDONED.value,
            marks.BOOT_ID_BEFORE: task.planned.boot_id,
            marks.MACHINE_ID: task.planned.machine_id,
            marks.STAGED_VERSION: staged_version or None,
            marks.DETECTED: detected or None,
            marks.CORDONED_BY_US: "true" if _ours_to_undo(node) else None,
            marks.EXCLUDED_BY_US: "true" if excludes or _is_excluded_by_us(node) else None,
            marks.REPLACED: replacing(node, fields),
            marks.ANNOUNCED: None,
            **fields.annotations,
        }
        labels = {**({marks.EXCLUDED_FROM_BALANCERS: ""} if excludes else {}), **fields.labels}
        body: dict[str, Any] = {"metadata": {"annotations": annotations, "labels": labels}}
        return {**body, "spec": {"unschedulable": True, **_soft_taint(node)}}

    return _write(task, change)


def _ours_to_undo(node: Node) -> bool:
    """Whether the cordon is ours, of whichever run: one that a failed node was left with stays ours until it is undone.

    A claim whose answer was lost stands on the Node already, and must not be taken for somebody else's.
    """
    return node.annotations.get(marks.CORDONED_BY_US) == "true" or not node.unschedulable


def _ours_to_include(node: Node) -> bool:
    """The same for the load balancers' label."""
    return _is_excluded_by_us(node) or marks.EXCLUDED_FROM_BALANCERS not in node.labels


def _is_excluded_by_us(node: Node) -> bool:
    return node.annotations.get(marks.EXCLUDED_BY_US) == "true"


def is_excluded_by_us(task: NodeTask) -> bool:
    """Whether load balancers leave the node out because we have asked for it."""
    return _is_excluded_by_us(task.cluster.ask(lambda api: read_node(api, task.name)))


def mark_phase(task: NodeTask, phase: Phase) -> Node:
    """Write the phase that begins."""
    return _write(task, lambda node: _annotations(_ours(task, node), {marks.PHASE: phase.value}))


def mark_granted(task: NodeTask) -> None:
    """Write that the host of a drained node may reboot; `DrainError` where the node is not drained, or not cordoned.

    Of two processes, one that grants and one that gives back, the API server lets the first to write have its way.
    """

    def change(node: Node) -> dict[str, Any]:
        phase = _ours(task, node).annotations.get(marks.PHASE)
        if phase not in (Phase.DRAINED, Phase.REBOOTING) or not node.unschedulable:
            raise DrainError(f"{task.name} is {phase}{'' if node.unschedulable else ', and not cordoned'}")
        return _annotations(node, {marks.PHASE: Phase.REBOOTING.value})

    _write(task, change)


def give_back(task: NodeTask, outcome: Outcome, version: str) -> Node:
    """Uncordon what we cordoned, take our marks away, put back what others had there, and leave the result.

    Where the node has succeeded others are told. Returned is the Node as it was before.
    """

    def change(node: Node) -> dict[str, Any] | None:
        if _given_back_already(task, node):
            return None
        labels, annotations = _for_others(task, node, outcome, version)
        unmoved = unmoved_reboots(task, node, version) if outcome is Outcome.SUCCEEDED else 0
        more = {"unmoved": str(unmoved)} if unmoved else {}
        taken = _TAKEN_AWAY | _result(task, outcome, version, more) | _fulfilled(node, outcome)
        body = _annotations(_ours(task, node), taken)
        body["metadata"]["annotations"] |= annotations
        body["metadata"]["labels"] = {**labels, **_hook_label(node), **_balancers_label(node), **_deferral(node)}
        uncordoned = {"unschedulable": None} if node.annotations.get(marks.CORDONED_BY_US) == "true" else {}
        return {**body, "spec": {**uncordoned, **_soft_taint(node)}}

    return _write(task, change)


def _fulfilled(node: Node, outcome: Outcome) -> dict[str, str | None]:
    """The annotation by which a person asked for this reboot, taken away; others' are theirs to change."""
    targets = read_targets(node.annotations.get(marks.DETECTED, "{}")) or {}
    is_done = outcome is Outcome.SUCCEEDED and Source.ANNOTATION in targets
    return {marks.REBOOT_NEEDED: None} if is_done else {}


def _for_others(task: NodeTask, node: Node, outcome: Outcome, version: str) -> tuple[Values, Values]:
    """The labels and annotations of others' as they are to be after the node's turn."""
    names = own_names(task.courtesy)
    if outcome is not Outcome.SUCCEEDED:
        return replaced_on(node).restoring(node, names)
    labels, annotations = replaced_on(node).restoring(node, names - marks.COMPAT_LASTING)
    fields = proven(task.courtesy, version)
    return {**labels, **fields.labels}, {**annotations, **fields.annotations}


def _given_back_already(task: NodeTask, node: Node) -> bool:
    """Whether a write of ours, whose answer was lost, has done it: our result stands there and our marks do not."""
    return marks.RUN not in node.annotations and last_result(node).get("run") == task.rollout


def leave_failed(task: NodeTask, outcome: Outcome, version: str) -> Node:
    """Leave the node cordoned and marked as failed, for somebody to look at."""
    annotations = {**_result(task, outcome, version, {}), marks.PHASE: Phase.FAILED.value, **_GONE_WITH_ITS_TURN}

    def change(node: Node) -> dict[str, Any]:
        body = _annotations(_ours(task, node), annotations)
        body["metadata"]["labels"] = _hook_label(node) | _deferral(node)
        return {**body, "spec": _soft_taint(node)}

    return _write(task, change)


def _soft_taint(node: Node) -> dict[str, Any]:
    """The node's taints without ours, which is for nodes that wait; nothing to write where it has none of ours."""
    taints = without_soft_taint(node)
    return {} if taints is None else {"taints": taints or None}


def _deferral(node: Node) -> dict[str, None]:
    """The label by which pods of ours kept away from it, taken away."""
    return {marks.DEFERRED: None} if marks.DEFERRED in node.labels else {}


def _balancers_label(node: Node) -> dict[str, None]:
    """The label that we had set to have load balancers leave the node out, taken away."""
    is_ours = _is_excluded_by_us(node) and marks.EXCLUDED_FROM_BALANCERS in node.labels
    return {marks.EXCLUDED_FROM_BALANCERS: None} if is_ours else {}


def _hook_label(node: Node) -> dict[str, None]:
    """The label that we had set to have checks run, taken away."""
    label = node.annotations.get(marks.HOOK_LABEL, "")
    is_ours = label in node.labels and label.endswith(("/before-reboot", "/after-reboot"))
    return {label: None} if is_ours else {}


def _result(task: NodeTask, outcome: Outcome, version: str, more: Mapping[str, str]) -> dict[str, str | None]:
    at = task.report.now.strftime("%Y-%m-%dT%H:%M:%SZ")
    took = Duration(round(task.seconds))
    value = {"outcome": outcome.value, "at": at, "version": version, "run": task.rollout, "took": str(took), **more}
    return {marks.LAST_RESULT: msgspec.json.encode(value).decode()}


def unmoved_reboots(task: NodeTask, node: Node, version: str) -> int:
    """How many proven reboots in a row, with this one, were asked for and brought no other version.

    0 where this one has, where its own proof is another version or deployment, and where nothing had asked for it.
    `node` is as it was before it was given back.
    """
    targets = read_targets(node.annotations.get(marks.DETECTED, "{}")) or {}
    is_asked_for = is_fleetlock_run(task.rollout) or (bool(targets) and not _MOVING & targets.keys())
    if not is_asked_for or version != task.planned.running_version:
        return 0
    return 1 + unmoved_before(node, version, task.cluster.api.server_time())


def _annotations(node: Node, annotations: Mapping[str, str | None]) -> dict[str, Any]:
    present = {key: value for key, value in annotations.items() if value is not None or key in node.annotations}
    return {"metadata": {"annotations": present}}


def _check_free(task: NodeTask, node: Node) -> None:
    """`NodeFailure` where the Node is not what was planned any more: its turn is skipped, nothing was done to it."""
    if why := misunderstanding(node):
        message = f"not started: its marks are not understood: {why}"
        raise NodeFailure(Outcome.SKIPPED, message, reason=ExclusionReason.UNKNOWN_MARKS)
    if node.uid != task.planned.node_uid:
        raise NodeFailure(Outcome.SKIPPED, "not started: the Node was deleted and created again since it was planned")
    if node.boot_id != task.planned.boot_id or node.machine_id != task.planned.machine_id:
        raise NodeFailure(Outcome.SKIPPED, "not started: its kubelet has reported another boot since it was planned")
    run = node.annotations.get(marks.RUN)
    if run not in (None, task.rollout) and node.annotations.get(marks.PHASE) != Phase.FAILED.value:
        raise NodeFailure(Outcome.SKIPPED, f"not started: it is marked by the unfinished rollout {run}")
    if node.unschedulable and not task.planned.cordoned and run != task.rollout:
        message = "not started: it was cordoned outside this rollout after it was planned"
        raise NodeFailure(Outcome.SKIPPED, message, reason=ExclusionReason.CORDONED)


def _ours(task: NodeTask, node: Node) -> Node:
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
    """That the Node is not there any more, or is another one; empty where it is, or where that cannot be seen.

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


def _write(task: NodeTask, change: Callable[[Node], dict[str, Any] | None]) -> Node:
    """Read, decide, write; again where the Node changed in between. No change: no write."""
    deadline, contended = task.cluster.deadline(), task.cluster.deadline(_CONTENDED_SECONDS)
    for attempt in count(1):
        task.guard.check()
        node = task.cluster.ask(lambda api: read_node(api, task.name), deadline)
        body = change(node)
        if body is None:
            return node
        body["metadata"]["resourceVersion"] = node.resource_version
        try:
            task.cluster.ask(lambda api: _patch(api, task, body), deadline)  # noqa: B023 - called at once
        except ApiConflictError as error:
            if attempt >= _ATTEMPTS and contended.expired:
                raise StepError(f"the Node {task.name} changes too often to be written") from error
            continue
        return node
    raise AssertionError("attempts do not end by themselves")


def _patch(api: ClusterApi, task: NodeTask, body: dict[str, Any]) -> bytes:
    """One attempt. An outage that is waited out may have cost us the Lease: whether we still may is asked each time."""
    task.guard.check()
    return api.patch(f"/api/v1/nodes/{task.name}", body)
