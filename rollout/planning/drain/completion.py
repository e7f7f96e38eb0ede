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
    # Without DaemonSets, their pods are refused. A drain awaits neither.
    verdicts = judge_all(pods, DrainRules.of(policy, daemon_sets=()))
    return tuple(verdict.pod for verdict in with_action(Action.WAIT, verdicts))


class CompletionForecast(Struct, frozen=True):
    """Estimates how long pods still run, by deadlines and earlier CronJob runs."""

    jobs_by_uid: Mapping[str, Job]
    # By the CronJob's UID.
    longest_seconds_by_cron_job: Mapping[str, int]
    now: datetime | None

    @classmethod
    def of(cls, snapshot: ClusterSnapshot) -> "CompletionForecast":
        longest_seconds = defaultdict[str, int](int)
        for job in snapshot.jobs:
            if job.cron_job and job.took_seconds is not None:
                longest_before = longest_seconds[job.cron_job]
                longest_seconds[job.cron_job] = max(longest_before, job.took_seconds)
        jobs = {job.uid: job for job in snapshot.jobs}
        return cls(jobs, dict(longest_seconds), snapshot.read_at)

    def completed_in(self, pods: Iterable[Pod], policy: CompletionPolicy) -> int:
        """Return the seconds until all pods complete; maybe more than the timeout.

        Unknown pods are assumed to take the timeout.
        """
        longest = 0
        for pod in pods:
            seconds_left = self.seconds_left(pod)
            if seconds_left is None:
                seconds_left = round(policy.timeout)
            longest = max(longest, seconds_left)
        return longest

    def warnings(
        self, node: str, pods: Iterable[Pod], policy: CompletionPolicy
    ) -> tuple[PlanWarning, ...]:
        warnings = list[PlanWarning]()
        for pod in pods:
            seconds_left = self.seconds_left(pod)
            if seconds_left is not None and seconds_left > policy.timeout:
                finding = LongCompletion(Duration(seconds_left), policy.timeout, policy.fallback)
                warnings.append(warning(node, f"pod/{pod.key}", finding))
        return tuple(warnings)

    def seconds_left(self, pod: Pod) -> int | None:
        """Return None if unknown. Deadlines count more than the longest Job."""
        job = self.jobs_by_uid.get(pod.owner.uid) if pod.owner else None
        until_deadlines = list[int]()
        if pod.active_deadline_seconds is not None:
            until_deadlines.append(self._remaining(pod.active_deadline_seconds, pod.started_at))
        if job and job.deadline_seconds is not None:
            until_deadlines.append(self._remaining(job.deadline_seconds, job.started_at))
        if until_deadlines:
            return min(until_deadlines)
        longest_job = self.longest_seconds_by_cron_job.get(job.cron_job) if job else None
        if job is None or longest_job is None:
            return None
        # A Job that outlasts all earlier ones may never end.
        return self._remaining(longest_job, job.started_at) or None

    def _remaining(self, seconds: int, since: str) -> int:
        return max(0, seconds - round(seconds_since(since, self.now)))


def seconds_left_by_owner(snapshot: ClusterSnapshot, policy: DrainPolicy) -> dict[str, float]:
    """Return how long drains wait for each owner's slowest pod, by UID."""
    forecast = CompletionForecast.of(snapshot)
    seconds_left = dict[str, float]()
    for pod in pods_to_complete(snapshot.pods, policy):
        if pod.owner is not None:
            owner = pod.owner.uid
            seconds_of_pod = forecast.completed_in((pod,), policy.completion)
            seconds_left[owner] = max(seconds_of_pod, seconds_left.get(owner, 0))
    return seconds_left
