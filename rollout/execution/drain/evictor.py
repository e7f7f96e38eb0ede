"""Who is asked for next: a few evictions at a time, the most constrained budgets first, none sure to be refused.

Trouble of one pod puts that pod off; trouble of the server puts all off, and then one request finds
out whether it is over. So neither a budget that stays closed nor an outage costs requests for as
long as it lasts.

A pod behind a budget that can never open is asked for all the same, ever more rarely: there are
webhooks that move a pod in a way of their own when they see that it should go.
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
from rollout.execution.drain.eviction import Attempt, EvictionResult, request_removal
from rollout.execution.drain.task import DrainProgress, NodeTask
from rollout.model.cluster import Budget, Pod

AT_ONCE = 8
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0
_FIRST_OUTAGE_PAUSE = 0.5
_LONGEST_OUTAGE_PAUSE = 5.0
_FIRST_KNOCK = 30.0
_LONGEST_KNOCK = 480.0
# Most webhooks deny while they move the pod themselves, which the watch shows. Nothing shows when
# others stop denying.
_LONGEST_DENIAL = 60.0
_UNHEEDED = 30.0
# What an answer may name as a pause: longer ones say nothing of when the next answer is another.
_LONGEST_NAMED = 60.0
# Before the deadline: whatever was answered last is asked for once more, and the pod has as long to
# end.
_LAST_QUESTION = 5.0


@dataclass(slots=True)
class PutOff:
    """What is asked for again `at` this moment of the monotonic clock; each `pause` is twice as long as the one before.

    It is none before the first.
    """

    first: float
    at: float = 0.0
    pause: float = 0.0

    def put_off(self, now: float, longest: float, seconds: float | None = None) -> None:
        """Ask again in so many seconds, as an answer named them, else after the next pause."""
        self.pause = min(longest, self.pause * 2 or self.first)
        self.at = now + (min(max(seconds, self.first), _LONGEST_NAMED) if seconds else self.pause)


@dataclass(slots=True)
class Acceptance:
    """When a pod's eviction was accepted: `at` by the wall clock; the first and last time in monotonic seconds."""

    at: datetime
    first: float
    last: float


@dataclass(slots=True)
class Pending:
    """A pod on its way out: when to ask for it (again), and when it was granted.

    `last` is what the server last said of it. `again`: an earlier request may have been carried
    out, or met another pod. `knock`: when it is next asked for behind a budget that can never open.
    """

    due: PutOff = field(default_factory=lambda: PutOff(_FIRST_PAUSE))
    accepted: Acceptance | None = None
    again: bool = False
    last: str = ""
    knock: PutOff = field(default_factory=lambda: PutOff(_FIRST_KNOCK))


def _can_never_open(budget: Budget) -> bool:
    return 0 < budget.expected_pods <= budget.desired_healthy


