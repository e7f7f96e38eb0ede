"""What every controller of the world works with: store, agenda, and questions about pods and budgets."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from rollout.lab.api.lifecycle import begin_deletion
from rollout.lab.api.resources import BUDGETS, PODS, Resource
from rollout.lab.api.selectors import matches
from rollout.lab.api.store import Json, ObjectStore
from rollout.lab.clock import LabClock
from rollout.lab.objects import labels_of, name_of, namespace_of, spec_of, uid
from rollout.lab.world.agenda import Agenda
from rollout.lab.world.host import Timings


@dataclass(frozen=True, slots=True)
class SimulatedCluster:
    """The shared store, agenda and random numbers.

    `own_deletions` holds the UIDs of what the cluster itself deletes (scaling down, garbage,
    taints), so that the scoreboard can tell them from deletions by clients.
    """

    store: ObjectStore
    agenda: Agenda
    clock: LabClock
    timings: Timings
    rng: random.Random
    own_deletions: set[str] = field(default_factory=set)

    def now(self) -> datetime:
        """Return the wall clock's time, UTC."""
        return self.clock.now()

    def owned_by(self, owner_uid: str) -> list[Json]:
        """Return the pods with an owner reference to this object."""
        return self.store.filed(PODS, ("", "owner", owner_uid))

    def matching(self, namespace: str, selector: Json | None) -> list[Json]:
        """Return the pods of a namespace that a LabelSelector picks."""
        wanted: Json = (selector or {}).get("matchLabels") or {}
        pods = self.store.filed(
            PODS, (namespace, "", ""), *((namespace, *label) for label in wanted.items())
        )
        return [pod for pod in pods if matches(selector, labels_of(pod))]

    def picking(self, namespace: str, labels: Mapping[str, str]) -> list[Json]:
        """Return the budgets that a pod with these labels falls under."""
        filed = (
            self.store.filed(BUDGETS, (namespace, *label)) for label in (("", ""), *labels.items())
        )
        return [
            budget
            for budgets in filed
            for budget in budgets
            if matches(spec_of(budget).get("selector"), labels)
        ]

    def delete(self, resource: Resource, obj: Json, *, grace_seconds: int | None = None) -> None:
        """Delete an object on the cluster's own account; one that is going already goes on as before."""
        self.own_deletions.add(uid(obj))
        begin_deletion(self.store, resource, obj, grace_seconds=grace_seconds)

    def current(self, resource: Resource, obj: Json) -> Json | None:
        """Return the object as it stands now, unless it is gone or another one took its name."""
        standing = self.store.get(resource, name_of(obj), namespace_of(obj))
        return standing if standing is not None and uid(standing) == uid(obj) else None
