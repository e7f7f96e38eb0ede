"""Other reboot coordinators in the cluster: two that reboot the same nodes break each other's limits."""

from collections.abc import Iterable, Iterator, Mapping

from rollout.model import marks
from rollout.model.cluster import ClusterSnapshot, Node, Pod
from rollout.model.finding import RivalMark
from rollout.model.plan import Blocker, BlockerKind
from rollout.model.rivals import Coordinator, Rival, SelfReboot

RIVALS = (*Rival, *SelfReboot)

_SCALE_DOWN = "pause it (kubectl -n {namespace} scale {kind} {name} --replicas=0)"
_WAYS_OUT: Mapping[str, str] = {
    Rival.MCO: (
        """pause its pools (kubectl patch machineconfigpool --all --type merge -p '{{"spec":{{"paused":true}}}}')"""
    ),
    Rival.KURED: (
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
        if coordinator.rival == Rival.FLEETLOCK
        else f"reboots nodes by itself{held}"
    )
    # nothing of MCO's own Deployments says that its pools are paused
    joint = "and then" if coordinator.rival == Rival.MCO else "or"
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


def marks_on(node: Node) -> Iterator[RivalMark]:
    """Yield the marks that say that a coordinator works on the node."""
    for prefix, rival in ((marks.FLUO_PREFIX, Rival.FLUO), (marks.CLUO_PREFIX, Rival.CLUO)):
        words = (prefix + word for word in marks.OPERATOR_ANNOTATIONS)
        names = [name for name in words if node.annotations.get(name) == "true"]
        labels = (prefix + word for word in marks.OPERATOR_LABELS)
        names += [label for label in labels if _asks_for_checks(node, label)]
        if names:
            yield _mark(node, rival, *names)
    if marks.KURED_IN_PROGRESS in node.annotations:
        yield _mark(node, Rival.KURED, marks.KURED_IN_PROGRESS)
    if names := [name for name in marks.CRO_IN_HAND if name in node.annotations]:
        yield _mark(node, Rival.CRO, *names)
    if node.annotations.get(marks.KRM_STATUS) == marks.KRM_REBOOTING:
        yield _mark(node, Rival.KRM, marks.KRM_STATUS, value=marks.KRM_REBOOTING)
    if node.labels.get(marks.TUPPR_UPGRADING) == "true":
        yield _mark(node, Rival.TUPPR, marks.TUPPR_UPGRADING)
    state = node.annotations.get(marks.MCO_STATE, "")
    desired = node.annotations.get(marks.MCO_DESIRED)
    if state in marks.MCO_AT_WORK:
        yield _mark(node, Rival.MCO, marks.MCO_STATE, value=state)
    elif desired and desired != node.annotations.get(marks.MCO_CURRENT):
        yield _mark(node, Rival.MCO, marks.MCO_DESIRED, value=desired)


def _mark(node: Node, rival: Rival, *names: str, value: str = "") -> RivalMark:
    """Return the finding with the commands that remove these annotations and labels."""
    commands = []
    for verb, present in (("annotate", node.annotations), ("label", node.labels)):
        if removals := [f"{name}-" for name in names if name in present]:
            commands.append(f"kubectl {verb} node {node.name} {' '.join(removals)}")
    return RivalMark(rival, names, value, tuple(commands))


def _asks_for_checks(node: Node, label: str) -> bool:
    """Whether an operator has checks run there; the same label may be ours."""
    return node.labels.get(label) == "true" and node.annotations.get(marks.HOOK_LABEL) != label
