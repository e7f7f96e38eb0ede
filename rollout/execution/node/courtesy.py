"""What a node waits for because people asked for it: delays, load balancers.

Delays are nobody's work: whoever stops the rollout meanwhile gets the node back at once, whatever
`waves.stop` says. A process that takes the node up again does not know how much of a wait had passed, and waits anew.
"""

from rollout.execution.node.context import NodeContext
from rollout.execution.node.marking import is_excluded_by_us
from rollout.execution.node.transitions import GivenUpError
from rollout.model.progress import Phase
from rollout.model.quantity import Duration

_TICK = 0.5
_NAMED = 5


def delay_drain(context: NodeContext) -> None:
    """Return after drain.delay.

    Raises:
        GivenUpError: the rollout is to stop.
        NodeFailure: the maintenance window has closed meanwhile.
        FencedError: this process may not act any more.
    """
    if delay := context.policy.courtesy.drain_delay:
        _delay(context, delay, Phase.CORDONED, f"waiting {delay} before its drain (drain.delay)")
        context.gates.after_waiting(context, "while its drain was delayed")


def delay_reboot(context: NodeContext) -> None:
    """Return after reboot.delay; raises the same."""
    if delay := context.policy.courtesy.reboot_delay:
        _delay(context, delay, Phase.DRAINED, f"waiting {delay} before its reboot (reboot.delay)")
        context.gates.after_waiting(context, "while its reboot was delayed")


def _delay(context: NodeContext, delay: Duration, phase: Phase, detail: str) -> None:
    """Return after the delay, unless the wait is called off before."""
    context.report.step(context.name, phase, detail)
    deadline = context.cluster.deadline(delay)
    while not deadline.expired:
        context.guard.check()
        if context.stop.requested:
            raise GivenUpError(context.stop.why)
        deadline.pause(_TICK)


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
