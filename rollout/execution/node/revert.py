"""How a node that is under way hears of a stop with `waves.stop revert`: whoever asks whether it may act is told no.

From the moment its reboot may have been asked for a node only goes forward.
"""

from dataclasses import dataclass, replace

from rollout.execution.base.guard import Guard
from rollout.execution.base.stop import StopRequest
from rollout.execution.node.context import NodeContext
from rollout.execution.node.failures import GivenUpError
from rollout.execution.node.transitions import BEFORE_REBOOT
from rollout.model.progress import Phase


@dataclass(frozen=True, slots=True)
class RevertingGuard:
    """The guard, and the wish to give back what is not rebooting yet."""

    guard: Guard
    stop: StopRequest

    def check(self) -> None:
        """Return while both allow it; `GivenUpError` where the node is to be given back."""
        self.guard.check()
        if self.stop.reverting:
            raise GivenUpError


def until_given_back(context: NodeContext, phase: Phase) -> NodeContext:
    """The context for a step that begins in this phase."""
    if phase not in BEFORE_REBOOT:
        return context
    return replace(context, task=replace(context.task, guard=RevertingGuard(context.guard, context.stop)))
