"""Disruption budgets: their status follows the pods, a little behind them, and rounds as the real controller does."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime

from rollout.lab.api.resources import BUDGETS, REPLICASETS, STATEFULSETS, Resource
from rollout.lab.api.store import Change, Json
from rollout.lab.objects import (
    controller_of,
    field_of,
    is_deleting,
    is_ready,
    key,
    labels_of,
    name_of,
    namespace_of,
    spec_of,
    status_of,
    uid,
    with_condition,
)
from rollout.lab.world.cluster import SimulatedCluster


def expectation(budget: Json, pods: int, scale: Callable[[], int]) -> tuple[int, int]:
    """Return how many pods a budget expects, and how many of them must be healthy.

    `pods` is how many pods the selector picks, `scale` the replicas of their controllers. Only a
    plain `minAvailable` number counts the pods themselves; percentages round up.
    """
    spec = spec_of(budget)
    limit = spec.get("maxUnavailable")
    least = spec.get("minAvailable", 1)
    if limit is None and not str(least).endswith("%"):
        return pods, int(least)
    expected = scale()
    if limit is None:
        return expected, _count(least, expected)
    return expected, max(0, expected - _count(limit, expected))


def _count(value: str | int, total: int) -> int:
    text = str(value)
    return math.ceil(total * int(text[:-1]) / 100) if text.endswith("%") else int(text)


# How far the controller trails the pods, and how long an eviction counts that has led to nothing.
_LAG_SECONDS = 0.2
_EXPIRY_SECONDS = 120

_SCALED: dict[str, Resource] = {"ReplicaSet": REPLICASETS, "StatefulSet": STATEFULSETS}


class UnscalableError(Exception):
    """A pod's controller has no scale to count with."""


class DisruptionController:
    """Writes each budget's counts, and forgets evictions that led to nothing."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster

    def budget_changed(self, change: Change) -> None:
        """Take in a budget that came or changed."""
        if not change.gone:
            self._ask(change.obj)

    def pod_changed(self, change: Change) -> None:
        """Take in a pod that changed: all budgets that pick it are looked at again."""
        if change.differs(is_ready, is_deleting, labels_of):
            for pod in (change.obj, change.previous or change.obj):
                self._ask_those_picking(namespace_of(pod), labels_of(pod))

    def scale_changed(self, change: Change) -> None:
        """Take in a controller that changed: its scale may count in the budgets of its pods."""
        if change.differs(spec_of):
            labels = field_of(change.obj, "spec.template.metadata.labels") or {}
            self._ask_those_picking(namespace_of(change.obj), labels)

    def _ask_those_picking(self, namespace: str, labels: Mapping[str, str]) -> None:
        for budget in self._cluster.picking(namespace, labels):
            self._ask(budget)

    def _ask(self, budget: Json) -> None:
        self._cluster.agenda.later(_LAG_SECONDS, self._reconcile, *key(budget))

    def _reconcile(self, namespace: str, name: str) -> None:
        budget = self._cluster.store.get(BUDGETS, name, namespace)
        if budget is None:
            return
        pods = self._cluster.matching(namespace, spec_of(budget).get("selector"))
        counts: Json = {
            "currentHealthy": 0,
            "desiredHealthy": 0,
            "expectedPods": 0,
            **status_of(budget),
        }
        allowed = 0
        message = ""
        disrupted = dict[str, str]()
        try:
            expected, desired = expectation(budget, len(pods), lambda: sum(self._scales(pods)))
        except UnscalableError as error:
            message = str(error)
        else:
            counts.pop("disruptedPods", None)
            if disrupted := self._still_disrupted(budget, pods):
                counts["disruptedPods"] = disrupted
                # Looked at again once the oldest entry must have led to a deletion.
                self._cluster.agenda.after(
                    _EXPIRY_SECONDS, self._reconcile, namespace, name, settles=False
                )
            healthy = sum(_is_healthy(pod, disrupted) for pod in pods)
            allowed = max(0, healthy - desired) if expected else 0
            counts |= {
                "currentHealthy": healthy,
                "desiredHealthy": desired,
                "expectedPods": expected,
            }
        generation = budget["metadata"].get("generation", 1)
        counts |= {"disruptionsAllowed": allowed, "observedGeneration": generation}
        verdict = {
            "type": "DisruptionAllowed",
            "status": "True" if allowed else "False",
            "reason": (
                "SyncFailed" if message else "SufficientPods" if allowed else "InsufficientPods"
            ),
            "message": message,
            "observedGeneration": generation,
        }
        counted = with_condition({**budget, "status": counts}, verdict, self._cluster.now())
        self._cluster.store.put(BUDGETS, counted)

    def _still_disrupted(self, budget: Json, pods: list[Json]) -> dict[str, str]:
        """Return the evictions granted whose pods are not yet going; after two minutes they are given up."""
        granted: dict[str, str] = status_of(budget).get("disruptedPods") or {}
        staying = {name_of(pod) for pod in pods if not is_deleting(pod)}
        return {
            name: moment
            for name, moment in granted.items()
            if name in staying
            and self._cluster.clock.age(datetime.fromisoformat(moment)) < _EXPIRY_SECONDS
        }

    def _scales(self, pods: Iterable[Json]) -> Iterator[int]:
        """Return the replicas of each controller of the pods; pods without one are passed over."""
        owned = ((pod, controller_of(pod)) for pod in pods)
        for pod, owner in {owner["uid"]: (pod, owner) for pod, owner in owned if owner}.values():
            resource = _SCALED.get(owner["kind"])
            scaled = (
                self._cluster.store.get(resource, owner["name"], namespace_of(pod))
                if resource
                else None
            )
            if scaled is None or uid(scaled) != owner["uid"]:
                raise UnscalableError(_why_unscalable(pod, owner))
            yield int(spec_of(scaled).get("replicas", 1))


def _is_healthy(pod: Json, disrupted: dict[str, str]) -> bool:
    return not is_deleting(pod) and name_of(pod) not in disrupted and is_ready(pod)


def _why_unscalable(pod: Json, owner: Json) -> str:
    if owner["kind"] in {"DaemonSet", "Job"}:
        plural = f"{owner['kind'].lower()}s.{owner['apiVersion'].partition('/')[0]}"
        return f"{plural} does not implement the scale subresource"
    return f'found no controllers for pod "{name_of(pod)}"'
