from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime

from msgspec import Struct

from rollout.model.cluster import ClusterSnapshot, Job, Pod
from rollout.model.plan import PlanWarning
from rollout.model.policy import CompletionPolicy, DrainPolicy
from rollout.model.quantity import Duration
from rollout.model.timestamps import seconds_since
from rollout.model.warning_finding import LongCompletion
from rollout.planning.drain.verdicts import Action, DrainRules, judge_all, with_action
from rollout.wording.warnings import warning


def pods_to_complete(pods: Iterable[Pod], policy: DrainPolicy) -> tuple[Pod, ...]:
    # Without DaemonSets, their pods are refused instead of left. A drain awaits neither.
    verdicts = judge_all(pods, DrainRules.of(policy, daemon_sets=()))
    return tuple(verdict.pod for verdict in with_action(Action.WAIT, verdicts))


class CompletionForecast(Struct, frozen=True):
    jobs_by_uid: Mapping[str, Job]
    # How long its longest Job took, by UID.
    longest_seconds_by_cron_job: Mapping[str, int]
    now: datetime | None

    @classmethod
    def of(cls, snapshot: ClusterSnapshot) -> "CompletionForecast":
        longest = defaultdict[str, int](int)
        for job in snapshot.jobs:
            if job.cron_job and job.took_seconds is not None:
                longest[job.cron_job] = max(longest[job.cron_job], job.took_seconds)
        jobs = {job.uid: job for job in snapshot.jobs}
        return cls(jobs, dict(longest), snapshot.read_at)

    def completed_in(self, pods: Iterable[Pod], policy: CompletionPolicy) -> int:
        """Return the seconds until all pods have completed, which may exceed the timeout.

        A pod of which nothing is known is assumed to run for the timeout.
        """
        longest = 0
        for pod in pods:
            left = self.seconds_left(pod)
            longest = max(longest, round(policy.timeout) if left is None else left)
        return longest

    def warnings(
        self, node: str, pods: Iterable[Pod], policy: CompletionPolicy
    ) -> tuple[PlanWarning, ...]:
        warnings = list[PlanWarning]()
        for pod in pods:
            left = self.seconds_left(pod)
            if left is not None and left > policy.timeout:
                finding = LongCompletion(Duration(left), policy.timeout, policy.fallback)
                warnings.append(warning(node, f"pod/{pod.key}", finding))
        return tuple(warnings)

    def seconds_left(self, pod: Pod) -> int | None:
        """Return how long the pod is likely to run, or None if unknown.

        A deadline of the pod or its Job counts more than the CronJob's longest Job.
        """
        job = self.jobs_by_uid.get(pod.owner.uid) if pod.owner else None
        limits = list[tuple[int, str]]()
        if pod.active_deadline_seconds is not None:
            limits.append((pod.active_deadline_seconds, pod.started_at))
        if job and job.deadline_seconds is not None:
            limits.append((job.deadline_seconds, job.started_at))
        if limits:
            return min(self._remaining(seconds, since) for seconds, since in limits)
        longest = self.longest_seconds_by_cron_job.get(job.cron_job) if job else None
        if job is None or longest is None:
            return None
        # After its longest time a Job may end at any time, or never.
        return self._remaining(longest, job.started_at) or None

    def _remaining(self, seconds: int, since: str) -> int:
        return max(0, seconds - round(seconds_since(since, self.now)))


def seconds_left_by_owner(snapshot: ClusterSnapshot, policy: DrainPolicy) -> dict[str, float]:
    """Return how many seconds drains wait for each owner's slowest pod, by the owner's UID."""
    forecast = CompletionForecast.of(snapshot)
    seconds = dict[str, float]()
    for pod in pods_to_complete(snapshot.pods, policy):
        if pod.owner is not None:
            left = forecast.completed_in((pod,), policy.completion)
            seconds[pod.owner.uid] = max(left, seconds.get(pod.owner.uid, 0))
    return seconds
