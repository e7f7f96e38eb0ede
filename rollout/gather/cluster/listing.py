from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from rollout.errors import ApiError, ApiGoneError, ApiNotFoundError
from rollout.gather.cluster import wire
from rollout.gather.cluster.decode import decode, decode_object, invalid_answer
from rollout.gather.cluster.failure import Status, error_of_status
from rollout.ports import ClusterApi, Query

W = TypeVar("W")
T = TypeVar("T")

PAGE_SIZE = 500
_MOST_PAGED_READS = 2


class Listing(Struct, Generic[T], frozen=True):
    items: tuple[T, ...]
    # A watch from here misses no change.
    resource_version: str


def read_list(
    api: ClusterApi,
    path: str,
    shape: type[W],
    project: Callable[[W], T],
    query: Query | None = None,
) -> Listing[T]:
    """Decode each object into `shape`, convert it by `project`."""
    query = query or {}
    for _attempt in range(_MOST_PAGED_READS):
        try:
            pages = api.pages(path, {**query, "limit": str(PAGE_SIZE)})
            return _read_pages(pages, path, shape, project)
        except ApiGoneError:
            continue
    # An unlimited list cannot expire, but costs the API server more.
    pages = api.pages(path, {**query, "limit": "0"})
    return _read_pages(pages, path, shape, project)


def read_objects(api: ClusterApi, path: str, shape: type[W]) -> tuple[W, ...]:
    return read_list(api, path, shape, lambda item: item).items


def _read_pages(
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


class ReadIfAllowed(NamedTuple, Generic[T]):
    items: tuple[T, ...] = ()
    warnings: tuple[str, ...] = ()


def read_if_allowed(read: Callable[[], Iterable[T]], warning: str) -> ReadIfAllowed[T]:
    """Return only the warning if the kind is forbidden or not installed."""
    try:
        return ReadIfAllowed(tuple(read()))
    except ApiError as error:
        is_not_installed = isinstance(error, ApiNotFoundError)
        if not error.is_forbidden and not is_not_installed:
            raise
        return ReadIfAllowed(warnings=(f"{warning}: {error.message}",))


class WatchEventType(StrEnum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    ERROR = "ERROR"


class WatchEvent(Struct, Generic[T], frozen=True):
    type: WatchEventType
    # None for a bookmark.
    object: T | None
    resource_version: str


class _WatchLine(wire.Wire, frozen=True):
    type: WatchEventType
    object: msgspec.Raw


def decode_watch_line(
    line: bytes, shape: type[W], project: Callable[[W], T], origin: str
) -> WatchEvent[T]:
    """Raises `ApiError` for a garbled line or an ERROR event; list again after `ApiGoneError`."""
    watch_line = decode(line, _WatchLine, origin)
    body = bytes(watch_line.object)
    if watch_line.type is WatchEventType.ERROR:
        raise error_of_status(decode(body, Status, origin))
    version = decode(body, wire.Object, origin).metadata.resource_version
    if watch_line.type is WatchEventType.BOOKMARK:
        return WatchEvent(watch_line.type, None, version)
    return WatchEvent(watch_line.type, decode_object(body, shape, project, origin), version)
