"""Taints and tolerations."""

from collections.abc import Iterable, Mapping
from typing import Any

from rollout.lab.api.store import Json

UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"

Taint = Mapping[str, Any]


def tolerates(toleration: Json, taint: Taint) -> bool:
    """Whether one toleration covers one taint."""
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", "")


def untolerated(
    pod_spec: Json, taints: Iterable[Taint], effects: tuple[str, ...] = ("NoSchedule", "NoExecute")
) -> Taint | None:
    """The first taint with one of the effects that the pod does not tolerate."""
    tolerations = pod_spec.get("tolerations") or ()
    for taint in taints:
        if taint["effect"] in effects and not any(tolerates(toleration, taint) for toleration in tolerations):
            return taint
    return None


def soft_taints(pod_spec: Json, taints: Iterable[Taint]) -> int:
    """How many taints speak against a node without keeping the pod from it."""
    tolerations = pod_spec.get("tolerations") or ()
    soft = (taint for taint in taints if taint["effect"] == "PreferNoSchedule")
    return sum(not any(tolerates(toleration, taint) for toleration in tolerations) for taint in soft)


def seconds_on(pod_spec: Json, taint: Taint, default: int) -> float | None:
    """How long a pod may stay under a NoExecute taint: None for ever, 0 not at all.

    `default` is for pods that came without the tolerations which an API server adds at admission.
    """
    fitting = [toleration for toleration in pod_spec.get("tolerations") or () if tolerates(toleration, taint)]
    if not fitting:
        return default if taint["key"] in {NOT_READY, UNREACHABLE} else 0
    limits = [entry["tolerationSeconds"] for entry in fitting if entry.get("tolerationSeconds") is not None]
    return max(0, min(limits)) if limits else None


def with_taint(taints: list[Json], taint: Json) -> list[Json]:
    """The taints with this one in them; one that stands already keeps its time."""
    if any(_same(entry, taint) for entry in taints):
        return taints
    return [*taints, taint]


def without_taint(taints: list[Json], key: str) -> list[Json]:
    """The taints without those of a key."""
    return [taint for taint in taints if taint["key"] != key]


def _same(one: Taint, other: Taint) -> bool:
    return bool(one["key"] == other["key"] and one["effect"] == other["effect"])
