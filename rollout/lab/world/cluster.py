import random
from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct, field

from rollout.lab.api.lifecycle import begin_deletion
from rollout.lab.api.resources import BUDGETS, PODS, Resource
from rollout.lab.api.selectors import matches
from rollout.lab.api.store import Json, ObjectStore
from rollout.lab.clock import LabClock
from rollout.lab.objects import labels_of, name_of, namespace_of, spec_of, uid
from rollout.lab.world.agenda import Agenda
from rollout.lab.world.host import Timings


class SimulatedCluster(Struct, frozen=True):
    """`own_deletions` has UIDs of objects that the cluster itself deletes.

    The scoreboard does not count these.
    """

    store: ObjectStore
    agenda: Agenda
    clock: LabClock
    timings: Timings
    rng: random.Random
    own_deletions: set[str] = field(default_factory=set)

    def now(self) -> datetime:
        return self.clock.now()

    def pods_owned_by(self, owner_uid: str) -> list[Json]:
        return self.store.lookup(PODS, ("", "owner", owner_uid))

    def pods_matching(self, namespace: str, selector: Json | None) -> list[Json]:
        labels: Json = (selector or {}).get("matchLabels") or {}
        index_keys = [(namespace, "", "")]
        index_keys += [(namespace, label, value) for label, value in labels.items()]
        pods = self.store.lookup(PODS, *index_keys)
        return [pod for pod in pods if matches(selector, labels_of(pod))]

    def budgets_selecting(self, namespace: str, labels: Mapping[str, str]) -> list[Json]:
        budgets = self.store.lookup(BUDGETS, (namespace, "", ""))
        for label, value in labels.items():
            budgets += self.store.lookup(BUDGETS, (namespace, label, value))
        return [budget for budget in budgets if matches(spec_of(budget).get("selector"), labels)]

    def delete(self, resource: Resource, obj: Json, *, grace_seconds: int | None = None) -> None:
        self.own_deletions.add(uid(obj))
        begin_deletion(self.store, resource, obj, grace_seconds=grace_seconds)

    def current(self, resource: Resource, obj: Json) -> Json | None:
        """Return None if the object is gone or another has its name."""
        stored = self.store.get(resource, name_of(obj), namespace_of(obj))
        if stored is None or uid(stored) != uid(obj):
            return None
        return stored
