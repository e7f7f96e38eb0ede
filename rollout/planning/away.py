"""What counts against --max-unavailable, for plans, rollouts and FleetLock alike; and whether one more node may go.

Of the control plane none may go while another is away, or is not well: asked by plans, and right before the cordon.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from rollout.model import marks
from rollout.model.cluster import Node, Pod, PodPhase
from rollout.model.node_marks import is_begun
from rollout.model.plan import Blocker, BlockerKind, PlannedNode, RolloutPlan
from rollout.model.policy import Policy
from rollout.model.progress import Phase
from rollout.model.text import printable, shortened
from rollout.planning.eligibility import is_control_plane
from rollout.planning.pools import limits_in, pools_of

_NAMED = 5


def why_away(node: Node) -> str:
    """Why a node counts as unavailable, whoever it is that asks; empty where it does not.

    One that a rollout has begun counts until it is given back, whichever rollout that was, and however it ended: it
    stays cordoned. Where a person has uncordoned one that failed, that was giving it back.
    """
    if not node.is_ready:
        return "is not Ready"
    if not is_begun(node):
        return ""
    run, phase = node.annotations.get(marks.RUN), node.annotations.get(marks.PHASE)
    rollout = f"the rollout {printable(run)}" if run else "a rollout of unknown id"
    if phase == Phase.FAILED:
        return f"failed in {rollout} and is still cordoned" if node.unschedulable else ""
    return f"was started by {rollout} and is not given back"


def is_away(node: Node) -> bool:
    """Whether it counts."""
    return bool(why_away(node))


def is_claimed(node: Node) -> bool:
    """Whether a process is about to cordon it, or was: it is marked, and gives way where there is no room for all."""
    return node.annotations.get(marks.PHASE) == Phase.PENDING


def used_up_by(node: Node, limit: str) -> Blocker:
    """What a plan says of a node that is away, where nothing is left of this limit."""
    way_out = "`rollout abort` gives it back" if node.is_ready else "fix it"
    message = f"{why_away(node)}, and uses up {limit}: {way_out}, or raise the limit"
    return Blocker(node.name, BlockerKind.NODES_UNAVAILABLE, f"node/{node.name}", message)


@dataclass(frozen=True, slots=True)
class AwayLimit:
    """How many nodes may be away: of all, and of the pools that have a limit of their own.

    `members` says of every node to which of these pools it belongs.
    """

    most: int
    limits: Mapping[str, int] = field(default_factory=dict)
    members: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: RolloutPlan, selected: int, nodes: Iterable[Node]) -> "AwayLimit":
        """`selected` is what percentages are of. Planned nodes are where the plan says, others where labels do."""
        most = plan.policy.max_unavailable.of(selected)
        if not plan.policy.pools:
            return cls(most)
        pools = pools_of(plan.policy)
        members = {node.name: pools.of(node.labels) for node in nodes} | {node.name: node.pool for node in plan.nodes}
        return cls(most, limits_in(plan), members)

    def why_full(self, node: str, away: Collection[str]) -> str:
        """Who uses up the limit, or that of this node's pool; empty where the node may go while those are away."""
        others = sorted(name for name in away if name != node)
        if len(others) >= self.most:
            return f"--max-unavailable {self.most} is used up by {shortened(others, _NAMED)}"
        pool = self.members.get(node, "")
        limit = self.limits.get(pool)
        of_pool = [name for name in others if self.members.get(name) == pool]
        if limit is None or len(of_pool) < limit:
            return ""
        return f"max-unavailable {limit} of the pool {pool} is used up by {shortened(of_pool, _NAMED)}"

    def full(self, waiting: Iterable[PlannedNode], away: Collection[str]) -> Mapping[str, list[PlannedNode]]:
        """Nodes that wait for room, by who uses it up."""
        by_reason: dict[str, list[PlannedNode]] = {}
        for node in waiting:
            if why := self.why_full(node.name, away):
                by_reason.setdefault(why, []).append(node)
        return by_reason


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
