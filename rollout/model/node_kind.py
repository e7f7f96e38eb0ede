"""Nodes that rollout does not reboot: they are about to be removed from the cluster, or have no Linux host."""

from rollout.model.cluster import Node

# Taints by which their owners say that the machine behind the Node is about to go, and who sets
# them. The cluster autoscaler's DeletionCandidateOfClusterAutoscaler is not one of them: it marks
# nodes that may stay for good.
_REMOVAL_TAINTS = {
    "ToBeDeletedByClusterAutoscaler": "the cluster autoscaler",
    "karpenter.sh/disrupted": "Karpenter",
    # Karpenter before version 1
    "karpenter.sh/disruption": "Karpenter",
    "node.cloudprovider.kubernetes.io/shutdown": "the cloud provider",
    "cloud.google.com/impending-node-termination": "Google Cloud",
    "aws-node-termination-handler/spot-itn": "the AWS node termination handler",
    "aws-node-termination-handler/asg-lifecycle-termination": "the AWS node termination handler",
}
_OS_LABELS = ("kubernetes.io/os", "beta.kubernetes.io/os")
_LINUX = "linux"
# Labels, annotations and taints of Nodes that a program registers in place of a kubelet on a host.
_VIRTUAL_LABELS = {
    "type": ("virtual-kubelet", "kwok"),
    "liqo.io/type": ("virtual-node",),
    "eks.amazonaws.com/compute-type": ("fargate",),
}
_VIRTUAL_ANNOTATION = "kwok.x-k8s.io/node"
_VIRTUAL_TAINTS = frozenset(
    {"virtual-kubelet.io/provider", "virtual-node.liqo.io/not-allowed", _VIRTUAL_ANNOTATION}
)


def why_removed(node: Node) -> str:
    """Return why the node is about to be removed; empty if no deletion or taint says so."""
    if node.deleting:
        return "the Node is being deleted"
    taint = next((taint for taint in node.taints if taint.key in _REMOVAL_TAINTS), None)
    return f"{_REMOVAL_TAINTS[taint.key]} is about to remove it: taint {taint.key}" if taint else ""


def why_unsupported(node: Node) -> str:
    """Return why there is no host to ask over SSH; empty for a Linux host."""
    if _is_virtual(node):
        return "a virtual node: no host of its own is behind it"
    systems = (node.operating_system, *(node.labels.get(label, "") for label in _OS_LABELS))
    other = next((system for system in systems if system and system.lower() != _LINUX), "")
    return f"a {other.capitalize()} node: rollout reboots Linux hosts" if other else ""


def _is_virtual(node: Node) -> bool:
    if any(node.labels.get(label) in values for label, values in _VIRTUAL_LABELS.items()):
        return True
    is_tainted = any(taint.key in _VIRTUAL_TAINTS for taint in node.taints)
    return is_tainted or _VIRTUAL_ANNOTATION in node.annotations
