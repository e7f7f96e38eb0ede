"""A process that stands for long has its own pod moved, where its own node waits for a pod elsewhere.

Its controller starts another, which the marks on the node keep away from there. It is done once: a pod that was placed
on the same node all the same stays, for there may be no better one.
"""

from collections.abc import Callable

from rollout.execution.drain.eviction import Answer, request_removal
from rollout.execution.drain.eviction_api import find_eviction_version
from rollout.gather.cluster.snapshot import read_node, read_pod
from rollout.model.cluster import Pod
from rollout.model.node_marks import deferral
from rollout.model.own_node import OwnNode
from rollout.model.policy import DrainPolicy
from rollout.ports import ClusterApi


def move_elsewhere(api: ClusterApi, own: OwnNode, policy: DrainPolicy, say: Callable[[str], None]) -> None:
    """Have the pod evicted that this process runs in, and say so before, for it may end at once. `ApiError`."""
    pod = _own_pod(api, own)
    if pod is None:
        return
    version = find_eviction_version(api)
    say(f"{own.name} waits for a pod on another node: {own.pod} is evicted, and its controller starts the next")
    attempt = request_removal(api, pod, policy, version=version, certain=True)
    if attempt.answer is not Answer.ACCEPTED:
        say(f"warning: {own.pod} could not be evicted from {own.name}: {attempt.message}")


def _own_pod(api: ClusterApi, own: OwnNode) -> Pod | None:
    """The pod to be moved; None where its node waits for nothing, or nobody would start another."""
    namespace, _, name = own.pod.partition("/")
    if not own.pod or deferral(read_node(api, own.name)).get("by") != own.marker:
        return None
    pod = read_pod(api, namespace, name)
    return None if pod is None or pod.owner is None or pod.terminating else pod
