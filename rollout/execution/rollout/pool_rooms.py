"""Pools that have a limit of their own beside the rollout's: whether one more of their nodes may be away."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from rollout.model.cluster import Node
from rollout.model.plan import PlannedNode, RolloutPlan
from rollout.planning.pools import limits_in, pools_of


@dataclass(frozen=True, slots=True)
class PoolRooms:
    """`limits` by pool; `members` says of every node to which of these pools it belongs."""

    limits: Mapping[str, int] = field(default_factory=dict)
    members: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: RolloutPlan, nodes: Iterable[Node]) -> "PoolRooms":
        """Planned nodes belong where the plan says, others of the cluster where their labels do."""
        pools = pools_of(plan.policy)
        members = {node.name: pools.of(node.labels) for node in nodes} | {node.name: node.pool for node in plan.nodes}
        return cls(limits_in(plan), members)

    def has_room(self, node: str, away: Collection[str]) -> bool:
        """Whether this node may go while those are away."""
        return not self.why_full(node, away)

    def why_full(self, node: str, away: Collection[str]) -> str:
        """Who uses up the limit of this node's pool; empty where there is room, or no such limit."""
        pool = self.members.get(node, "")
        limit = self.limits.get(pool)
        if limit is None:
            return ""
        of_pool = sorted(name for name in away if self.members.get(name) == pool)
        if len(of_pool) < limit:
            return ""
        return f"max-unavailable {limit} of the pool {pool} is used up by {', '.join(of_pool)}"

    def full(self, waiting: Iterable[PlannedNode], away: Collection[str]) -> Mapping[str, list[PlannedNode]]:
        """Nodes that wait for room in their pools, by who uses it up."""
        by_reason: dict[str, list[PlannedNode]] = {}
        for node in waiting:
            if why := self.why_full(node.name, away):
                by_reason.setdefault(why, []).append(node)
        return by_reason
