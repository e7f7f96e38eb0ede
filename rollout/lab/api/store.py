"""The cluster's objects: one versioned, ordered collection per resource, like etcd behind a real API server.

Every reader in the lab (API front, world, scoreboard) shares the stored dictionaries, so they are
immutable by convention: to change an object, build a new dictionary that shares the unchanged parts
and `put` it. The store knows nothing about rights, deletion grace or defaults.
"""

from bisect import bisect_left, insort
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from random import Random, SystemRandom
from typing import Any, Final
from uuid import uuid4

from rollout.lab.api.resources import BUDGETS, PODS, Resource

Json = dict[str, Any]

# The alphabet of a real server's generated names: no vowels, hence no words.
ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


@dataclass(frozen=True, slots=True)
class Change:
    """One write: the object after it (`gone`: as last stored, with the deletion's version) and before it."""

    resource: Resource
    obj: Json
    previous: Json | None
    revision: int
    gone: bool = False

    def differs(self, *views: Callable[[Json], object]) -> bool:
        """Whether the object came, went, or looks different in one of these."""
        before = self.previous
        return before is None or self.gone or any(view(before) != view(self.obj) for view in views)


# Where an object can be looked up: a namespace, a label and its value; or no namespace, a word, and
# a node or a UID.
Place = tuple[str, str, str]


def _places_of_pod(pod: Json) -> list[Place]:
    """Return the place of all pods of its namespace, and those of its labels, owners and node."""
    metadata = pod["metadata"]
    node = (pod.get("spec") or {}).get("nodeName")
    namespace = metadata.get("namespace", "")
    return [
        (namespace, "", ""),
        *((namespace, *label) for label in (metadata.get("labels") or {}).items()),
        *(("", "owner", owner["uid"]) for owner in metadata.get("ownerReferences") or ()),
        *([("", "node", node)] if node else []),
    ]


def _places_of_budget(budget: Json) -> list[Place]:
    """Return the place of one label that a pod it picks must carry."""
    selector: Json = (budget.get("spec") or {}).get("selector") or {}
    label, value = next(iter((selector.get("matchLabels") or {}).items()), ("", ""))
    return [(budget["metadata"].get("namespace", ""), label, value)]


# With tens of thousands of pods nobody can afford to scan them all for each ReplicaSet or budget.
_PLACES: Final[Mapping[Resource, Callable[[Json], list[Place]]]] = {
    PODS: _places_of_pod,
    BUDGETS: _places_of_budget,
}


class CompactedError(Exception):
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
    """The objects of one resource, and their keys in order."""

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

    def of(self, namespace: str) -> list[Json]:
        """Objects of a namespace, of all where it is empty."""
        keys = self.keys
        if namespace:
            # "0" is the character behind "/": the first key that can belong to another namespace.
            keys = keys[bisect_left(keys, f"{namespace}/") : bisect_left(keys, f"{namespace}0")]
        return [self.objects[key] for key in keys]


class ObjectStore:
    """All objects of the cluster, their versions, and the recent history of changes.

    `history` bounds how many changes are kept for watches and for pages of older lists; `now` gives
    UTC. Only one event loop may use it.
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
        self._filed: dict[tuple[Resource, Place], dict[str, None]] = {}

    def get(self, resource: Resource, name: str, namespace: str = "") -> Json | None:
        """Return the stored object, or None."""
        return self._collections[resource].objects.get(key_of(name, namespace))

    def items(self, resource: Resource, namespace: str = "") -> list[Json]:
        """Objects in key order, of one namespace or of all."""
        return self._collections[resource].of(namespace)

    def pods_on(self, node: str) -> list[Json]:
        """Return the pods bound to a node, in key order."""
        return [
            self._collections[PODS].objects[key]
            for key in sorted(self._filed.get((PODS, ("", "node", node)), ()))
        ]

    def lookup(self, resource: Resource, *places: Place) -> list[Json]:
        """Return what is filed at the place that has least of these, in order of arrival."""
        keys = min((self._filed.get((resource, place), {}) for place in places), key=len)
        return [self._collections[resource].objects[key] for key in keys]

    def create(self, resource: Resource, obj: Json) -> Json:
        """Store a new object: fills name (from generateName), uid, creationTimestamp, resourceVersion."""
        metadata = dict(obj.get("metadata") or {})
        namespace = metadata.get("namespace", "")
        if not metadata.get("name"):
            metadata["name"] = self.free_name(
                resource, metadata["generateName"], namespace, SystemRandom()
            )
        key = key_of(metadata["name"], namespace)
        metadata["uid"] = str(uuid4())
        metadata["creationTimestamp"] = timestamp(self.now())
        typed = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            **obj,
            "metadata": metadata,
        }
        return self._write(resource, key, typed)

    def put(self, resource: Resource, obj: Json) -> Json:
        """Replace a stored object; an unchanged one keeps its version and makes no event."""
        key = object_key(obj)
        current = self._collections[resource].objects[key]
        version = current["metadata"]["resourceVersion"]
        unchanged = {**obj, "metadata": {**obj["metadata"], "resourceVersion": version}}
        if unchanged == current:
            return current
        return self._write(resource, key, obj)

    def remove(self, resource: Resource, name: str, namespace: str = "") -> None:
        """Take an object away for good."""
        key = key_of(name, namespace)
        self._write(resource, key, self._collections[resource].objects[key], gone=True)

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
        if revision < self.compacted:
            raise CompactedError(f"{revision} < {self.compacted}")
        newer = takewhile(lambda change: change.revision > revision, reversed(self._history))
        return [change for change in newer if change.resource is resource][::-1]

    def compact(self) -> None:
        """Forget the history: watches and pages from before now are answered 410 Gone."""
        self._history.clear()
        self.compacted = self.revision

    def free_name(self, resource: Resource, prefix: str, namespace: str, draw: Random) -> str:
        """Return a generated name that no object has."""
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
        if resource in _PLACES:
            self._file(resource, key, previous, None if gone else stored)
        self._announce(Change(resource, stored, previous, self.revision, gone))
        return stored

    def _file(
        self, resource: Resource, key: str, previous: Json | None, stored: Json | None
    ) -> None:
        before, after = (_PLACES[resource](obj) if obj else [] for obj in (previous, stored))
        if before == after:
            return
        for place in {*before}:
            filed = self._filed[resource, place]
            del filed[key]
            if not filed:
                del self._filed[resource, place]
        for place in after:
            self._filed.setdefault((resource, place), {})[key] = None

    def _announce(self, change: Change) -> None:
        self._history.append(change)
        while len(self._history) > self._limit:
            self.compacted = self._history.popleft().revision
        self._unannounced.append(change)
        # An observer may write: its change waits here, so that every observer sees all changes in
        # order.
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
