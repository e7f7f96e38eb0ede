"""Jobs: pods that end, until so many have succeeded."""

from typing_extensions import override

from rollout.lab.api.resources import JOBS
from rollout.lab.api.store import Json, timestamp
from rollout.lab.world.objects import (
    is_active,
    is_deleting,
    is_finished,
    is_true,
    phase,
    spec_of,
    status_of,
    with_condition,
    with_status,
)
from rollout.lab.world.workloads.controller import (
    WorkloadController,
    kept_conditions,
    ready_count,
    without_zeros,
)
from rollout.lab.world.workloads.pod_template import pod_from

_BACKOFF_LIMIT = 6
_MOMENTS = ("startTime", "completionTime")


class Jobs(WorkloadController):
    """Keeps each Job's pods until it is complete or has failed too often."""

    resource = JOBS

    @override
    def _act(self, obj: Json) -> None:
        if is_true(obj, "Complete") or is_true(obj, "Failed"):
            return
        pods = self._pods(obj)
        spec = spec_of(obj)
        succeeded = sum(phase(pod) == "Succeeded" for pod in pods)
        active = sum(is_active(pod) for pod in pods)
        if _failures(pods) > spec.get("backoffLimit", _BACKOFF_LIMIT):
            self._conclude(obj, "Failed", "BackoffLimitExceeded")
        elif succeeded >= _completions(obj):
            self._conclude(obj, "Complete", "CompletionsReached")
        else:
            missing = min(int(spec.get("parallelism", 1)), _completions(obj) - succeeded) - active
            for _ in range(missing):
                self._create(self._new_pod(obj))

    @override
    def _status(self, obj: Json) -> Json:
        pods = self._pods(obj)
        active = [pod for pod in pods if is_active(pod)]
        counts = {
            "active": len(active),
            "succeeded": sum(phase(pod) == "Succeeded" for pod in pods),
            "failed": _failures(pods),
        }
        kept: Json = {name: status_of(obj)[name] for name in _MOMENTS if name in status_of(obj)}
        return {
            "startTime": timestamp(self._cluster.now()),
            **kept,
            **without_zeros(counts),
            "ready": ready_count(active),
            **kept_conditions(obj),
        }

    def _conclude(self, obj: Json, kind: str, reason: str) -> None:
        condition = {"type": kind, "status": "True", "reason": reason, "message": ""}
        concluded = with_condition(obj, condition, self._cluster.now())
        if kind == "Complete":
            concluded = with_status(concluded, completionTime=timestamp(self._cluster.now()))
        self._cluster.store.put(JOBS, concluded)

    def _new_pod(self, obj: Json) -> Json:
        name = obj["metadata"]["name"]
        labels = {"job-name": name, "batch.kubernetes.io/job-name": name}
        prefix = f"{name}-"
        unique = self._free_name(obj["metadata"].get("namespace", ""), prefix)
        template = spec_of(obj)["template"]
        return pod_from(template, obj, JOBS, unique, labels=labels, generate_name=prefix)


def _completions(obj: Json) -> int:
    spec = spec_of(obj)
    return int(spec["completions"] if "completions" in spec else spec.get("parallelism", 1))


def _failures(pods: list[Json]) -> int:
    """Pods that failed, and those on their way out before they had succeeded."""
    return sum(phase(pod) == "Failed" or (is_deleting(pod) and not is_finished(pod)) for pod in pods)
