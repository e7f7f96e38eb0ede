"""The cluster's objects: one versioned, ordered collection per resource, like etcd behind a real API server.

Every reader in the lab (API front, world, scoreboard) shares the stored dictionaries, so they are immutable
by convention: to change an object, build a new dictionary that shares the unchanged parts and `put` it.
The store knows nothing about rights, deletion grace or defaults.
"""

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from random import SystemRandom
from typing import Any
from uuid import uuid4

from rollout.lab.api.resources import PODS, Resource

Json = dict[str, Any]

# The alphabet of a real server's generated names: no vowels, hence no words.
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5


class ChangeType(StrEnum):
    """What a watch calls a change."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class Change:
    """One write: the object after it (DELETED: as last stored, with the deletion's version) and before it."""

    type: ChangeType
    resource: Resource
    obj: Json
    previous: Json | None
    revision: int


class StoreError(Exception):
    """The store refused; the API front turns it into a Status answer."""


class AlreadyExistsError(StoreError):
    """An object of that name exists."""


class AbsentError(StoreError):
    """No object of that name exists."""


class CompactedError(StoreError):
    """The history asked for is no longer kept."""


def key_of(name: str, namespace: str = "") -> str:
    """Return the ordering key: etcd's, so that lists come in the order of a real server's."""
    return f"{namespace}/{name}" if namespace else name


def object_key(obj: Json) -> str:
    """Return the key of an object as it stands."""
    metadata = obj["metadata"]
    return key_of(metadata["name"], metadata.get("namespace", ""))


def timestamp(moment: datetime) -> str:
    """Return a time, which is in UTC, as object metadata has it: whole seconds."""
    # `strftime` takes ten times as long, for every change of an object.
    return f"{moment.isoformat(timespec='seconds')[:19]}Z"


class _Collection:
    """The objects of one resource, in key order."""

    __slots__ = ("keys", "objects")

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.keys: list[str] = []

    def set(self, key: str, obj: Json) -> None:
        if key not in self.objects:
            insort(self.keys, key)
        self.objects[key] = obj

    def drop(self, key: str) -> None:
        del self.objects[key]
        del self.keys[bisect_left(self.keys, key)]

    def range(self, namespace: str, after: str = "", limit: int | None = None) -> list[str]:
        """Keys of a namespace (of all: empty) that sort behind `after`, the first `limit` of them."""
        first, last = self._bounds(namespace, after)
        return self.keys[first : last if limit is None else min(last, first + limit)]

    def count(self, namespace: str, after: str) -> int:
        """How many such keys there are."""
        first, last = self._bounds(namespace, after)
        return last - first

    def _bounds(self, namespace: str, after: str) -> tuple[int, int]:
        first = bisect_right(self.keys, after) if after else 0
        last = len(self.keys)
        if namespace:
            first = max(first, bisect_left(self.keys, f"{namespace}/"))
            # "0" is the character behind "/": the first key that can belong to another namespace.
            last = bisect_left(self.keys, f"{namespace}0")
        return first, max(first, last)


class ObjectStore:
    """All objects of the cluster, their versions, and the recent history of changes.

    `history` bounds how many changes are kept for watches and for pages of older lists; `now` gives UTC.
    Only one event loop may use it.
    """

    def __init__(self, *, now: Callable[[], datetime], history: int = 50_000) -> None:
        self.revision = 1
        self.compacted = 0
        self.now = now
        self._limit = history
        self._collections: dict[Resource, _Collection] = {}
        self._history: deque[Change] = deque()
        self._observers: list[Callable[[Change], None]] = []
        self._unannounced: deque[Change] = deque()
        self._announcing = False
        self._pods_by_node: dict[str, dict[str, None]] = {}
        self._random = SystemRandom()

    def get(self, resource: Resource, name: str, namespace: str = "") -> Json | None:
        """Return the stored object, or None."""
        return self._of(resource).objects.get(key_of(name, namespace))

    def items(self, resource: Resource, namespace: str = "") -> Iterable[Json]:
        """Objects in key order, of one namespace or of all."""
        collection = self._of(resource)
        return [collection.objects[key] for key in collection.range(namespace)]

    def items_at(
        self,
        resource: Resource,
        revision: int,
        namespace: str = "",
        *,
        after: str = "",
        limit: int | None = None,
    ) -> list[Json]:
        """Do the same for an older revision; raises CompactedError where that is forgotten.

        Of those behind the key `after` the first `limit`.
        """
        undone = self._undone(resource, revision, namespace, after)
        collection = self._of(resource)
        enough = None if limit is None else limit + len(undone)
        keys = [key for key in collection.range(namespace, after, enough) if key not in undone]
        revived = [key for key, old in undone.items() if old is not None]
        if revived:
            keys = sorted([*keys, *revived])
        return [undone.get(key) or collection.objects[key] for key in keys[:limit]]

    def count_at(self, resource: Resource, revision: int, namespace: str = "", *, after: str = "") -> int:
        """How many objects `items_at` has without a limit."""
        undone = self._undone(resource, revision, namespace, after)
        current = self._of(resource).objects
        difference = sum((old is not None) - (key in current) for key, old in undone.items())
        return self._of(resource).count(namespace, after) + difference

    def _undone(self, resource: Resource, revision: int, namespace: str, after: str) -> dict[str, Json | None]:
        """Return what the objects changed since a revision were then (None: absent), as far as in range."""
        prefix = f"{namespace}/" if namespace else ""
        # Oldest change last, so that it is the one that stays.
        changed = ((object_key(change.obj), change) for change in self._changed_since(revision, resource))
        return {key: change.previous for key, change in changed if key > after and key.startswith(prefix)}

    def pods_on(self, node: str) -> list[Json]:
        """Return the pods bound to a node, in key order."""
        pods = self._of(PODS).objects
        return [pods[key] for key in sorted(self._pods_by_node.get(node, ()))]

    def create(self, resource: Resource, obj: Json) -> Json:
        """Store a new object: fills name (from generateName), uid, creationTimestamp, resourceVersion."""
        metadata = dict(obj.get("metadata") or {})
        if not metadata.get("name"):
            metadata["name"] = self._generated_name(metadata["generateName"])
        key = key_of(metadata["name"], metadata.get("namespace", ""))
        if key in self._of(resource).objects:
            raise AlreadyExistsError(key)
        metadata["uid"] = str(uuid4())
        metadata["creationTimestamp"] = timestamp(self.now())
        typed = {"apiVersion": resource.api_version, "kind": resource.kind, **obj, "metadata": metadata}
        return self._write(ChangeType.ADDED, resource, key, typed)

    def put(self, resource: Resource, obj: Json) -> Json:
        """Replace a stored object; an unchanged one keeps its version and makes no event."""
        key = object_key(obj)
        current = self._of(resource).objects.get(key)
        if current is None:
            raise AbsentError(key)
        version = current["metadata"]["resourceVersion"]
        unchanged = {**obj, "metadata": {**obj["metadata"], "resourceVersion": version}}
        if unchanged == current:
            return current
        return self._write(ChangeType.MODIFIED, resource, key, obj)

    def remove(self, resource: Resource, name: str, namespace: str = "") -> None:
        """Take an object away for good; an absent one raises AbsentError."""
        key = key_of(name, namespace)
        current = self._of(resource).objects.get(key)
        if current is None:
            raise AbsentError(key)
        self._write(ChangeType.DELETED, resource, key, current)

    def subscribe(self, observer: Callable[[Change], None]) -> None:
        """Have `observer` called, synchronously, after every change.

        Changes that an observer makes itself are told once the change at hand was told to all.
        """
        self._observers.append(observer)

    def unsubscribe(self, observer: Callable[[Change], None]) -> None:
        """End a subscription."""
        self._observers.remove(observer)

    def changes_since(self, revision: int, resource: Resource) -> list[Change]:
        """Return what happened to a resource after `revision`, oldest first; CompactedError where forgotten."""
        return list(self._changed_since(revision, resource))[::-1]

    def _changed_since(self, revision: int, resource: Resource) -> Iterator[Change]:
        """Yield the same, newest first."""
        if revision < self.compacted:
            raise CompactedError(f"{revision} < {self.compacted}")
        for change in reversed(self._history):
            if change.revision <= revision:
                break
            if change.resource is resource:
                yield change

    def compact(self) -> None:
        """Forget the history: watches and pages from before now are answered 410 Gone."""
        self._history.clear()
        self.compacted = self.revision

    def _of(self, resource: Resource) -> _Collection:
        collection = self._collections.get(resource)
        if collection is None:
            collection = self._collections[resource] = _Collection()
        return collection

    def _generated_name(self, prefix: str) -> str:
        return prefix + "".join(self._random.choices(_SUFFIX_ALPHABET, k=_SUFFIX_LENGTH))

    def _write(self, kind: ChangeType, resource: Resource, key: str, obj: Json) -> Json:
        self.revision += 1
        stored = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.revision)}}
        collection = self._of(resource)
        previous = collection.objects.get(key)
        if kind is ChangeType.DELETED:
            collection.drop(key)
        else:
            collection.set(key, stored)
        if resource is PODS:
            self._reindex(key, previous, None if kind is ChangeType.DELETED else stored)
        self._announce(Change(kind, resource, stored, previous, self.revision))
        return stored

    def _reindex(self, key: str, previous: Json | None, stored: Json | None) -> None:
        before, after = _node_of(previous), _node_of(stored)
        if before == after:
            return
        if before:
            self._pods_by_node[before].pop(key, None)
        if after:
            self._pods_by_node.setdefault(after, {})[key] = None

    def _announce(self, change: Change) -> None:
        self._history.append(change)
        while len(self._history) > self._limit:
            self.compacted = self._history.popleft().revision
        self._unannounced.append(change)
        # An observer may write: its change waits here, so that every observer sees all changes in order.
        if not self._announcing:
            self._tell_observers()

    def _tell_observers(self) -> None:
        self._announcing = True
        try:
            while self._unannounced:
                change = self._unannounced.popleft()
                for observer in tuple(self._observers):
                    observer(change)
        finally:
            self._announcing = False


def _node_of(pod: Json | None) -> str:
    return (pod.get("spec") or {}).get("nodeName") or "" if pod is not None else ""
