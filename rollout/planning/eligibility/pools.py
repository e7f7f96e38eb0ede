"""Pools are sets of nodes with their own rules; a node belongs to the first that matches."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter

from msgspec.structs import fields, replace

from rollout.errors import UsageError
from rollout.model.cluster import LabelSelector, Node
from rollout.model.policy import Policy, Pool
from rollout.model.selectors import parse_selector

DEFAULT = "default"
"""The pool of the nodes that no pool matches: under the rollout's rules, after all others."""

NO_POOL = ""
"""The pool of all nodes in a policy without pools."""

# A pool overrides fields of the same name.
_POLICY_FIELDS = frozenset(rule.name for rule in fields(Policy))
_OVERRIDES = tuple(item.name for item in fields(Pool) if item.name in _POLICY_FIELDS)


class Pools:
    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._selectors: Sequence[tuple[str, LabelSelector]] = [
            (pool.name, parse_selector(pool.selector)) for pool in policy.pools
        ]
        self._rules = {NO_POOL: policy} | {pool.name: _merge(policy, pool) for pool in policy.pools}

    def pool_of(self, labels: Mapping[str, str]) -> str:
        if not self._selectors:
            return NO_POOL
        for name, selector in self._selectors:
            if selector.matches(labels):
                return name
        return DEFAULT

    def rules(self, pool: str) -> Policy:
        return self._rules.get(pool, self.policy)

    def rules_of(self, labels: Mapping[str, str]) -> Policy:
        return self.rules(self.pool_of(labels))

    def pool_by_node(self, nodes: Iterable[Node]) -> Mapping[str, str]:
        return {node.name: self.pool_of(node.labels) for node in nodes}

    def sizes(self, nodes: Iterable[Node]) -> Mapping[str, int]:
        return Counter(self.pool_by_node(nodes).values())


@lru_cache(maxsize=8)
def pools_of(policy: Policy) -> Pools:
    return Pools(policy)


def _merge(policy: Policy, pool: Pool) -> Policy:
    values = {name: getattr(pool, name) for name in _OVERRIDES}
    overrides = {name: value for name, value in values.items() if value is not None}
    drain = policy.drain
    if pool.drain_timeout is not None:
        drain = replace(drain, timeout=pool.drain_timeout)
    return replace(policy, drain=drain, **overrides)


def order_pools(pools: Sequence[Pool]) -> tuple[str, ...]:
    """Return the names in an order that each `after` allows, the default pool last.

    `UsageError` if there is none.
    """
    _check_names_and_order(pools)
    names = list[str]()
    remaining = list(pools)
    while remaining:
        following = next(pool for pool in remaining if set(pool.after) <= set(names))
        remaining.remove(following)
        names.append(following.name)
    return (*names, DEFAULT)


def _check_names_and_order(pools: Sequence[Pool]) -> None:
    times = Counter(pool.name for pool in pools)
    for pool in pools:
        if pool.name == DEFAULT:
            raise UsageError(
                f"pool {DEFAULT!r}: that name is for the nodes that no pool matches",
                hint=(
                    "Give it another name. The rules of the default pool are the ones outside"
                    " [[pool]]."
                ),
            )
        if times[pool.name] > 1:
            raise UsageError(
                f"pool {pool.name!r}: {times[pool.name]} pools have this name",
                hint="Rename one of them.",
            )
        unknown = [name for name in pool.after if name not in times]
        if unknown:
            raise UsageError(
                f"pool {pool.name!r}: after: there is no pool {unknown[0]!r}",
                hint=f"Pools are: {', '.join(times)}.",
            )
    try:
        TopologicalSorter({pool.name: pool.after for pool in pools}).prepare()
    except CycleError as error:
        # The first pool is repeated at the end. Reversed, each pool waits for the next.
        cycle = error.args[1][:0:-1]
        raise UsageError(
            f"pool {cycle[0]!r}: after: {', '.join(map(repr, cycle))} wait for one another",
            hint="Remove one of these names from `after`.",
        ) from error


@lru_cache(maxsize=8)
def predecessors(pools: tuple[Pool, ...]) -> Mapping[str, frozenset[str]]:
    """Map each pool to all that it waits for, even indirectly.

    The keys are in the order of `order_pools`. The default pool waits for all others.
    """
    *names, default = order_pools(pools)
    after = {pool.name: pool.after for pool in pools}
    before: dict[str, frozenset[str]] = {}
    for name in names:
        before[name] = frozenset(after[name])
        for earlier in after[name]:
            before[name] |= before[earlier]
    return before | {default: frozenset(names)}
