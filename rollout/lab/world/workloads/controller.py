"""What the controllers of workloads have in common."""

from abc import ABC, abstractmethod
from typing import ClassVar

from rollout.lab.api.resources import NAMESPACES, PODS, Resource
from rollout.lab.api.store import Json
from rollout.lab.world.cluster import Cluster
from rollout.lab.world.objects import is_deleting, is_ready, status_of


class WorkloadController(ABC):
    """Reconciles one kind of object: the world asks it to, whenever the object or its pods changed."""

    resource: ClassVar[Resource]

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def reconcile(self, namespace: str, name: str) -> None:
        """Bring the pods, then the status, of one object to what its spec asks for."""
        obj = self._cluster.store.get(self.resource, name, namespace)
        if obj is None or is_deleting(obj):
            return
        self._act(obj)
        current = self._cluster.current(self.resource, obj)
        if current is not None:
            self._report(current)

    @abstractmethod
    def _act(self, obj: Json) -> None:
        """Create and delete what is missing and too much."""

    @abstractmethod
    def _status(self, obj: Json) -> Json:
        """The status that follows from the pods."""

    def _report(self, obj: Json) -> None:
        status = {**self._status(obj), "observedGeneration": obj["metadata"].get("generation", 1)}
        self._cluster.store.put(self.resource, {**obj, "status": status})

    def _pods(self, obj: Json) -> list[Json]:
        return self._cluster.pods.owned_by(obj["metadata"]["uid"])

    def _create(self, pod: Json) -> None:
        """Store a new pod, unless its namespace is going away."""
        namespace = self._cluster.store.get(NAMESPACES, pod["metadata"]["namespace"])
        if namespace is None or not is_deleting(namespace):
            self._cluster.store.create(PODS, pod)

    def _free_name(self, namespace: str, prefix: str) -> str:
        """A generated name that no pod has."""
        while True:
            name = f"{prefix}{self._cluster.suffix()}"
            if self._cluster.pods.get((namespace, name)) is None:
                return name


def ready_count(pods: list[Json]) -> int:
    """How many of the pods are Ready."""
    return sum(map(is_ready, pods))


def without_zeros(status: Json) -> Json:
    """A status as the API writes it: counts of zero are left out."""
    return {name: value for name, value in status.items() if value != 0}


def kept_conditions(obj: Json) -> Json:
    """The conditions that stand in the status, to be carried over."""
    conditions = status_of(obj).get("conditions")
    return {"conditions": conditions} if conditions else {}
