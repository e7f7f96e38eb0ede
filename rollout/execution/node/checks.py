"""Checks around a node's reboot, by other tools (as with FLUO) and by playbooks.

A label on the Node requests the tools' checks, which answer with annotations.
"""

from collections.abc import Mapping, Sequence

from rollout.execution.base.gate_ports import Occasion
from rollout.execution.base.live_view import watch_node
from rollout.execution.drain.task import NodeTask
from rollout.execution.node.context import NodeContext
from rollout.execution.node.failures import NodeFailure
from rollout.execution.node.marking import change_node, require_mark
from rollout.gather.hosts.probe import BootFacts
from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.progress import Activity, Outcome, Phase
from rollout.model.soft_taint import Patch
from rollout.planning.eligibility.candidates import is_control_plane

BEFORE = "before-reboot"
AFTER = "after-reboot"
_TRUE = "true"
_TICK = 5.0
_ROLE = "node-role.kubernetes.io/"


def await_checks(task: NodeTask, annotations: Sequence[str], occasion: str, phase: Phase) -> None:
    if not annotations:
        return
    hooks = task.policy.gates.hooks
    label = hooks.prefix + occasion
    deadline = task.cluster.deadline(hooks.timeout)
    _request_checks(task, label, annotations)
    with watch_node(task.cluster, task.name, deadline) as view:
        while True:
            missing = _missing_answers(view.items(), annotations)
            if not missing:
                break
            task.check_may_act()
            _require_mark_on_node(task, view.items())
            if deadline.expired:
                raise NodeFailure(
                    Outcome.CHECK_FAILED,
                    "these annotations did not become true within gates.hook-timeout"
                    f" {hooks.timeout}: {missing}",
                    hint=f"Its checks run on nodes with the label {label}: see their pods' logs.",
                )
            task.report_step(phase, f"waiting for checks: {missing}", activity=Activity.WAITING)
            task.cluster.clock.wait(view.changed, min(_TICK, max(0.1, deadline.remaining)))
            view.changed.clear()
    removed_annotations = dict.fromkeys((*annotations, marks.HOOK_LABEL_ANNOTATION))
    metadata = {"labels": {label: None}, "annotations": removed_annotations}
    change_node(task, lambda _node: {"metadata": metadata})


def _require_mark_on_node(task: NodeTask, watched: Sequence[Node]) -> None:
    # A view may lack a Node that it has not listed yet.
    node = watched[0] if watched else task.read_node()
    require_mark(task, node)


def _missing_answers(nodes: Sequence[Node], annotations: Sequence[str]) -> str:
    present = nodes[0].annotations if nodes else {}
    return ", ".join(name for name in annotations if present.get(name) != _TRUE)


def _request_checks(task: NodeTask, label: str, annotations: Sequence[str]) -> None:
    def patch_to_request(node: Node) -> Patch:
        require_mark(task, node)
        # An earlier process of this rollout may have set the label.
        is_our_label = node.annotations.get(marks.HOOK_LABEL_ANNOTATION) == label
        if label in node.labels and not is_our_label:
            raise NodeFailure(
                Outcome.SKIPPED,
                f"another tool is running checks there: the Node has the label {label}",
            )
        removed_answers = dict.fromkeys(annotations)
        return {
            "metadata": {
                "labels": {label: _TRUE},
                "annotations": {**removed_answers, marks.HOOK_LABEL_ANNOTATION: label},
            }
        }

    change_node(task, patch_to_request)


def run_playbook(context: NodeContext, boot: BootFacts | None = None) -> None:
    """Without a `boot`, run the playbook for before the reboot."""
    playbooks = context.engine.playbooks
    if playbooks is None:
        return
    if boot is None:
        occasion = Occasion.PRE_REBOOT
        phase = Phase.DRAINED
    else:
        occasion = Occasion.POST_REBOOT
        phase = Phase.READY
    host = context.host.endpoint
    failure = playbooks.run(
        occasion,
        host,
        _playbook_variables(context, occasion, boot),
        timeout=context.policy.gates.hooks.timeout,
        check=context.check_may_act,
        notice=lambda task: context.report_step(phase, f"{occasion} playbook: {task}"),
    )
    if failure:
        command = f"ansible-playbook --limit {host.name} with -e rollout_node={context.name}"
        raise NodeFailure(
            Outcome.CHECK_FAILED,
            f"the {occasion} playbook failed: {failure}",
            hint=f"Run it manually: {command}",
        )


def _playbook_variables(
    context: NodeContext, occasion: Occasion, boot: BootFacts | None
) -> Mapping[str, object]:
    node = context.read_node()
    planned = context.planned
    roles = [label.removeprefix(_ROLE) for label in node.labels if label.startswith(_ROLE)]
    return {
        "rollout_node": context.name,
        "rollout_run": context.run_id,
        "rollout_occasion": occasion.value,
        "rollout_running_version": boot.running_version if boot else planned.running_version,
        "rollout_staged_version": planned.staged_version,
        "rollout_boot_id": boot.boot_id if boot else planned.boot_id,
        "rollout_control_plane": is_control_plane(node, context.policy),
        "rollout_roles": sorted(roles),
        "rollout_zone": node.zone,
        "rollout_labels": dict(node.labels),
    }
