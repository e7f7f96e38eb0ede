"""A node is back once the pods that belong to it are: those static and DaemonSets' pods that were ready before.

A DaemonSet that is gone, or does not want the node any more, is not waited for; whichever of its pods is there counts.
Right after a boot the API may still have a pod as it was before: one whose Ready is of the same moment is not back.
"""

from collections.abc import Mapping

from rollout.execution.node.failures import NodeFailure
from rollout.execution.node.task import NodeTask
from rollout.gather.cluster.snapshot import read_daemon_sets, read_node, read_node_pods
from rollout.model.own_pods import ready_before, ready_of, still_due
from rollout.model.progress import Outcome, Phase
from rollout.model.quantity import Duration
from rollout.model.text import shortened
from rollout.ports import ClusterApi

_PAUSE = 1.0
_NAMED = 3


def ready_now(task: NodeTask) -> Mapping[str, str]:
    """Those that are ready on the node, with since when."""
    return ready_of(task.cluster.ask(lambda api: read_node_pods(api, task.name)).pods)


def await_own_pods(task: NodeTask, timeout: Duration) -> None:
    """Return when all that were ready before are ready again; `NodeFailure` where some are not in time.

    That is before the uncordon: no pod is to land on a node without its network. Cordons do not stop these pods.
    """
    before = ready_before(task.cluster.ask(lambda api: read_node(api, task.name)))
    deadline, reported = task.cluster.deadline(timeout), ""
    while missing := task.cluster.ask(lambda api: _missing(api, task.name, before)):
        if deadline.expired:
            raise NodeFailure(
                Outcome.NOT_READY,
                f"not settled within --settle-timeout {timeout}: {missing} was ready before the reboot, and is not now",
                hint=f"See: kubectl get pods -A --field-selector spec.nodeName={task.name}",
            )
        if missing != reported:
            reported = missing
            task.report.step(task.name, Phase.READY, f"waiting for {missing} to be ready again")
        deadline.pause(_PAUSE)


def _missing(api: ClusterApi, name: str, before: Mapping[str, str]) -> str:
    if not before:
        return ""
    ready = ready_of(read_node_pods(api, name).pods)
    missing = [pod for pod, since in before.items() if pod not in ready or (since and ready[pod] == since)]
    if not missing:
        return ""
    return shortened(still_due(missing, read_node(api, name), read_daemon_sets(api)), _NAMED)
