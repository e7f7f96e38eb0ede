"""What a drain does with each pod: evict it, leave it, or refuse to touch the node at all.

The chain is kubectl's, flag for flag, with `--ignore-daemonsets` always on. Owners are fetched beforehand, so that no
rule does I/O, and every rule that a pod meets leaves its warning, where kubectl keeps only the last one's. All reasons
for which a pod is refused are told, where kubectl names the first. Shape by shape, and where it differs on purpose:

- Pods that `--pod-selector` does not choose: left, as with kubectl. Unlike there, it is said that the reboot ends them.
- Pods overdue by more than `drain.skip-wait-for-delete-timeout`: left, as with kubectl, and said. kubectl holds the
  time stamp against its own machine's clock, here it is held against the server's: no pod in its grace is left behind.
- Mirror pods: left, as with kubectl, which does so silently; here they are counted among what stays.
- DaemonSet pods: left. Where the DaemonSet is gone, refused without `--force`, evicted with it, as with kubectl, whose
  warning about it is overwritten by the next rule. A DaemonSet that cannot be looked up is no reason to
  give up: the question is repeated until the drain's deadline.
- Finished pods: evicted, as with kubectl, whoever owns them and whatever they have stored: nothing runs that could be
  interrupted.
- Pods already terminating: only waited for. kubectl evicts them again, and refuses the node where such a pod is
  unmanaged or has local storage; but that decision was taken when the pod was deleted, and not by this drain. With
  `--grace-period` they are evicted again here too, for that may shorten their grace.
- Unmanaged pods: refused without `--force`, evicted with it, as with kubectl. Any controller counts, of any kind.
- Pods with local storage (an emptyDir, in memory too): evicted by default, since a node that is to reboot cannot keep
  them running; `--no-delete-emptydir-data` refuses them, which is kubectl's default.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from rollout.model.cluster import DaemonSet, LabelSelector, Pod
from rollout.model.memory import seconds_since
from rollout.model.policy import DrainPolicy
from rollout.planning.eligibility.selector import parse_selector

# The last is Longhorn's: its pods belong to their node, too.
_NEVER_REPLACED = ("DaemonSet", "Node", "InstanceManager")


class Action(StrEnum):
    """What happens to a pod."""

    EVICT = "evict"
    LEAVE = "leave"
    REFUSE = "refuse"


class VerdictReason(StrEnum):
    """Why; fixed words."""

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
    """One pod's verdict. `message` says why for a refusal; `warnings` are all that applied on the way."""

    pod: Pod
    action: Action
    reason: VerdictReason
    message: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DrainRules:
    """What the verdicts depend on besides the pod: the operator's flags, the DaemonSets that exist, and the time.

    `now` is the API server's clock; without it no pod is overdue.
    """

    policy: DrainPolicy
    daemon_sets: frozenset[tuple[str, str]]
    selector: LabelSelector
    now: datetime | None

    @classmethod
    def of(cls, policy: DrainPolicy, daemon_sets: Iterable[DaemonSet], *, now: datetime | None = None) -> "DrainRules":
        """Rules with the DaemonSets of a snapshot; `UsageError` where the policy's selector cannot be read."""
        owners = frozenset((owner.namespace, owner.name) for owner in daemon_sets)
        return cls(policy, owners, parse_selector(policy.pod_selector), now)


_Finding = tuple[Action | None, VerdictReason, str, str]
"""One rule's answer: the action that ends the chain, or None; why; and what the operator should know all the same."""


def of_daemon_set(pod: Pod) -> bool:
    """Whether a DaemonSet, as kubectl knows them, controls the pod."""
    return pod.owner is not None and (pod.owner.kind, pod.owner.api_version) == ("DaemonSet", "apps/v1")


def _is_on_its_way(pod: Pod) -> bool:
    """Whether nothing is left to be decided about it: it has ended, or somebody has deleted it."""
    return pod.finished or pod.terminating


def _not_selected(pod: Pod, rules: DrainRules) -> _Finding | None:
    if rules.selector.matches(pod.labels):
        return None
    stays = pod.mirror or of_daemon_set(pod) or _is_on_its_way(pod)
    warning = "" if stays else "is not selected by --pod-selector: the reboot ends it without asking its budgets"
    return Action.LEAVE, VerdictReason.NOT_SELECTED, "is not selected by --pod-selector", warning


def _overdue(pod: Pod, rules: DrainRules) -> _Finding | None:
    patience = rules.policy.skip_wait_for_delete_timeout
    seconds = int(seconds_since(pod.deleted_at, rules.now)) if patience and pod.terminating else 0
    if not patience or seconds <= patience:
        return None
    message = f"should have been gone {seconds} s ago (drain.skip-wait-for-delete-timeout is {patience})"
    return Action.LEAVE, VerdictReason.OVERDUE, message, f"{message}: it is not waited for"


