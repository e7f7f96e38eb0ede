"""Drains one node within the disruption budgets.

If one pod must not be evicted, none is.
"""

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from msgspec import Struct

from rollout.errors import ApiError, ApiNotFoundError, DrainError
from rollout.execution.base.deadline import Deadline
from rollout.execution.base.live_view import LiveView, watch_node_pods
from rollout.execution.base.reporting import LongestTerminations
from rollout.execution.drain.blocked import HeldPods
from rollout.execution.drain.budget_view import BudgetView, watch_budgets
from rollout.execution.drain.completion import CompletionWait
from rollout.execution.drain.evictor import AT_ONCE, Evictor
from rollout.execution.drain.restarts import Restarts
from rollout.execution.drain.returning import ReturningPods
from rollout.execution.drain.task import NodeTask
from rollout.execution.drain.waiting import NAMED, Waiting
from rollout.gather.cluster.snapshot import (
    read_daemon_sets,
    read_node,
    read_node_pods,
    read_pods,
)
from rollout.model.cluster import DaemonSet, Pod
from rollout.model.text import counted, joined, listed
from rollout.planning.drain.budgets import BudgetIndex, Headcount
from rollout.planning.drain.verdicts import (
    Action,
    DrainRules,
    is_of_daemon_set,
    judge_all,
    with_action,
)
from rollout.wording.drain import why_not_evicted

_TICK = 0.25


@dataclass(slots=True)
class _DaemonSetLookup:
    task: NodeTask
    deadline: Deadline
    daemon_sets: Sequence[DaemonSet] | None = None
    known_pod_uids: set[str] = field(default_factory=set)

    def rules_for(self, pods: Sequence[Pod]) -> DrainRules:
        cluster = self.task.cluster
        pod_uids = {pod.uid for pod in pods if is_of_daemon_set(pod)}
        has_new_pod = not pod_uids <= self.known_pod_uids
        if self.daemon_sets is None or has_new_pod:
            self.daemon_sets = cluster.ask(read_daemon_sets, self.deadline)
            self.known_pod_uids |= pod_uids
        return DrainRules.of(
            self.task.policy.drain, self.daemon_sets, now=cluster.api.server_time()
        )


def drain(task: NodeTask) -> LongestTerminations:
    """Empty the node; return how long the evicted pods took to terminate.

    Raises `StillRunningError` if pods have not completed in time, `DrainError` if a pod must not be
    evicted, or is left at the drain timeout.
    """
    cluster = task.cluster
    wakeup = threading.Event()
    seconds_used = task.drain_seconds_used
    if task.policy.drain.completion.is_used:
        # An earlier wait for completion uses up no drain timeout.
        seconds_used = 0.0
    deadline = cluster.deadline(max(0.0, task.policy.drain.timeout - seconds_used))
    with watch_node_pods(cluster, task.name, deadline, wakeup) as pods:
        daemon_sets = _DaemonSetLookup(task, deadline)
        rules = daemon_sets.rules_for(pods.items())
        leaving = pods_to_remove(pods.items(), rules)
        if not leaving:
            return ()
        namespaces = {pod.namespace for pod in leaving}
        if task.policy.drain.disable_eviction:
            # Deletions bypass budgets.
            namespaces = set()
        with watch_budgets(cluster, namespaces, deadline, wakeup) as budgets:
            to_evict = [pod for pod in leaving if not rules.waits_for(pod)]
            _refuse_two_budgets(to_evict, budgets)
            try:
                return _Drain(
                    task,
                    deadline,
                    pods,
                    daemon_sets=daemon_sets,
                    budgets=budgets,
                    completion=CompletionWait(task),
                    wakeup=wakeup,
                ).run()
            finally:
                task.precedence.remove(task.name)


def pods_to_remove(
    pods: Sequence[Pod], rules: DrainRules, *, has_begun: bool = False
) -> tuple[Pod, ...]:
    """Return pods in a stable order; `DrainError` if one must stay.

    `has_begun`: other pods may have been evicted already.
    """
    verdicts = judge_all(pods, rules)
    refused = with_action(Action.REFUSE, verdicts)
    if refused:
        reasons = listed(
            [f"{verdict.pod.key} {why_not_evicted(verdict.because)}" for verdict in refused], NAMED
        )
        if has_begun:
            why = "some new pods must not be evicted"
        else:
            why = "no pods were evicted: some pods must not be evicted"
        raise DrainError(f"{why}: {reasons}")
    return tuple(
        verdict.pod for verdict in verdicts if verdict.action in (Action.EVICT, Action.WAIT)
    )


def _refuse_two_budgets(pods: Iterable[Pod], budgets: BudgetView) -> None:
    names = []
    for pod in pods:
        conflicting = budgets.conflicting_budgets(pod)
        if conflicting:
            names.append(f"{pod.key} ({', '.join(budget.name for budget in conflicting)})")
    if names:
        raise DrainError(
            "no pods were evicted: some are covered by more than one budget:"
            f" {listed(names, NAMED)}",
            hint="Delete all but one of the budgets, or use --disable-eviction.",
        )


