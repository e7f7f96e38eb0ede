"""Which node a process in a pod stands on, and whether its pod could stand on another."""

from collections.abc import Iterable

from rollout.model.cluster import ANYWHERE, Node, Pod
from rollout.model.own_node import OwnNode, OwnPod


def located(own: OwnPod, pod: Pod | None, nodes: Iterable[Node]) -> OwnNode | None:
    """Which of the nodes it is; None where it is none of them, or nothing says which.

    What the downward API says goes before the kernel, and that before the Pod as the API server has it: a namesake of
    it may live in another cluster.
    """
    present = {node.name: node for node in nodes}
    by_boot = [name for name, node in present.items() if own.boot_id and node.boot_id == own.boot_id]
    name = own.node or (by_boot[0] if len(by_boot) == 1 else pod.node if pod else "")
    if name not in present:
        return None
    others = (node for node in present.values() if node.name != name)
    return OwnNode(name, own.key if pod else "", is_only_place=not any(_takes(node, pod) for node in others))


def _takes(node: Node, pod: Pod | None) -> bool:
    """Whether the pod that follows this one may be placed there; any pod where this one is not known."""
    if node.unschedulable or node.deleting or not node.is_ready:
        return False
    selector, placement = (pod.node_selector, pod.placement) if pod else ({}, ANYWHERE)
    is_chosen = placement.admits(node.name, node.labels)
    return is_chosen and selector.items() <= node.labels.items() and placement.tolerates(node.taints)
