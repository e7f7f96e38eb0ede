"""Changing a document that other processes change, too: compare and swap."""

from collections.abc import Callable
from typing import Any, TypeVar

from rollout.errors import ApiConflictError, ApiError
from rollout.gather.cluster.documents import Document
from rollout.ports import ClusterApi

T = TypeVar("T")
Body = dict[str, Any]

_ATTEMPTS = 20


def rewrite(
    api: ClusterApi,
    document: Document,
    read: Callable[[], tuple[T, Body | None]],
    change: Callable[[T], T],
    written: Callable[[T, Body | None], Body],
) -> T:
    """Read, change, write; again where another wrote in between. What it holds then; `ApiError` else.

    `change` decides on what it is given, and may be called several times; what it raises ends the attempt.
    """
    for _attempt in range(_ATTEMPTS):
        standing, whole = read()
        changed = change(standing)
        if changed == standing:
            return changed
        body = written(changed, whole)
        try:
            if whole is None:
                api.create(document.collection, body)
            else:
                api.replace(document.path, body)
        except ApiConflictError:
            continue
        return changed
    raise ApiError(f"the {document.origin} changes too often to be written")
