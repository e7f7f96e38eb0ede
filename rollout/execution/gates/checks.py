"""FLUO's checks around a reboot: a label asks for them, annotations answer.

The label and the removal of earlier answers are one write, so that no old answer passes for a new one; which label is
ours stands beside it, so that whoever gives the node back takes it away. Checks are asked for before anything is
evicted, as FLUO does: a node that does not pass has lost nothing.
"""

from collections.abc import Sequence

from rollout.errors import ApiConflictError
from rollout.execution.base.live_view import watch_node
from rollout.execution.node.failures import NodeFailure
from rollout.execution.node.task import NodeTask
from rollout.gather.cluster.snapshot import read_node
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
    """The same for those after it."""
    if hooks.after:
        _check(task, hooks, AFTER, hooks.after, Phase.READY)


def _check(task: NodeTask, hooks: HookPolicy, name: str, annotations: Sequence[str], phase: Phase) -> None:
    label = hooks.prefix + name
    deadline = task.cluster.deadline(hooks.timeout)
    _ask(task, label, annotations)
    reported = ""
    with watch_node(task.cluster, task.name, deadline) as view:
        while missing := _missing(view.items(), annotations):
            task.guard.check()
            if deadline.expired:
                raise NodeFailure(
                    Outcome.CHECK_FAILED,
                    f"not annotated true within gates.hook-timeout {hooks.timeout}: {missing}",
                    hint=f"Its checks run on nodes with the label {label}: see their pods' logs.",
                )
            if missing != reported:
                reported = missing
                task.report.step(task.name, phase, f"waiting for checks: {missing}")
            view.wait(min(_TICK, max(0.1, deadline.remaining)))
    _thank(task, label, annotations)


def _missing(nodes: Sequence[Node], names: Sequence[str]) -> str:
    present = nodes[0].annotations if nodes else {}
    return ", ".join(name for name in names if present.get(name) != _TRUE)


def _ask(task: NodeTask, label: str, annotations: Sequence[str]) -> None:
    answers = dict.fromkeys(annotations)
    _write(task, {label: _TRUE}, {**answers, marks.HOOK_LABEL: label}, refused=label)


def _thank(task: NodeTask, label: str, annotations: Sequence[str]) -> None:
    answers = dict.fromkeys(annotations)
    _write(task, {label: None}, {**answers, marks.HOOK_LABEL: None}, refused="")


def _write(task: NodeTask, labels: dict[str, str | None], annotations: dict[str, str | None], *, refused: str) -> None:
    """Write both at once on the node as it was read; a label that somebody else has set is theirs."""
    deadline = task.cluster.deadline()
    while True:
        node = task.cluster.ask(lambda api: read_node(api, task.name), deadline)
        if refused and refused in node.labels and node.annotations.get(marks.HOOK_LABEL) != refused:
            raise NodeFailure(
                Outcome.SKIPPED, f"another tool has checks running there: the Node has the label {refused}"
            )
        body = {
            "metadata": {"resourceVersion": node.resource_version, "labels": labels, "annotations": annotations},
        }
        task.guard.check()
        try:
            task.cluster.ask(lambda api: api.patch(f"/api/v1/nodes/{task.name}", body), deadline)  # noqa: B023 - called at once
        except ApiConflictError:
            if deadline.expired:
                raise
            continue
        return
