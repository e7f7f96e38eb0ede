"""What a node waits for because people asked for it: delays, load balancers.

Delays are nobody's work: whoever stops the rollout meanwhile gets the node back at once, whatever
`waves.stop` says. A process that takes the node up again does not know how much of a wait had passed, and waits anew.
"""

from collections.abc import Sequence

from rollout.execution.node.context import NodeContext
from rollout.execution.node.marking import is_excluded_by_us
from rollout.execution.node.transitions import GivenUpError
from rollout.model.cluster import Node
from rollout.model.progress import Phase
from rollout.model.quantity import Duration
from rollout.model.replaced import replaced_on
from rollout.model.text import shortened
from rollout.planning.eligibility.selector import node_labels

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


def report_replaced(context: NodeContext, before: Node, phase: Phase, labels: Sequence[str]) -> None:
    """Tell which values of others' on the Node, as it was before, these labels have taken the place of."""
    ours = replaced_on(before).labels
    replaced = [
        f"{name}={before.labels[name]} is {name}={value} now"
        for name, value in node_labels(labels).items()
        if before.labels.get(name, value) != value and name not in ours
    ]
    if replaced:
        context.report.step(context.name, phase, f"label {shortened(replaced, _NAMED)}")


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
