"""What every controller of the world works with: store, agenda, and indexes of pods and budgets.

With tens of thousands of pods nobody can afford to scan them all for each ReplicaSet or budget.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from rollout.lab.api.lifecycle import begin_deletion
from rollout.lab.api.resources import PODS, Resource
from rollout.lab.api.selectors import matches
from rollout.lab.api.store import Change, ChangeType, Json, ObjectStore
from rollout.lab.clock import LabClock
from rollout.lab.objects import Key, key, labels_of, spec_of, uid
from rollout.lab.world.agenda import Agenda
from rollout.lab.world.host import Timings

_Place = tuple[str, str, str]


class Index:
    """Objects by their key, and filed at the places that a function names, in order of arrival."""

    def __init__(self, places: Callable[[Json], list[_Place]]) -> None:
        self._places = places
        self._objects: dict[Key, Json] = {}
        self._filed: dict[_Place, dict[Key, None]] = {}

    def apply(self, change: Change) -> None:
        """Take in one change."""
        where, gone = key(change.obj), change.type is ChangeType.DELETED
        before = [] if change.previous is None else self._places(change.previous)
        after = [] if gone else self._places(change.obj)
        if before != after:
            for place in {*before}:
                self._filed[place].pop(where)
                if not self._filed[place]:
                    del self._filed[place]
            for place in after:
                self._filed.setdefault(place, {})[where] = None
        if gone:
            del self._objects[where]
        else:
            self._objects[where] = change.obj

    def get(self, where: Key) -> Json | None:
        """Return the object as last seen."""
        return self._objects.get(where)

    def at(self, *places: _Place) -> list[Json]:
        """Return what is filed at the place that has least of these."""
        filed = min((self._filed.get(place, {}) for place in places), key=len)
        return [self._objects[where] for where in filed]


def _places_of_pod(pod: Json) -> list[_Place]:
    """Return the place of all pods of its namespace, and those of its labels and owners."""
    namespace, _ = key(pod)
    owners = pod["metadata"].get("ownerReferences") or ()
    return [
        (namespace, "", ""),
        *((namespace, *label) for label in labels_of(pod).items()),
        *(("", "owner", owner["uid"]) for owner in owners),
    ]


def _place_of_budget(budget: Json) -> list[_Place]:
    """Return the place of one label that a pod it picks must carry."""
    selector: Json = spec_of(budget).get("selector") or {}
    label, value = next(iter((selector.get("matchLabels") or {}).items()), ("", ""))
    return [(key(budget)[0], label, value)]


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
    budgets: Index = field(default_factory=lambda: Index(_place_of_budget))
    pods: Index = field(default_factory=lambda: Index(_places_of_pod))
    own_deletions: set[str] = field(default_factory=set)

    def now(self) -> datetime:
        """Return the wall clock's time, UTC."""
        return self.clock.now()

    def owned_by(self, owner_uid: str) -> list[Json]:
        """Return the pods with an owner reference to this object."""
        return self.pods.at(("", "owner", owner_uid))

    def matching(self, namespace: str, selector: Json | None) -> list[Json]:
        """Return the pods of a namespace that a LabelSelector picks."""
        wanted: Json = (selector or {}).get("matchLabels") or {}
        pods = self.pods.at((namespace, "", ""), *((namespace, *label) for label in wanted.items()))
        return [pod for pod in pods if matches(selector, labels_of(pod))]

    def picking(self, namespace: str, labels: Mapping[str, str]) -> list[Json]:
        """Return the budgets that a pod with these labels falls under."""
        filed = (self.budgets.at((namespace, *label)) for label in (("", ""), *labels.items()))
        return [budget for budgets in filed for budget in budgets if matches(spec_of(budget).get("selector"), labels)]

    def delete_pod(self, pod: Json, *, grace_seconds: int | None = None) -> None:
        """Delete a pod on the cluster's own account."""
        self.own_deletions.add(uid(pod))
        begin_deletion(self.store, PODS, pod, grace_seconds=grace_seconds)

    def current(self, resource: Resource, obj: Json) -> Json | None:
        """Return the object as it stands now, unless it is gone or another one took its name."""
        metadata = obj["metadata"]
        standing = self.store.get(resource, metadata["name"], metadata.get("namespace", ""))
        return standing if standing is not None and uid(standing) == uid(obj) else None
