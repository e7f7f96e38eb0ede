"""Reads whole lists, and decodes watch lines."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

import msgspec

from rollout.errors import ApiError, ApiGoneError, ApiNotFoundError
from rollout.gather.cluster import wire
from rollout.gather.cluster.decode import decode, invalid_answer, one
from rollout.gather.cluster.failure import Status, status_failure
from rollout.ports import ClusterApi, Query

W = TypeVar("W")
T = TypeVar("T")

PAGE_SIZE = 500


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """A list. A watch from `resource_version` misses no later change."""

    items: tuple[T, ...]
    resource_version: str


def read_list(
    api: ClusterApi,
    path: str,
    shape: type[W],
    project: Callable[[W], T],
    query: Query | None = None,
) -> Listing[T]:
    query = query or {}
    for _ in range(2):
        try:
            pages = api.pages(path, {**query, "limit": str(PAGE_SIZE)})
            return _collect(pages, path, shape, project)
        except ApiGoneError:
            continue
    # One page cannot expire, but costs the server more.
    pages = api.pages(path, {**query, "limit": "0"})
    return _collect(pages, path, shape, project)


def _collect(
    pages: Iterable[bytes], path: str, shape: type[W], project: Callable[[W], T]
) -> Listing[T]:
    items: list[T] = []
    version = ""
    for body in pages:
        page_shape = wire.ListPage[shape]  # type: ignore[valid-type]
        page: wire.ListPage[W] = decode(body, page_shape, path)
        try:
            items += map(project, page.items or ())
        except ValueError as error:
            raise invalid_answer(path, error) from error
        version = page.metadata.resource_version or version
    return Listing(tuple(items), version)


def read_if_allowed(
    read: Callable[[], Iterable[T]], unseen: str
) -> tuple[tuple[T, ...], tuple[str, ...]]:
    """Return the objects, or a warning that starts with `unseen`."""
    try:
        return tuple(read()), ()
    except ApiError as error:
        if not (error.is_forbidden or isinstance(error, ApiNotFoundError)):
            raise
        return (), (f"{unseen}: {error.message}",)


class WatchEventType(StrEnum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    ERROR = "ERROR"


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """One line of a watch; `object` is None for a bookmark."""

    type: WatchEventType
    object: T | None
    resource_version: str


class _WatchLine(wire.Wire, frozen=True):
    type: WatchEventType
    object: msgspec.Raw


def decode_watch_line(
    line: bytes, shape: type[W], project: Callable[[W], T], origin: str
) -> WatchEvent[T]:
    """Raises `ApiError` for a garbled line or an ERROR event.

    After `ApiGoneError` the caller must list again.
    """
    read = decode(line, _WatchLine, origin)
    body = bytes(read.object)
    if read.type is WatchEventType.ERROR:
        raise status_failure(decode(body, Status, origin))
    version = decode(body, wire.Object, origin).metadata.resource_version
    if read.type is WatchEventType.BOOKMARK:
        return WatchEvent(read.type, None, version)
    return WatchEvent(read.type, one(body, shape, project, origin), version)
