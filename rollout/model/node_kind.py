from rollout.model.cluster import Node
from rollout.model.finding import NodeDeleting, NodeLeaving, OtherSystem, VirtualNode

# DeletionCandidateOfClusterAutoscaler announces nothing.
_REMOVAL_TAINTS = {
    "ToBeDeletedByClusterAutoscaler": "the cluster autoscaler",
    "karpenter.sh/disrupted": "Karpenter",
    # Before Karpenter 1.
    "karpenter.sh/disruption": "Karpenter",
    "node.cloudprovider.kubernetes.io/shutdown": "the cloud provider",
    "cloud.google.com/impending-node-termination": "Google Cloud",
    "aws-node-termination-handler/spot-itn": "the AWS node termination handler",
    "aws-node-termination-handler/asg-lifecycle-termination": "the AWS node termination handler",
}
_OS_LABELS = ("kubernetes.io/os", "beta.kubernetes.io/os")
_LINUX = "linux"
_VIRTUAL_LABELS = {
    "type": ("virtual-kubelet", "kwok"),
    "liqo.io/type": ("virtual-node",),
    "eks.amazonaws.com/compute-type": ("fargate",),
}
_VIRTUAL_ANNOTATION = "kwok.x-k8s.io/node"
_VIRTUAL_TAINTS = frozenset(
    {"virtual-kubelet.io/provider", "virtual-node.liqo.io/not-allowed", _VIRTUAL_ANNOTATION}
)


def why_removed(node: Node) -> NodeDeleting | NodeLeaving | None:
    """Return the reason, or None."""
    if node.deleting:
        return NodeDeleting()
    for taint in node.taints:
        if taint.key in _REMOVAL_TAINTS:
            return NodeLeaving(_REMOVAL_TAINTS[taint.key], taint.key)
    return None


def why_unsupported(node: Node) -> VirtualNode | OtherSystem | None:
    """Return the reason, or None."""
    if _is_virtual(node):
        return VirtualNode()
    labels = [node.labels.get(label, "") for label in _OS_LABELS]
    for system in (node.operating_system, *labels):
        if system and system.lower() != _LINUX:
            return OtherSystem(system)
    return None


def _is_virtual(node: Node) -> bool:
    if any(node.labels.get(label) in values for label, values in _VIRTUAL_LABELS.items()):
        return True
    is_tainted = any(taint.key in _VIRTUAL_TAINTS for taint in node.taints)
    return is_tainted or _VIRTUAL_ANNOTATION in node.annotations
