"""What a drain does with each pod: evict it, wait for it, leave it, or refuse.

The filters are kubectl drain's, flag for flag, with `--ignore-daemonsets` always on. Differences:

- Each pod gets all warnings and refusals; kubectl keeps the last and the first.
- Pods that `--pod-selector` does not select, overdue pods and mirror pods are left.
- Pods of a DaemonSet that is gone, and unmanaged pods, are refused, or evicted with `--force`. A
  controller of any kind counts.
- Finished pods are evicted, whatever their owner and storage.
- Terminating pods are only waited for, but evicted again with `--grace-period`.
- Pods of `drain.wait-for-completion` are waited for; if they may be evicted later, they are refused
  like others.
- Pods with an emptyDir are evicted by default, since they cannot survive the reboot.
"""

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from rollout.model import drain_finding as findings
from rollout.model.cluster import DaemonSet, LabelSelector, Pod
from rollout.model.drain_finding import VerdictReason
from rollout.model.policy import CompletionFallback, DrainPolicy
from rollout.model.selectors import parse_selector
from rollout.model.timestamps import seconds_since
from rollout.model.warning_finding import CriticalUnready, PodWarning, WarningFinding

# InstanceManager is Longhorn's.
_NEVER_REPLACED = ("DaemonSet", "Node", "InstanceManager")


class Action(StrEnum):
    """What happens to a pod."""

    EVICT = "evict"
    WAIT = "wait"
    LEAVE = "leave"
    REFUSE = "refuse"


class PodVerdict(Struct, frozen=True, gc=False):
    pod: Pod
    action: Action
    reason: VerdictReason
    because: tuple[findings.PodFinding, ...] = ()
    warnings: tuple[WarningFinding, ...] = ()


class DrainRules(Struct, frozen=True):
    policy: DrainPolicy
    # Namespace and name of each.
    daemon_sets: frozenset[tuple[str, str]]
    selector: LabelSelector
    # None if the API server's time is unknown: then no pod is overdue.
    now: datetime | None
    completion_selectors: tuple[LabelSelector, ...] = ()

    @classmethod
    def of(
        cls, policy: DrainPolicy, daemon_sets: Iterable[DaemonSet], *, now: datetime | None = None
    ) -> "DrainRules":
        """Raise `UsageError` for an invalid selector."""
        names = frozenset((daemon_set.namespace, daemon_set.name) for daemon_set in daemon_sets)
        completion_selectors = tuple(map(parse_selector, policy.completion.selectors))
        pod_selector = parse_selector(policy.pod_selector)
        return cls(policy, names, pod_selector, now, completion_selectors)

    def waits_for(self, pod: Pod) -> bool:
        if _has_ended_or_terminates(pod):
            return False
        return any(selector.matches(pod.labels) for selector in self.completion_selectors)


class _Ruling(Struct, frozen=True):
    """A filter's decision about a pod. A filter that does not apply returns None."""

    action: Action
    finding: findings.PodFinding
    warning: WarningFinding | None = None


def _leave(finding: findings.PodFinding, *, warning: WarningFinding | None = None) -> _Ruling:
    return _Ruling(Action.LEAVE, finding, warning)


def _evict_if_allowed(finding: findings.PodFinding, *, is_allowed: bool) -> _Ruling:
    if is_allowed:
        return _Ruling(Action.EVICT, finding, PodWarning(finding))
    return _Ruling(Action.REFUSE, finding)


def is_of_daemon_set(pod: Pod) -> bool:
    owner = pod.owner
    return owner is not None and owner.kind == "DaemonSet" and owner.api_version == "apps/v1"


def _has_ended_or_terminates(pod: Pod) -> bool:
    return pod.finished or pod.terminating


def _judge_unselected(pod: Pod, rules: DrainRules) -> _Ruling | None:
    if rules.selector.matches(pod.labels):
        return None
    finding = findings.NotSelected()
    is_left_anyway = pod.mirror or is_of_daemon_set(pod) or _has_ended_or_terminates(pod)
    return _leave(finding, warning=None if is_left_anyway else PodWarning(finding))


def _judge_overdue(pod: Pod, rules: DrainRules) -> _Ruling | None:
    timeout = rules.policy.skip_wait_for_delete_timeout
    if not timeout or not pod.terminating:
        return None
    seconds = int(seconds_since(pod.deleted_at, rules.now))
    if seconds <= timeout:
        return None
    finding = findings.OverduePod(seconds, timeout)
    return _leave(finding, warning=PodWarning(finding))