@dataclass
class Evictor:
    """Asks for the pods of one node. Used by one thread; the requests run in the pool."""

    task: NodeTask
    deadline: Deadline
    budgets: BudgetView
    held: HeldPods
    pool: ThreadPoolExecutor
    wakeup: threading.Event
    _pending: dict[str, Pending] = field(default_factory=dict)
    _running: dict[str, Future[Attempt]] = field(default_factory=dict)
    _outage: PutOff = field(default_factory=lambda: PutOff(_FIRST_OUTAGE_PAUSE))

    def of(self, pod: Pod) -> Pending:
        """How far a pod is on its way out."""
        return self._pending.setdefault(pod.uid, Pending())

    def collect(self) -> None:
        """Take in the answers that have come; `DrainError` where one is final."""
        for uid in [uid for uid, future in self._running.items() if future.done()]:
            self._take(self._running.pop(uid).result())

    def finish(self) -> None:
        """Take in what is still under way once nothing else is asked for: a pod may be gone before its answer comes."""
        for attempt in [future.result() for future in self._running.values()]:
            self._note_moved(attempt)
            if attempt.answer in (EvictionResult.ACCEPTED, EvictionResult.GONE):
                self._accept(self.of(attempt.pod))
        self._running.clear()

    def start(self, remaining: Sequence[Pod]) -> None:
        """Ask for as many as may be asked for now; hold back those that their budgets hold back."""
        self.held.keep_only(frozenset(pod.uid for pod in remaining if not pod.terminating))
        now = self.task.now
        due = [pod for pod in remaining if self._is_due(pod, now)]
        self._tell_demand(remaining, due, now)
        for pod, guards in self._in_order(due, now):
            closed = next(
                (guard for guard in guards if self.budgets.allowance(guard, now) <= 0), None
            )
            if several := self.budgets.forbidding(pod):
                self.held.hold(pod, BlockedReason.of_several(several))
            elif closed is not None:
                self.held.hold(pod, BlockedReason.of(closed))
                self.task.precedence.closed(self.task.name, closed.key)
                knock = self.of(pod).knock
                if _can_never_open(closed) and self._has_room(now) and now >= knock.at:
                    knock.put_off(now, _LONGEST_KNOCK)
                    self._ask(pod)
            elif first := self._deferred_to(guards, now):
                self.held.hold(pod, first)
            elif self._has_room(now):
                for guard in guards:
                    self.budgets.sent(guard, now)
                self._ask(pod)

    def _tell_demand(self, remaining: Sequence[Pod], due: Sequence[Pod], now: float) -> None:
        """Let the drains beside this one know how far it is, and what it waits for."""
        asking = [pod for pod in remaining if pod.uid in self._running]
        wanted = Counter(
            guard.key for pod in (*due, *asking) for guard in self.budgets.guarding(pod)
        )
        pressed = self.deadline.remaining < self.task.policy.drain.timeout / 2
        can_ask = self._outage.at <= now
        self.task.precedence.update(
            self.task.name,
            DrainProgress(len(remaining), wanted if can_ask else {}, pressed=pressed),
        )

    def _deferred_to(self, guards: Sequence[Budget], now: float) -> BlockedReason | None:
        """Why permits are left to another drain, which is nearer to its end."""
        for guard in guards:
            allowance = self.budgets.allowance(guard, now)
            if first := self.task.precedence.ahead(self.task.name, guard.key, allowance, now):
                return BlockedReason(
                    guard.key, f"its next permits go to {first}, which is nearer to being empty"
                )
        return None

    def _is_due(self, pod: Pod, now: float) -> bool:
        pending = self.of(pod)
        if pod.uid in self._running or now < pending.due.at:
            return False
        if pod.terminating:
            # A second eviction may shorten the grace that somebody else has given.
            return self.task.policy.drain.grace_period is not None and pending.accepted is None
        return pending.accepted is None or now - pending.accepted.last > _UNHEEDED

    def _has_room(self, now: float) -> bool:
        if now < self._outage.at:
            return False
        return len(self._running) < (1 if self._outage.pause else AT_ONCE)

    def _in_order(self, pods: Sequence[Pod], now: float) -> list[tuple[Pod, tuple[Budget, ...]]]:
        """Return the most constrained budgets first, then the pods that take longest to end."""
        guarded = [(pod, self.budgets.guarding(pod)) for pod in pods]
        demand = Counter(guard.key for _, guards in guarded for guard in guards)

        def urgency(candidate: tuple[Pod, tuple[Budget, ...]]) -> tuple[float, int, str]:
            pod, guards = candidate
            slack = [self.budgets.allowance(guard, now) - demand[guard.key] for guard in guards]
            return min(slack, default=float("inf")), -pod.grace_period, pod.key

        return sorted(guarded, key=urgency)

    def _ask(self, pod: Pod) -> None:
        pending = self.of(pod)
        again = pending.again or pending.accepted is not None
        future = self.pool.submit(
            request_removal,
            self.task.cluster.api,
            pod,
            self.task.policy.drain,
            again=again,
            critical=self.task.precedence.critical,
            now=self.task.now,
        )
        self._running[pod.uid] = future
        future.add_done_callback(lambda _done: self.wakeup.set())

    def _take(self, attempt: Attempt) -> None:
        now = self.task.now
        pending = self.of(attempt.pod)
        pending.last = attempt.message
        if attempt.answer is not EvictionResult.AWAY:
            self._outage.pause = 0.0
        self._note_moved(attempt)
        match attempt.answer:
            case EvictionResult.ACCEPTED | EvictionResult.GONE:
                self._note_grant(attempt.pod, pending)
            case EvictionResult.BLOCKED:
                self._wait_for_budget(attempt, pending, now)
            case EvictionResult.DENIED:
                denial = attempt.error.denial if attempt.error else None
                self.held.hold(attempt.pod, BlockedReason("", attempt.message, denial=denial))
                pending.again = True
                self._put_off(pending.due, _LONGEST_DENIAL, attempt.retry_after)
            case EvictionResult.LATER:
                pending.again = True
                self._put_off(pending.due, _LONGEST_PAUSE, attempt.retry_after)
            case EvictionResult.AWAY:
                self._away(attempt, pending)
            case EvictionResult.REFUSED:
                raise DrainError(
                    f"the API server will not evict {attempt.pod.key}: {attempt.message}",
                    hint=attempt.error.hint if attempt.error else "",
                )
            case _:
                assert_never(attempt.answer)

    def _put_off(self, put_off: PutOff, longest: float, seconds: float | None) -> None:
        """Ask again after a pause, and once more right before the deadline if the pause is longer than that."""
        now = self.task.now
        put_off.put_off(now, longest, seconds)
        last = now + self.deadline.remaining - _LAST_QUESTION
        if now < last < put_off.at:
            put_off.at = last

    def _note_moved(self, attempt: Attempt) -> None:
        again = self.of(attempt.pod).again
        if attempt.answer is EvictionResult.ACCEPTED or (
            attempt.answer is EvictionResult.GONE and again
        ):
            self.task.moved.add(attempt.pod.uid)

    def _accept(self, pending: Pending) -> None:
        now = self.task.now
        if pending.accepted is None:
            pending.accepted = Acceptance(self.task.report.now, now, now)
        pending.accepted.last = now

    def _note_grant(self, pod: Pod, pending: Pending) -> None:
        self._accept(pending)
        self.held.release(pod.uid)
        for guard in self.budgets.guarding(pod):
            self.budgets.allowed(guard.key)

    def _wait_for_budget(self, attempt: Attempt, pending: Pending, now: float) -> None:
        """Wait for the budget to change; by the clock only where it cannot be seen changing."""
        budget = self.budgets.named(attempt.budget)
        figures = attempt.figures or (
            (budget.desired_healthy, budget.current_healthy) if budget else None
        )
        self.held.hold(attempt.pod, BlockedReason(attempt.budget, attempt.message, figures))
        if not self.budgets.refused(attempt.budget, now, attempt.retry_after):
            self._put_off(pending.due, _LONGEST_PAUSE, attempt.retry_after)

    def _away(self, attempt: Attempt, pending: Pending) -> None:
        pending.again = True
        self._put_off(self._outage, _LONGEST_OUTAGE_PAUSE, attempt.retry_after)
        if attempt.error is None:
            return
        if attempt.error.status:
            # An answer may be about this pod; that there was none is not.
            self._put_off(pending.due, _LONGEST_PAUSE, attempt.retry_after)
        self.task.cluster.notice(attempt.error)