def _daemon_set(pod: Pod, rules: DrainRules) -> _Finding | None:
    owner, reason = pod.owner, VerdictReason.DAEMONSET_GONE
    if owner is None or not of_daemon_set(pod) or pod.finished:
        return None
    if (pod.namespace, owner.name) in rules.daemon_sets:
        message = f"belongs to the DaemonSet {owner.name}, which would replace it"
        return Action.LEAVE, VerdictReason.DAEMONSET, message, _unwell(pod)
    if pod.terminating:
        return None
    gone = f"its DaemonSet {owner.name} no longer exists"
    if rules.policy.force:
        return None, reason, "", f"{gone} (refused without --force)"
    return Action.REFUSE, reason, f"{gone}, so nothing would replace it (--force evicts it)", ""


def _unwell(pod: Pod) -> str:
    """Return what is wrong with what its node cannot do without: only what was ready is waited for afterwards."""
    if pod.ready or pod.terminating or not pod.node_critical:
        return ""
    since = f" since {pod.unready_since}" if pod.unready_since else ""
    return f"is system-node-critical and not Ready{since}: the reboot may not mend it, and nothing waits for it; fix it"


def _mirror(pod: Pod, _rules: DrainRules) -> _Finding | None:
    if not pod.mirror:
        return None
    return Action.LEAVE, VerdictReason.MIRROR, "is a static pod: its kubelet runs it from a file", ""


def _local_storage(pod: Pod, rules: DrainRules) -> _Finding | None:
    reason = VerdictReason.LOCAL_STORAGE
    if not pod.has_empty_dir or _is_on_its_way(pod):
        return None
    if rules.policy.delete_emptydir_data:
        return None, reason, "", "emptyDir data will be lost (--no-delete-emptydir-data refuses it)"
    return Action.REFUSE, reason, "has emptyDir data that would be lost (--delete-emptydir-data allows it)", ""


def _unmanaged(pod: Pod, rules: DrainRules) -> _Finding | None:
    reason = VerdictReason.UNMANAGED
    if _is_on_its_way(pod) or pod.owner is not None:
        return None
    if rules.policy.force:
        return None, reason, "", "has no controller: nothing will replace it (refused without --force)"
    return Action.REFUSE, reason, "has no controller, so nothing would replace it (--force evicts it)", ""


_CHAIN = (_not_selected, _overdue, _daemon_set, _mirror, _local_storage, _unmanaged)


def judge(pod: Pod, rules: DrainRules) -> PodVerdict:
    """Verdict of the whole chain on one pod: one refusal is as good as another, but all of them are told."""
    if not rules.selector.requirements and _is_ordinary(pod):
        return PodVerdict(pod, Action.EVICT, VerdictReason.ORDINARY)
    warnings, refusals, reason = list[str](), dict[str, VerdictReason](), _usual_reason(pod)
    for action, why, message, warning in filter(None, (rule(pod, rules) for rule in _CHAIN)):
        if action is Action.REFUSE:
            refusals[message] = why
        elif action is None or not refusals:
            warnings += [warning] if warning else []
            if action is not None:
                return PodVerdict(pod, action, why, message, tuple(warnings))
            reason = why
    if refusals:
        reason = next(iter(refusals.values()))
        return PodVerdict(pod, Action.REFUSE, reason, "; ".join(refusals), tuple(warnings))
    return PodVerdict(pod, Action.EVICT, reason, warnings=tuple(warnings))


def _is_ordinary(pod: Pod) -> bool:
    """Whether no rule of the chain has anything to say of it, as of most: a large cluster has many."""
    special = pod.mirror or pod.has_empty_dir or _is_on_its_way(pod)
    return not special and pod.owner is not None and not of_daemon_set(pod)


def _usual_reason(pod: Pod) -> VerdictReason:
    if pod.terminating:
        return VerdictReason.TERMINATING
    return VerdictReason.FINISHED if pod.finished else VerdictReason.ORDINARY


def judge_all(pods: Iterable[Pod], rules: DrainRules) -> tuple[PodVerdict, ...]:
    """Verdicts in the order of the pods."""
    return tuple(judge(pod, rules) for pod in pods)


def with_action(action: Action, verdicts: Iterable[PodVerdict]) -> tuple[PodVerdict, ...]:
    """Those verdicts that carry this action."""
    return tuple(verdict for verdict in verdicts if verdict.action is action)


def is_replaced(pod: Pod) -> bool:
    """Whether a controller will start the pod anew somewhere."""
    return pod.owner is not None and pod.owner.kind not in _NEVER_REPLACED and not pod.finished and not pod.terminating


def movable(verdicts: Iterable[PodVerdict]) -> tuple[Pod, ...]:
    """Return the pods that these verdicts send elsewhere."""
    return tuple(verdict.pod for verdict in verdicts if verdict.action is Action.EVICT and is_replaced(verdict.pod))
