"""What planning says, as verdicts: rivals, nodes that cannot take part, and drains that are bound to fail. Pure."""

from collections.abc import Iterator, Sequence

from rollout.gather.doctor.checks import Check, CheckName, failed, passed, warned
from rollout.model.plan import BlockerKind, ExclusionReason, RolloutPlan
from rollout.model.rivals import Rival

_FIXES = {
    ExclusionReason.NOT_READY: "Fix it first: kubectl describe node.",
    ExclusionReason.LEFT_CORDONED: "rollout status --run says how it stands; then: rollout resume --retry-failed, or "
    "rollout abort.",
    ExclusionReason.CORDONED: "kubectl uncordon it, or use --include-cordoned.",
    ExclusionReason.PAUSED: "Remove the annotation once the node may be rebooted.",
}
_RIVAL_FIX = "Stop the other coordinator, and clean up after it: rollout adopt; or --exclude the node."


def rival_checks(rivals: Sequence[Rival]) -> Iterator[Check]:
    """One verdict for each reboot coordinator that runs in the cluster."""
    for rival in rivals:
        message, _, way_out = rival.message.partition(": ")
        yield failed(CheckName.RIVAL, rival.object, message, way_out)
    if not rivals:
        yield passed(CheckName.RIVAL, "cluster", "no other reboot coordinator was found")


def exclusion_checks(plan: RolloutPlan) -> Iterator[Check]:
    """One verdict for each node that cannot take part, where something can be done about it."""
    for exclusion in plan.excluded:
        if exclusion.reason is ExclusionReason.RIVAL:
            yield failed(CheckName.RIVAL, exclusion.node, exclusion.message, _RIVAL_FIX)
        elif exclusion.reason in _FIXES:
            yield warned(CheckName.NODE, exclusion.node, exclusion.message, _FIXES[exclusion.reason])


def drain_checks(plan: RolloutPlan) -> Iterator[Check]:
    """Verdicts on the drain of each planned node."""
    for blocker in plan.blockers:
        if blocker.kind is not BlockerKind.RIVAL:
            message = f"{blocker.object} {blocker.message}"
            yield failed(CheckName.DRAIN, blocker.node, message, "Clear it, or use --skip-blocked.")
    for warning in plan.warnings:
        message = f"{warning.object} {warning.message}"
        yield warned(CheckName.DRAIN, warning.node or "cluster", message, "See rollout plan.")
    in_question = {blocker.node for blocker in plan.blockers} | {warning.node for warning in plan.warnings}
    for node in plan.nodes:
        if node.name not in in_question:
            yield passed(CheckName.DRAIN, node.name, f"{node.evict} pods can be moved")
