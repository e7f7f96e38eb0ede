"""StatefulSets: pods with ordinal names; a pod is replaced only when the old one is really gone."""

from typing_extensions import override

from rollout.lab.api.resources import STATEFULSETS
from rollout.lab.api.store import Json
from rollout.lab.world.objects import is_active, is_deleting, is_finished, is_ready, spec_of
from rollout.lab.world.workloads.controller import (
    WorkloadController,
    kept_conditions,
    ready_count,
    without_zeros,
)
from rollout.lab.world.workloads.pod_template import pod_from, template_hash


class StatefulSets(WorkloadController):
    """Keeps each StatefulSet's ordinals, in order unless it is Parallel."""

    resource = STATEFULSETS

    @override
    def _act(self, obj: Json) -> None:
        wanted = int(spec_of(obj).get("replicas", 1))
        pods = {ordinal_of(pod): pod for pod in self._pods(obj)}
        in_order = spec_of(obj).get("podManagementPolicy") != "Parallel"
        for ordinal in range(wanted):
            settled = self._fill(obj, ordinal, pods.get(ordinal))
            if in_order and not settled:
                return
        self._shrink([pods[pod] for pod in sorted(pods, reverse=True) if pod >= wanted], in_order=in_order)

    @override
    def _status(self, obj: Json) -> Json:
        pods = self._pods(obj)
        active, revision = [pod for pod in pods if is_active(pod)], _revision(obj)
        ready = ready_count(active)
        counts = {"readyReplicas": ready, "currentReplicas": len(pods), "updatedReplicas": len(pods)}
        return {
            "replicas": len(pods),
            # Unlike its siblings, this count is written even when it is zero.
            "availableReplicas": ready,
            **without_zeros(counts),
            "currentRevision": revision,
            "updateRevision": revision,
            "collisionCount": 0,
            **kept_conditions(obj),
        }

    def _fill(self, obj: Json, ordinal: int, pod: Json | None) -> bool:
        """See to one ordinal; whether its pod is Ready, so that the next one may follow."""
        if pod is None:
            self._create(_new_pod(obj, ordinal))
            return False
        if is_finished(pod) and not is_deleting(pod):
            self._cluster.delete_pod(pod)
            return False
        return is_ready(pod) and not is_deleting(pod)

    def _shrink(self, surplus: list[Json], *, in_order: bool) -> None:
        for pod in surplus:
            if not is_deleting(pod):
                self._cluster.delete_pod(pod)
            if in_order:
                return


def ordinal_of(pod: Json) -> int:
    """The number at the end of the pod's name."""
    return int(pod["metadata"]["name"].rpartition("-")[2])


def _revision(obj: Json) -> str:
    return f"{obj['metadata']['name']}-{template_hash(spec_of(obj)['template'])}"


def _new_pod(obj: Json, ordinal: int) -> Json:
    name = f"{obj['metadata']['name']}-{ordinal}"
    labels = {
        "statefulset.kubernetes.io/pod-name": name,
        "apps.kubernetes.io/pod-index": str(ordinal),
        "controller-revision-hash": _revision(obj),
    }
    pod = pod_from(spec_of(obj)["template"], obj, STATEFULSETS, name, labels=labels)
    return {**pod, "spec": {**pod["spec"], "hostname": name, "subdomain": spec_of(obj).get("serviceName", "")}}
