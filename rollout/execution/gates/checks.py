"""FLUO's checks around a reboot: a label asks for them, annotations answer.

The label and the removal of earlier answers are one write, so that no old answer passes for a new one; which label is
ours stands beside it, so that whoever gives the node back takes it away. Checks are asked for before anything is
evicted, as FLUO does: a node that does not pass has lost nothing.
"""

from collections.abc import Sequence
from typing import Any

from rollout.execution.base.live_view import watch_node
from rollout.execution.node.context import NodeTask
from rollout.execution.node.failures import NodeFailure
from rollout.execution.node.marking import write
from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.gates import HookPolicy
from rollout.model.progress import Outcome, Phase

BEFORE = "before-reboot"
AFTER = "after-reboot"
_TRUE = "true"
_TICK = 5.0


def check_before(task: NodeTask, hooks: HookPolicy) -> None:
    """Return once the checks before the reboot have passed; `NodeFailure` where they have not in time."""
    if hooks.before:
        _check(task, hooks, BEFORE, hooks.before, Phase.CORDONED)


def check_after(task: NodeTask, hooks: HookPolicy) -> None:
    """Do the same for those after it."""
    if hooks.after:
        _check(task, hooks, AFTER, hooks.after, Phase.READY)


def _check(task: NodeTask, hooks: HookPolicy, name: str, annotations: Sequence[str], phase: Phase) -> None:
    label = hooks.prefix + name
    deadline = task.cluster.deadline(hooks.timeout)
    _ask(task, label, annotations)
    with watch_node(task.cluster, task.name, deadline) as view:
        while missing := _missing(view.items(), annotations):
            task.guard.check()
            if deadline.expired:
                raise NodeFailure(
                    Outcome.CHECK_FAILED,
                    f"not annotated true within gates.hook-timeout {hooks.timeout}: {missing}",
                    hint=f"Its checks run on nodes with the label {label}: see their pods' logs.",
                )
            task.report.step(task.name, phase, f"waiting for checks: {missing}")
            task.cluster.clock.wait(view, min(_TICK, max(0.1, deadline.remaining)))
    _thank(task, label, annotations)


def _missing(nodes: Sequence[Node], names: Sequence[str]) -> str:
    present = nodes[0].annotations if nodes else {}
    return ", ".join(name for name in names if present.get(name) != _TRUE)


def _ask(task: NodeTask, label: str, annotations: Sequence[str]) -> None:
    """Set the label and remove earlier answers; `NodeFailure` where somebody else has set it: then it is theirs."""

    def change(node: Node) -> dict[str, Any]:
        if label in node.labels and node.annotations.get(marks.HOOK_LABEL) != label:
            raise NodeFailure(Outcome.SKIPPED, f"another tool has checks running there: the Node has the label {label}")
        answers = dict.fromkeys(annotations)
        return {"metadata": {"labels": {label: _TRUE}, "annotations": {**answers, marks.HOOK_LABEL: label}}}

    write(task, change)


def _thank(task: NodeTask, label: str, annotations: Sequence[str]) -> None:
    """Remove the label and the answers."""
    answers = dict.fromkeys((*annotations, marks.HOOK_LABEL))
    write(task, lambda _node: {"metadata": {"labels": {label: None}, "annotations": {**answers}}})
