"""Before the first eviction, load balancers outside the cluster have stopped sending requests to the node.

The label that tells them is set with the cordon and goes with the uncordon (see `marking`); here they are given the
time to act on it. Whoever takes a node up again does not know how much of it had passed, and waits anew.
"""

from rollout.execution.node.context import NodeContext
from rollout.execution.node.marking import is_excluded_by_us
from rollout.model.progress import Phase

_TICK = 0.5


def await_exclusion(context: NodeContext) -> None:
    """Return after drain.exclude-from-load-balancers, at once where the node was excluded before us.

    Raises:
        GivenUpError: the node is to be given back meanwhile.
        FencedError: this process may not act any more.
    """
    wanted = context.policy.exclude_from_load_balancers
    if not wanted or not is_excluded_by_us(context.task):
        return
    context.report.step(context.name, Phase.CORDONED, f"waiting {wanted} for load balancers to leave the node out")
    deadline = context.cluster.deadline(wanted)
    while not deadline.expired:
        context.guard.check()
        deadline.pause(_TICK)
