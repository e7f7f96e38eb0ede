"""Emptying one node: every pod that has to go is evicted within its budgets, and waited for until it is gone.

The node's pods and the budgets around them are live views (a list and a watch each), so that
waiting costs no requests, a pod that another party removes simply disappears, and one that arrives
late is seen. One pod that must not go means that none is touched.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from rollout.errors import ApiError, ApiNotFoundError, DrainError
from rollout.execution.base.deadline import Deadline
from rollout.execution.base.live_view import LiveView, watch_node_pods
from rollout.execution.drain.blocked import HeldPods
from rollout.execution.drain.budget_view import BudgetView, watch_budgets
from rollout.execution.drain.evictor import AT_ONCE, Evictor
from rollout.execution.drain.task import NodeTask
from rollout.execution.drain.waiting import NAMED, Waiting
from rollout.gather.cluster.snapshot import read_daemon_sets, read_node, read_node_pods
from rollout.model.cluster import DaemonSet, Pod
from rollout.model.placement import CORDON
from rollout.model.text import counted, listed
from rollout.planning.drain.verdicts import (
    Action,
    DrainRules,
    judge_all,
    of_daemon_set,
    with_action,
)

_TICK = 0.25


@dataclass(slots=True)
class _DaemonSetLookup:
    """The DaemonSets, read again for a pod of one that is not known: it may be younger than what was read."""

    task: NodeTask
    deadline: Deadline
    daemon_sets: Sequence[DaemonSet] | None = None
    looked_up: set[str] = field(default_factory=set)

    def rules_for(self, pods: Sequence[Pod]) -> DrainRules:
        cluster = self.task.cluster
        unknown = {pod.uid for pod in pods if of_daemon_set(pod)} - self.looked_up
        if self.daemon_sets is None or unknown:
            self.daemon_sets = cluster.ask(read_daemon_sets, self.deadline)
            self.looked_up |= unknown
        return DrainRules.of(
            self.task.policy.drain, self.daemon_sets, now=cluster.api.server_time()
        )


# Pods that come back to a node while it is drained: a cordon keeps out only those that mind it.
# Whoever tolerates the taint of unschedulable nodes, or names the node itself, is replaced right
# where it was. Evicting such pods for as long as the deadline lasts would interrupt their service
# again and again for nothing, so after a fair try they are left to the reboot, as DaemonSets' pods
# are. A pod that minds the cordon comes back as well while the scheduler has not seen that, as
# after an outage of the API server, whose end schedulers notice up to a minute late. So it is
# evicted ever more rarely, and left only after longer. The first to come may have been on its way
# when the node was cordoned.
_TRIES_OF_TOLERANT = 1
_TRIES = 3
# In seconds: how late a scheduler may see a cordon, and how long pods that it puts back may run at
# most.
_UNSEEN = 120.0
_LONGEST_REST = 30.0


@dataclass(slots=True)
class ReturningPods:
    """Who has come since the drain began. `first` are the pods that were there.

    `arrived` says when each pod of an owner came, by UIDs, in monotonic seconds.
    """

    task: NodeTask
    first: Sequence[Pod]
    arrived: dict[str, dict[str, float]] = field(default_factory=dict)

    def without(self, pods: Iterable[Pod]) -> tuple[Pod, ...]:
        """Those of the pods, which are all that are to be evicted, that are worth it."""
        uids = frozenset(pod.uid for pod in self.first)
        return tuple(pod for pod in pods if pod.uid in uids or not self._has_come_back(pod))

    def due(self, pods: Iterable[Pod]) -> tuple[Pod, ...]:
        """Those of them that may be evicted now: the more have come back, the longer the next is left alone."""
        return tuple(pod for pod in pods if pod.terminating or self._has_rested(pod))

    def _has_come_back(self, pod: Pod) -> bool:
        if pod.owner is None:
            return False
        owner = pod.owner.uid
        task = self.task
        arrived = self.arrived.setdefault(owner, {})
        arrived.setdefault(pod.uid, self.task.now)
        if owner not in task.returning and self._is_hopeless(pod, owner, arrived):
            task.returning.add(owner)
            whose = f"{pod.owner.kind}/{pod.owner.name}"
            task.report.notice(
                f"{task.name}: {pod.key} is left to the reboot: pods of {whose} keep coming back to"
                " this node"
            )
        return owner in task.returning and not pod.terminating

    def _is_hopeless(self, pod: Pod, owner: str, arrived: Mapping[str, float]) -> bool:
        """Whether no more of an owner's pods are evicted: each that was here may be replaced a few times."""
        if _tolerates_cordons(pod):
            return len(arrived) > self._replicas(owner) * _TRIES_OF_TOLERANT
        is_long = self.task.now - min(arrived.values()) >= _UNSEEN
        return is_long and len(arrived) > self._replicas(owner) * _TRIES

    def _has_rested(self, pod: Pod) -> bool:
        arrived = self.arrived.get(pod.owner.uid, {}) if pod.owner else {}
        if pod.owner is None or pod.uid not in arrived or _tolerates_cordons(pod):
            return True
        replaced = list(arrived).index(pod.uid) // self._replicas(pod.owner.uid)
        rest = min(_LONGEST_REST, 2.0**replaced) if replaced else 0.0
        return self.task.now - arrived[pod.uid] >= rest

    def _replicas(self, owner: str) -> int:
        return max(
            1,
            sum(1 for other in self.first if other.owner is not None and other.owner.uid == owner),
        )


