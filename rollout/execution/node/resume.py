"""Taking up a node where an earlier process left it.

The mark on the Node says which act was about to begin, not whether it happened; the host's boot id says whether it has
rebooted. Whatever had happened, the node enters the state machine at a phase from which every proof is still made, and
no host is asked to reboot in a boot that is not the one from before.
"""

from dataclasses import replace

from rollout.execution.node.context import NodeContext, Progress
from rollout.execution.node.failures import NodeFailure
from rollout.execution.node.host import NodeHost, in_boot_before, look_once
from rollout.execution.node.transitions import AFTER_REBOOT
from rollout.gather.cluster.snapshot import read_node
from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.detection import read_targets
from rollout.model.node_marks import UNCLEAR_HINT, misunderstanding
from rollout.model.progress import Outcome, Phase


def take_up(context: NodeContext) -> Progress:
    """Where to go on; `NodeFailure` where somebody else has finished or undone it, or changed its marks, meanwhile."""
    context.guard.check()
    node = context.cluster.ask(lambda api: read_node(api, context.name))
    if node.annotations.get(marks.RUN) != context.task.rollout:
        raise NodeFailure(Outcome.SKIPPED, "its marks are gone: another process finished it, or they were removed")
    if why := misunderstanding(node):
        raise NodeFailure(Outcome.STRANDED, f"{why}: nothing was done to it", hint=UNCLEAR_HINT.format(name=node.name))
    marked = Progress(
        staged_version=node.annotations.get(marks.STAGED_VERSION, ""),
        marked=True,
        targets=read_targets(node.annotations.get(marks.DETECTED, "{}")) or {},
    )
    phase = Phase(node.annotations[marks.PHASE])
    if context.own is not None and phase in AFTER_REBOOT and node.boot_id == context.planned.boot_id:
        message = f"its reboot may have been requested, and {context.own.presence}: its cordon and its marks stay"
        raise NodeFailure(Outcome.STRANDED, message, hint="Go on from another node: rollout resume.")
    if phase in AFTER_REBOOT:
        return replace(marked, phase=Phase.REBOOTING, in_doubt=phase is Phase.REBOOTING)
    return replace(marked, phase=_by_boot(context.host, node, phase))


def _by_boot(host: NodeHost, node: Node, phase: Phase) -> Phase:
    """Before the reboot, or after one that nobody has asked for: a host that has rebooted needs no other."""
    facts = look_once(host)
    rebooted = facts is not None and not in_boot_before(host, facts)
    if rebooted or (facts is None and phase is Phase.FAILED):
        return Phase.REBOOTING
    if phase is Phase.PENDING or (phase is Phase.FAILED and not node.unschedulable):
        return Phase.PENDING
    return Phase.CORDONED
