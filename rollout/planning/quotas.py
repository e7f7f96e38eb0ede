"""How many nodes of each pool may go at once: its own limit, its ramp, and its nodes that are away already."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rollout.model.cluster import Node
from rollout.model.plan import Blocker
from rollout.planning.away import used_up_by
from rollout.planning.packing import Limits
from rollout.planning.pieces import Piece
from rollout.planning.pools import Pools, own_limits
from rollout.planning.waves import pool_key


@dataclass(frozen=True, slots=True)
class Quota:
    """What a pool may take at once: `size` nodes, at first as many as the steps of its `ramp` say."""

    size: int
    ramp: tuple[int, ...] = ()

    @property
    def most(self) -> int:
        """How many of its nodes may ever be away at once."""
        return min(self.size, self.ramp[-1]) if self.ramp else self.size


@dataclass(frozen=True, slots=True)
class Quotas:
    """Of all pools. `left` is what the nodes that are away have left of the limits that pools have of their own."""

    pools: Pools
    by_pool: Mapping[str, Quota]
    left: Mapping[str, int]
    away: Sequence[Node]

    @classmethod
    def of(cls, pools: Pools, chosen: Sequence[Node], away: Sequence[Node], most: int) -> "Quotas":
        """Percentages are of the `chosen` nodes; `most` may go at once of all together."""
        sizes, gone = pools.sizes(chosen), pools.sizes(away)
        left = {name: limit - gone.get(name, 0) for name, limit in own_limits(pools.policy, sizes).items()}
        by_pool = {
            name: Quota(max(1, left.get(name, most)), tuple(step.of(size) for step in pools.rules(name).ramp))
            for name, size in {"": 0, **sizes}.items()
        }
        return cls(pools, by_pool, left, away)

    def within(self, limits: Limits) -> Limits:
        """The rollout's limits with those of the pools of which fewer may go at once than of all nodes together."""
        scarce = {
            pool_key(name): quota.most for name, quota in self.by_pool.items() if name and quota.most < limits.size
        }
        return replace(limits, allowed={**limits.allowed, **scarce})

    def placed(self, piece: Piece, node: Node, limits: Limits) -> Piece:
        """The piece in its pool."""
        pool = self.pools.of(node.labels)
        key = pool_key(pool)
        return replace(piece, pool=pool, load={**piece.load, key: 1} if key in limits.allowed else piece.load)

    def blockers(self, planned: Collection[str]) -> Iterator[Blocker]:
        """Nodes that are away, and use up the limit of a pool that has nodes to take; `planned` are those pools."""
        for node in self.away:
            pool = self.pools.of(node.labels)
            if pool in planned and self.left.get(pool, 1) < 1:
                most = self.pools.rules(pool).max_unavailable
                yield used_up_by(node, f"max-unavailable {most} of the pool {pool}")
