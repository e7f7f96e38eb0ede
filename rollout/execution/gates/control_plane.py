"""A node of the control plane waits until no other is away and their static pods are Ready, as a plan says it."""

from collections.abc import Collection

from rollout.errors import ApiNotFoundError
from rollout.gather.cluster.snapshot import read_node, read_node_pods, read_nodes
from rollout.model.policy import Policy
from rollout.planning.away import ControlPlane
from rollout.planning.eligibility import is_control_plane
from rollout.ports import ClusterApi


def why_not_away(api: ClusterApi, name: str, policy: Policy, accepted: Collection[str]) -> str:
    """Why this node may not be away now; empty where it may. `accepted` objects were in the way when it was planned.

    Only the control plane's pods are read, and nothing of any other node.
    """
    try:
        if not is_control_plane(read_node(api, name), policy):
            return ""
    except ApiNotFoundError:
        return ""
    nodes = [node for node in read_nodes(api) if is_control_plane(node, policy)]
    pods = [pod for node in nodes for pod in read_node_pods(api, node.name).pods]
    blockers = ControlPlane.of(nodes, pods, policy).blockers(name)
    return next((f"{entry.object} {entry.message}" for entry in blockers if entry.object not in accepted), "")
