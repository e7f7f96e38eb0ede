"""Changing a document that other processes change, too, such as FleetLock's slots: compare and swap."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from rollout.errors import ApiConflictError, ApiError
from rollout.gather.cluster.documents import Document
from rollout.gather.cluster.slots import read_slots, slots_of, written_slots
from rollout.model.fleetlock import Slots
from rollout.ports import ClusterApi

T = TypeVar("T")
Body = dict[str, Any]

_ATTEMPTS = 20


def swapped(attempt: Callable[[], T], origin: str) -> T:
    """Read and write by this attempt, and again where another wrote in between; its result, or `ApiError`."""
    for _attempt in range(_ATTEMPTS):
        try:
            return attempt()
        except ApiConflictError:
            continue
    raise ApiError(f"the {origin} changes too often to be written")


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

    def attempt() -> T:
        standing, whole = read()
        changed = change(standing)
        if changed == standing:
            return changed
        body = written(changed, whole)
        if whole is None:
            api.create(document.collection, body)
        else:
            api.replace(document.path, body)
        return changed

    return swapped(attempt, document.origin)


def change_slots(api: ClusterApi, namespace: str, change: Callable[[Slots], Slots]) -> Slots:
    """Change the slots as `rewrite` does; as they stand then, `ApiError` else."""
    return rewrite(
        api, slots_of(namespace), lambda: read_slots(api, namespace), change, partial(written_slots, namespace)
    )
