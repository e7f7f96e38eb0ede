"""What a drain does with each pod: evict it, leave it, or refuse to drain the node.

The filters are those of kubectl drain, flag for flag, with `--ignore-daemonsets` always on. Owners
are read beforehand, so that no filter does I/O. Each pod gets all warnings and all reasons to
refuse it; kubectl keeps the last warning and the first reason. Other differences are deliberate:

- Pods that `--pod-selector` does not select are left. Unlike kubectl, a warning says that the
  reboot ends them.
- Pods overdue by more than `drain.skip-wait-for-delete-timeout` are left, with a warning. kubectl
  compares with the local clock; this compares with the server's, so that no pod is left too early.
- Mirror pods are left, and counted among the pods that stay.
- DaemonSet pods are left. If the DaemonSet is gone, they are refused, or evicted with `--force`. If
  it cannot be looked up, the lookup is repeated until the drain's deadline.
- Finished pods are evicted, whatever their owner and storage.
- Terminating pods are only waited for; kubectl evicts them again, and refuses unmanaged ones and
  those with local storage. But someone else has already decided to delete these pods. With
  `--grace-period` they are evicted again, because that may shorten their grace period.
- Unmanaged pods are refused, or evicted with `--force`. A controller of any kind counts.
- Pods with an emptyDir are evicted by default, since they cannot survive the reboot.
  `--no-delete-emptydir-data` refuses them, which is kubectl's default.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from rollout.model.cluster import DaemonSet, LabelSelector, Pod
from rollout.model.policy import DrainPolicy
from rollout.model.selectors import parse_selector
from rollout.model.timestamps import seconds_since

# InstanceManager is Longhorn's; its pods belong to their node, too.
_NEVER_REPLACED = ("DaemonSet", "Node", "InstanceManager")


class Action(StrEnum):
    """What happens to a pod."""

    EVICT = "evict"
    LEAVE = "leave"
    REFUSE = "refuse"


class VerdictReason(StrEnum):
    """Why a pod gets its verdict, as published in JSON."""

    ORDINARY = "ordinary"
    FINISHED = "finished"
    TERMINATING = "terminating"
    NOT_SELECTED = "not-selected"
    OVERDUE = "overdue"
    DAEMONSET = "daemonset"
    MIRROR = "mirror"
    DAEMONSET_GONE = "daemonset-gone"
    LOCAL_STORAGE = "local-storage"
    UNMANAGED = "unmanaged"


@dataclass(frozen=True, slots=True)
class PodVerdict:
    """One pod's verdict; `message` says why it is left or refused."""

    pod: Pod
    action: Action
    reason: VerdictReason
    message: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DrainRules:
    """What verdicts depend on besides the pod.

    `daemon_sets` are the namespaces and names of those that exist.
    `now` is the API server's clock; without it, no pod is overdue.
    """

    policy: DrainPolicy
    daemon_sets: frozenset[tuple[str, str]]
    selector: LabelSelector
    now: datetime | None

    @classmethod
    def of(
        cls, policy: DrainPolicy, daemon_sets: Iterable[DaemonSet], *, now: datetime | None = None
    ) -> "DrainRules":
        """Raise `UsageError` if the policy's pod selector is invalid."""
        owners = frozenset((owner.namespace, owner.name) for owner in daemon_sets)
        return cls(policy, owners, parse_selector(policy.pod_selector), now)


@dataclass(frozen=True, slots=True)
class _Ruling:
    """What one filter says: an action, or None to ask the next filter."""

    action: Action | None
    reason: VerdictReason
    message: str = ""
    warning: str = ""


def _leave(reason: VerdictReason, message: str, warning: str = "") -> _Ruling:
    return _Ruling(Action.LEAVE, reason, message, warning)


def _refuse(reason: VerdictReason, message: str, flag: str) -> _Ruling:
    """Refuse the drain because of the pod; `flag` would allow it."""
    return _Ruling(Action.REFUSE, reason, f"{message} ({flag})")


def _warn(reason: VerdictReason, warning: str) -> _Ruling:
    return _Ruling(None, reason, warning=warning)


def of_daemon_set(pod: Pod) -> bool:
    """Whether a DaemonSet of `apps/v1` controls the pod, as kubectl checks."""
    owner = pod.owner
    return owner is not None and owner.kind == "DaemonSet" and owner.api_version == "apps/v1"


def _has_ended_or_terminates(pod: Pod) -> bool:
    return pod.finished or pod.terminating


def _not_selected(pod: Pod, rules: DrainRules) -> _Ruling | None:
    if rules.selector.matches(pod.labels):
        return None
    message = "is not selected by --pod-selector"
    stays = pod.mirror or of_daemon_set(pod) or _has_ended_or_terminates(pod)
    warning = "" if stays else f"{message}: the reboot stops it, bypassing its disruption budgets"
    return _leave(VerdictReason.NOT_SELECTED, message, warning)


def _overdue(pod: Pod, rules: DrainRules) -> _Ruling | None:
    patience = rules.policy.skip_wait_for_delete_timeout
    if not patience or not pod.terminating:
        return None
    seconds = int(seconds_since(pod.deleted_at, rules.now))
    if seconds <= patience:
        return None
    setting = f"drain.skip-wait-for-delete-timeout is {patience}"
    message = f"is stuck terminating: its grace period ended {seconds} s ago ({setting})"
    return _leave(VerdictReason.OVERDUE, message, f"{message}; the drain does not wait for it")


