"""Lists, whose pages all show the cluster at the time of the first, and watches."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import suppress
from itertools import count

from msgspec import Struct
from msgspec.structs import replace

from rollout.lab.api.representation import object_inclusion
from rollout.lab.api.requests import Call, Target
from rollout.lab.api.resources import PODS
from rollout.lab.api.selectors import ListOptions, selection_of
from rollout.lab.api.statuses import bad_request, expired
from rollout.lab.api.store import Change, CompactedError, Json, ObjectStore
from rollout.lab.objects import namespace_of, with_metadata

# A client may request a page again after a lost answer.
_MAX_TOKENS = 1000
_EXPIRED = "The provided continue parameter is too old to display a consistent list result."


class _RemainingList(Struct, frozen=True):
    objects: list[Json]
    revision: int
    start: int


class Lists:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._numbers = count(1)
        self._remaining: dict[str, _RemainingList] = {}

    def page(self, call: Call) -> tuple[list[Json], Json]:
        limit = whole_number(call.query, "limit")
        token = call.query.get("continue")
        if not token:
            objects = self._select(call.target, selection_of(call))
            page = _RemainingList(objects, self._store.revision, 0)
        elif token in self._remaining and self._remaining[token].revision >= self._store.compacted:
            page = self._remaining[token]
        else:
            raise expired(_EXPIRED)
        metadata = {"resourceVersion": str(page.revision)}
        end = page.start + limit
        if not page.start < end < len(page.objects):
            return page.objects[page.start :], metadata
        metadata["continue"] = f"{page.revision}-{next(self._numbers)}"
        self._remaining[metadata["continue"]] = replace(page, start=end)
        if len(self._remaining) > _MAX_TOKENS:
            del self._remaining[next(iter(self._remaining))]
        return page.objects[page.start : end], metadata

    def _select(self, target: Target, selection: ListOptions) -> list[Json]:
        if target.resource is PODS and selection.node:
            pods = self._store.pods_on(selection.node)
            pods = [pod for pod in pods if target.namespace in {"", namespace_of(pod)}]
            return selection.select(pods)
        return selection.select(self._store.items(target.resource, target.namespace))


def whole_number(query: Mapping[str, str], name: str) -> int:
    text = query.get(name, "")
    try:
        return int(text) if text else 0
    except ValueError as error:
        message = f'Invalid value: "{text}": strconv.ParseInt: parsing "{text}": invalid syntax'
        raise bad_request(f"{name}: {message}") from error


_DEFAULT_TIMEOUT = 2400
BOOKMARK_SECONDS = 60
# The last bookmark comes this long before the deadline, so that the client can continue.
_BEFORE_DEADLINE = 2


class Watch(Struct, frozen=True):
    """`since` None begins with the current objects; `timeout` is real seconds.

    `include` is what tables contain of objects, empty for no tables. An object that begins to match
    the selectors is ADDED, one that ceases to match is DELETED.
    """

    target: Target
    selection: ListOptions
    since: int | None
    timeout: float
    bookmarks: bool
    include: str

    def initial_events(self, store: ObjectStore) -> list[Json]:
        if self.since is None:
            objects = store.items(self.target.resource, self.target.namespace)
            return [_event("ADDED", obj) for obj in self.selection.select(objects)]
        try:
            return self.events(store.changes_since(self.since, self.target.resource))
        except CompactedError:
            message = f"too old resource version: {self.since} ({store.compacted})"
            return [_event("ERROR", expired(message).body())]

    def events(self, changes: Iterable[Change]) -> list[Json]:
        events = [self._event_for(change) for change in changes]
        return [event for event in events if event is not None]

    def bookmark(self, store: ObjectStore) -> Json:
        resource = self.target.resource
        metadata = {"resourceVersion": str(store.revision), "creationTimestamp": None}
        bookmark = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
        return _event("BOOKMARK", bookmark)

    def next_bookmark(self, now: float, deadline: float, every: float = BOOKMARK_SECONDS) -> float:
        last = deadline - _BEFORE_DEADLINE
        if not self.bookmarks or last <= now:
            return deadline
        return min(now + every, last)

    def _event_for(self, change: Change) -> Json | None:
        if self.since is not None and change.revision <= self.since:
            return None
        before = change.previous
        if before is not None and not self._selects(before):
            before = None
        if not change.gone and self._selects(change.obj):
            return _event("ADDED" if before is None else "MODIFIED", change.obj)
        if before is None:
            return None
        return _event("DELETED", with_metadata(before, resourceVersion=str(change.revision)))

    def _selects(self, obj: Json) -> bool:
        namespace = self.target.namespace if self.target.resource.namespaced else ""
        return namespace in {"", namespace_of(obj)} and self.selection.matches(obj)


def _event(kind: str, obj: Json) -> Json:
    return {"type": kind, "object": obj}


def watch_of(call: Call) -> Watch:
    query = call.query
    if query.get("sendInitialEvents") in {"1", "true"}:
        raise bad_request("sendInitialEvents is not served: list first")
    return Watch(
        target=call.target,
        selection=selection_of(call),
        since=whole_number(query, "resourceVersion") or None,
        timeout=whole_number(query, "timeoutSeconds") or _DEFAULT_TIMEOUT,
        bookmarks=query.get("allowWatchBookmarks") in {"1", "true"},
        include=object_inclusion(call),
    )


async def follow(
    store: ObjectStore, watch: Watch, *, bookmark_seconds: float
) -> AsyncGenerator[list[Json]]:
    loop = asyncio.get_running_loop()
    queue = asyncio.Queue[Change]()

    def observe(change: Change) -> None:
        if change.resource is watch.target.resource:
            queue.put_nowait(change)

    deadline = loop.time() + watch.timeout
    events = watch.initial_events(store)
    store.subscribe(observe)
    try:
        yield events
        if any(event["type"] == "ERROR" for event in events):
            return
        bookmark = watch.next_bookmark(loop.time(), deadline, bookmark_seconds)
        while loop.time() < deadline:
            changes = await _next_changes(queue, min(bookmark, deadline) - loop.time())
            if changes:
                yield watch.events(changes)
            elif bookmark <= loop.time() < deadline:
                yield [watch.bookmark(store)]
                bookmark = watch.next_bookmark(loop.time(), deadline, bookmark_seconds)
    finally:
        store.unsubscribe(observe)


async def _next_changes(queue: asyncio.Queue[Change], seconds: float) -> list[Change]:
    changes = list[Change]()
    with suppress(TimeoutError):
        async with asyncio.timeout(max(seconds, 0)):
            changes.append(await queue.get())
    while not queue.empty():
        changes.append(queue.get_nowait())
    return changes
