from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct

from rollout.model.cluster import Pod
from rollout.model.quantity import Duration
from rollout.model.timestamps import seconds_since

_JOB = "Job"
_MINUTE = 60


class AwaitedPod(Struct, frozen=True):
    """A pod that a drain waits for. Unknown values are empty."""

    pod: str
    job: str
    # RFC 3339.
    since: str

    @property
    def name(self) -> str:
        """Return the Job's name, or the pod's."""
        return self.job or self.pod

    def ran_for(self, now: datetime | None) -> Duration | None:
        """Return whole minutes; None in the first, or if unknown."""
        minutes = int(seconds_since(self.since, now) // _MINUTE)
        return Duration(minutes * _MINUTE) if minutes > 0 else None


def awaited_pods(pods: Iterable[Pod]) -> tuple[AwaitedPod, ...]:
    """Return the longest-running first."""
    return tuple(sorted(map(_awaited_pod, pods), key=_longest_running_first))


def _longest_running_first(pod: AwaitedPod) -> tuple[bool, str, str]:
    is_start_unknown = not pod.since
    return is_start_unknown, pod.since, pod.pod


def _awaited_pod(pod: Pod) -> AwaitedPod:
    job = ""
    if pod.owner is not None and pod.owner.kind == _JOB:
        job = f"{pod.namespace}/{pod.owner.name}"
    return AwaitedPod(pod.key, job, pod.started_at)
