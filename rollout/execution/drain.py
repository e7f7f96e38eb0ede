"""Emptying one node: every pod that has to go is evicted within its budgets, and waited for until it is gone.

The node's pods are a live view (one list, one watch), so that waiting costs no requests, a pod that another party
removes simply disappears, and one that arrives late is seen. One pod that must not go means that none is touched.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime

from rollout.errors import DrainError
from rollout.execution.context import NodeContext
from rollout.execution.deadline import Deadline, patiently
from rollout.execution.eviction import Answer, Attempt, request_removal
from rollout.execution.live_view import LiveView, watch_node_pods
from rollout.gather.snapshot import read_daemon_sets
from rollout.model.cluster import Pod
from rollout.model.progress import Phase
from rollout.planning.verdicts import Action, DrainRules, having, judge_all

_AT_ONCE = 8
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 5.0
_TICK = 1.0
_REPEAT_SECONDS = 30.0
_NAMED = 5


@dataclass(slots=True)
class _Pending:
    """A pod on its way out. `due` is when to (re)try, by the monotonic clock; `since` when it was first blocked."""

    due: float = 0.0
    accepted: bool = False
    tries: int = 0
    since: datetime | None = None
    told_at: float = 0.0
    last: Attempt | None = None


@dataclass(slots=True)
class _Progress:
    """The state of one drain, by pod UID."""

    pending: dict[str, _Pending] = field(default_factory=dict)
    told: tuple[int, int] = (-1, -1)

    def of(self, pod: Pod) -> _Pending:
        return self.pending.setdefault(pod.uid, _Pending(accepted=pod.terminating))


def drain(context: NodeContext) -> None:
    """Evict what has to go from the context's node and wait until it is gone; `DrainError` names what is left."""
    deadline = Deadline(context.clock, context.policy.drain.timeout)
    rules = DrainRules.of(
        context.policy.drain, patiently(lambda: read_daemon_sets(context.api), deadline, context.told_of_outage)
    )
    with watch_node_pods(context.api, context.name, deadline, context.told_of_outage) as view:
        _empty(context, view, rules, deadline)


def must_go(pods: Sequence[Pod], rules: DrainRules) -> tuple[Pod, ...]:
    """The pods to evict, in a stable order; `DrainError` where one of them must not be touched."""
    verdicts = judge_all(pods, rules)
    refused = having(Action.REFUSE, verdicts)
    if refused:
        listed = "; ".join(f"{verdict.pod.key} {verdict.message}" for verdict in refused[:_NAMED])
        more = f"; and {len(refused) - _NAMED} more" if len(refused) > _NAMED else ""
        raise DrainError(f"no pod was touched, for some must not be: {listed}{more}")
    return tuple(verdict.pod for verdict in having(Action.EVICT, verdicts))


def _empty(context: NodeContext, view: LiveView[Pod], rules: DrainRules, deadline: Deadline) -> None:
    progress = _Progress()
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix=f"evict-{context.name}") as pool:
        while remaining := must_go(view.items(), rules):
            if deadline.expired:
                raise _out_of_time(context, remaining, progress)
            context.guard.check()
            _tell(context, remaining, progress)
            due = [pod for pod in remaining if _is_due(progress.of(pod), context.clock.monotonic())]
            for attempt in pool.map(lambda pod: request_removal(context.api, pod, context.policy.drain), due):
                _take(context, attempt, progress.of(attempt.pod), deadline)
            view.wait(min(_TICK, deadline.remaining))


def _is_due(pending: _Pending, now: float) -> bool:
    return not pending.accepted and now >= pending.due


def _take(context: NodeContext, attempt: Attempt, pending: _Pending, deadline: Deadline) -> None:
    now = context.clock.monotonic()
    pending.last = attempt
    pending.accepted = attempt.answer is Answer.ACCEPTED
    pending.tries += 1
    pending.due = now + (attempt.retry_after or min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0**pending.tries))
    if attempt.answer is Answer.REFUSED:
        raise DrainError(f"the API server will not evict {attempt.pod.key}: {attempt.message}")
    if attempt.answer is Answer.BLOCKED:
        _tell_blocked(context, attempt, pending, deadline)


def _tell_blocked(context: NodeContext, attempt: Attempt, pending: _Pending, deadline: Deadline) -> None:
    now = context.clock.monotonic()
    if pending.since is not None and now - pending.told_at < _REPEAT_SECONDS:
        return
    pending.since = pending.since or context.report.now
    pending.told_at = now
    context.report.blocked(
        context.name, attempt.pod.key, attempt.budget, pending.since, attempt.message, deadline.remaining
    )


def _tell(context: NodeContext, remaining: Sequence[Pod], progress: _Progress) -> None:
    going = sum(1 for pod in remaining if pod.terminating or progress.of(pod).accepted)
    figures = (len(remaining), going)
    if figures != progress.told:
        progress.told = figures
        context.report.step(context.name, Phase.DRAINING, f"{_pods(len(remaining))} left, {going} terminating")


def _out_of_time(context: NodeContext, remaining: Sequence[Pod], progress: _Progress) -> DrainError:
    listed = "; ".join(_why_left(pod, progress.of(pod)) for pod in remaining[:_NAMED])
    more = f"; and {len(remaining) - _NAMED} more" if len(remaining) > _NAMED else ""
    return DrainError(
        f"{_pods(len(remaining))} left after --drain-timeout {context.policy.drain.timeout}: {listed}{more}"
    )


def _pods(number: int) -> str:
    return f"{number} pod{'' if number == 1 else 's'}"


def _why_left(pod: Pod, pending: _Pending) -> str:
    if pod.terminating or pending.accepted:
        held = f" (finalizers: {', '.join(pod.finalizers)})" if pod.finalizers else ""
        return f"{pod.key} is still terminating{held}"
    return f"{pod.key}: {pending.last.message}" if pending.last else f"{pod.key} was not evicted yet"
