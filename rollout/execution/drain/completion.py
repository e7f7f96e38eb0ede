"""Waits until pods have completed, instead of evicting them.

The wait counts from the drain's start, as marked on the Node, so it survives a resume.
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
    def __init__(self, finding: StillRunning) -> None:
        super().__init__(text(finding))
        self.finding = finding


@dataclass(slots=True)
class CompletionWait:
    task: NodeTask
    # None before the first awaited pod.
    deadline: Deadline | None = None
    is_over: bool = False

    @property
    def policy(self) -> CompletionPolicy:
        return self.task.policy.drain.completion

    def awaited_among(self, pods: Sequence[Pod], rules: DrainRules) -> tuple[Pod, ...]:
        if self.is_over:
            return ()
        return tuple(pod for pod in pods if rules.waits_for(pod))

    def check(self, awaited: Sequence[Pod]) -> None:
        """Raise `StillRunningError` if the wait is over and the policy returns the node."""
        if not awaited:
            return
        if self.deadline is None:
            self.deadline = self._read_deadline()
        if not self.deadline.expired:
            return
        if self.policy.fallback is CompletionFallback.RETURN:
            raise StillRunningError(self._finding_of(awaited))
        self.is_over = True
        self.task.report.notice(
            f"{self.task.name}: pods that have not completed within"
            f" drain.wait-for-completion-timeout {self.policy.timeout} are evicted"
        )

    def _read_deadline(self) -> Deadline:
        cluster = self.task.cluster
        drain_started = cluster.ask(lambda api: read_phase_time(api, self.task.name))
        now = cluster.api.server_time()
        waited = 0.0
        if drain_started is not None and now is not None:
            waited = max(0.0, (now - drain_started).total_seconds())
        return cluster.deadline(max(0.0, self.policy.timeout - waited))

    def _finding_of(self, awaited: Sequence[Pod]) -> StillRunning:
        now = self.task.cluster.api.server_time()
        run_times = dict[str, Duration | None]()
        # The first pod of a name has run for the longest.
        for pod in awaited_pods(awaited):
            run_times.setdefault(pod.name, pod.ran_for(now))
        return StillRunning(run_times, self.policy.timeout)
