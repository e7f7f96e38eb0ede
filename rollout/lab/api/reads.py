"""Lists, in pages that show the cluster as it was when the first of them was read; and watches, from a version on.

In a watch an object that begins to match the selectors is ADDED, one that ceases to is DELETED, whatever really
happened to it; that is what clients with selectors rely on.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from itertools import count

from rollout.lab.api.requests import Target
from rollout.lab.api.resources import PODS, Resource
from rollout.lab.api.selectors import Selection, selection_of
from rollout.lab.api.statuses import bad_request, expired
from rollout.lab.api.store import Change, CompactedError, Json, ObjectStore

# A further page may be asked for again, after a lost answer; for all of them a real server has minutes.
_KEPT = 1000
_EXPIRED = "The provided continue parameter is too old to display a consistent list result."


@dataclass(frozen=True, slots=True)
class Page:
    """One answer to a list: what was selected at a revision, and which part of it this is (`limit` 0: the rest)."""

    selected: list[Json]
    revision: int
    start: int = 0
    limit: int = 0
    token: str = ""

    @property
    def items(self) -> list[Json]:
        """The objects of this page."""
        return self.selected[self.start : self.start + self.limit if self.limit else None]

    @property
    def metadata(self) -> Json:
        """The metadata of the list object."""
        return {"resourceVersion": str(self.revision), **({"continue": self.token} if self.token else {})}


class Lists:
    """Answers lists; keeps what was selected for the pages that follow."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._tokens = count(1)
        self._following: dict[str, Page] = {}

    def page(self, target: Target, resource: Resource, query: Mapping[str, str]) -> Page:
        """Answer a list request; 410 for a token whose list is forgotten."""
        limit, token = max(0, whole_number(query, "limit")), query.get("continue")
        if token:
            before = self._following.get(token)
            if before is None or before.revision < self._store.compacted:
                raise expired(_EXPIRED)
            selected, revision, start = before.selected, before.revision, before.start
        else:
            selected = self._selected(target, resource, selection_of(query, resource))
            revision, start = self._store.revision, 0
            if query.get("resourceVersion") == "0":
                # Served from the watch cache, which knows no pages.
                limit = 0
        page = Page(selected, revision, start, limit)
        return self._continued(page) if limit and start + limit < len(selected) else page

    def _continued(self, page: Page) -> Page:
        """Return the page with the token of the next one."""
        token = f"{page.revision}-{next(self._tokens)}"
        self._following[token] = Page(page.selected, page.revision, page.start + page.limit)
        if len(self._following) > _KEPT:
            del self._following[next(iter(self._following))]
        return Page(page.selected, page.revision, page.start, page.limit, token)

    def _selected(self, target: Target, resource: Resource, selection: Selection) -> list[Json]:
        if resource is PODS and selection.node:
            pods = self._store.pods_on(selection.node)
            return selection.of(pod for pod in pods if target.namespace in {"", pod["metadata"]["namespace"]})
        return selection.of(self._store.items(resource, target.namespace))


def whole_number(query: Mapping[str, str], name: str) -> int:
    """Return a number from the query, 0 where it is absent; 400 for anything else."""
    text = query.get(name, "")
    try:
        return int(text) if text else 0
    except ValueError as error:
        message = f'Invalid value: "{text}": strconv.ParseInt: parsing "{text}": invalid syntax'
        raise bad_request(f"{name}: {message}") from error


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
    """A watch as asked for; `since` is None for "from whatever is now", `timeout` in real seconds.

    `include` is what tables have of the objects, empty where objects are wanted.
    """

    target: Target
    resource: Resource
    selection: Selection
    since: int | None
    timeout: float
    bookmarks: bool
    include: str


def watch_request(target: Target, resource: Resource, query: Mapping[str, str], include: str) -> WatchRequest:
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
        include=include,
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
        after = not change.gone and self._concerns(change.obj)
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
