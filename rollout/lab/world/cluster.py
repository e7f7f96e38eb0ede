"""What every controller of the world works with."""

import random
from dataclasses import dataclass, field
from datetime import datetime

from rollout.lab.api.deletion import begin_deletion
from rollout.lab.api.resources import PODS, Resource
from rollout.lab.api.store import Json, ObjectStore
from rollout.lab.clock import LabClock
from rollout.lab.world.agenda import Agenda
from rollout.lab.world.budget_index import BudgetIndex
from rollout.lab.world.objects import uid
from rollout.lab.world.pod_index import PodIndex
from rollout.lab.world.timings import Timings

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
        """The wall clock's time, UTC."""
        return self.clock.now()

    def suffix(self, length: int = 5) -> str:
        """The random end of a generated name."""
        return "".join(self.rng.choices(ALPHABET, k=length))

    def delete_pod(self, pod: Json, *, grace_seconds: int | None = None) -> None:
        """Delete a pod on the cluster's own account."""
        self.own_deletions.add(uid(pod))
        begin_deletion(self.store, PODS, pod, grace_seconds=grace_seconds)

    def current(self, resource: Resource, obj: Json) -> Json | None:
        """The object as it stands now, unless it is gone or another one took its name."""
        metadata = obj["metadata"]
        standing = self.store.get(resource, metadata["name"], metadata.get("namespace", ""))
        return standing if standing is not None and uid(standing) == uid(obj) else None
