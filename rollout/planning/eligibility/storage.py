"""What storage on the cluster's own nodes allows: copies that are well are budgets that nobody wrote.

Of a Longhorn volume one healthy replica stays; of a Ceph cluster one node's OSDs may be away, and none while copies are
lacking. Asked by plans and FleetLock, and by rollouts again right before each cordon.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from rollout.model.cluster import StoredData
from rollout.model.plan import Blocker, BlockerKind


def storage_blockers(
    node: str, stored: Iterable[StoredData], away: Collection[str] = (), begun: Collection[str] = ()
) -> Iterator[Blocker]:
    """Yield what would lose too many copies without this node, those that are `away` counted as gone already.

    Of data with a copy on a node that is `begun` nothing is said: it is well again once that node is back.
    """
    for data in stored:
        if node not in data.well or not data.nodes.isdisjoint(begun):
            continue
        gone = data.well.intersection(away) - {node}
        if data.spare - len(gone) < 1:
            why = f"would lack copies beside {', '.join(sorted(gone))}" if data.spare > 0 else data.why
            yield Blocker(node, BlockerKind.STORAGE_UNHEALTHY, data.object, f"{why}, or use --allow unhealthy")


def is_storage(key: str) -> bool:
    """Whether a key of a load is stored data's: its kind has a group, as no owner's and no budget's has."""
    kind, slash, _ = key.partition("/")
    return bool(slash) and "." in kind


def copies_taken(node: str, stored: Iterable[StoredData]) -> Mapping[str, int]:
    """Return what a node takes of stored data until it is back, by its object."""
    return {data.object: 1 for data in stored if node in data.nodes}


def copies_spare(stored: Iterable[StoredData]) -> Mapping[str, int]:
    """Return how many nodes of each may be away at a time; one at least, for what may not go at all is blocked."""
    return {data.object: max(1, data.spare) for data in stored}
