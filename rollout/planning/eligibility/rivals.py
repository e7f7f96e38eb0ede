"""Other reboot coordinators in the cluster: two that reboot the same nodes break each other's limits."""

from collections.abc import Iterable, Iterator, Mapping

from rollout.model import marks
from rollout.model.cluster import ClusterSnapshot, Node, Pod
from rollout.model.plan import Blocker, BlockerKind
from rollout.model.rivals import IF_REMOVED, Coordinator, SelfReboot

FLUO = "fluo"
CLUO = "cluo"
KURED = "kured"
LOCKSMITHD = "locksmithd"
UPGRADE_CONTROLLER = "system-upgrade-controller"
CRO = "cro"
KRM = "krm"
FLEETLOCK = "fleetlock"
ZINCATI = "zincati"
MCO = "mco"
BRUPOP = "brupop"
TUPPR = "tuppr"
_IN_THE_CLUSTER = (FLUO, CLUO, KURED, UPGRADE_CONTROLLER, CRO, KRM, FLEETLOCK, MCO, BRUPOP, TUPPR)
RIVALS = (*_IN_THE_CLUSTER, LOCKSMITHD, ZINCATI, *SelfReboot)

_SCALE_DOWN = "pause it (kubectl -n {namespace} scale {kind} {name} --replicas=0)"
_WAYS_OUT = {
    MCO: (
        """pause its pools (kubectl patch machineconfigpool --all --type merge -p '{{"spec":{{"paused":true}}}}')"""
    ),
    KURED: (
        "take its lock by hand (kubectl -n {namespace} annotate {kind} {name} "
        + marks.KURED_LOCK
        + '=\'{{"nodeID":"manual"}}\'), or remove it'
    ),
}


def rivals(snapshot: ClusterSnapshot, ignored: tuple[str, ...]) -> tuple[Blocker, ...]:
    """Coordinators that may act on this cluster, in order, without those that are ignored, and the way out of each."""
    nodes = frozenset(node.name for node in snapshot.nodes)
    return tuple(
        _rival(coordinator)
        for coordinator in snapshot.coordinators
        if coordinator.rival not in ignored
        # a lock that is taken for good by something that is no node is how kured's users pause it
        and not (coordinator.locked and nodes.isdisjoint(coordinator.holders))
    )


def _rival(coordinator: Coordinator) -> Blocker:
    way_out = _WAYS_OUT.get(coordinator.rival, _SCALE_DOWN).format(
        namespace=coordinator.namespace, kind=coordinator.kind.lower(), name=coordinator.name
    )
    held = (
        f" and holds its lock for {', '.join(coordinator.holders)}" if coordinator.holders else ""
    )
    acts = (
        "lets hosts reboot by themselves"
        if coordinator.rival == FLEETLOCK
        else f"reboots nodes by itself{held}"
    )
    # nothing of MCO's own Deployments says that its pools are paused
    joint = "and then" if coordinator.rival == MCO else "or"
    return Blocker(
        "",
        BlockerKind.RIVAL,
        f"{coordinator.kind.lower()}/{coordinator.namespace}/{coordinator.name}",
        f"{acts}: {way_out}, {joint} ignore it with --allow {coordinator.rival}",
    )


def nodes_being_upgraded(pods: Iterable[Pod]) -> Mapping[str, str]:
    """Nodes on which the system-upgrade-controller's pods are at work, each with the name of one."""
    return {
        node: pod.key
        for pod in pods
        if not pod.finished and (node := pod.labels.get(marks.UPGRADED_NODE))
    }


def marks_on(node: Node) -> Iterator[tuple[str, str]]:
    """Which coordinators' marks say that they have this node in hand: the name of each, and a sentence."""
    for rival, sentence, *left in _marks_on(node):
        fields = {"annotate": node.annotations, "label": node.labels}
        commands = [
            f"kubectl {verb} node {node.name}"
            f" {' '.join(f'{name}-' for name in left if name in present)}"
            for verb, present in fields.items()
            if any(name in present for name in left)
        ]
        yield rival, f"{sentence} ({IF_REMOVED}{'; '.join(commands)})"


def _marks_on(node: Node) -> Iterator[tuple[str, ...]]:
    """Yield the coordinator, a sentence, and the names of the marks that say it."""
    for prefix, rival in ((marks.FLUO_PREFIX, FLUO), (marks.CLUO_PREFIX, CLUO)):
        held_by = [
            prefix + word
            for word in marks.OPERATOR_ANNOTATIONS
            if node.annotations.get(prefix + word) == "true"
        ]
        held_by += [
            label
            for word in marks.OPERATOR_LABELS
            if _asks_for_checks(node, label := prefix + word)
        ]
        if held_by:
            yield rival, f"another reboot coordinator holds it: {', '.join(held_by)}", *held_by
    if marks.KURED_IN_PROGRESS in node.annotations:
        yield KURED, f"kured is rebooting it: {marks.KURED_IN_PROGRESS}", marks.KURED_IN_PROGRESS
    if in_hand := [name for name in marks.CRO_IN_HAND if name in node.annotations]:
        yield CRO, f"the coreos-reboot-operator is rebooting it: {', '.join(in_hand)}", *in_hand
    if node.annotations.get(marks.KRM_STATUS) == marks.KRM_REBOOTING:
        yield (
            KRM,
            f"the reboot manager is rebooting it: {marks.KRM_STATUS} is {marks.KRM_REBOOTING}",
            marks.KRM_STATUS,
        )
    if node.labels.get(marks.TUPPR_UPGRADING) == "true":
        yield TUPPR, f"tuppr is upgrading it: {marks.TUPPR_UPGRADING}", marks.TUPPR_UPGRADING
    state, current, desired = (
        node.annotations.get(n) for n in (marks.MCO_STATE, marks.MCO_CURRENT, marks.MCO_DESIRED)
    )
    if state in marks.MCO_AT_WORK:
        yield (
            MCO,
            f"the machine-config-operator updates it: {marks.MCO_STATE} is {state}",
            marks.MCO_STATE,
        )
    elif desired and desired != current:
        yield (
            MCO,
            f"the machine-config-operator updates it: {marks.MCO_DESIRED} is {desired}",
            marks.MCO_DESIRED,
        )


def _asks_for_checks(node: Node, label: str) -> bool:
    """Whether an operator has checks run there; the same label may be ours."""
    return node.labels.get(label) == "true" and node.annotations.get(marks.HOOK_LABEL) != label
