"""One eviction: what is sent, and what each answer means.

The API server spends the budget before it compares the UID, so a pod's UID and node are compared
first. It does not know the rules for critical pods, so their pods are listed before each eviction.
"""

import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from msgspec import Struct

from rollout.errors import ApiConflictError, ApiError, ApiNotFoundError, TooManyRequestsError
from rollout.execution.base.deadline import BUDGET_CAUSE, is_transient
from rollout.gather.cluster.snapshot import pod_path, read_node, read_pod, read_pods
from rollout.model.cluster import Budget, Pod
from rollout.model.node_marks import deferral_of
from rollout.model.own_node import OwnNode
from rollout.model.policy import Critical, DrainPolicy
from rollout.model.selectors import parse_selector
from rollout.planning.drain.budgets import bypasses_budget, critical_budget
from rollout.ports import ClusterApi

# How long a rule that allows no eviction is not checked again.
RULE_PAUSE = 2.0
# Longer than any request, so that an evicted pod shows as such.
_UNSEEN_SECONDS = 120.0


@dataclass(slots=True)
class CriticalPods:
    """Treats each `[[critical]]` rule as a budget.

    Pods evicted by this process count as gone, although the API server may not show that yet.
    """

    # Monotonic seconds by pod UID.
    _evicted_at: dict[str, float] = field(default_factory=dict)
    # When each closed rule was found to allow no eviction.
    _closed: dict[Critical, tuple[Budget, float]] = field(default_factory=dict)
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def claim(
        self, api: ClusterApi, pod: Pod, rules: Sequence[Critical], now: float
    ) -> Budget | None:
        """Return a budget that forbids the eviction; else count the pod as evicted."""
        rules_of_pod = [rule for rule in rules if _covers(rule, pod)]
        for rule in rules_of_pod:
            closed = self._recently_closed_budget(rule, now)
            if closed is not None and not bypasses_budget(pod, closed):
                return closed
        pods_by_rule = {
            rule: read_pods(api, rule.namespace, rule.selector) for rule in rules_of_pod
        }
        with self._mutex:
            leaving = self._evicted_beside(pod, now)
            for rule, pods in pods_by_rule.items():
                budget = critical_budget(rule, pods, leaving)
                is_closed = budget.disruptions_allowed == 0
                if is_closed and not bypasses_budget(pod, budget):
                    self._closed[rule] = budget, now
                    return budget
            if rules_of_pod:
                self._evicted_at[pod.uid] = now
        return None

    def release(self, pod: Pod) -> None:
        with self._mutex:
            self._evicted_at.pop(pod.uid, None)

    def _recently_closed_budget(self, rule: Critical, now: float) -> Budget | None:
        budget, checked_at = self._closed.get(rule, (None, 0.0))
        return budget if now - checked_at < RULE_PAUSE else None

    def _evicted_beside(self, pod: Pod, now: float) -> set[str]:
        """These pods may still show as ready."""
        return {
            uid
            for uid, evicted_at in self._evicted_at.items()
            if uid != pod.uid and now - evicted_at < _UNSEEN_SECONDS
        }


def _covers(rule: Critical, pod: Pod) -> bool:
    if rule.namespace != pod.namespace:
        return False
    return parse_selector(rule.selector).matches(pod.labels)


_TERMINATING = "NamespaceTerminating"
# In a 504: many requests change this budget at once, but the API server is well.
_BUDGET_CONFLICT = "PodDisruptionBudget"
# The budget's controller has yet to catch up.
_BUDGET_BEHIND = ("DisruptedPods map too big", "disruptions allowed is negative")
_OWNERS_WITH_UNIQUE_NAMES = frozenset({"ReplicaSet", "DaemonSet", "Job", "ReplicationController"})
_BUDGET_NAME = re.compile(r"disruption budget (\S+)")
_FIGURES = re.compile(r"needs (\d{1,9}) healthy pods and has (\d{1,9})\b")


class EvictionResult(StrEnum):
    ACCEPTED = "accepted"
    GONE = "gone"
    # By a budget or a rule for critical pods.
    BLOCKED = "blocked"
    # By an admission webhook or policy, with any status, or a namespace that is being deleted.
    # KubeVirt answers 429 while it migrates the pod, Strimzi 500 while it rolls it.
    DENIED = "denied"
    # A conflict about this pod alone, which may pass at any moment.
    RETRIABLE = "retriable"
    # The API server is unavailable or throttles: try no pod for now.
    UNAVAILABLE = "unavailable"
    # The drain fails.
    REFUSED = "refused"


class Figures(NamedTuple):
    needs: int
    has: int


class Attempt(Struct, frozen=True):
    pod: Pod
    result: EvictionResult
    message: str = ""
    # namespace/name, or empty.
    budget: str = ""
    figures: Figures | None = None
    retry_after: float | None = None
    error: ApiError | None = None


