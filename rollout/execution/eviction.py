"""One eviction: what is sent, and what each answer means.

The pod was read, and its UID and node compared, before this is called; the UID goes along as a precondition. That order
matters: an API server spends the budget before it compares the UID.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rollout.errors import ApiConflictError, ApiError, ApiNotFoundError, TooManyRequestsError
from rollout.execution.deadline import BUDGET_CAUSE, is_passing
from rollout.gather.snapshot import read_pod
from rollout.model.cluster import Pod
from rollout.model.policy import DrainPolicy
from rollout.ports import ClusterApi

_TERMINATING = "NamespaceTerminating"
_FORBIDDEN = 403
_BUDGET_NAME = re.compile(r"disruption budget (\S+)")


class Answer(StrEnum):
    """What became of an eviction."""

    ACCEPTED = "accepted"
    GONE = "gone"
    BLOCKED = "blocked"
    LATER = "later"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Attempt:
    """An eviction's outcome. `budget` is namespace/name where one blocked it; `retry_after` in seconds."""

    pod: Pod
    answer: Answer
    message: str = ""
    budget: str = ""
    retry_after: float | None = None


def request_removal(api: ClusterApi, pod: Pod, policy: DrainPolicy, *, dry_run: bool = False) -> Attempt:
    """Evict (or, by `--disable-eviction`, delete) exactly this pod; a dry run asks the server and changes nothing."""
    try:
        if _may_have_a_namesake(pod) and not _still_there(api, pod):
            return Attempt(pod, Answer.GONE)
        _send(api, pod, policy, dry_run=dry_run)
    except ApiError as error:
        return _meaning(pod, error)
    return Attempt(pod, Answer.ACCEPTED)


def _may_have_a_namesake(pod: Pod) -> bool:
    """Only names that are not drawn at random can come back on another node between the read and the eviction."""
    return pod.owner is None or pod.owner.kind not in ("ReplicaSet", "DaemonSet", "Job", "ReplicationController")


def _still_there(api: ClusterApi, pod: Pod) -> bool:
    current = read_pod(api, pod.namespace, pod.name)
    return current is not None and current.uid == pod.uid and current.node == pod.node


def _send(api: ClusterApi, pod: Pod, policy: DrainPolicy, *, dry_run: bool) -> None:
    options: dict[str, Any] = {"preconditions": {"uid": pod.uid}}
    if policy.grace_period is not None:
        options["gracePeriodSeconds"] = policy.grace_period
    if dry_run:
        options["dryRun"] = ["All"]
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
    if policy.disable_eviction:
        api.delete(path, {"apiVersion": "v1", "kind": "DeleteOptions", **options})
        return
    api.create(
        f"{path}/eviction",
        {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": options,
        },
    )


def _meaning(pod: Pod, error: ApiError) -> Attempt:
    if isinstance(error, ApiNotFoundError):
        return Attempt(pod, Answer.GONE)
    if isinstance(error, TooManyRequestsError) and error.has_cause(BUDGET_CAUSE):
        return _blocked(pod, error)
    if _passes_by_itself(error):
        return Attempt(pod, Answer.LATER, error.message, retry_after=error.retry_after)
    return Attempt(pod, Answer.REFUSED, error.message)


def _passes_by_itself(error: ApiError) -> bool:
    """Conflicts (the pod was replaced, or the budget updated meanwhile), outages, and a namespace that is going."""
    going = error.status == _FORBIDDEN and error.has_cause(_TERMINATING)
    return going or isinstance(error, ApiConflictError) or is_passing(error)


def _blocked(pod: Pod, error: TooManyRequestsError) -> Attempt:
    message = next((cause.message for cause in error.causes if cause.reason == BUDGET_CAUSE), error.message)
    named = _BUDGET_NAME.search(message)
    budget = f"{pod.namespace}/{named[1]}" if named else ""
    return Attempt(pod, Answer.BLOCKED, message, budget, error.retry_after)
