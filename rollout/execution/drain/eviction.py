"""One eviction: what is sent, and what each answer means.

The pod was read, and its UID and node compared, before it is sent; the UID goes along as a
precondition. That order matters: an API server spends the budget before it compares the UID.

Of pods that an operator calls critical, an eviction waits until enough others of their rule are
Ready. No API server keeps these rules. So what each of them covers is listed afresh right before an
eviction, and what the drains of one process have asked for is counted as gone before the server
shows it.
"""

import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rollout.errors import ApiConflictError, ApiError, ApiNotFoundError, TooManyRequestsError
from rollout.execution.base.deadline import BUDGET_CAUSE, is_passing
from rollout.gather.cluster.snapshot import pod_path, read_node, read_pod, read_pods
from rollout.model.cluster import Budget, Pod
from rollout.model.node_marks import deferral
from rollout.model.own_node import OwnNode
from rollout.model.policy import Critical, DrainPolicy
from rollout.model.selectors import parse_selector
from rollout.planning.drain.budgets import bypasses, critical_budget
from rollout.ports import ClusterApi

LOOK_AGAIN = 2.0
"""Seconds for which a rule that keeps its pods is not looked at again, whoever asks."""

# Longer than any request lasts: what was asked for then is carried out, and seen, or never will be.
_UNSEEN = 120.0


@dataclass(slots=True)
class CriticalPods:
    """What the drains of one process have asked for, by UID, and the rules that let nothing go. For many threads.

    Times are monotonic seconds of the clock: when it was asked for, and when it was looked at.
    """

    _asked: dict[str, float] = field(default_factory=dict)
    _shut: dict[Critical, tuple[Budget, float]] = field(default_factory=dict)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def claim(
        self, api: ClusterApi, pod: Pod, rules: Sequence[Critical], now: float
    ) -> Budget | None:
        """Note that the pod goes now; or return the rule that keeps it, as a budget. `ApiError`."""
        own = (rule for rule in rules if rule.namespace == pod.namespace)
        covering = [rule for rule in own if parse_selector(rule.selector).matches(pod.labels)]
        for rule in covering:
            shut, since = self._shut.get(rule, (None, 0.0))
            if shut is not None and now - since < LOOK_AGAIN and not bypasses(pod, shut):
                return shut
        listed = [(rule, read_pods(api, rule.namespace, rule.selector)) for rule in covering]
        with self._turn:
            leaving = {
                uid
                for uid, since in self._asked.items()
                if uid != pod.uid and now - since < _UNSEEN
            }
            for rule, pods in listed:
                budget = critical_budget(rule, pods, leaving)
                if not bypasses(pod, budget) and not budget.disruptions_allowed:
                    self._shut[rule] = budget, now
                    return budget
            if covering:
                self._asked[pod.uid] = now
        return None

    def release(self, pod: Pod) -> None:
        """Note that the pod stays after all."""
        with self._turn:
            self._asked.pop(pod.uid, None)


_TERMINATING = "NamespaceTerminating"
# A 504 that is about one budget, which many change at once, and not about the server.
_BUDGET_CONFLICT = "PodDisruptionBudget"
# A budget whose controller is behind with what it was told of: the server forbids what it will
# allow once that is over.
_BUDGET_BEHIND = ("DisruptedPods map too big", "disruptions allowed is negative")
_BUDGET_NAME = re.compile(r"disruption budget (\S+)")
_FIGURES = re.compile(r"needs (\d{1,9}) healthy pods and has (\d{1,9})\b")


class EvictionResult(StrEnum):
    """What became of an eviction.

    `denied`: an admission webhook or policy denied the request, or the pod's namespace is being
    deleted. Asking again soon is of no use. A denial may have any status: KubeVirt answers 429
    while it migrates the pod, Strimzi 500 while it rolls it, most others 400 or 403. `later`: a
    conflict about this pod alone, which may pass at any moment. `away`: the API server is
    unavailable or throttles this client, so no pod need be tried.
    """

    ACCEPTED = "accepted"
    GONE = "gone"
    BLOCKED = "blocked"
    DENIED = "denied"
    LATER = "later"
    AWAY = "away"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Attempt:
    """What became of an eviction; `retry_after` in seconds.

    `budget` is the namespace/name of the one that blocked it, `figures` how many healthy pods it
    needs and has, if known.
    """

    pod: Pod
    answer: EvictionResult
    message: str = ""
    budget: str = ""
    figures: tuple[int, int] | None = None
    retry_after: float | None = None
    error: ApiError | None = None