def request_removal(
    api: ClusterApi,
    pod: Pod,
    policy: DrainPolicy,
    *,
    may_be_evicted: bool = False,
    dry_run: bool = False,
    critical: CriticalPods | None = None,
    now: float = 0.0,
) -> Attempt:
    """Evict or delete exactly this pod, if no critical rule forbids it.

    `may_be_evicted`: an earlier request was accepted, or its answer was lost.
    """
    critical = critical or CriticalPods()
    try:
        is_read_first = may_be_evicted or _may_have_a_namesake(pod)
        if is_read_first and not _is_still_there(api, pod):
            return Attempt(pod, EvictionResult.GONE)
        if not policy.disable_eviction:
            closed_rule = critical.claim(api, pod, policy.critical, now)
            if closed_rule is not None:
                return _attempt_blocked_by(closed_rule, pod)
        _evict_or_delete(api, pod, policy, dry_run=dry_run)
    except ApiError as error:
        attempt = _failed_attempt(pod, error)
        if attempt.result is not EvictionResult.UNAVAILABLE:
            critical.release(pod)
        return attempt
    return Attempt(pod, EvictionResult.ACCEPTED)


def _attempt_blocked_by(budget: Budget, pod: Pod) -> Attempt:
    figures = Figures(budget.desired_healthy, budget.current_healthy)
    return Attempt(
        pod=pod,
        result=EvictionResult.BLOCKED,
        message=f"{budget.key} needs {figures.needs} healthy pods and has {figures.has}",
        budget=budget.key,
        figures=figures,
        retry_after=RULE_PAUSE,
    )


def _may_have_a_namesake(pod: Pod) -> bool:
    """A StatefulSet's new pod has the same name."""
    return pod.owner is None or pod.owner.kind not in _OWNERS_WITH_UNIQUE_NAMES


def _is_still_there(api: ClusterApi, pod: Pod) -> bool:
    current = read_pod(api, pod.namespace, pod.name)
    return current is not None and current.uid == pod.uid and current.node == pod.node


def _evict_or_delete(api: ClusterApi, pod: Pod, policy: DrainPolicy, *, dry_run: bool) -> None:
    # A new pod with the same name must not be evicted.
    options: dict[str, Any] = {"preconditions": {"uid": pod.uid}}
    if policy.grace_period is not None:
        options["gracePeriodSeconds"] = policy.grace_period
    if dry_run:
        options["dryRun"] = ["All"]
    path = pod_path(pod.namespace, pod.name)
    if policy.disable_eviction:
        api.delete(path, {"apiVersion": "v1", "kind": "DeleteOptions", **options})
        return
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": options,
    }
    api.create(f"{path}/eviction", body)


def _failed_attempt(pod: Pod, error: ApiError) -> Attempt:
    # A webhook or policy that denies the request chooses any status.
    if error.denial is None:
        if isinstance(error, ApiNotFoundError):
            return Attempt(pod, EvictionResult.GONE)
        if isinstance(error, TooManyRequestsError) and error.has_cause(BUDGET_CAUSE):
            return _blocked_attempt(pod, error)
    return Attempt(
        pod, _error_result(error), error.message, retry_after=error.retry_after, error=error
    )


def _error_result(error: ApiError) -> EvictionResult:
    if error.denial is not None:
        return EvictionResult.DENIED
    if error.is_forbidden and error.has_cause(_TERMINATING):
        return EvictionResult.DENIED
    if error.is_forbidden and any(sign in error.message for sign in _BUDGET_BEHIND):
        return EvictionResult.RETRIABLE
    if isinstance(error, ApiConflictError):
        return EvictionResult.RETRIABLE
    if not is_transient(error):
        return EvictionResult.REFUSED
    is_about_one_budget = _BUDGET_CONFLICT in error.message
    return EvictionResult.RETRIABLE if is_about_one_budget else EvictionResult.UNAVAILABLE


def _blocked_attempt(pod: Pod, error: TooManyRequestsError) -> Attempt:
    """Parse `The disruption budget web needs 2 healthy pods and has 1 currently`."""
    budget_messages = [cause.message for cause in error.causes if cause.reason == BUDGET_CAUSE]
    message = budget_messages[0] if budget_messages else error.message
    name = _BUDGET_NAME.search(message)
    figures = _FIGURES.search(message)
    return Attempt(
        pod=pod,
        result=EvictionResult.BLOCKED,
        message=message,
        budget=f"{pod.namespace}/{name[1]}" if name else "",
        figures=Figures(int(figures[1]), int(figures[2])) if figures else None,
        retry_after=error.retry_after,
        error=error,
    )


def move_elsewhere(
    api: ClusterApi, own: OwnNode, policy: DrainPolicy, say: Callable[[str], None]
) -> None:
    pod = _find_own_pod(api, own)
    if pod is None:
        return
    # The eviction may end this process before a later message.
    say(
        f"{own.name} can only be rebooted from another node: {own.pod} is evicted, so that its"
        " controller starts a new pod there"
    )
    attempt = request_removal(api, pod, policy)
    if attempt.result is not EvictionResult.ACCEPTED:
        say(f"warning: {own.pod} could not be evicted from {own.name}: {attempt.message}")


def _find_own_pod(api: ClusterApi, own: OwnNode) -> Pod | None:
    namespace, _, name = own.pod.partition("/")
    if not own.pod:
        return None
    deferral = deferral_of(read_node(api, own.name))
    is_deferred_by_us = deferral is not None and deferral.by == own.marker
    if not is_deferred_by_us:
        return None
    pod = read_pod(api, namespace, name)
    if pod is None or pod.owner is None or pod.terminating:
        return None
    return pod
