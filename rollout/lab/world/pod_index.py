"""Pods by owner and by label, kept up to date from the change stream.

With tens of thousands of pods nobody can afford to scan them all for each ReplicaSet or budget.
"""

from collections.abc import Iterable
from typing import TypeVar

from rollout.lab.api.selectors import matches
from rollout.lab.api.store import Change, ChangeType, Json
from rollout.lab.world.objects import Key, key, labels_of

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
        """The pod as last seen."""
        return self._pods.get(where)

    def owned_by(self, owner_uid: str) -> list[Json]:
        """The pods with an owner reference to this object."""
        return self._read(self._owned.get(owner_uid, ()))

    def matching(self, namespace: str, selector: Json | None) -> list[Json]:
        """The pods of a namespace that a LabelSelector picks."""
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
