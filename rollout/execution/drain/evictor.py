"""Decides which pod is evicted next: a few at a time, the tightest budgets first.

A pod whose budget cannot open is tried ever more rarely: some webhooks deny the eviction and then
move the pod.
"""

import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from typing import assert_never

from rollout.errors import DrainError
from rollout.execution.base.deadline import Deadline
from rollout.execution.drain.blocked import BlockedReason, HeldPods
from rollout.execution.drain.budget_view import BudgetView
from rollout.execution.drain.eviction import Attempt, EvictionResult, Figures, request_removal
from rollout.execution.drain.restarts import Restarts
from rollout.execution.drain.task import DrainDemand, NodeTask
from rollout.model.cluster import Budget, Pod
from rollout.model.drain_finding import Restarting
from rollout.planning.drain.budgets import managing_owner

AT_ONCE = 8
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0
_FIRST_OUTAGE_PAUSE = 0.5
_LONGEST_OUTAGE_PAUSE = 5.0
_FIRST_CLOSED_PAUSE = 30.0
_LONGEST_CLOSED_PAUSE = 480.0
# The watch does not show when a webhook stops denying.
_LONGEST_DENIED_PAUSE = 60.0
# A pod that is not deleted is evicted again after this time.
_UNHEEDED_SECONDS = 30.0
_LONGEST_RETRY_AFTER = 60.0
# Before the deadline, with time left to terminate.
_LAST_TRY = 5.0


@dataclass(slots=True)
class Retry:
    first_pause: float
    # Monotonic seconds.
    at: float = 0.0
    pause: float = 0.0

    def postpone(self, now: float, longest: float, retry_after: float | None = None) -> None:
        """Double the pause, up to `longest`; a Retry-After replaces it once."""
        next_pause = self.pause * 2 if self.pause else self.first_pause
        self.pause = min(longest, next_pause)
        if retry_after:
            self.at = now + min(max(retry_after, self.first_pause), _LONGEST_RETRY_AFTER)
        else:
            self.at = now + self.pause


@dataclass(slots=True)
class Acceptance:
    """`at` is by the wall clock, the others are monotonic seconds."""

    at: datetime
    first: float
    last: float


@dataclass(slots=True)
class PodEviction:
    retry: Retry = field(default_factory=lambda: Retry(_FIRST_PAUSE))
    accepted: Acceptance | None = None
    # An earlier request may have worked, although it was not accepted.
    is_in_doubt: bool = False
    last_message: str = ""
    # For tries against a budget that cannot open by itself.
    closed_retry: Retry = field(default_factory=lambda: Retry(_FIRST_CLOSED_PAUSE))


