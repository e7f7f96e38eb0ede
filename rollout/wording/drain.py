from collections.abc import Sequence
from datetime import datetime
from typing import assert_never

from rollout.model import drain_finding as findings
from rollout.model.cluster import HOST_PORT, Resources
from rollout.model.completion import AwaitedPod
from rollout.model.drain_finding import Nowhere, PlacementRule, Shortage
from rollout.model.finding import StillRunning
from rollout.model.text import counted, shortened
from rollout.wording.words import Words, text, words

_MOST_PODS = 3
_MEBIBYTE = 2**20


@words.register
def _not_selected(_finding: findings.NotSelected) -> Words:
    return Words("is not selected by --pod-selector")


@words.register
def _overdue_pod(finding: findings.OverduePod) -> Words:
    setting = f"drain.skip-wait-for-delete-timeout is {finding.patience}"
    ended = f"its grace period ended {finding.overdue} s ago"
    return Words(f"is stuck terminating: {ended} ({setting})")


@words.register
def _of_daemon_set(finding: findings.OfDaemonSet) -> Words:
    return Words(f"belongs to the DaemonSet {finding.daemon_set}, which would replace it")


@words.register
def _static_pod(_finding: findings.StaticPod) -> Words:
    return Words("is a static pod: its kubelet runs it from a file")


@words.register
def _daemon_set_gone(finding: findings.DaemonSetGone) -> Words:
    gone = f"its DaemonSet {finding.daemon_set} no longer exists"
    return Words(f"{gone}, so nothing would replace it", fix="use --force to evict it")


@words.register
def _completing_pod(_finding: findings.CompletingPod) -> Words:
    return Words("is selected by drain.wait-for-completion, so the drain waits until it completes")


@words.register
def _local_storage(_finding: findings.LocalStorage) -> Words:
    return Words(
        "has emptyDir data that would be lost", fix="use --delete-emptydir-data to evict it"
    )


@words.register
def _unmanaged_pod(_finding: findings.UnmanagedPod) -> Words:
    return Words("has no controller, so nothing would replace it", fix="use --force to evict it")


def why_not_evicted(reasons: Sequence[findings.PodFinding]) -> str:
    return "; ".join(text(reason) for reason in reasons)


def awaited_text(pods: Sequence[AwaitedPod], now: datetime | None) -> str:
    number = len({pod.name for pod in pods})
    noun = "job" if all(pod.job for pod in pods) else "pod"
    first = pods[0]
    ran = first.ran_for(now)
    so_far = f", {ran} so far" if ran is not None else ""
    return f"waits for {counted(number, noun)} to finish ({first.name}{so_far})"


@words.register
def _still_running(finding: StillRunning) -> Words:
    pods = [f"{name} ({ran} so far)" if ran else name for name, ran in finding.ran.items()]
    timeout = f"drain.wait-for-completion-timeout {finding.timeout}"
    cause = f"{shortened(pods, _MOST_PODS)} did not complete within {timeout}"
    return Words(
        cause, fix="raise this timeout, or set drain.wait-for-completion-fallback to evict"
    )


@words.register
def _restarting(finding: findings.Restarting) -> Words:
    """Use the words of `kubectl rollout status`."""
    name = f"Deployment {finding.deployment}"
    progress = finding.progress
    available = f"{progress.available} of {progress.updated} updated replicas are available"
    if finding.is_reverted:
        return Words(f"something has reverted the restart of {name}")
    if not progress.is_observed:
        return Words(f"{name} was restarted, but its controller has not observed this yet")
    if progress.is_late:
        return Words(f"{name} exceeded its progress deadline: {available}")
    waits = f"{name} was restarted, and waits for its new replicas"
    if progress.updated < progress.desired:
        updated = f"{progress.updated} of {progress.desired} have been updated"
        return Words(f"{waits}: {updated}")
    return Words(f"{waits}: {available}")


_RULES = {
    PlacementRule.OWN_ANTI_AFFINITY: "the pod anti-affinity rules",
    PlacementRule.OTHERS_ANTI_AFFINITY: "another pod's anti-affinity",
    PlacementRule.POD_AFFINITY: "the pod affinity rules",
    PlacementRule.TOPOLOGY_SPREAD: "the topology spread constraints",
}


def why_fits_nowhere(nowhere: Nowhere) -> str:
    match nowhere:
        case findings.NoNodeMatches():
            rules = "the node selector, affinity and tolerations"
            return f"no other schedulable node matches {rules}"
        case findings.VolumeElsewhere(volume=volume):
            return f"volume {volume} cannot be attached to any other schedulable node"
        case findings.NoRoom(requests=requests, shortage=shortage):
            requested = _requests_text(requests)
            demand = f"the requests ({requested})" if requested else "the pod"
            full = f"no other schedulable node has room for {demand}"
            return f"{full}: {_shortage_text(shortage)}"
        case findings.RulesExclude(rules=rules):
            return f"no other node satisfies {' and '.join(_RULES[rule] for rule in rules)}"
        case _:
            assert_never(nowhere)


def _requests_text(requests: Resources) -> str:
    amounts = (("CPU", requests.cpu_milli), ("memory", requests.memory), *requests.others)
    return ", ".join(_amount_text(name, amount) for name, amount in amounts if amount)


def _shortage_text(shortage: Shortage | None) -> str:
    if shortage is None:
        return "each lacks at least one of them"
    if shortage.resource.startswith(HOST_PORT):
        return f"{shortage.resource} is in use on each of them"
    if shortage.resource == "pods":
        return "each of them runs its maximum number of pods"
    total = _amount_text(shortage.resource, shortage.total)
    most = _amount_text(shortage.resource, shortage.most)
    if shortage.is_enough_in_total:
        return f"{total} free in total, but at most {most} on any one node"
    return f"{total} free, at most {most} on any one node"


def _amount_text(resource: str, amount: int) -> str:
    """The amount is in millicores, bytes or units."""
    match resource:
        case "CPU":
            return f"{amount}m CPU" if amount % 1000 else f"{amount // 1000} CPU"
        case "memory":
            return f"{amount // _MEBIBYTE}Mi memory"
        case _ if resource.startswith(HOST_PORT):
            return resource
        case _:
            return f"{amount} {resource}"
