"""ReplicaSets: so many pods of one template; one that is leaving or has failed is replaced at once."""

from rollout.lab.api.resources import REPLICASETS
from rollout.lab.api.store import Json
from rollout.lab.world.objects import is_active, is_ready, node_name, spec_of
from rollout.lab.world.workloads.controller import (
    WorkloadController,
    kept_conditions,
    ready_count,
    without_zeros,
)
from rollout.lab.world.workloads.pod_template import pod_from


class ReplicaSets(WorkloadController):
    """Keeps each ReplicaSet's number of pods."""

    resource = REPLICASETS

    def _act(self, obj: Json) -> None:
        active = [pod for pod in self._pods(obj) if is_active(pod)]
        missing = int(spec_of(obj).get("replicas", 1)) - len(active)
        for _ in range(missing):
            self._create(self._new_pod(obj))
        if missing < 0:
            for pod in sorted(active, key=_worth)[:-missing]:
                self._cluster.delete_pod(pod)

    def _status(self, obj: Json) -> Json:
        active = [pod for pod in self._pods(obj) if is_active(pod)]
        ready = ready_count(active)
        counts = {"fullyLabeledReplicas": len(active), "readyReplicas": ready, "availableReplicas": ready}
        return {"replicas": len(active), **without_zeros(counts), **kept_conditions(obj)}

    def _new_pod(self, obj: Json) -> Json:
        prefix = f"{obj['metadata']['name']}-"
        name = self._free_name(obj["metadata"].get("namespace", ""), prefix)
        return pod_from(spec_of(obj)["template"], obj, REPLICASETS, name, generate_name=prefix)


def _worth(pod: Json) -> tuple[bool, bool, str]:
    """What scaling down takes first: pods without a node, then unready ones, then by name."""
    return bool(node_name(pod)), is_ready(pod), str(pod["metadata"]["name"])
