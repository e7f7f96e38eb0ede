"""Keeps nodes apart whose pods one controller moves, such as a database's operator."""

from collections.abc import Iterable

from rollout.gather.cluster.snapshot import read_budgets, read_node_pods, read_pods
from rollout.model import marks
from rollout.model.cluster import Node, Pod
from rollout.model.finding import ControllerMoving
from rollout.model.node_marks import has_marks
from rollout.model.progress import Phase
from rollout.planning.drain.budgets import BudgetIndex, NodeControllers, controller_in
from rollout.planning.drain.verdicts import is_replaced
from rollout.planning.eligibility.away import is_only_marked
from rollout.ports import ClusterApi


def has_pods_of_controllers(api: ClusterApi, name: str) -> bool:
    """Whether a controller, such as a database's operator, moves pods of this node itself."""
    pods = [pod for pod in read_node_pods(api, name) if is_replaced(pod)]
    return bool(NodeControllers.of(pods, BudgetIndex.of(read_budgets(api))).keys)


def find_busy_controller(
    api: ClusterApi, name: str, nodes: Iterable[Node]
) -> ControllerMoving | None:
    """Return a controller of the node's pods that has yet to empty another node in flight.

    The plan keeps such nodes apart, but pods may have moved since.
    """
    others = [node for node in nodes if node.name != name and _is_in_flight(node)]
    if not others:
        return None
    # Nodes that give way come last: another holds this one for longer.
    others.sort(key=lambda node: (gives_way(node, name), node.name))
    index = BudgetIndex.of(read_budgets(api))
    pods = [pod for pod in read_node_pods(api, name) if is_replaced(pod)]
    own = NodeControllers.of(pods, index)
    if not own.keys:
        return None
    for other in others:
        # A terminating pod counts, because its replacement may not be ready.
        leaving = [pod for pod in read_node_pods(api, other.name) if not pod.finished]
        shared = own.keys & NodeControllers.of(leaving, index).keys
        if not shared:
            continue
        awaited = shared & _find_awaited(api, pods, index)
        if awaited:
            return ControllerMoving(controller_in(min(awaited)), other.name)
    return None


def gives_way(node: Node, name: str) -> bool:
    """Whether the node only has its mark, and its name sorts after the other node's."""
    return is_only_marked(node) and node.name > name


def _is_in_flight(node: Node) -> bool:
    return has_marks(node) and node.annotations.get(marks.PHASE) != Phase.FAILED


def _find_awaited(api: ClusterApi, pods: Iterable[Pod], index: BudgetIndex) -> frozenset[str]:
    """Return the controllers that must open a budget of these pods now, on any node."""
    namespaces = {pod.namespace for pod in pods if NodeControllers.of((pod,), index).keys}
    neighbors = list[Pod]()
    for namespace in sorted(namespaces):
        neighbors += filter(is_replaced, read_pods(api, namespace, ""))
    return NodeControllers.of(neighbors, index).awaited
