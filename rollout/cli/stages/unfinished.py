from collections.abc import Sequence

from rollout.cli.stages.cluster import with_retries
from rollout.execution.record.record import read_record
from rollout.execution.record.unfinished import Unfinished, assess, read_unfinished
from rollout.model.cluster import Node
from rollout.ports import ClusterApi


def find_unfinished(
    api: ClusterApi, namespace: str, *, deferred: bool = False
) -> Unfinished | None:
    """`deferred` also counts nodes left over."""
    return with_retries(lambda: read_unfinished(api, namespace, include_deferred=deferred))


def find_unfinished_among(
    api: ClusterApi, namespace: str, nodes: Sequence[Node]
) -> Unfinished | None:
    return assess(with_retries(read_record, api, namespace), nodes)
