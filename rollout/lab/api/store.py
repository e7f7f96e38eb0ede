"""The cluster's objects: an ordered, versioned collection per resource.

All readers share the stored dictionaries, which are never changed: build a new one and `put` it.
"""

from bisect import bisect_left, insort
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import takewhile
from random import Random, SystemRandom
from typing import Any, Final
from uuid import uuid4

from msgspec import Struct

from rollout.lab.api.resources import BUDGETS, PODS, Resource

Json = dict[str, Any]

# A real server's alphabet: no vowels, hence no words.
ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


class Change(Struct, frozen=True):
    """If the object is `gone`, `obj` is its last form with the deletion's version."""

    resource: Resource
    obj: Json
    previous: Json | None
    revision: int
    gone: bool = False

    def differs(self, *views: Callable[[Json], object]) -> bool:
        """Whether it was created, deleted, or changed in one of these views."""
        before = self.previous
        return before is None or self.gone or any(view(before) != view(self.obj) for view in views)


# Objects are indexed by (namespace, label, value), pods also by ("", "owner", UID) and ("", "node",
# name). An empty label stands for all pods of a namespace.
IndexKey = tuple[str, str, str]


def _index_keys_of_pod(pod: Json) -> list[IndexKey]:
    metadata = pod["metadata"]
    namespace = metadata.get("namespace", "")
    keys = [(namespace, "", "")]
    keys += [(namespace, *label) for label in (metadata.get("labels") or {}).items()]
    keys += [("", "owner", owner["uid"]) for owner in metadata.get("ownerReferences") or ()]
    node = (pod.get("spec") or {}).get("nodeName")
    if node:
        keys.append(("", "node", node))
    return keys


def _index_keys_of_budget(budget: Json) -> list[IndexKey]:
    selector: Json = (budget.get("spec") or {}).get("selector") or {}
    label, value = next(iter((selector.get("matchLabels") or {}).items()), ("", ""))
    return [(budget["metadata"].get("namespace", ""), label, value)]


# Each ReplicaSet or budget would otherwise scan tens of thousands of pods.
_INDEXED: Final[Mapping[Resource, Callable[[Json], list[IndexKey]]]] = {
    PODS: _index_keys_of_pod,
    BUDGETS: _index_keys_of_budget,
}


class CompactedError(Exception):
    """The requested history is no longer kept."""


def key_of(name: str, namespace: str = "") -> str:
    """Return etcd's key, which orders lists."""
    return f"{namespace}/{name}" if namespace else name


def object_key(obj: Json) -> str:
    metadata = obj["metadata"]
    return key_of(metadata["name"], metadata.get("namespace", ""))


def timestamp(moment: datetime) -> str:
    # `strftime` takes ten times as long, and this runs for every change.
    return f"{moment.isoformat(timespec='seconds')[:19]}Z"


class _Collection:
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

    def items(self, namespace: str) -> list[Json]:
        keys = self.keys
        if namespace:
            # "0" follows "/" in ASCII, so it begins the first key after those of the namespace.
            keys = keys[bisect_left(keys, f"{namespace}/") : bisect_left(keys, f"{namespace}0")]
        return [self.objects[key] for key in keys]


