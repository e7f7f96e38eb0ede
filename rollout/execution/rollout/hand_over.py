"""A process that stands for long has its own pod moved, where its own node waits for a pod elsewhere.

Its controller starts another, which the marks on the node keep away from there. It is done once: a pod that was placed
on the same node all the same stays, for there may be no better one.
"""

from rollout.execution.drain.eviction import Answer, request_removal
from rollout.execution.drain.eviction_api import find_eviction_version
from rollout.gather.cluster.snapshot import read_node, read_pod
from rollout.model.node_marks import deferral
from rollout.model.own_node import OwnNode
from rollout.model.policy import DrainPolicy
from rollout.ports import ClusterApi


def move_elsewhere(api: ClusterApi, own: OwnNode, policy: DrainPolicy) -> str:
    """Have the pod evicted that this process runs in; a sentence on it, empty where it stays. `ApiError`."""
    namespace, _, name = own.pod.partition("/")
    if not own.pod or deferral(read_node(api, own.name)).get("by") != own.marker:
        return ""
    pod = read_pod(api, namespace, name)
    if pod is None or pod.owner is None or pod.terminating:
        return ""
    attempt = request_removal(api, pod, policy, version=find_eviction_version(api), certain=True)
    if attempt.answer is Answer.ACCEPTED:
        return f"{own.name} waits for a pod on another node: {own.pod} is evicted, and its controller starts the next"
    return f"warning: {own.name} waits for a pod on another node, and {own.pod} could not be evicted: {attempt.message}"
