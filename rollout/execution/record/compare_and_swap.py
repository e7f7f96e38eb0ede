from collections.abc import Callable
from typing import TypeVar

from rollout.errors import ApiConflictError, ApiError
from rollout.gather.cluster.documents import Document, Stored
from rollout.ports import ClusterApi

T = TypeVar("T")

_ATTEMPTS = 20


def compare_and_swap(attempt: Callable[[], T], origin: str) -> T:
    """Repeat the attempt after each conflict. `origin` names the document in errors."""
    for _attempt in range(_ATTEMPTS):
        try:
            return attempt()
        except ApiConflictError:
            continue
    raise ApiError(f"the {origin} changes too often to be written")


def rewrite(
    api: ClusterApi,
    document: Document,
    read: Callable[[ClusterApi, str], Stored[T]],
    change: Callable[[T], T],
) -> T:
    def attempt() -> T:
        before = read(api, document.namespace)
        changed = change(before.content)
        if changed == before.content:
            return changed
        body = document.with_content(changed, before.config_map)
        if before.config_map is None:
            api.create(document.collection, body)
        else:
            api.replace(document.path, body)
        return changed

    return compare_and_swap(attempt, document.origin)