def _judge_daemon_set_pod(pod: Pod, rules: DrainRules) -> _Ruling | None:
    owner = pod.owner
    if owner is None or not is_of_daemon_set(pod) or pod.finished:
        return None
    has_daemon_set = (pod.namespace, owner.name) in rules.daemon_sets
    if has_daemon_set:
        return _leave(findings.OfDaemonSet(owner.name), warning=_warn_if_critical_unready(pod))
    if pod.terminating:
        return None
    return _evict_if_allowed(findings.DaemonSetGone(owner.name), is_allowed=rules.policy.force)


def _warn_if_critical_unready(pod: Pod) -> CriticalUnready | None:
    is_unready = pod.node_critical and not pod.ready and not pod.terminating
    return CriticalUnready(pod.unready_since) if is_unready else None


def _judge_mirror_pod(pod: Pod, _rules: DrainRules) -> _Ruling | None:
    return _leave(findings.StaticPod()) if pod.mirror else None


def _judge_local_storage(pod: Pod, rules: DrainRules) -> _Ruling | None:
    if not pod.has_empty_dir or _has_ended_or_terminates(pod):
        return None
    return _evict_if_allowed(findings.LocalStorage(), is_allowed=rules.policy.delete_emptydir_data)


def _judge_unmanaged(pod: Pod, rules: DrainRules) -> _Ruling | None:
    if _has_ended_or_terminates(pod) or pod.owner is not None:
        return None
    return _evict_if_allowed(findings.UnmanagedPod(), is_allowed=rules.policy.force)


def _judge_completing(pod: Pod, rules: DrainRules) -> _Ruling | None:
    if not rules.waits_for(pod):
        return None
    return _Ruling(Action.WAIT, findings.CompletingPod())


def _judge_never_evicted(pod: Pod, rules: DrainRules) -> _Ruling | None:
    if rules.policy.completion.fallback is CompletionFallback.EVICT:
        return None
    return _judge_completing(pod, rules)


# The first to leave a pod, or to wait for it, decides.
_FILTERS = (
    _judge_unselected,
    _judge_overdue,
    _judge_daemon_set_pod,
    _judge_mirror_pod,
    _judge_never_evicted,
    _judge_local_storage,
    _judge_unmanaged,
    _judge_completing,
)


def judge(pod: Pod, rules: DrainRules) -> PodVerdict:
    has_selectors = rules.selector.requirements or rules.completion_selectors
    if not has_selectors and _is_ordinary(pod):
        return PodVerdict(pod, Action.EVICT, VerdictReason.ORDINARY)
    warnings = list[WarningFinding]()
    refusals = list[findings.PodFinding]()
    reason = _usual_reason(pod)
    for filter_pod in _FILTERS:
        ruling = filter_pod(pod, rules)
        if ruling is None:
            continue
        finding = ruling.finding
        if ruling.action is Action.REFUSE:
            refusals.append(finding)
            continue
        leaves_or_waits = ruling.action is not Action.EVICT
        if leaves_or_waits and refusals:
            continue
        if ruling.warning:
            warnings.append(ruling.warning)
        if leaves_or_waits:
            return PodVerdict(
                pod, ruling.action, finding.kind, (finding,), warnings=tuple(warnings)
            )
        reason = finding.kind
    if refusals:
        reason = refusals[0].kind
        because = tuple(refusals)
        return PodVerdict(pod, Action.REFUSE, reason, because, warnings=tuple(warnings))
    return PodVerdict(pod, Action.EVICT, reason, warnings=tuple(warnings))


def _is_ordinary(pod: Pod) -> bool:
    if pod.owner is None or is_of_daemon_set(pod):
        return False
    return not (pod.mirror or pod.has_empty_dir or _has_ended_or_terminates(pod))


def _usual_reason(pod: Pod) -> VerdictReason:
    if pod.terminating:
        return VerdictReason.TERMINATING
    return VerdictReason.FINISHED if pod.finished else VerdictReason.ORDINARY


def judge_all(pods: Iterable[Pod], rules: DrainRules) -> tuple[PodVerdict, ...]:
    return tuple(judge(pod, rules) for pod in pods)


def with_action(action: Action, verdicts: Iterable[PodVerdict]) -> tuple[PodVerdict, ...]:
    return tuple(verdict for verdict in verdicts if verdict.action is action)


def is_replaced(pod: Pod) -> bool:
    """Whether a controller replaces the pod on any node."""
    if pod.owner is None or _has_ended_or_terminates(pod):
        return False
    return pod.owner.kind not in _NEVER_REPLACED


def movable_pods(verdicts: Iterable[PodVerdict]) -> tuple[Pod, ...]:
    evicted = (verdict.pod for verdict in with_action(Action.EVICT, verdicts))
    return tuple(pod for pod in evicted if is_replaced(pod))