def without_returning(pods: Iterable[Pod], owners: Iterable[str]) -> tuple[Pod, ...]:
    """Return the pods but those that one of these owners, by UID, puts back however often they are evicted."""
    uids = frozenset(owners)
    return tuple(pod for pod in pods if pod.owner is None or pod.owner.uid not in uids)


def _tolerates_cordons(pod: Pod) -> bool:
    return pod.placement.tolerates((CORDON,))


def drain(task: NodeTask) -> tuple[tuple[str, float], ...]:
    """Evict what has to go from the node and wait until it is gone; `DrainError` names what is left.

    By owner, the most seconds that one of its pods took to end.
    """
    cluster = task.cluster
    wakeup = threading.Event()
    deadline = cluster.deadline(max(0.0, task.policy.drain.timeout - task.spent))
    evicting = not task.policy.drain.disable_eviction
    with watch_node_pods(cluster, task.name, deadline, wakeup) as pods:
        owners = _DaemonSetLookup(task, deadline)
        going = must_go(pods.items(), owners.rules_for(pods.items()))
        if not going:
            return ()
        namespaces = {pod.namespace for pod in going} if evicting else set()
        with watch_budgets(cluster, namespaces, deadline, wakeup) as budgets:
            _refuse_two_budgets(going, budgets)
            try:
                return _empty(task, deadline, pods, owners, budgets, wakeup)
            finally:
                task.precedence.leave(task.name)


def must_go(pods: Sequence[Pod], rules: DrainRules, *, begun: bool = False) -> tuple[Pod, ...]:
    """Return the pods to evict, in a stable order; `DrainError` where one of them must not be touched.

    `begun`: others have been touched already.
    """
    verdicts = judge_all(pods, rules)
    refused = with_action(Action.REFUSE, verdicts)
    if refused:
        reasons = listed([f"{verdict.pod.key} {verdict.message}" for verdict in refused], NAMED)
        why = (
            "new pods have arrived that must not be touched"
            if begun
            else "no pod was touched, because some must not be"
        )
        raise DrainError(f"{why}: {reasons}")
    return tuple(verdict.pod for verdict in with_action(Action.EVICT, verdicts))


def _refuse_two_budgets(pods: Sequence[Pod], budgets: BudgetView) -> None:
    """No API server evicts a pod of two budgets: known beforehand, no other pod need be moved for nothing."""
    stuck = [(pod, guards) for pod in pods if (guards := budgets.forbidding(pod))]
    if stuck:
        names = [
            f"{pod.key} ({', '.join(guard.name for guard in guards)})" for pod, guards in stuck
        ]
        raise DrainError(
            "no pod was touched, because some have more than one budget and cannot be evicted:"
            f" {listed(names, NAMED)}",
            hint="Delete all but one of the budgets, or use --disable-eviction.",
        )


def _empty(
    task: NodeTask,
    deadline: Deadline,
    pods: LiveView[Pod],
    owners: _DaemonSetLookup,
    budgets: BudgetView,
    wakeup: threading.Event,
) -> tuple[tuple[str, float], ...]:
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix=f"evict-{task.name}") as pool:
        held = HeldPods(task, deadline)
        evictor = Evictor(task, deadline, budgets, held, pool, wakeup)
        waiting = Waiting(task, evictor, held)
        returning = ReturningPods(task, pods.items())
        try:
            while remaining := returning.without(_remaining_pods(pods.items(), owners)):
                evictor.collect()
                if deadline.expired:
                    _give_up(task, owners, waiting, returning)
                    break
                task.check()
                budgets.refresh()
                evictor.start(returning.due(remaining))
                held.tell()
                waiting.tell(remaining)
                waiting.relist_if_quiet(pods, budgets, remaining)
                task.cluster.clock.wait(wakeup, min(_TICK, deadline.remaining))
                wakeup.clear()
        finally:
            evictor.finish()
            waiting.close(pods.items())
        held.keep_only(frozenset())
        return tuple(sorted(waiting.longest.items()))


def _remaining_pods(pods: Sequence[Pod], owners: _DaemonSetLookup) -> tuple[Pod, ...]:
    return must_go(pods, owners.rules_for(pods), begun=True)


def _give_up(
    task: NodeTask, owners: _DaemonSetLookup, waiting: Waiting, returning: ReturningPods
) -> None:
    """`DrainError` with what is left; nothing is said where a last fresh look finds the node empty."""
    try:
        fresh = read_node_pods(task.cluster.api, task.name)
        remaining = returning.without(_remaining_pods(fresh, owners))
        kubelet = _kubelet(task)
    except ApiError as error:
        raise DrainError(
            "the API server was unavailable at the end of --drain-timeout"
            f" {task.policy.drain.timeout}: {error.message}"
        ) from error
    if remaining:
        reasons = listed([waiting.why_left(pod) for pod in remaining], NAMED)
        left = (
            f"{counted(len(remaining), 'pod')} left after --drain-timeout"
            f" {task.policy.drain.timeout}"
        )
        raise DrainError(
            f"{left}: {reasons}{kubelet}",
            hint=waiting.hint(remaining),
            see=waiting.see(remaining),
            needed_seconds=waiting.needed_seconds(remaining),
        )


def _kubelet(task: NodeTask) -> str:
    try:
        node = read_node(task.cluster.api, task.name)
    except ApiNotFoundError:
        return "; the Node is gone, so nothing can end them"
    return (
        ""
        if node.is_ready
        else f"; the Node is not Ready, so no kubelet can confirm their end {node.ready_message}"
    )
