"""Waits until pods have completed, instead of evicting them.

The wait counts from the start of the drain as marked on the Node, so it survives a resume.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rollout.errors import StepError
from rollout.execution.base.deadline import Deadline
from rollout.execution.drain.task import NodeTask
from rollout.gather.cluster.snapshot import read_phase_time
from rollout.model.cluster import Pod
from rollout.model.completion import awaited_pods
from rollout.model.finding import StillRunning
from rollout.model.policy import CompletionFallback, CompletionPolicy
from rollout.model.quantity import Duration
from rollout.planning.drain.verdicts import DrainRules
from rollout.wording import text


class StillRunningError(StepError):
    """Pods have not completed in time, and must not be evicted."""

    def __init__(self, finding: StillRunning) -> None:
        super().__init__(text(finding))
        self.finding = finding


@dataclass(slots=True)
class CompletionWait:
    task: NodeTask
    # None before the first awaited pod.
    deadline: Deadline | None = None
    # Then the pods that are left are evicted.
    is_over: bool = False

    @property
    def policy(self) -> CompletionPolicy:
        return self.task.policy.drain.completion

    def awaited_among(self, pods: Sequence[Pod], rules: DrainRules) -> tuple[Pod, ...]:
        if self.is_over:
            return ()
        return tuple(pod for pod in pods if rules.waits_for(pod))

    def check(self, awaited: Sequence[Pod]) -> None:
        """End the wait if its time is up; `StillRunningError` if the policy returns the node."""
        if not awaited:
            return
        if self.deadline is None:
            self.deadline = self._read_deadline()
        if not self.deadline.expired:
            return
        if self.policy.fallback is CompletionFallback.RETURN:
            raise StillRunningError(self._name_running(awaited))
        self.is_over = True
        self.task.report.notice(
            f"{self.task.name}: pods that have not completed within"
            f" drain.wait-for-completion-timeout {self.policy.timeout} are evicted"
        )

    def _read_deadline(self) -> Deadline:
        """Return the end of the wait, as an earlier process has begun it."""
        cluster = self.task.cluster
        began = cluster.ask(lambda api: read_phase_time(api, self.task.name))
        now = cluster.api.server_time()
        waited = 0.0
        if began is not None and now is not None:
            waited = max(0.0, (now - began).total_seconds())
        return cluster.deadline(max(0.0, self.policy.timeout - waited))

    def _name_running(self, awaited: Sequence[Pod]) -> StillRunning:
        now = self.task.cluster.api.server_time()
        ran = dict[str, Duration | None]()
        for pod in awaited_pods(awaited):
            ran.setdefault(pod.name, pod.ran_for(now))
        return StillRunning(ran, self.policy.timeout)