def _daemon_set(pod: Pod, rules: DrainRules) -> _Ruling | None:
    owner = pod.owner
    if owner is None or not of_daemon_set(pod) or pod.finished:
        return None
    if (pod.namespace, owner.name) in rules.daemon_sets:
        message = f"belongs to the DaemonSet {owner.name}, which would replace it"
        return _leave(VerdictReason.DAEMONSET, message, _critical_unready(pod))
    if pod.terminating:
        return None
    gone = f"its DaemonSet {owner.name} no longer exists"
    if rules.policy.force:
        return _warn(VerdictReason.DAEMONSET_GONE, f"{gone} (refused without --force)")
    message = f"{gone}, so nothing would replace it"
    return _refuse(VerdictReason.DAEMONSET_GONE, message, "--force evicts it")


def _critical_unready(pod: Pod) -> str:
    """Warn, because only pods that were ready are waited for after the reboot."""
    if pod.ready or pod.terminating or not pod.node_critical:
        return ""
    since = f" since {pod.unready_since}" if pod.unready_since else ""
    return (
        f"is system-node-critical and not Ready{since}: the reboot may not fix it, and rollout does"
        " not wait for it"
    )


def _mirror(pod: Pod, _rules: DrainRules) -> _Ruling | None:
    if not pod.mirror:
        return None
    return _leave(VerdictReason.MIRROR, "is a static pod: its kubelet runs it from a file")


def _local_storage(pod: Pod, rules: DrainRules) -> _Ruling | None:
    reason = VerdictReason.LOCAL_STORAGE
    if not pod.has_empty_dir or _has_ended_or_terminates(pod):
        return None
    if rules.policy.delete_emptydir_data:
        return _warn(reason, "emptyDir data will be lost (--no-delete-emptydir-data refuses it)")
    message = "has emptyDir data that would be lost"
    return _refuse(reason, message, "--delete-emptydir-data allows it")


def _unmanaged(pod: Pod, rules: DrainRules) -> _Ruling | None:
    reason = VerdictReason.UNMANAGED
    if _has_ended_or_terminates(pod) or pod.owner is not None:
        return None
    if rules.policy.force:
        return _warn(reason, "has no controller: nothing will replace it (refused without --force)")
    message = "has no controller, so nothing would replace it"
    return _refuse(reason, message, "--force evicts it")


_CHAIN = (_not_selected, _overdue, _daemon_set, _mirror, _local_storage, _unmanaged)


def judge(pod: Pod, rules: DrainRules) -> PodVerdict:
    """Return the verdict on one pod; a refusal gives all reasons."""
    if not rules.selector.requirements and _is_ordinary(pod):
        return PodVerdict(pod, Action.EVICT, VerdictReason.ORDINARY)
    warnings = list[str]()
    refusals = dict[str, VerdictReason]()
    reason = _usual_reason(pod)
    for filter_pod in _CHAIN:
        ruling = filter_pod(pod, rules)
        if ruling is None:
            continue
        if ruling.action is Action.REFUSE:
            refusals[ruling.message] = ruling.reason
            continue
        # A pod that is refused is not left by a later filter.
        if ruling.action is Action.LEAVE and refusals:
            continue
        if ruling.warning:
            warnings.append(ruling.warning)
        if ruling.action is Action.LEAVE:
            return PodVerdict(pod, Action.LEAVE, ruling.reason, ruling.message, tuple(warnings))
        reason = ruling.reason
    if refusals:
        reason = next(iter(refusals.values()))
        return PodVerdict(pod, Action.REFUSE, reason, "; ".join(refusals), tuple(warnings))
    return PodVerdict(pod, Action.EVICT, reason, warnings=tuple(warnings))


def _is_ordinary(pod: Pod) -> bool:
    """Whether no filter applies: a shortcut for most pods of a large cluster."""
    special = pod.mirror or pod.has_empty_dir or _has_ended_or_terminates(pod)
    return not special and pod.owner is not None and not of_daemon_set(pod)


def _usual_reason(pod: Pod) -> VerdictReason:
    if pod.terminating:
        return VerdictReason.TERMINATING
    return VerdictReason.FINISHED if pod.finished else VerdictReason.ORDINARY


def judge_all(pods: Iterable[Pod], rules: DrainRules) -> tuple[PodVerdict, ...]:
    return tuple(judge(pod, rules) for pod in pods)


def with_action(action: Action, verdicts: Iterable[PodVerdict]) -> tuple[PodVerdict, ...]:
    return tuple(verdict for verdict in verdicts if verdict.action is action)


def is_replaced(pod: Pod) -> bool:
    if pod.owner is None or _has_ended_or_terminates(pod):
        return False
    return pod.owner.kind not in _NEVER_REPLACED


def movable(verdicts: Iterable[PodVerdict]) -> tuple[Pod, ...]:
    evicted = (verdict.pod for verdict in with_action(Action.EVICT, verdicts))
    return tuple(pod for pod in evicted if is_replaced(pod))
