from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from rollout.errors import DenierKind
from rollout.execution.base.live_view import LiveView
from rollout.execution.drain.advice import (
    describe_controller_command,
    describe_deployment_commands,
    steps_for_terminating,
    steps_for_undeleted,
)
from rollout.execution.drain.blocked import HeldPods
from rollout.execution.drain.budget_view import BudgetView
from rollout.execution.drain.evictor import Acceptance, Evictor
from rollout.execution.drain.task import NodeTask
from rollout.model.cluster import CRITICAL, Pod
from rollout.model.completion import awaited_pods
from rollout.model.progress import Activity, EvictedPod, Phase, PodsEvicted
from rollout.model.quantity import Duration
from rollout.model.text import counted, listed, shell_word
from rollout.model.timestamps import seconds_since
from rollout.wording.drain import awaited_text

NAMED = 5
_REPORT_SECONDS = 1.0
# Without a change for this time, a list checks the watches.
_QUIET_SECONDS = 60.0
# In seconds beyond the grace period.
_OVERDUE_SECONDS = 30.0
# From an accepted eviction until the watch shows the deletion.
_DELETION_DELAY = 5.0
# The kubelet takes time to report that a pod is gone.
_MARGIN_SECONDS = 10


class Termination(Struct, frozen=True):
    spent: float
    grace: float

    @property
    def grace_left(self) -> float:
        """Negative if the pod is overdue."""
        return self.grace - self.spent