class _PodsLeft(Struct, frozen=True):
    to_evict: tuple[Pod, ...]
    awaited: tuple[Pod, ...]

    @property
    def is_empty(self) -> bool:
        return not (self.to_evict or self.awaited)


class _Drain(Struct, frozen=True):
    task: NodeTask
    # For evictions; waiting for completion restarts it.
    deadline: Deadline
    pods: LiveView[Pod]
    daemon_sets: _DaemonSetLookup
    budgets: BudgetView
    completion: CompletionWait
    # Set by changed pods or budgets, or by an answer.
    wakeup: threading.Event

    def run(self) -> LongestTerminations:
        task = self.task
        held = HeldPods(task, self.deadline)
        returning = ReturningPods.at_start(task, self.pods.items())
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix=f"evict-{task.name}") as pool:
            evictor = Evictor(
                task,
                self.deadline,
                self.budgets,
                held=held,
                restarts=Restarts(task, self.deadline),
                pool=pool,
                wakeup=self.wakeup,
            )
            waiting = Waiting(task, evictor, held)
            try:
                self._evict_until_empty(evictor, waiting, returning)
            finally:
                evictor.finish()
                waiting.close(self.pods.items())
            # Report the last pods as released.
            held.keep_only(frozenset())
            return tuple(sorted(waiting.longest_terminations.items()))

    def _evict_until_empty(
        self, evictor: Evictor, waiting: Waiting, returning: ReturningPods
    ) -> None:
        """The deadline starts anew if pods must still complete."""
        while True:
            pods_left = self._judge_pods(self.pods.items(), returning)
            if pods_left.is_empty:
                return
            evictor.handle_answers()
            if pods_left.awaited:
                self._check_completion(pods_left)
            if self.deadline.expired:
                self._require_all_evicted(waiting, returning)
                if not pods_left.awaited:
                    return
                self._restart_deadline()
            self.task.check_may_act()
            self.budgets.refresh()
            evictor.evict_due(returning.without_resting(pods_left.to_evict))
            waiting.held.report()
            waiting.report(pods_left.to_evict, pods_left.awaited)
            waiting.relist_if_quiet(self.pods, self.budgets, pods_left.to_evict)
            self.task.cluster.clock.wait(self.wakeup, min(_TICK, self.deadline.remaining))
            self.wakeup.clear()

    def _judge_pods(self, pods: Sequence[Pod], returning: ReturningPods) -> _PodsLeft:
        rules = self.daemon_sets.rules_for(pods)
        leaving = pods_to_remove(pods, rules, has_begun=True)
        awaited = self.completion.awaited_among(leaving, rules)
        to_evict = [pod for pod in leaving if pod not in awaited]
        returning.note_arrivals(to_evict)
        return _PodsLeft(returning.without_hopeless(to_evict), awaited)

    def _check_completion(self, pods_left: _PodsLeft) -> None:
        self.completion.check(pods_left.awaited)
        if self.completion.is_over or not pods_left.to_evict:
            self._restart_deadline()

    def _restart_deadline(self) -> None:
        self.deadline.restart(self.task.policy.drain.timeout)

    def _require_all_evicted(self, waiting: Waiting, returning: ReturningPods) -> None:
        task = self.task
        timeout = f"--drain-timeout {task.policy.drain.timeout}"
        try:
            pods_now = read_node_pods(task.cluster.api, task.name)
            remaining = self._judge_pods(pods_now, returning).to_evict
            why_stuck = _why_node_ends_no_pods(task)
            why_stuck = why_stuck or self._why_budget_stays_closed(remaining, waiting)
        except ApiError as error:
            raise DrainError(
                f"the API server was unavailable at the end of {timeout}: {error.message}"
            ) from error
        if remaining:
            reasons = listed([waiting.why_left(pod) for pod in remaining], NAMED)
            left = counted(len(remaining), "pod")
            raise DrainError(
                f"{left} left after {timeout}: {reasons}{why_stuck}",
                hint=waiting.hint(remaining),
                see=waiting.next_steps(remaining),
                needed_seconds=waiting.needed_seconds(remaining),
            )

    def _why_budget_stays_closed(self, pods: Sequence[Pod], waiting: Waiting) -> str:
        """Return `; Kafka/events has no other pod to switch to`, or empty.

        Its controller opens the budget only once another pod has the role of this one.
        """
        api = self.task.cluster.api
        for pod in pods:
            reason = waiting.held.reason_of(pod)
            owner = reason.managing_owner if reason else None
            budget = self.budgets.budget(reason.only_budget) if reason else None
            if owner is None or budget is None:
                continue
            headcount = Headcount.of(read_pods(api, pod.namespace, ""), BudgetIndex.of(()), None)
            if headcount.is_alone(pod, budget, owner):
                return f"; {owner.named_in(pod.namespace)} has no other pod to switch to"
        return ""


def _why_node_ends_no_pods(task: NodeTask) -> str:
    try:
        node = read_node(task.cluster.api, task.name)
    except ApiNotFoundError:
        return "; the Node is gone, so no kubelet can terminate them"
    if node.is_ready:
        return ""
    trouble = "the kubelet cannot confirm that they have terminated, because the Node is not Ready"
    return f"; {joined(': ', trouble, node.ready_message)}"