@dataclass
class Evictor:
    """Sends the evictions of one drain.

    A pod is held if it cannot be evicted now. A budget is closed if it allows no eviction now.
    """

    task: NodeTask
    deadline: Deadline
    budgets: BudgetView
    held: HeldPods
    restarts: Restarts
    pool: ThreadPoolExecutor
    wakeup: threading.Event
    # By pod UID.
    _evictions: dict[str, PodEviction] = field(default_factory=dict)
    _requests: dict[str, Future[Attempt]] = field(default_factory=dict)
    _outage: Retry = field(default_factory=lambda: Retry(_FIRST_OUTAGE_PAUSE))

    def eviction_of(self, pod: Pod) -> PodEviction:
        return self._evictions.setdefault(pod.uid, PodEviction())

    def handle_answers(self) -> None:
        answered = {uid: future for uid, future in self._requests.items() if future.done()}
        for uid, future in answered.items():
            del self._requests[uid]
            self._handle_answer(future.result())

    def finish(self) -> None:
        for future in self._requests.values():
            attempt = future.result()
            self._note_moved(attempt)
            if attempt.result in (EvictionResult.ACCEPTED, EvictionResult.GONE):
                self._note_acceptance(self.eviction_of(attempt.pod))
        self._requests.clear()

    def evict_due(self, pods: Sequence[Pod]) -> None:
        self.held.keep_only(frozenset(pod.uid for pod in pods if not pod.terminating))
        now = self.task.now
        due = [pod for pod in pods if self._is_due(pod, now)]
        self._report_demand(pods, due, now)
        for pod, budgets in self._most_urgent_first(due, now):
            self._evict_or_hold(pod, budgets, now)

    def _evict_or_hold(self, pod: Pod, budgets: Sequence[Budget], now: float) -> None:
        restart = self.restarts.read_status(pod)
        if restart is not None:
            self.held.hold(pod, BlockedReason.of_restart(restart))
            return
        conflicting = self.budgets.conflicting_budgets(pod)
        if conflicting:
            self.held.hold(pod, BlockedReason.of_several(conflicting))
            return
        closed_budget = self._find_closed_budget(budgets, now)
        if closed_budget is not None:
            self._handle_closed_budget(pod, closed_budget, now)
            return
        restart = self._find_restart_under_way(pod, budgets)
        if restart is not None:
            self.held.hold(pod, BlockedReason.of_restart(restart))
            return
        reason_to_defer = self._reason_to_defer(budgets, now)
        if reason_to_defer is not None:
            self.held.hold(pod, reason_to_defer)
        elif self._may_send(now):
            for budget in budgets:
                self.budgets.note_sent(budget, now)
            self._submit(pod)

    def _find_closed_budget(self, budgets: Sequence[Budget], now: float) -> Budget | None:
        for budget in budgets:
            if self.budgets.allowance(budget, now) <= 0:
                return budget
        return None

    def _find_restart_under_way(self, pod: Pod, budgets: Sequence[Budget]) -> Restarting | None:
        """Return the restart that replaces the pod, if its budget needs every pod.

        The new pods open the budget only briefly, and an eviction would leave too few.
        """
        if not any(budget.needs_every_pod for budget in budgets):
            return None
        return self.restarts.find_under_way(pod)

    def _handle_closed_budget(self, pod: Pod, closed: Budget, now: float) -> None:
        """If the budget may never open, restart the pod's Deployment, or try anyway."""
        reason = BlockedReason.of_budget(closed, pod)
        has_operator = reason.managing_owner is not None
        if closed.needs_every_pod and not has_operator:
            restart = self.restarts.begin(pod)
            if restart is not None:
                self.held.hold(pod, BlockedReason.of_restart(restart))
                return
        may_never_open = closed.needs_every_pod or has_operator
        earlier_reason = self.held.reason_of(pod)
        was_denied = earlier_reason is not None and earlier_reason.denial is not None
        # A denial says more than the budget.
        keeps_reason = may_never_open and was_denied
        if not keeps_reason:
            self.held.hold(pod, reason)
        self.task.precedence.note_closed_budget(self.task.name, closed.key)
        retry = self.eviction_of(pod).closed_retry
        is_try_due = may_never_open and now >= retry.at
        if is_try_due and self._may_send(now):
            retry.postpone(now, _LONGEST_CLOSED_PAUSE)
            self._submit(pod)

    def _report_demand(self, remaining: Sequence[Pod], due: Sequence[Pod], now: float) -> None:
        unanswered = [pod for pod in remaining if pod.uid in self._requests]
        permits_wanted = Counter[str]()
        # Nothing is sent in an outage, so other drains may use the permits.
        is_outage = now < self._outage.at
        if not is_outage:
            for pod in (*due, *unanswered):
                permits_wanted.update(budget.key for budget in self.budgets.budgets_of(pod))
        is_urgent = self.deadline.remaining < self.task.policy.drain.timeout / 2
        demand = DrainDemand(len(remaining), permits_wanted, is_urgent=is_urgent)
        self.task.precedence.update(self.task.name, demand)

    def _reason_to_defer(self, budgets: Sequence[Budget], now: float) -> BlockedReason | None:
        for budget in budgets:
            allowance = self.budgets.allowance(budget, now)
            first = self.task.precedence.defer_to(self.task.name, budget.key, allowance, now)
            if first:
                return BlockedReason(
                    (budget.key,),
                    f"its next evictions are reserved for {first}, which is drained first",
                )
        return None

    def _is_due(self, pod: Pod, now: float) -> bool:
        eviction = self.eviction_of(pod)
        is_unanswered = pod.uid in self._requests
        if is_unanswered or now < eviction.retry.at:
            return False
        if pod.terminating:
            # Someone else has deleted the pod: an eviction can only shorten its grace.
            may_shorten = self.task.policy.drain.grace_period is not None
            return may_shorten and eviction.accepted is None
        if eviction.accepted is None:
            return True
        return now - eviction.accepted.last > _UNHEEDED_SECONDS

    def _may_send(self, now: float) -> bool:
        is_outage = now < self._outage.at
        if is_outage:
            return False
        # After an outage, send one at a time until one is answered.
        most = 1 if self._outage.pause else AT_ONCE
        return len(self._requests) < most

    def _most_urgent_first(
        self, pods: Sequence[Pod], now: float
    ) -> list[tuple[Pod, tuple[Budget, ...]]]:
        """Sort by the tightest budgets, then the longest grace periods, then names."""
        pods_with_budgets = [(pod, self.budgets.budgets_of(pod)) for pod in pods]
        demand = Counter[str]()
        for _, budgets in pods_with_budgets:
            demand.update(budget.key for budget in budgets)

        def urgency(candidate: tuple[Pod, tuple[Budget, ...]]) -> tuple[float, int, str]:
            pod, budgets = candidate
            # Negative if pods want more evictions than the budget allows.
            spare_permits = [
                self.budgets.allowance(budget, now) - demand[budget.key] for budget in budgets
            ]
            return min(spare_permits, default=float("inf")), -pod.grace_period, pod.key

        return sorted(pods_with_budgets, key=urgency)

    def _submit(self, pod: Pod) -> None:
        eviction = self.eviction_of(pod)
        may_be_evicted = eviction.is_in_doubt or eviction.accepted is not None
        future = self.pool.submit(
            request_removal,
            self.task.cluster.api,
            pod,
            self.task.policy.drain,
            may_be_evicted=may_be_evicted,
            critical=self.task.precedence.critical,
            now=self.task.now,
        )
        self._requests[pod.uid] = future
        future.add_done_callback(lambda _done: self.wakeup.set())

    def _handle_answer(self, attempt: Attempt) -> None:
        now = self.task.now
        eviction = self.eviction_of(attempt.pod)
        eviction.last_message = attempt.message
        if attempt.result is not EvictionResult.UNAVAILABLE:
            self._outage.pause = 0.0
        self._note_moved(attempt)
        match attempt.result:
            case EvictionResult.ACCEPTED | EvictionResult.GONE:
                self._handle_acceptance(attempt.pod, eviction)
            case EvictionResult.BLOCKED:
                self._handle_budget_refusal(attempt, eviction, now)
            case EvictionResult.DENIED:
                denial = attempt.error.denial if attempt.error else None
                self.held.hold(attempt.pod, BlockedReason((), attempt.message, denial=denial))
                # A webhook may move the pod itself.
                eviction.is_in_doubt = True
                self._postpone(eviction.retry, _LONGEST_DENIED_PAUSE, attempt.retry_after)
            case EvictionResult.RETRIABLE:
                eviction.is_in_doubt = True
                self._postpone(eviction.retry, _LONGEST_PAUSE, attempt.retry_after)
            case EvictionResult.UNAVAILABLE:
                self._handle_outage(attempt, eviction)
            case EvictionResult.REFUSED:
                verb = "delete" if self.task.policy.drain.disable_eviction else "evict"
                raise DrainError(
                    f"the API server will not {verb} {attempt.pod.key}: {attempt.message}",
                    hint=attempt.error.hint if attempt.error else "",
                )
            case _:
                assert_never(attempt.result)

    def _postpone(self, retry: Retry, longest: float, retry_after: float | None) -> None:
        now = self.task.now
        retry.postpone(now, longest, retry_after)
        last_try = now + self.deadline.remaining - _LAST_TRY
        if now < last_try < retry.at:
            retry.at = last_try

    def _note_moved(self, attempt: Attempt) -> None:
        is_accepted = attempt.result is EvictionResult.ACCEPTED
        # An earlier request that was in doubt has worked.
        was_in_doubt = self.eviction_of(attempt.pod).is_in_doubt
        has_worked_earlier = attempt.result is EvictionResult.GONE and was_in_doubt
        if is_accepted or has_worked_earlier:
            self.task.moved_pods.add(attempt.pod.uid)

    def _note_acceptance(self, eviction: PodEviction) -> None:
        now = self.task.now
        if eviction.accepted is None:
            eviction.accepted = Acceptance(self.task.report.now, first=now, last=now)
        eviction.accepted.last = now

    def _handle_acceptance(self, pod: Pod, eviction: PodEviction) -> None:
        self._note_acceptance(eviction)
        self.held.release(pod.uid)
        for budget in self.budgets.budgets_of(pod):
            self.budgets.note_accepted(budget)

    def _handle_budget_refusal(self, attempt: Attempt, eviction: PodEviction, now: float) -> None:
        # None for critical rules.
        budget = self.budgets.budget(attempt.budget)
        figures = attempt.figures
        if figures is None and budget is not None:
            figures = Figures(budget.desired_healthy, budget.current_healthy)
        budget_names = (attempt.budget,) if attempt.budget else ()
        owner = managing_owner(budget, (attempt.pod,)) if budget else None
        reason = BlockedReason(budget_names, attempt.message, figures, managing_owner=owner)
        self.held.hold(attempt.pod, reason)
        if budget is None:
            self._postpone(eviction.retry, _LONGEST_PAUSE, attempt.retry_after)
        else:
            self.budgets.note_refused(budget, now, attempt.retry_after)

    def _handle_outage(self, attempt: Attempt, eviction: PodEviction) -> None:
        # The request may have worked although no answer came.
        eviction.is_in_doubt = True
        self._postpone(self._outage, _LONGEST_OUTAGE_PAUSE, attempt.retry_after)
        if attempt.error is None:
            return
        has_http_status = attempt.error.status != 0
        if has_http_status:
            # Such an answer may concern this pod alone.
            self._postpone(eviction.retry, _LONGEST_PAUSE, attempt.retry_after)
        self.task.cluster.notice(attempt.error)