@dataclass(slots=True)
class Waiting:
    """Reports the pods that a drain waits for.

    A pod is leaving once its eviction was accepted or it terminates, and overdue if it still
    terminates after its grace period.
    """

    task: NodeTask
    evictor: Evictor
    held: HeldPods
    # Monotonic seconds, by pod UID.
    first_seen_leaving: dict[str, float] = field(default_factory=dict)
    reported_detail: str = ""
    reported_at: float = float("-inf")
    quiet_since: float = 0.0
    quiet_limit: float = _QUIET_SECONDS
    last_state: tuple[tuple[str, bool], ...] = ()
    # Seconds, by owner.
    longest_terminations: dict[str, float] = field(default_factory=dict)
    last_remaining: tuple[Pod, ...] = ()
    unreported_evictions: list[EvictedPod] = field(default_factory=list)
    evictions_reported_at: float = float("-inf")

    def report(self, remaining: Sequence[Pod], awaited: Sequence[Pod] = ()) -> None:
        now = self.task.now
        leaving = [pod for pod in remaining if self._is_leaving(pod)]
        for pod in leaving:
            self.first_seen_leaving.setdefault(pod.uid, now)
        self._note_gone_pods(remaining)
        if now - self.evictions_reported_at >= _REPORT_SECONDS:
            self._report_evicted()
        self._report_step(remaining, leaving, awaited)

    def _report_step(
        self, remaining: Sequence[Pod], leaving: Sequence[Pod], awaited: Sequence[Pod]
    ) -> None:
        completing = awaited_pods(awaited)
        details = []
        if remaining:
            details.append(self._describe_remaining(remaining, leaving))
        if completing:
            details.append(awaited_text(completing, self.task.cluster.api.server_time()))
        detail = "; ".join(details)
        now = self.task.now
        is_report_due = now - self.reported_at >= _REPORT_SECONDS
        if detail != self.reported_detail and is_report_due:
            self.reported_detail = detail
            self.reported_at = now
            activity = None if remaining else Activity.COMPLETION
            self.task.report_step(Phase.DRAINING, detail, activity=activity, awaited=completing)

    def _is_leaving(self, pod: Pod) -> bool:
        return pod.terminating or self.evictor.eviction_of(pod).accepted is not None

    def _describe_remaining(self, remaining: Sequence[Pod], leaving: Sequence[Pod]) -> str:
        ignored = [pod for pod in leaving if self._is_eviction_ignored(pod)]
        # A deletion shows a moment after its eviction.
        terminating_count = len(leaving) - len(ignored)
        detail = f"{counted(len(remaining), 'pod')} left, {terminating_count} terminating"
        if ignored:
            names = listed([pod.key for pod in ignored], NAMED)
            detail += f"; evicted but not deleted: {names}"
        overdue = [
            f"{pod.key}{_finalizers(pod)}"
            for pod in leaving
            if pod.terminating and self.termination(pod).grace_left < -_OVERDUE_SECONDS
        ]
        if overdue:
            detail += f"; overdue: {listed(overdue, NAMED)}"
        return detail

    def _is_eviction_ignored(self, pod: Pod) -> bool:
        accepted = self.evictor.eviction_of(pod).accepted
        if pod.terminating or accepted is None:
            return False
        return self.task.now - accepted.first > _DELETION_DELAY

    def termination(self, pod: Pod) -> Termination:
        """The API server's clock counts, unless this process has evicted the pod."""
        now = self.task.now
        grace = pod.deletion_grace
        if grace is None:
            grace = self.task.policy.drain.grace_of(pod.grace_period)
        accepted = self.evictor.eviction_of(pod).accepted
        if accepted is not None:
            return Termination(now - accepted.first, grace)
        server_time = self.task.cluster.api.server_time()
        if server_time is not None and pod.deletion_grace is not None:
            # The deletion timestamp is the end of the grace period.
            seconds_past_grace = seconds_since(pod.deleted_at, server_time)
            return Termination(max(0.0, grace + seconds_past_grace), grace)
        return Termination(now - self.first_seen_leaving.get(pod.uid, now), grace)

    def _note_gone_pods(self, remaining: Sequence[Pod]) -> None:
        now = self.task.now
        remaining_uids = {pod.uid for pod in remaining}
        for pod in self.last_remaining:
            accepted = self.evictor.eviction_of(pod).accepted
            if pod.uid in remaining_uids or accepted is None:
                continue
            seconds = round(now - accepted.first, 1)
            self._note_evicted(pod, accepted, seconds)
            if pod.owner is not None:
                owner = f"{pod.owner.kind}/{pod.namespace}/{pod.owner.name}"
                longest = self.longest_terminations.get(owner, 0.0)
                self.longest_terminations[owner] = max(seconds, longest)
        self.last_remaining = tuple(remaining)

    def close(self, remaining: Sequence[Pod]) -> None:
        self._note_gone_pods(remaining)
        for pod in remaining:
            accepted = self.evictor.eviction_of(pod).accepted
            if accepted is not None:
                self._note_evicted(pod, accepted, None)
        self._report_evicted()

    def _note_evicted(self, pod: Pod, accepted: Acceptance, seconds: float | None) -> None:
        if pod.uid in self.task.moved_pods:
            owner = f"{pod.owner.kind}/{pod.owner.name}" if pod.owner else ""
            self.unreported_evictions.append(EvictedPod(pod.key, owner, accepted.at, seconds))

    def _report_evicted(self) -> None:
        if not self.unreported_evictions:
            return
        self.evictions_reported_at = self.task.now
        pods = tuple(self.unreported_evictions)
        self.unreported_evictions = []
        self.task.report.tell(PodsEvicted(self.task.report.now, self.task.name, pods))

    def relist_if_quiet(
        self, pods: LiveView[Pod], budgets: BudgetView, remaining: Sequence[Pod]
    ) -> None:
        """List again after a quiet time, which then doubles.

        A watch that has lost its API server is quiet, too.
        """
        now = self.task.now
        state = tuple((pod.uid, pod.terminating) for pod in remaining)
        has_changed = state != self.last_state
        if has_changed:
            self.last_state = state
            self.quiet_since = now
            self.quiet_limit = _QUIET_SECONDS
        elif now - self.quiet_since > self.quiet_limit:
            self.quiet_since = now
            self.quiet_limit *= 2
            if self.first_seen_leaving:
                pods.resync()
            if len(self.held):
                budgets.resync()

    def why_left(self, pod: Pod) -> str:
        """Return a clause such as `shop/web-1 was not evicted yet`."""
        if pod.terminating:
            return self._why_terminating(pod)
        eviction = self.evictor.eviction_of(pod)
        accepted = eviction.accepted
        if accepted is not None:
            request = "deletion" if self.task.policy.drain.disable_eviction else "eviction"
            since = Duration(round(self.task.now - accepted.first))
            return f"{pod.key} was not deleted, although its {request} was accepted {since} ago"
        why = self.held.why_blocked(pod) or eviction.last_message
        return f"{pod.key}: {why}" if why else f"{pod.key} was not evicted yet"

    def _why_terminating(self, pod: Pod) -> str:
        termination = self.termination(pod)
        spent = Duration(round(termination.spent))
        grace = Duration(round(termination.grace))
        terminating = f"{pod.key} is still terminating after {spent}"
        if termination.grace_left > 0:
            left = Duration(max(1, round(termination.grace_left)))
            return (
                f"{terminating} and may take another {left} of its {grace} grace"
                f" period{_finalizers(pod)}"
            )
        over = Duration(round(-termination.grace_left))
        return f"{terminating}, {over} longer than its {grace} grace period{_finalizers(pod)}"

    def next_steps(self, remaining: Sequence[Pod]) -> Sequence[str]:
        """For the first pod that more time would not end."""
        in_grace = self._terminating_in_grace(remaining)
        stuck = [pod for pod in remaining if pod not in in_grace]
        return self._steps_for_operator(stuck[0]) if stuck else ()

    def hint(self, remaining: Sequence[Pod]) -> str:
        in_grace = self._terminating_in_grace(remaining)
        if not in_grace:
            return ""
        longest = Duration(max(round(self.termination(pod).grace) for pod in in_grace))
        return (
            f"Set --drain-timeout above {longest}, or shorten the grace period with --grace-period"
        )

    def needed_seconds(self, remaining: Sequence[Pod]) -> int:
        """0 if more time would not end every pod."""
        in_grace = self._terminating_in_grace(remaining)
        is_any_stuck = len(in_grace) < len(remaining)
        if is_any_stuck:
            return 0
        longest_left = max(self.termination(pod).grace_left for pod in in_grace)
        return round(self.task.policy.drain.timeout + longest_left) + _MARGIN_SECONDS

    def _terminating_in_grace(self, pods: Sequence[Pod]) -> list[Pod]:
        return [pod for pod in pods if pod.terminating and self.termination(pod).grace_left > 0]

    def _steps_for_operator(self, pod: Pod) -> Sequence[str]:
        if pod.terminating:
            return steps_for_terminating(pod)
        if self.evictor.eviction_of(pod).accepted is not None:
            return steps_for_undeleted(pod)
        reason = self.held.reason_of(pod)
        if reason is not None and reason.restart is not None:
            return describe_deployment_commands(reason.restart.deployment)
        if reason is None or reason.managing_owner is None:
            return (self._describe_blocker_command(pod),)
        return (
            self._describe_blocker_command(pod),
            describe_controller_command(pod.namespace, reason.managing_owner),
        )

    def _describe_blocker_command(self, pod: Pod) -> str:
        reason = self.held.reason_of(pod)
        policy = reason.denier_of_kind(DenierKind.POLICY) if reason else ""
        if policy:
            return f"kubectl describe validatingadmissionpolicy {shell_word(policy)}"
        budget = reason.only_budget if reason else ""
        is_critical_rule = budget.startswith(CRITICAL)
        if is_critical_rule:
            # `critical/shop/app.kubernetes.io/name=web`
            _, namespace, selector = budget.split("/", 2)
            return f"kubectl get pods -n {namespace} -l {shell_word(selector)}"
        kind = "pdb" if budget else "pod"
        namespace, _, name = (budget or pod.key).partition("/")
        return f"kubectl describe {kind} -n {namespace} {name}"


def _finalizers(pod: Pod) -> str:
    return f" (finalizers: {', '.join(pod.finalizers)})" if pod.finalizers else ""
