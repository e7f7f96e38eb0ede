"""Lists, in pages that show the cluster as it was when the first of them was read; and watches, from a version on.

In a watch an object that begins to match the selectors is ADDED, one that ceases to is DELETED,
whatever really happened to it; that is what clients with selectors rely on.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count

from rollout.lab.api.representation import object_inclusion
from rollout.lab.api.requests import Call, Target
from rollout.lab.api.resources import PODS
from rollout.lab.api.selectors import ListOptions, selection_of
from rollout.lab.api.statuses import bad_request, expired
from rollout.lab.api.store import Change, CompactedError, Json, ObjectStore
from rollout.lab.objects import namespace_of, with_metadata

# A further page may be asked for again, after a lost answer; for all of them a real server has
# minutes.
_KEPT = 1000
_EXPIRED = "The provided continue parameter is too old to display a consistent list result."


class Lists:
    """Answers lists; keeps what was selected for the pages that follow."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._tokens = count(1)
        # what was selected at which revision, and where the page begins
        self._following: dict[str, tuple[list[Json], int, int]] = {}

    def page(self, call: Call) -> tuple[list[Json], Json]:
        """Return the objects of a page, and the list's metadata; 410 for a token whose list is forgotten."""
        limit = whole_number(call.query, "limit")
        token = call.query.get("continue")
        if token:
            selected, revision, start = self._following.get(token, ([], -1, 0))
            if revision < self._store.compacted:
                raise expired(_EXPIRED)
        else:
            selected = self._select(call.target, selection_of(call))
            revision = self._store.revision
            start = 0
        end = start + limit
        metadata = {"resourceVersion": str(revision)}
        if not start < end < len(selected):
            return selected[start:], metadata
        token = f"{revision}-{next(self._tokens)}"
        self._following[token] = selected, revision, end
        if len(self._following) > _KEPT:
            del self._following[next(iter(self._following))]
        return selected[start:end], {**metadata, "continue": token}

    def _select(self, target: Target, selection: ListOptions) -> list[Json]:
        if target.resource is PODS and selection.node:
            pods = self._store.pods_on(selection.node)
            return selection.of(pod for pod in pods if target.namespace in {"", namespace_of(pod)})
        return selection.of(self._store.items(target.resource, target.namespace))


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
# A last bookmark goes out this long before the watch's deadline, so that the client can go on from
# there.
_BEFORE_DEADLINE = 2


@dataclass(frozen=True, slots=True)
class Watch:
    """A watch as asked for; `since` is None for "from whatever is now", `timeout` in real seconds.

    `include` is what tables have of the objects, empty where objects are wanted. An event is a line
    of a watch: its `type` (ADDED, MODIFIED, DELETED, BOOKMARK or ERROR) and its `object`.
    """

    target: Target
    selection: ListOptions
    since: int | None
    timeout: float
    bookmarks: bool
    include: str

    def first(self, store: ObjectStore) -> list[Json]:
        """Return what there is, or what happened since; an ERROR where that is forgotten."""
        if self.since is None:
            objects = self.selection.of(store.items(self.target.resource, self.target.namespace))
            return [_event("ADDED", obj) for obj in objects]
        try:
            return self.events(store.changes_since(self.since, self.target.resource))
        except CompactedError:
            return [
                _event(
                    "ERROR",
                    expired(f"too old resource version: {self.since} ({store.compacted})").body(),
                )
            ]

    def events(self, changes: Iterable[Change]) -> list[Json]:
        """Return what this watch tells about changes of its resource."""
        return [event for change in changes if (event := self._event_for(change))]

    def bookmark(self, store: ObjectStore) -> Json:
        """Return the event that says how far the watch is."""
        metadata: Json = {"resourceVersion": str(store.revision), "creationTimestamp": None}
        typed = {"kind": self.target.resource.kind, "apiVersion": self.target.resource.api_version}
        return _event("BOOKMARK", {**typed, "metadata": metadata})

    def next_bookmark(self, now: float, deadline: float, every: float = BOOKMARK_SECONDS) -> float:
        """Return when the next one is due; the deadline where none is."""
        last = deadline - _BEFORE_DEADLINE
        return min(now + every, last) if self.bookmarks and last > now else deadline

    def _event_for(self, change: Change) -> Json | None:
        if self.since is not None and change.revision <= self.since:
            return None
        before = change.previous is not None and self._concerns(change.previous)
        if not change.gone and self._concerns(change.obj):
            return _event("MODIFIED" if before else "ADDED", change.obj)
        if not before or change.previous is None:
            return None
        return _event(
            "DELETED", with_metadata(change.previous, resourceVersion=str(change.revision))
        )

    def _concerns(self, obj: Json) -> bool:
        namespace = self.target.namespace if self.target.resource.namespaced else ""
        return namespace in {"", namespace_of(obj)} and self.selection.matches(obj)


def _event(kind: str, obj: Json) -> Json:
    return {"type": kind, "object": obj}


def watch_of(call: Call) -> Watch:
    """Read a watch from its query; 400 where it makes no sense."""
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
    """Yield events in batches, until the watch's time is up; nothing is lost between its first events and the later."""
    loop = asyncio.get_running_loop()
    queue = asyncio.Queue[Change]()

    def observe(change: Change) -> None:
        if change.resource is watch.target.resource:
            queue.put_nowait(change)

    deadline = loop.time() + watch.timeout
    first = watch.first(store)
    store.subscribe(observe)
    try:
        yield first
        if any(event["type"] == "ERROR" for event in first):
            return
        bookmark = watch.next_bookmark(loop.time(), deadline, bookmark_seconds)
        while loop.time() < deadline:
            changes = await _waiting(queue, min(bookmark, deadline) - loop.time())
            if changes:
                yield watch.events(changes)
            elif bookmark <= loop.time() < deadline:
                yield [watch.bookmark(store)]
                bookmark = watch.next_bookmark(loop.time(), deadline, bookmark_seconds)
    finally:
        store.unsubscribe(observe)


async def _waiting(queue: asyncio.Queue[Change], patience: float) -> list[Change]:
    """Return whatever is waiting; the next change if nothing is; nothing once patience is over."""
    changes = list[Change]()
    with suppress(TimeoutError):
        async with asyncio.timeout(max(patience, 0)):
            changes.append(await queue.get())
    while not queue.empty():
        changes.append(queue.get_nowait())
    return changes
