"""Pools are sets of nodes with their own rules; the first that matches counts."""

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

_POLICY_FIELDS = frozenset(rule.name for rule in fields(Policy))
_OVERRIDES = tuple(item.name for item in fields(Pool) if item.name in _POLICY_FIELDS)


class Pools:
    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._names_and_selectors: Sequence[tuple[str, LabelSelector]] = [
            (pool.name, parse_selector(pool.selector)) for pool in policy.pools
        ]
        self._rules = {pool.name: _override(policy, pool) for pool in policy.pools}

    def pool_of(self, labels: Mapping[str, str]) -> str:
        if not self._names_and_selectors:
            return NO_POOL
        for name, selector in self._names_and_selectors:
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


def _override(policy: Policy, pool: Pool) -> Policy:
    values = {name: getattr(pool, name) for name in _OVERRIDES}
    overrides = {name: value for name, value in values.items() if value is not None}
    drain = policy.drain
    if pool.drain_timeout is not None:
        drain = replace(drain, timeout=pool.drain_timeout)
    return replace(policy, drain=drain, **overrides)


def order_pools(pools: Sequence[Pool]) -> tuple[str, ...]:
    """Return names in an order that each `after` allows, the default pool last.

    `UsageError` if there is none.
    """
    _check_names_and_order(pools)
    ordered_names = list[str]()
    remaining = list(pools)
    while remaining:
        next_pool = next(pool for pool in remaining if set(pool.after) <= set(ordered_names))
        remaining.remove(next_pool)
        ordered_names.append(next_pool.name)
    return (*ordered_names, DEFAULT)


def _check_names_and_order(pools: Sequence[Pool]) -> None:
    pools_with_name = Counter(pool.name for pool in pools)
    for pool in pools:
        if pool.name == DEFAULT:
            raise UsageError(
                f"pool {DEFAULT!r}: that name is for the nodes that no pool matches",
                hint=(
                    "Give it another name. The settings of the default pool are the ones outside"
                    " [[pool]]."
                ),
            )
        if pools_with_name[pool.name] > 1:
            raise UsageError(
                f"pool {pool.name!r}: {pools_with_name[pool.name]} pools have this name",
                hint="Rename one of them.",
            )
        unknown = [name for name in pool.after if name not in pools_with_name]
        if unknown:
            raise UsageError(
                f"pool {pool.name!r}: after: there is no pool {unknown[0]!r}",
                hint=f"Pools are: {', '.join(pools_with_name)}.",
            )
    try:
        TopologicalSorter({pool.name: pool.after for pool in pools}).prepare()
    except CycleError as error:
        # Each waits for the one before; the first is repeated.
        first_to_first = error.args[1]
        cycle = list(reversed(first_to_first[1:]))
        raise UsageError(
            f"pool {cycle[0]!r}: after: {', '.join(map(repr, cycle))} wait for one another",
            hint="Remove one of these names from `after`.",
        ) from error


@lru_cache(maxsize=8)
def predecessors(pools: tuple[Pool, ...]) -> Mapping[str, frozenset[str]]:
    """Map each pool to all that it waits for, even indirectly.

    The keys are in the order of `order_pools`.
    """
    *names, default = order_pools(pools)
    after = {pool.name: pool.after for pool in pools}
    all_before: dict[str, frozenset[str]] = {}
    for name in names:
        all_before[name] = frozenset(after[name])
        for earlier in after[name]:
            all_before[name] |= all_before[earlier]
    return all_before | {default: frozenset(names)}
