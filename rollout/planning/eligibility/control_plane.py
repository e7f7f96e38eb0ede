"""The control plane: none of its nodes may go while another is away, or is not well.

Beside that its static pods have budgets that nobody wrote: of etcd a majority of the members stays, of the API servers
one. Asked by plans, and right before the cordon.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from rollout.model.cluster import Node, Pod, PodPhase
from rollout.model.plan import Blocker, BlockerKind
from rollout.model.policy import Policy
from rollout.planning.eligibility.away import why_away
from rollout.planning.eligibility.candidates import is_control_plane

_ETCD, _API_SERVER = "etcd", "kube-apiserver"
_ETCD_ROLE = "node-role.kubernetes.io/etcd"
_WAY_OUT = "or use --allow blocked"


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """Its nodes, each with why it is away (empty where it is not), and their static pods: k3s has none of these.

    `voters` are the nodes that should have a member of etcd: those with its role. Where none has it, those that run one
    and those whose kubelet is silent, all others run none; or every node, where fewer than two run one.
    """

    nodes: Mapping[str, str]
    voters: frozenset[str]
    pods: tuple[Pod, ...]

    @classmethod
    def of(
        cls, nodes: Iterable[Node], pods: Iterable[Pod], policy: Policy, returning: Collection[str] = ()
    ) -> "ControlPlane":
        """Static pods that have ended for good, and were meant to, are no part of it.

        `returning` nodes are taken for well: a rollout that goes on brings them back before it begins another.
        """
        members = [node for node in nodes if is_control_plane(node, policy)]
        names = {node.name: "" if node.name in returning else why_away(node) for node in members}
        labelled = frozenset(node.name for node in members if _ETCD_ROLE in node.labels)
        own = (pod for pod in pods if pod.mirror and pod.node in names and pod.phase is not PodPhase.SUCCEEDED)
        expected = sorted((_well(pod) if pod.node in returning else pod for pod in own), key=lambda pod: pod.key)
        running = {pod.node for pod in expected if _is(pod, _ETCD)}
        silent = {node.name for node in members if not node.is_ready}
        return cls(names, labelled or frozenset(running | silent if len(running) > 1 else names), tuple(expected))

    def blockers(self, node: str) -> tuple[Blocker, ...]:
        """Why this node may not go: others that are away, their static pods that are not Ready, and lost quorums."""
        if node not in self.nodes:
            return ()
        beside = f"and no other node of the control plane may be away beside it: fix it, {_WAY_OUT}"
        unwell = ((subject, f"{why}, {beside}") for subject, why in (*self._away(node), *self._unready(node)))
        objections = (*unwell, *self._without_majority(node), *self._without_api_server(node))
        return tuple(Blocker(node, BlockerKind.CONTROL_PLANE_UNHEALTHY, subject, why) for subject, why in objections)

    def _away(self, node: str) -> Iterator[tuple[str, str]]:
        return ((f"node/{name}", why) for name, why in sorted(self.nodes.items()) if why and name != node)

    def _unready(self, node: str) -> Iterator[tuple[str, str]]:
        for pod in self.pods:
            if pod.node != node and not pod.ready and not self.nodes[pod.node]:
                since = f" since {pod.unready_since}" if pod.unready_since else ""
                yield f"pod/{pod.key}", f"is not Ready on {pod.node}{since}"

    def _without_majority(self, node: str) -> Iterator[tuple[str, str]]:
        """An etcd of one member has no majority without it at any time: such a control plane is away with its node."""
        pods, well = self._members(_ETCD)
        voters, left = self.voters | pods.keys(), well - {node}
        needed, lacking = len(voters) // 2 + 1, sorted(voters - well)
        if node in well and len(voters) > 1 and len(left) < needed:
            fix = f"fix the member on {', '.join(lacking)}" if lacking else "add a member"
            message = (
                f"is one of {len(voters)} members of etcd on {node}, which needs {needed} and would have {len(left)} "
                f"without it: {fix}, {_WAY_OUT}"
            )
            yield f"pod/{pods[node].key}", message

    def _without_api_server(self, node: str) -> Iterator[tuple[str, str]]:
        pods, well = self._members(_API_SERVER)
        if node in well and len(self.nodes) > 1 and not well - {node}:
            yield f"pod/{pods[node].key}", f"is the only API server that is Ready: have another one run, {_WAY_OUT}"

    def _members(self, component: str) -> tuple[Mapping[str, Pod], frozenset[str]]:
        """Its static pods by node, as kubeadm labels or names them, and the nodes on which they are well."""
        pods = {pod.node: pod for pod in self.pods if _is(pod, component)}
        return pods, frozenset(name for name, pod in pods.items() if pod.ready)


def _well(pod: Pod) -> Pod:
    return replace(pod, ready=True)


def _is(pod: Pod, component: str) -> bool:
    return pod.labels.get("component") == component or pod.name == f"{component}-{pod.node}"
