"""What is checked around a node's reboot: by others, as FLUO has them asked, and by the operator's own playbooks.

FLUO's checks are asked for by a label, and answered by annotations.

The label and the removal of earlier answers are one write, so that no old answer passes for a new
one; which label is ours stands beside it, so that whoever gives the node back takes it away. Checks
are asked for before anything is evicted, as FLUO does: a node that does not pass has lost nothing.

Playbooks run on a drained node before its reboot, and on a Ready one after it. One that fails
before the reboot fails a node that works as it did: it is given back. One that fails after it
leaves a node that is not what its operator wants in service: it stays cordoned, and is reported. A
run that is resumed before the reboot runs the first again; they have to bear that.
"""

from collections.abc import Sequence
from typing import Any

from rollout.execution.base.live_view import watch_node
from rollout.execution.drain.task import NodeTask
from rollout.execution.node.context import NodeContext, Occasion
from rollout.execution.node.failures import NodeFailure
from rollout.execution.node.marking import write
from rollout.gather.hosts.probe import BootFacts
from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.progress import Activity, Outcome, Phase
from rollout.planning.eligibility.candidates import is_control_plane

BEFORE = "before-reboot"
AFTER = "after-reboot"
_TRUE = "true"
_TICK = 5.0


def check(task: NodeTask, annotations: Sequence[str], name: str, phase: Phase) -> None:
    """Return once the checks of that name have set these; `NodeFailure` where they have not in time."""
    if not annotations:
        return
    hooks = task.policy.gates.hooks
    label = hooks.prefix + name
    deadline = task.cluster.deadline(hooks.timeout)
    _ask(task, label, annotations)
    with watch_node(task.cluster, task.name, deadline) as view:
        while missing := _missing(view.items(), annotations):
            task.check()
            if deadline.expired:
                raise NodeFailure(
                    Outcome.CHECK_FAILED,
                    f"not annotated true within gates.hook-timeout {hooks.timeout}: {missing}",
                    hint=f"Its checks run on nodes with the label {label}: see their pods' logs.",
                )
            task.step(phase, f"waiting for checks: {missing}", activity=Activity.WAITING)
            task.cluster.clock.wait(view.changed, min(_TICK, max(0.1, deadline.remaining)))
            view.changed.clear()
    taken = dict.fromkeys((*annotations, marks.HOOK_LABEL))
    write(task, lambda _node: {"metadata": {"labels": {label: None}, "annotations": taken}})


def _missing(nodes: Sequence[Node], names: Sequence[str]) -> str:
    present = nodes[0].annotations if nodes else {}
    return ", ".join(name for name in names if present.get(name) != _TRUE)


def _ask(task: NodeTask, label: str, annotations: Sequence[str]) -> None:
    """Set the label and remove earlier answers; `NodeFailure` where somebody else has set it: then it is theirs."""

    def change(node: Node) -> dict[str, Any]:
        if label in node.labels and node.annotations.get(marks.HOOK_LABEL) != label:
            raise NodeFailure(
                Outcome.SKIPPED,
                f"another tool has checks running there: the Node has the label {label}",
            )
        answers = dict.fromkeys(annotations)
        return {
            "metadata": {
                "labels": {label: _TRUE},
                "annotations": {**answers, marks.HOOK_LABEL: label},
            }
        }

    write(task, change)


_ROLE = "node-role.kubernetes.io/"


def run_playbook(context: NodeContext, boot: BootFacts | None = None) -> None:
    """Return once the playbook has passed on the drained node, or on one that is Ready in this boot.

    `NodeFailure` where it has not.
    """
    playbooks = context.engine.playbooks
    if playbooks is None:
        return
    occasion, phase = (
        (Occasion.POST_REBOOT, Phase.READY) if boot else (Occasion.PRE_REBOOT, Phase.DRAINED)
    )
    node = context.node()
    planned = context.planned
    host = context.host.host
    # under the names that they have in the dynamic inventory
    variables = {
        "rollout_node": context.name,
        "rollout_run": context.rollout,
        "rollout_occasion": occasion.value,
        "rollout_running_version": boot.version if boot else planned.running_version,
        "rollout_staged_version": planned.staged_version,
        "rollout_boot_id": boot.boot_id if boot else planned.boot_id,
        "rollout_control_plane": is_control_plane(node, context.policy),
        "rollout_roles": sorted(
            label.removeprefix(_ROLE) for label in node.labels if label.startswith(_ROLE)
        ),
        "rollout_zone": node.zone,
        "rollout_labels": dict(node.labels),
    }
    why = playbooks.run(
        occasion,
        host,
        variables,
        seconds=context.policy.gates.hooks.timeout,
        check=context.check,
        notice=lambda task: context.step(phase, f"{occasion} playbook: {task}"),
    )
    if why:
        raise NodeFailure(
            Outcome.CHECK_FAILED,
            f"the {occasion} playbook failed: {why}",
            hint=(
                f"Run it by hand: ansible-playbook --limit {host.name} with -e"
                f" rollout_node={context.name}"
            ),
        )
