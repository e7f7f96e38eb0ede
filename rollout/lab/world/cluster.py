"""What every controller of the world works with: store, agenda, and indexes of pods and budgets.

With tens of thousands of pods nobody can afford to scan them all for each ReplicaSet or budget.
"""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from rollout.lab.api.deletion import begin_deletion
from rollout.lab.api.resources import PODS, Resource
from rollout.lab.api.selectors import matches
from rollout.lab.api.store import Change, ChangeType, Json, ObjectStore
from rollout.lab.clock import LabClock
from rollout.lab.objects import Key, key, labels_of, spec_of, uid
from rollout.lab.world.agenda import Agenda
from rollout.lab.world.host import Timings

_Label = tuple[str, str, str]
_Entry = TypeVar("_Entry", str, _Label)


class PodIndex:
    """Answers which pods an object owns and which a selector picks, in order of arrival."""

    def __init__(self) -> None:
        self._pods: dict[Key, Json] = {}
        self._owned: dict[str, dict[Key, None]] = {}
        self._labelled: dict[_Label, dict[Key, None]] = {}
        self._spaces: dict[str, dict[Key, None]] = {}

    def apply(self, change: Change) -> None:
        """Take in one change of a pod."""
        where = key(change.obj)
        if change.previous is not None and not _filed_alike(change.previous, change.obj, change.type):
            self._forget(where, change.previous)
        if change.type is ChangeType.DELETED:
            self._pods.pop(where, None)
            return
        self._pods[where] = change.obj
        if change.previous is None or not _filed_alike(change.previous, change.obj, change.type):
            self._file(where, change.obj)

    def get(self, where: Key) -> Json | None:
        """Return the pod as last seen."""
        return self._pods.get(where)

    def owned_by(self, owner_uid: str) -> list[Json]:
        """Return the pods with an owner reference to this object."""
        return self._read(self._owned.get(owner_uid, ()))

    def matching(self, namespace: str, selector: Json | None) -> list[Json]:
        """Return the pods of a namespace that a LabelSelector picks."""
        if selector is None:
            return []
        labels: Json = selector.get("matchLabels") or {}
        narrowed = [self._labelled.get((namespace, *pair), {}) for pair in labels.items()]
        candidates = min(narrowed, key=len) if narrowed else self._spaces.get(namespace, {})
        return [pod for pod in self._read(candidates) if matches(selector, labels_of(pod))]

    def _read(self, keys: Iterable[Key]) -> list[Json]:
        return [self._pods[key] for key in keys]

    def _file(self, where: Key, pod: Json) -> None:
        self._spaces.setdefault(where[0], {})[where] = None
        for owner in _owner_uids(pod):
            self._owned.setdefault(owner, {})[where] = None
        for label in labels_of(pod).items():
            self._labelled.setdefault((where[0], *label), {})[where] = None

    def _forget(self, where: Key, pod: Json) -> None:
        _drop(self._spaces, where[0], where)
        for owner in _owner_uids(pod):
            _drop(self._owned, owner, where)
        for label in labels_of(pod).items():
            _drop(self._labelled, (where[0], *label), where)


def _drop(index: dict[_Entry, dict[Key, None]], entry: _Entry, where: Key) -> None:
    places = index.get(entry)
    if places is not None:
        places.pop(where, None)
        if not places:
            del index[entry]


def _owner_uids(pod: Json) -> list[str]:
    return [reference["uid"] for reference in pod["metadata"].get("ownerReferences") or ()]


def _filed_alike(one: Json, other: Json, kind: ChangeType) -> bool:
    """Whether both stand in the same places of the index."""
    before, after = one["metadata"], other["metadata"]
    return (
        kind is ChangeType.MODIFIED
        and before.get("labels") == after.get("labels")
        and before.get("ownerReferences") == after.get("ownerReferences")
    )


_Shelf = tuple[str, str, str]


class BudgetIndex:
    """Budgets, filed under one label that a pod they pick must carry."""

    def __init__(self) -> None:
        self._shelves: dict[_Shelf, dict[Key, Json]] = {}

    def apply(self, change: Change) -> None:
        """Take in one change of a budget."""
        where = key(change.obj)
        if change.previous is not None:
            self._shelves.get(_shelf(change.previous), {}).pop(where, None)
        if change.type is not ChangeType.DELETED:
            self._shelves.setdefault(_shelf(change.obj), {})[where] = change.obj

    def picking(self, namespace: str, labels: Mapping[str, str]) -> list[Json]:
        """Return the budgets that a pod with these labels falls under."""
        return [
            budget
            for label in (("", ""), *labels.items())
            for budget in self._shelves.get((namespace, *label), {}).values()
            if matches(spec_of(budget).get("selector"), labels)
        ]


def _shelf(budget: Json) -> _Shelf:
    selector: Json = spec_of(budget).get("selector") or {}
    label, value = next(iter((selector.get("matchLabels") or {}).items()), ("", ""))
    return key(budget)[0], label, value


# The alphabet of a real cluster's generated names: no vowels, hence no words.
ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


@dataclass(frozen=True, slots=True)
class Cluster:
    """The shared store, agenda, indexes and random numbers.

    `own_deletions` holds the UIDs of pods that the cluster itself deletes (scaling down, garbage, taints),
    so that the scoreboard can tell them from deletions by clients.
    """

    store: ObjectStore
    agenda: Agenda
    clock: LabClock
    timings: Timings
    rng: random.Random
    budgets: BudgetIndex = field(default_factory=BudgetIndex)
    pods: PodIndex = field(default_factory=PodIndex)
    own_deletions: set[str] = field(default_factory=set)

    def now(self) -> datetime:
        """Return the wall clock's time, UTC."""
        return self.clock.now()

    def suffix(self, length: int = 5) -> str:
        """Return the random end of a generated name."""
        return "".join(self.rng.choices(ALPHABET, k=length))

    def delete_pod(self, pod: Json, *, grace_seconds: int | None = None) -> None:
        """Delete a pod on the cluster's own account."""
        self.own_deletions.add(uid(pod))
        begin_deletion(self.store, PODS, pod, grace_seconds=grace_seconds)

    def current(self, resource: Resource, obj: Json) -> Json | None:
        """Return the object as it stands now, unless it is gone or another one took its name."""
        metadata = obj["metadata"]
        standing = self.store.get(resource, metadata["name"], metadata.get("namespace", ""))
        return standing if standing is not None and uid(standing) == uid(obj) else None
