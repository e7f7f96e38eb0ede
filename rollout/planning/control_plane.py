"""The control plane: none of its nodes may go while another is away, or is not well.

Asked by plans, and right before the cordon.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from rollout.model.cluster import Node, Pod, PodPhase
from rollout.model.plan import Blocker, BlockerKind
from rollout.model.policy import Policy
from rollout.planning.away import why_away
from rollout.planning.eligibility import is_control_plane


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """Its nodes, each with why it is away (empty where it is not), and their static pods: k3s has none of these."""

    nodes: Mapping[str, str]
    pods: tuple[Pod, ...]

    @classmethod
    def of(cls, nodes: Iterable[Node], pods: Iterable[Pod], policy: Policy) -> "ControlPlane":
        """Static pods that have ended for good, and were meant to, are no part of it."""
        names = {node.name: why_away(node) for node in nodes if is_control_plane(node, policy)}
        own = (pod for pod in pods if pod.mirror and pod.node in names and pod.phase is not PodPhase.SUCCEEDED)
        return cls(names, tuple(sorted(own, key=lambda pod: pod.key)))

    def blockers(self, node: str) -> tuple[Blocker, ...]:
        """Why this node may not go: others that are away, their static pods that are not Ready; else etcd's majority.

        An etcd of one member has none without it at any time: such a control plane is away with its node.
        """
        if node not in self.nodes:
            return ()
        unwell = [*self._away(node), *self._unready(node)]
        beside = "and no other node of the control plane may be away beside it: fix it, or use --allow blocked"
        objections = [(subject, f"{why}, {beside}") for subject, why in unwell] or self._without_majority(node)
        return tuple(Blocker(node, BlockerKind.CONTROL_PLANE_UNHEALTHY, subject, why) for subject, why in objections)

    def _away(self, node: str) -> Iterator[tuple[str, str]]:
        return ((f"node/{name}", why) for name, why in sorted(self.nodes.items()) if why and name != node)

    def _unready(self, node: str) -> Iterator[tuple[str, str]]:
        for pod in self.pods:
            if pod.node != node and not pod.ready and not self.nodes[pod.node]:
                since = f" since {pod.unready_since}" if pod.unready_since else ""
                yield f"pod/{pod.key}", f"is not Ready on {pod.node}{since}"

    def _without_majority(self, node: str) -> Iterator[tuple[str, str]]:
        members = {pod.node: pod for pod in self.pods if _is_etcd(pod)}
        needed, left = len(members) // 2 + 1, sum(pod.ready for name, pod in members.items() if name != node)
        if node in members and len(members) > 1 and left < needed:
            message = (
                f"is one of {len(members)} members of etcd on {node}, which needs {needed} and would have {left} "
                "without it: add a member, or use --allow blocked"
            )
            yield f"pod/{members[node].key}", message


def _is_etcd(pod: Pod) -> bool:
    """As kubeadm labels it, or names it."""
    return pod.labels.get("component") == "etcd" or pod.name == f"etcd-{pod.node}"
