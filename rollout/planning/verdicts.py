"""What a drain does with each pod: evict it, leave it, or refuse to touch the node at all.

The chain is kubectl's (`--ignore-daemonsets` always on), with two differences. Owners are fetched beforehand, so that
no rule does I/O; and every rule that a pod meets leaves its warning, where kubectl keeps only the last one's.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from rollout.model.cluster import DaemonSet, Pod
from rollout.model.policy import DrainPolicy


class Action(StrEnum):
    """What happens to a pod."""

    EVICT = "evict"
    LEAVE = "leave"
    REFUSE = "refuse"


class VerdictReason(StrEnum):
    """Why; fixed words."""

    ORDINARY = "ordinary"
    FINISHED = "finished"
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
    """What the verdicts depend on besides the pod: the operator's flags and the DaemonSets that exist."""

    policy: DrainPolicy
    daemon_sets: frozenset[tuple[str, str]]

    @classmethod
    def of(cls, policy: DrainPolicy, daemon_sets: Iterable[DaemonSet]) -> "DrainRules":
        """Rules with the DaemonSets of a snapshot."""
        return cls(policy, frozenset((owner.namespace, owner.name) for owner in daemon_sets))


@dataclass(frozen=True, slots=True)
class _Finding:
    """One rule's answer: a verdict that ends the chain, or only a warning on the way."""

    action: Action | None
    reason: VerdictReason
    message: str


def _daemon_set(pod: Pod, rules: DrainRules) -> _Finding | None:
    owner = pod.owner
    if owner is None or owner.kind != "DaemonSet" or owner.api_version != "apps/v1" or pod.finished:
        return None
    if (pod.namespace, owner.name) in rules.daemon_sets:
        return _Finding(
            Action.LEAVE,
            VerdictReason.DAEMONSET,
            f"belongs to the DaemonSet {owner.name}, which would replace it",
        )
    if rules.policy.force:
        return _Finding(None, VerdictReason.DAEMONSET_GONE, f"its DaemonSet {owner.name} no longer exists")
    return _Finding(
        Action.REFUSE,
        VerdictReason.DAEMONSET_GONE,
        f"its DaemonSet {owner.name} no longer exists, so nothing would replace it (--force evicts it)",
    )


def _mirror(pod: Pod, rules: DrainRules) -> _Finding | None:  # noqa: ARG001 - one signature for the chain
    if not pod.mirror:
        return None
    return _Finding(Action.LEAVE, VerdictReason.MIRROR, "is a static pod: its kubelet runs it from a file")


def _local_storage(pod: Pod, rules: DrainRules) -> _Finding | None:
    if not pod.has_empty_dir or pod.finished:
        return None
    if rules.policy.delete_emptydir_data:
        return _Finding(None, VerdictReason.LOCAL_STORAGE, "its emptyDir data will be lost")
    return _Finding(
        Action.REFUSE,
        VerdictReason.LOCAL_STORAGE,
        "has emptyDir data that would be lost (--delete-emptydir-data allows it)",
    )


def _unmanaged(pod: Pod, rules: DrainRules) -> _Finding | None:
    if pod.finished or pod.owner is not None:
        return None
    if rules.policy.force:
        return _Finding(None, VerdictReason.UNMANAGED, "has no controller: nothing will replace it")
    return _Finding(
        Action.REFUSE,
        VerdictReason.UNMANAGED,
        "has no controller, so nothing would replace it (--force evicts it)",
    )


_CHAIN: tuple[Callable[[Pod, DrainRules], _Finding | None], ...] = (
    _daemon_set,
    _mirror,
    _local_storage,
    _unmanaged,
)


def judge(pod: Pod, rules: DrainRules) -> PodVerdict:
    """Verdict of the whole chain on one pod."""
    warnings: list[str] = []
    reason = VerdictReason.FINISHED if pod.finished else VerdictReason.ORDINARY
    for rule in _CHAIN:
        finding = rule(pod, rules)
        if finding is None:
            continue
        if finding.action is not None:
            return PodVerdict(pod, finding.action, finding.reason, finding.message, tuple(warnings))
        warnings.append(finding.message)
        reason = finding.reason
    return PodVerdict(pod, Action.EVICT, reason, warnings=tuple(warnings))


def judge_all(pods: Iterable[Pod], rules: DrainRules) -> tuple[PodVerdict, ...]:
    """Verdicts in the order of the pods."""
    return tuple(judge(pod, rules) for pod in pods)


def having(action: Action, verdicts: Iterable[PodVerdict]) -> tuple[PodVerdict, ...]:
    """Those verdicts that carry this action."""
    return tuple(verdict for verdict in verdicts if verdict.action is action)