def request_removal(
    api: ClusterApi,
    pod: Pod,
    policy: DrainPolicy,
    *,
    again: bool = False,
    dry_run: bool = False,
    critical: CriticalPods | None = None,
    now: float = 0.0,
) -> Attempt:
    """Evict (or, by `--disable-eviction`, delete) exactly this pod, unless a rule of the operator keeps it now.

    Args:
        api: The API server.
        pod: As it was read; its UID and node are what identifies it.
        policy: Grace period, and whether to delete.
        again: It was asked for before: the pod is read once more first, whatever its name.
        dry_run: Ask the server, and change nothing.
        critical: What the drains beside this one have asked for of critical pods.
        now: Seconds of the clock, for those.
    """
    critical = critical or CriticalPods()
    try:
        if (again or _may_have_a_namesake(pod)) and not _still_there(api, pod):
            return Attempt(pod, EvictionResult.GONE)
        kept = None if policy.disable_eviction else critical.claim(api, pod, policy.critical, now)
        if kept is not None:
            return _kept_by_rule(pod, kept)
        _send(api, pod, policy, dry_run=dry_run)
    except ApiError as error:
        attempt = _meaning(pod, error)
        if attempt.answer is not EvictionResult.AWAY:
            critical.release(pod)
        return attempt
    return Attempt(pod, EvictionResult.ACCEPTED)


def _kept_by_rule(pod: Pod, rule: Budget) -> Attempt:
    needs = rule.desired_healthy
    has = rule.current_healthy
    return Attempt(
        pod,
        EvictionResult.BLOCKED,
        f"{rule.key} needs {needs} healthy pods and has {has}",
        budget=rule.key,
        figures=(needs, has),
        retry_after=LOOK_AGAIN,
    )


def _may_have_a_namesake(pod: Pod) -> bool:
    """Whether another pod may get this name, on another node, before the eviction arrives."""
    return pod.owner is None or pod.owner.kind not in (
        "ReplicaSet",
        "DaemonSet",
        "Job",
        "ReplicationController",
    )


def _still_there(api: ClusterApi, pod: Pod) -> bool:
    current = read_pod(api, pod.namespace, pod.name)
    return current is not None and current.uid == pod.uid and current.node == pod.node


def _send(api: ClusterApi, pod: Pod, policy: DrainPolicy, *, dry_run: bool) -> None:
    options: dict[str, Any] = {"preconditions": {"uid": pod.uid}}
    if policy.grace_period is not None:
        options["gracePeriodSeconds"] = policy.grace_period
    if dry_run:
        options["dryRun"] = ["All"]
    path = pod_path(pod.namespace, pod.name)
    if policy.disable_eviction:
        api.delete(path, {"apiVersion": "v1", "kind": "DeleteOptions", **options})
        return
    metadata = {"name": pod.name, "namespace": pod.namespace}
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": metadata,
        "deleteOptions": options,
    }
    api.create(f"{path}/eviction", body)


def _meaning(pod: Pod, error: ApiError) -> Attempt:
    if error.denial is not None:
        return Attempt(
            pod, EvictionResult.DENIED, error.message, retry_after=error.retry_after, error=error
        )
    if isinstance(error, ApiNotFoundError):
        return Attempt(pod, EvictionResult.GONE)
    if isinstance(error, TooManyRequestsError) and error.has_cause(BUDGET_CAUSE):
        return _blocked_attempt(pod, error)
    return Attempt(
        pod, _conflict_result(error), error.message, retry_after=error.retry_after, error=error
    )


def _conflict_result(error: ApiError) -> EvictionResult:
    """Tell a conflict about this pod or its budget from an outage, which concerns every pod."""
    if error.is_forbidden and error.has_cause(_TERMINATING):
        return EvictionResult.DENIED
    behind = error.is_forbidden and any(sign in error.message for sign in _BUDGET_BEHIND)
    if (
        behind
        or isinstance(error, ApiConflictError)
        or (is_passing(error) and _BUDGET_CONFLICT in error.message)
    ):
        return EvictionResult.LATER
    return EvictionResult.AWAY if is_passing(error) else EvictionResult.REFUSED


def _blocked_attempt(pod: Pod, error: TooManyRequestsError) -> Attempt:
    message = next(
        (cause.message for cause in error.causes if cause.reason == BUDGET_CAUSE), error.message
    )
    name = _BUDGET_NAME.search(message)
    figures = _FIGURES.search(message)
    return Attempt(
        pod,
        EvictionResult.BLOCKED,
        message,
        budget=f"{pod.namespace}/{name[1]}" if name else "",
        figures=(int(figures[1]), int(figures[2])) if figures else None,
        retry_after=error.retry_after,
        error=error,
    )


def move_elsewhere(
    api: ClusterApi, own: OwnNode, policy: DrainPolicy, say: Callable[[str], None]
) -> None:
    """Have the pod evicted that this process runs in, and say so before, for it may end at once. `ApiError`."""
    pod = _own_pod(api, own)
    if pod is None:
        return
    say(
        f"{own.name} waits for a pod on another node: {own.pod} is evicted, and its controller"
        " starts the next"
    )
    attempt = request_removal(api, pod, policy)
    if attempt.answer is not EvictionResult.ACCEPTED:
        say(f"warning: {own.pod} could not be evicted from {own.name}: {attempt.message}")


def _own_pod(api: ClusterApi, own: OwnNode) -> Pod | None:
    """Return the pod to be moved; None where its node waits for nothing, or nobody would start another."""
    namespace, _, name = own.pod.partition("/")
    if not own.pod or deferral(read_node(api, own.name)).get("by") != own.marker:
        return None
    pod = read_pod(api, namespace, name)
    return None if pod is None or pod.owner is None or pod.terminating else pod
