"""Whole lists out of pages.

A continue token lives for a few minutes only. When one expires in the middle (410), what was read so far is of no use
beside a later list: a page mix could hold an object twice or not at all. So a list is collected before any
of it is used, and begun afresh when it breaks.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from rollout.errors import ApiGoneError
from rollout.gather.cluster.decode import Page
from rollout.ports import ClusterApi

T = TypeVar("T")

PAGE_SIZE = 500
# Twice in pages; then in one piece, which costs the server more and cannot expire.
_ATTEMPTS = (PAGE_SIZE, PAGE_SIZE, 0)


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """A whole list; a watch that begins at `resource_version` misses nothing that happened after it."""

    items: tuple[T, ...]
    resource_version: str


def read_list(
    api: ClusterApi,
    path: str,
    read_page: Callable[[bytes, str], Page[T]],
    query: Mapping[str, str] | None = None,
) -> Listing[T]:
    """Read every page of a list; `read_page` gets a page's body and the path for its errors."""
    for limit in _ATTEMPTS[:-1]:
        try:
            return _collect(api, path, read_page, {**(query or {}), "limit": str(limit)})
        except ApiGoneError:
            continue
    return _collect(api, path, read_page, {**(query or {}), "limit": str(_ATTEMPTS[-1])})


def _collect(
    api: ClusterApi,
    path: str,
    read_page: Callable[[bytes, str], Page[T]],
    query: Mapping[str, str],
) -> Listing[T]:
    items: list[T] = []
    version = ""
    for body in api.pages(path, query):
        read = read_page(body, path)
        items.extend(read.items)
        version = read.resource_version or version
    return Listing(tuple(items), version)
