"""The second half of the proof: the kubelet of the new boot reports Ready, and the host runs what was staged.

No clocks are compared, and no NotReady is waited for: a fast reboot may never show one.
"""

from rollout.execution.base.live_view import watch_node
from rollout.execution.node.failures import NodeFailure
from rollout.execution.node.task import NodeTask
from rollout.gather.hosts.boot import BootFacts
from rollout.model.cluster import Node
from rollout.model.plan import PlannedNode
from rollout.model.progress import Outcome, Phase
from rollout.model.quantity import Duration


def await_ready(task: NodeTask, boot: BootFacts, timeout: Duration) -> None:
    """Return when the kubelet of this boot reports Ready."""
    deadline = task.cluster.deadline(timeout)
    reported = ""
    with watch_node(task.cluster, task.name, deadline) as view:
        while not deadline.expired:
            nodes = view.items()
            missing = _not_ready_because(nodes[0] if nodes else None, boot)
            if not missing:
                return
            if missing != reported:
                reported = missing
                task.report.step(task.name, Phase.BOOTED, missing)
            view.wait(min(5.0, deadline.remaining))
    raise NodeFailure(
        Outcome.NOT_READY,
        f"the Node is not Ready within --ready-timeout {timeout}: {reported}",
        hint=f"See: kubectl describe node {task.name}; journalctl -u kubelet on the host",
    )


def _not_ready_because(node: Node | None, boot: BootFacts) -> str:
    if node is None:
        return "the Node is gone"
    if node.boot_id != boot.boot_id:
        return "waiting for its kubelet to report this boot"
    if node.machine_id != boot.machine_id:
        return f"its kubelet reports another machine than the host: {node.machine_id or 'none'}"
    if not node.is_ready:
        return f"waiting for Ready{': ' + node.ready_message if node.ready_message else ''}"
    return ""


def check_version(planned: PlannedNode, staged_version: str, boot: BootFacts) -> None:
    """The host runs what was staged; else `NodeFailure`, for a node that works as it did before."""
    if not planned.staged or (staged_version and boot.version == staged_version):
        return
    before = planned.running_version
    if not staged_version and boot.version != before:
        return
    expected = staged_version or "another version"
    raise NodeFailure(
        Outcome.ROLLED_BACK,
        f"the host rebooted into {boot.version}, not into {expected}: the update did not take",
        hint="See `journalctl -u update-engine` and the boot entries on the host.",
    )
