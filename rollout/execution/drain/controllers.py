"""Keeps nodes apart whose pods the same controller moves, such as the operator of a database."""

from rollout.gather.cluster.snapshot import read_budgets, read_node_pods, read_nodes
from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.finding import ControllerBusy
from rollout.model.node_marks import has_marks
from rollout.model.progress import Phase
from rollout.planning.drain.budgets import BudgetIndex
from rollout.planning.drain.controllers import NodeControllers
from rollout.planning.drain.verdicts import is_replaced
from rollout.planning.eligibility.away import is_only_marked
from rollout.ports import ClusterApi


def busy_controller(api: ClusterApi, name: str) -> ControllerBusy | None:
    """Return a controller of the node's pods that first has to empty another node in flight.

    The plan keeps such nodes apart, but pods may have moved since.
    """
    others = [node.name for node in read_nodes(api) if _goes_before(node, name)]
    if not others:
        return None
    index = BudgetIndex.of(read_budgets(api))
    own = _controllers_on(api, name, index)
    for other in others:
        controller = own.shared_with(_controllers_on(api, other, index))
        if controller:
            return ControllerBusy(controller, other)
    return None


def _controllers_on(api: ClusterApi, node: str, index: BudgetIndex) -> NodeControllers:
    return NodeControllers.of(filter(is_replaced, read_node_pods(api, node)), index)


def _goes_before(node: Node, name: str) -> bool:
    if node.name == name or not has_marks(node):
        return False
    if node.annotations.get(marks.PHASE) == Phase.FAILED:
        return False
    return not is_only_marked(node) or node.name < name
