from collections.abc import Collection, Iterable, Iterator, Mapping

from rollout.model import marks
from rollout.model.blocker_finding import CoordinatorActive
from rollout.model.cluster import Node, Pod
from rollout.model.finding import RivalMark
from rollout.model.plan import Blocker
from rollout.model.rivals import Coordinator, Rival
from rollout.wording.blockers import blocker


def rival_blockers(
    coordinators: Iterable[Coordinator], nodes: Iterable[Node], ignored: Collection[str] = ()
) -> tuple[Blocker, ...]:
    """Paused coordinators block nothing."""
    node_names = frozenset(node.name for node in nodes)
    blockers = list[Blocker]()
    for coordinator in coordinators:
        # Users pause kured by taking its lock for something that is no node.
        is_paused = coordinator.locked and node_names.isdisjoint(coordinator.holders)
        if is_paused or coordinator.rival in ignored:
            continue
        kind = coordinator.kind.lower()
        subject = f"{kind}/{coordinator.namespace}/{coordinator.name}"
        blockers.append(blocker("", subject, CoordinatorActive(coordinator)))
    return tuple(blockers)


def nodes_being_upgraded(pods: Iterable[Pod]) -> Mapping[str, str]:
    """Return the system-upgrade-controller's pods by node."""
    upgraded_by = dict[str, str]()
    for pod in pods:
        node = pod.labels.get(marks.UPGRADED_NODE)
        if node and not pod.finished:
            upgraded_by[node] = pod.key
    return upgraded_by


def marks_of_rivals(node: Node) -> Iterator[RivalMark]:
    yield from _fluo_marks(node)
    if marks.KURED_IN_PROGRESS in node.annotations:
        yield _rival_mark(node, Rival.KURED, marks.KURED_IN_PROGRESS)
    cro_annotations = [name for name in marks.CRO_IN_HAND if name in node.annotations]
    if cro_annotations:
        yield _rival_mark(node, Rival.CRO, *cro_annotations)
    if node.annotations.get(marks.KRM_STATUS) == marks.KRM_REBOOTING:
        yield _rival_mark(node, Rival.KRM, marks.KRM_STATUS, value=marks.KRM_REBOOTING)
    if node.labels.get(marks.TUPPR_UPGRADING) == "true":
        yield _rival_mark(node, Rival.TUPPR, marks.TUPPR_UPGRADING)
    yield from _maintenance_marks(node)
    yield from _mco_marks(node)


def _fluo_marks(node: Node) -> Iterator[RivalMark]:
    """Yield the marks of FLUO, and of CLUO, from which it was forked."""
    for prefix, rival in ((marks.FLUO_PREFIX, Rival.FLUO), (marks.CLUO_PREFIX, Rival.CLUO)):
        annotations = [prefix + word for word in marks.OPERATOR_ANNOTATIONS]
        labels = [prefix + word for word in marks.OPERATOR_LABELS]
        present = [name for name in annotations if node.annotations.get(name) == "true"]
        present += [label for label in labels if _has_foreign_check_label(node, label)]
        if present:
            yield _rival_mark(node, rival, *present)


def _mco_marks(node: Node) -> Iterator[RivalMark]:
    state = node.annotations.get(marks.MCO_STATE, "")
    current_config = node.annotations.get(marks.MCO_CURRENT)
    desired_config = node.annotations.get(marks.MCO_DESIRED)
    if state in marks.MCO_AT_WORK:
        yield _rival_mark(node, Rival.MCO, marks.MCO_STATE, value=state)
    elif desired_config and desired_config != current_config:
        yield _rival_mark(node, Rival.MCO, marks.MCO_DESIRED, value=desired_config)


def _maintenance_marks(node: Node) -> Iterator[RivalMark]:
    if node.labels.get(marks.ORCHESTRATOR_MAINTAINS) == "true":
        yield _rival_mark(node, Rival.MAINTENANCE_ORCHESTRATOR, marks.ORCHESTRATOR_MAINTAINS)
    if marks.KAIROS_CORDONED in node.annotations:
        yield _rival_mark(node, Rival.KAIROS, marks.KAIROS_CORDONED)
    nvsentinel_state = node.labels.get(marks.NVSENTINEL_STATE, "")
    if nvsentinel_state in marks.NVSENTINEL_AT_WORK:
        yield _rival_mark(node, Rival.NVSENTINEL, marks.NVSENTINEL_STATE, value=nvsentinel_state)
    for name, status in node.annotations.items():
        if name.startswith(marks.NODEWRIGHT_STATUS) and status == marks.NODEWRIGHT_AT_WORK:
            yield _rival_mark(node, Rival.NODEWRIGHT, name, value=status)


def _rival_mark(node: Node, rival: Rival, *names: str, value: str = "") -> RivalMark:
    removal_commands = []
    for verb, present in (("annotate", node.annotations), ("label", node.labels)):
        removals = [f"{name}-" for name in names if name in present]
        if removals:
            removal_commands.append(f"kubectl {verb} node {node.name} {' '.join(removals)}")
    return RivalMark(rival, names, value, tuple(removal_commands))


def _has_foreign_check_label(node: Node, label: str) -> bool:
    """Rollout sets the label itself when it uses FLUO's checks."""
    is_set_by_rollout = node.annotations.get(marks.HOOK_LABEL_ANNOTATION) == label
    return node.labels.get(label) == "true" and not is_set_by_rollout
