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
    pods = [pod for pod in read_node_pods(api, name) if is_replaced(pod)]
    return bool(NodeControllers.of(pods, BudgetIndex.of(read_budgets(api))).keys)


def find_busy_controller(
    api: ClusterApi, name: str, nodes: Iterable[Node]
) -> ControllerMoving | None:
    """Return a controller of the node's pods that has yet to empty another node.

    Such a controller moves a pod itself before its budget allows the eviction.
    """
    others_in_flight = [node for node in nodes if node.name != name and _is_in_flight(node)]
    if not others_in_flight:
        return None
    # Nodes that give way come last, because others hold this node for longer.
    others_in_flight.sort(key=lambda node: (gives_way(node, name), node.name))
    index = BudgetIndex.of(read_budgets(api))
    pods = [pod for pod in read_node_pods(api, name) if is_replaced(pod)]
    controllers = NodeControllers.of(pods, index).keys
    if not controllers:
        return None
    for other in others_in_flight:
        # The replacement of a terminating pod may not be ready.
        pods_left = [pod for pod in read_node_pods(api, other.name) if not pod.finished]
        shared = controllers & NodeControllers.of(pods_left, index).keys
        if not shared:
            continue
        busy = shared & _controllers_with_closed_budgets(api, pods, index)
        if busy:
            return ControllerMoving(controller_in(min(busy)), other.name)
    return None


def gives_way(node: Node, name: str) -> bool:
    """A node that is only marked gives way if its name sorts later."""
    return is_only_marked(node) and node.name > name


def _is_in_flight(node: Node) -> bool:
    return has_marks(node) and node.annotations.get(marks.PHASE) != Phase.FAILED


def _controllers_with_closed_budgets(
    api: ClusterApi, pods: Iterable[Pod], index: BudgetIndex
) -> frozenset[str]:
    namespaces = {pod.namespace for pod in pods if NodeControllers.of((pod,), index).keys}
    pods_in_namespaces = list[Pod]()
    for namespace in sorted(namespaces):
        pods_in_namespaces += filter(is_replaced, read_pods(api, namespace, ""))
    return NodeControllers.of(pods_in_namespaces, index).awaited
