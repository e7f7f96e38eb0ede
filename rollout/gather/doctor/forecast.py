"""What planning says, as verdicts: rivals, nodes that cannot take part, and drains that are bound to fail. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from rollout.gather.doctor.checks import Check, CheckName, failed, passed, warned
from rollout.model.marks import RIVAL_PAUSES
from rollout.model.node_marks import UNCLEAR_HINT
from rollout.model.plan import BlockerKind, Exclusion, ExclusionReason, RolloutPlan
from rollout.model.rivals import IF_REMOVED, SELF_REBOOTS, Rival

_FIXES = {
    ExclusionReason.NOT_READY: "Fix it first: kubectl describe node {node}",
    ExclusionReason.LEFT_CORDONED: "rollout status --run says how it stands; then: rollout resume --retry-failed, or "
    "rollout abort.",
    ExclusionReason.CORDONED: "Once its work there is done: `kubectl uncordon {node}`; or use --allow cordoned.",
    ExclusionReason.UNKNOWN_MARKS: UNCLEAR_HINT.replace("{name}", "{node}"),
    ExclusionReason.OWN_NODE: "Run rollout from outside the cluster, or from a pod that another node takes.",
}
_UNPAUSE_FIX = "Once it may be rebooted: rollout unpause {node}"
_RIVAL_PAUSE_FIX = "Once it may be rebooted: kubectl annotate node {node} {annotation}-"
# By the name that each sentence on a rival ends with.
_RIVAL_FIXES: Mapping[str, str] = {
    "locksmithd": "On the host: sudo systemctl mask --now locksmithd; or --exclude the node.",
    "zincati": "Have it ask rollout fleetlock; or on the host: sudo systemctl mask --now zincati; or --exclude it.",
    **{rival: f"On the host: {way_out}; or --exclude the node." for rival, (_, way_out) in SELF_REBOOTS.items()},
    "system-upgrade-controller": "Wait until its pod has ended, or --exclude the node.",
}
_RIVAL_FIX = "Stop the other coordinator, or --exclude the node; if it was removed: {command}"


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
            yield failed(CheckName.RIVAL, exclusion.node, exclusion.message, _rival_fix(exclusion.message))
        elif fix := _fix(exclusion):
            yield warned(CheckName.NODE, exclusion.node, exclusion.message, fix)


def _rival_fix(message: str) -> str:
    command = message.partition(IF_REMOVED)[2].partition(")")[0]
    return _RIVAL_FIXES.get(message.rpartition("--allow ")[2], _RIVAL_FIX.format(command=command))


def _fix(exclusion: Exclusion) -> str:
    """Return what would have the node take part; empty where nothing is to be mended."""
    if exclusion.reason is not ExclusionReason.PAUSED:
        return _FIXES.get(exclusion.reason, "").format(node=exclusion.node)
    annotation = next((name for name in RIVAL_PAUSES if exclusion.message.endswith(name)), "")
    return (_RIVAL_PAUSE_FIX if annotation else _UNPAUSE_FIX).format(node=exclusion.node, annotation=annotation)


def drain_checks(plan: RolloutPlan) -> Iterator[Check]:
    """Verdicts on the drain of each planned node."""
    for blocker in plan.blockers:
        if blocker.kind is not BlockerKind.RIVAL:
            message = f"{blocker.object} {blocker.message}"
            yield failed(CheckName.DRAIN, blocker.node, message, "Clear it, or use --skip blocked.")
    for warning in plan.warnings:
        message = f"{warning.object} {warning.message}"
        yield warned(CheckName.DRAIN, warning.node or "cluster", message, "See rollout plan.")
    in_question = {blocker.node for blocker in plan.blockers} | {warning.node for warning in plan.warnings}
    for node in plan.nodes:
        if node.name not in in_question:
            yield passed(CheckName.DRAIN, node.name, f"{node.evict} pods can be moved")
