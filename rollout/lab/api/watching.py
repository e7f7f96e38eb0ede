"""Watches: what a client is told about changes, from which version on, and when a watch ends.

An object that begins to match the selectors is ADDED, one that ceases to is DELETED, whatever really
happened to it; that is what clients with selectors rely on.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from rollout.lab.api.listing import whole_number
from rollout.lab.api.requests import Target
from rollout.lab.api.resources import Resource
from rollout.lab.api.selectors import Selection, selection_of
from rollout.lab.api.statuses import bad_request, expired
from rollout.lab.api.store import Change, ChangeType, CompactedError, Json, ObjectStore

_DEFAULT_TIMEOUT = 2400
BOOKMARK_SECONDS = 60
# A last bookmark goes out this long before the watch's deadline, so that the client can go on from there.
_BEFORE_DEADLINE = 2


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One line of a watch: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR, and its object."""

    type: str
    obj: Json


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """A watch as asked for; `since` is None for "from whatever is now", `timeout` in real seconds."""

    target: Target
    resource: Resource
    selection: Selection
    since: int | None
    timeout: float
    bookmarks: bool


def watch_request(target: Target, resource: Resource, query: Mapping[str, str]) -> WatchRequest:
    """Read a watch from its query; 400 where it makes no sense."""
    if query.get("sendInitialEvents") in {"1", "true"}:
        raise bad_request("sendInitialEvents is not served: list first")
    bookmarks = query.get("allowWatchBookmarks") in {"1", "true"}
    version = whole_number(query, "resourceVersion")
    return WatchRequest(
        target=target,
        resource=resource,
        selection=selection_of(query, resource),
        since=version or None,
        timeout=whole_number(query, "timeoutSeconds") or _DEFAULT_TIMEOUT,
        bookmarks=bookmarks,
    )


class Watch:
    """One client's watch: subscribes at once, so nothing is lost between its first events and the later ones."""

    def __init__(self, store: ObjectStore, request: WatchRequest, *, bookmark_seconds: float) -> None:
        self._store = store
        self._request = request
        self._bookmark_seconds = bookmark_seconds
        self._queue: asyncio.Queue[Change] = asyncio.Queue()
        self._first = self._initial()
        store.subscribe(self._observe)

    def close(self) -> None:
        """End the subscription."""
        self._store.unsubscribe(self._observe)

    async def batches(self) -> AsyncIterator[list[WatchEvent]]:
        """Events in batches, until the watch's time is up; an empty first batch says that it began."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._request.timeout
        yield self._first
        if any(event.type == "ERROR" for event in self._first):
            return
        bookmark = self._next_bookmark(loop.time(), deadline)
        while loop.time() < deadline:
            changes = await self._changes(min(bookmark, deadline) - loop.time())
            if changes:
                yield [event for change in changes if (event := self._event(change)) is not None]
            elif bookmark <= loop.time() < deadline:
                yield [self._bookmark()]
                bookmark = self._next_bookmark(loop.time(), deadline)

    def _observe(self, change: Change) -> None:
        if change.resource is self._request.resource:
            self._queue.put_nowait(change)

    async def _changes(self, patience: float) -> list[Change]:
        """Whatever is waiting; the next change if nothing is; nothing once patience is over."""
        try:
            async with asyncio.timeout(max(patience, 0)):
                changes = [await self._queue.get()]
        except TimeoutError:
            changes = []
        while not self._queue.empty():
            changes.append(self._queue.get_nowait())
        return changes

    def _next_bookmark(self, now: float, deadline: float) -> float:
        if not self._request.bookmarks:
            return deadline
        last = deadline - _BEFORE_DEADLINE
        regular = now + self._bookmark_seconds
        return min(regular, last) if last > now else deadline

    def _initial(self) -> list[WatchEvent]:
        request = self._request
        if request.since is not None:
            return self._replayed(request.since)
        objects = request.selection.of(self._store.items(request.resource, request.target.namespace))
        return [WatchEvent("ADDED", obj) for obj in objects]

    def _replayed(self, since: int) -> list[WatchEvent]:
        try:
            changes = self._store.changes_since(since, self._request.resource)
        except CompactedError:
            error = expired(f"too old resource version: {since} ({self._store.compacted})")
            return [WatchEvent("ERROR", error.body())]
        return [event for change in changes if (event := self._event(change)) is not None]

    def _event(self, change: Change) -> WatchEvent | None:
        """Return what this watch tells about a change, if anything."""
        if self._request.since is not None and change.revision <= self._request.since:
            return None
        before = change.previous is not None and self._concerns(change.previous)
        after = change.type is not ChangeType.DELETED and self._concerns(change.obj)
        if after:
            return WatchEvent("MODIFIED" if before else "ADDED", change.obj)
        if not before or change.previous is None:
            return None
        version = {"resourceVersion": str(change.revision)}
        return WatchEvent("DELETED", {**change.previous, "metadata": {**change.previous["metadata"], **version}})

    def _concerns(self, obj: Json) -> bool:
        namespace = self._request.target.namespace if self._request.resource.namespaced else ""
        right_place = not namespace or obj["metadata"].get("namespace") == namespace
        return right_place and self._request.selection.matches(obj)

    def _bookmark(self) -> WatchEvent:
        resource = self._request.resource
        metadata: Json = {"resourceVersion": str(self._store.revision), "creationTimestamp": None}
        return WatchEvent("BOOKMARK", {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata})