class ObjectStore:
    """`history` is how many changes are kept; `now` returns UTC.

    Only one event loop may use the store.
    """

    def __init__(self, *, now: Callable[[], datetime], history: int = 50_000) -> None:
        self.revision = 1
        self.compacted = 0
        self.now = now
        self._limit = history
        self._collections: defaultdict[Resource, _Collection] = defaultdict(_Collection)
        self._history: deque[Change] = deque()
        self._observers: list[Callable[[Change], None]] = []
        self._unannounced: deque[Change] = deque()
        self._announcing = False
        self._index: dict[tuple[Resource, IndexKey], dict[str, None]] = {}

    def get(self, resource: Resource, name: str, namespace: str = "") -> Json | None:
        return self._collections[resource].objects.get(key_of(name, namespace))

    def items(self, resource: Resource, namespace: str = "") -> list[Json]:
        return self._collections[resource].items(namespace)

    def pods_on(self, node: str) -> list[Json]:
        keys = sorted(self._index.get((PODS, ("", "node", node)), ()))
        return [self._collections[PODS].objects[key] for key in keys]

    def lookup(self, resource: Resource, *index_keys: IndexKey) -> list[Json]:
        """Return the objects at the key that has the fewest, in order of arrival."""
        entries = [self._index.get((resource, index_key), {}) for index_key in index_keys]
        return [self._collections[resource].objects[key] for key in min(entries, key=len)]

    def create(self, resource: Resource, obj: Json) -> Json:
        metadata = dict(obj.get("metadata") or {})
        namespace = metadata.get("namespace", "")
        if not metadata.get("name"):
            prefix = metadata["generateName"]
            metadata["name"] = self.free_name(resource, prefix, namespace, SystemRandom())
        metadata["uid"] = str(uuid4())
        metadata["creationTimestamp"] = timestamp(self.now())
        typed = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
        key = key_of(metadata["name"], namespace)
        return self._write(resource, key, {**typed, "metadata": metadata})

    def put(self, resource: Resource, obj: Json) -> Json:
        """An unchanged object keeps its version and causes no event."""
        key = object_key(obj)
        current = self._collections[resource].objects[key]
        version = current["metadata"]["resourceVersion"]
        unchanged = {**obj, "metadata": {**obj["metadata"], "resourceVersion": version}}
        if unchanged == current:
            return current
        return self._write(resource, key, obj)

    def remove(self, resource: Resource, name: str, namespace: str = "") -> None:
        """Remove an object, whatever finalizers or grace it has."""
        key = key_of(name, namespace)
        self._write(resource, key, self._collections[resource].objects[key], gone=True)

    def subscribe(self, observer: Callable[[Change], None]) -> None:
        """Call `observer` synchronously after every change, in order."""
        self._observers.append(observer)

    def unsubscribe(self, observer: Callable[[Change], None]) -> None:
        self._observers.remove(observer)

    def changes_since(self, revision: int, resource: Resource) -> list[Change]:
        """Return changes oldest first; raises CompactedError."""
        if revision < self.compacted:
            raise CompactedError(f"{revision} < {self.compacted}")
        newer = takewhile(lambda change: change.revision > revision, reversed(self._history))
        return [change for change in newer if change.resource is resource][::-1]

    def compact(self) -> None:
        """Older watches and pages then get a 410."""
        self._history.clear()
        self.compacted = self.revision

    def free_name(self, resource: Resource, prefix: str, namespace: str, draw: Random) -> str:
        while True:
            name = prefix + "".join(draw.choices(ALPHABET, k=5))
            if self.get(resource, name, namespace) is None:
                return name

    def _write(self, resource: Resource, key: str, obj: Json, *, gone: bool = False) -> Json:
        self.revision += 1
        stored = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.revision)}}
        collection = self._collections[resource]
        previous = collection.objects.get(key)
        if gone:
            collection.drop(key)
        else:
            collection.set(key, stored)
        if resource in _INDEXED:
            self._update_index(resource, key, previous, None if gone else stored)
        change = Change(
            resource=resource,
            obj=stored,
            previous=previous,
            revision=self.revision,
            gone=gone,
        )
        self._announce(change)
        return stored

    def _update_index(
        self, resource: Resource, key: str, previous: Json | None, stored: Json | None
    ) -> None:
        index_keys = _INDEXED[resource]
        before = index_keys(previous) if previous else []
        after = index_keys(stored) if stored else []
        if before == after:
            return
        for index_key in set(before):
            entry = self._index[resource, index_key]
            del entry[key]
            if not entry:
                del self._index[resource, index_key]
        for index_key in after:
            self._index.setdefault((resource, index_key), {})[key] = None

    def _announce(self, change: Change) -> None:
        self._history.append(change)
        while len(self._history) > self._limit:
            self.compacted = self._history.popleft().revision
        self._unannounced.append(change)
        # An observer may write: its change waits until all have seen this one.
        if self._announcing:
            return
        self._announcing = True
        try:
            while self._unannounced:
                change = self._unannounced.popleft()
                for observer in tuple(self._observers):
                    observer(change)
        finally:
            self._announcing = False
