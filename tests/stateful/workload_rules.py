"""Judges how a rollout moves the pods of the workloads that a drain has to move with care."""

import time
from dataclasses import dataclass, field

from rollout.gather.cluster.decode import RESTARTED_AT
from rollout.lab.api.resources import DEPLOYMENTS, NODES, PODS
from rollout.lab.api.store import Change, Json
from rollout.lab.lab import Lab
from rollout.lab.objects import (
    annotations_of,
    field_of,
    is_active,
    is_deleting,
    is_finished,
    is_ready,
    labels_of,
    name_of,
    node_name,
    phase,
    uid,
)
from rollout.model.policy import CompletionFallback
from rollout.model.progress import Phase
from tests.stateful.witness import PHASE, RUN, Witness, is_cordoned
from tests.stateful.workloads import DATABASE, JOB_LABEL, JOB_SECONDS, REPLICA, Workloads

_ROLE = "cnpg.io/instanceRole"
_ROUNDED = 1.1
"""Seconds by which a wait may be shorter: the API server writes and tells whole seconds."""
_EMPTYING = frozenset(Phase) - {Phase.PENDING, Phase.FAILED}


@dataclass
class JobRule:
    """A drain evicts no running Job, or only after it has waited for its end.

    draining_since: since when each node is marked as draining, in monotonic seconds.
    """

    witness: Witness
    fallback: CompletionFallback
    draining_since: dict[str, float] = field(default_factory=dict)

    def begin(self) -> None:
        self.witness.lab.store.subscribe(self._observe)

    def _observe(self, change: Change) -> None:
        if change.resource is NODES:
            self._note_phase(change)
        elif change.resource is PODS and self._is_running_job_that_ends(change):
            self._judge_eviction(change.obj)

    def _note_phase(self, change: Change) -> None:
        name = name_of(change.obj)
        if not change.gone and annotations_of(change.obj).get(PHASE) == Phase.DRAINING:
            self.draining_since.setdefault(name, time.monotonic())
        else:
            self.draining_since.pop(name, None)

    def _is_running_job_that_ends(self, change: Change) -> bool:
        before = change.previous
        return (
            before is not None
            and JOB_LABEL in labels_of(before)
            and phase(before) == "Running"
            and self.witness.is_ended_by_rollout(change)
        )

    def _judge_eviction(self, pod: Json) -> None:
        name = name_of(pod)
        node = node_name(pod)
        if self.fallback is CompletionFallback.RETURN:
            self.witness.broken.append(f"{name} was evicted from {node}, and should have completed")
            return
        since = self.draining_since.get(node)
        waited = 0.0 if since is None else time.monotonic() - since
        if waited < JOB_SECONDS - _ROUNDED:
            self.witness.broken.append(f"{name} was evicted from {node} after {waited:.1f} s")


@dataclass
class SingleReplicaRule:
    """A restart never leaves a Deployment of one replica without a Ready pod.

    It happens only if it starts the new pod first, and once for each pod on a node that is drained.
    replaced: the UIDs of these pods.
    """

    witness: Witness
    surges: bool
    replaced: set[str] = field(default_factory=set)

    @property
    def lab(self) -> Lab:
        return self.witness.lab

    def begin(self) -> None:
        self.lab.store.subscribe(self._observe)

    def _observe(self, change: Change) -> None:
        if change.resource is DEPLOYMENTS and name_of(change.obj) == REPLICA:
            self._judge_restart(change)
        elif change.resource is PODS and labels_of(change.obj).get("app") == REPLICA:
            self._judge_end(change)

    def _judge_restart(self, change: Change) -> None:
        if change.previous is None or _restarted_at(change.previous) == _restarted_at(change.obj):
            return
        if not self.surges:
            self.witness.broken.append(f"{REPLICA} was restarted, which ends its pod first")
        on_drained = {uid(pod) for pod in self._pods() if node_name(pod) in self.witness.phases}
        is_needed = bool(on_drained - self.replaced)
        self.replaced |= on_drained
        if not (is_needed or self.witness.excused_budgets or self.witness.meddled):
            self.witness.broken.append(f"{REPLICA} was restarted without need")

    def _judge_end(self, change: Change) -> None:
        """Judge a pod that was Ready until someone began to end it."""
        before = change.previous
        if before is None or not is_ready(before) or is_deleting(before):
            return
        has_ended = change.gone or is_deleting(change.obj)
        node = self.lab.store.get(NODES, node_name(change.obj))
        if not has_ended or self.witness.acts_for_others or node is None:
            return
        if f"shop/{REPLICA}" in self.witness.excused_budgets:
            return
        others = [pod for pod in self._pods() if uid(pod) != uid(change.obj)]
        if not any(is_ready(pod) and is_active(pod) for pod in others):
            self.witness.broken.append(f"{REPLICA} was left without a Ready replica")

    def _pods(self) -> list[Json]:
        pods = self.lab.store.items(PODS, "shop")
        return [pod for pod in pods if labels_of(pod).get("app") == REPLICA]


def _restarted_at(deployment: Json) -> str:
    annotations = field_of(deployment, "spec.template.metadata.annotations") or {}
    return str(annotations.get(RESTARTED_AT, ""))


@dataclass
class DatabaseRule:
    """While the operator holds a budget closed, one node with instances is in flight at a time.

    landed: when each instance came to its node. has_primary_since: since when one is Ready. Both
    in monotonic seconds.
    """

    witness: Witness
    landed: dict[tuple[str, str], float] = field(default_factory=dict)
    has_primary_since: float | None = None

    def begin(self) -> None:
        """Watch from now on, after the witness; in the lab's loop."""
        for pod in self._instances():
            self._note_instance(pod)
        self._note_primary()
        self.witness.lab.store.subscribe(self._observe)

    def _observe(self, change: Change) -> None:
        if change.resource is PODS and _is_instance(change.obj):
            if change.gone:
                self.landed.pop(_place(change.obj), None)
            else:
                self._note_instance(change.obj)
            self._note_primary()
        elif change.resource is NODES and self._is_cordoned_by_rollout(change):
            self._judge_cordon(name_of(change.obj))

    def _note_instance(self, pod: Json) -> None:
        self.landed.setdefault(_place(pod), time.monotonic())

    def _note_primary(self) -> None:
        has_primary = any(
            labels_of(pod).get(_ROLE) == "primary" and is_ready(pod) and is_active(pod)
            for pod in self._instances()
        )
        if not has_primary:
            self.has_primary_since = None
        elif self.has_primary_since is None:
            self.has_primary_since = time.monotonic()

    def _is_cordoned_by_rollout(self, change: Change) -> bool:
        before = change.previous
        return (
            before is not None
            and not change.gone
            and not self.witness.acts_for_others
            and RUN in annotations_of(change.obj)
            and is_cordoned(change.obj)
            and not is_cordoned(before)
        )

    def _judge_cordon(self, node: str) -> None:
        if not self._stands(self.has_primary_since) or not self._has_instances(node):
            return
        for other, phase_of_other in self.witness.phases.items():
            is_known = other not in self.witness.meddled and node not in self.witness.meddled
            in_flight = other != node and phase_of_other in _EMPTYING
            if is_known and in_flight and self._has_instances(other):
                self.witness.broken.append(
                    f"{node} was cordoned while {other} had instances of {DATABASE} as well"
                )

    def _has_instances(self, node: str) -> bool:
        return any(
            node_name(pod) == node
            and not is_finished(pod)
            and self._stands(self.landed[_place(pod)])
            for pod in self._instances()
        )

    def _stands(self, since: float | None) -> bool:
        return since is not None and time.monotonic() - since > self.witness.within

    def _instances(self) -> list[Json]:
        return [pod for pod in self.witness.lab.store.items(PODS, "db") if _is_instance(pod)]


def _is_instance(pod: Json) -> bool:
    return labels_of(pod).get("app") == DATABASE


def _place(pod: Json) -> tuple[str, str]:
    return uid(pod), node_name(pod)


@dataclass
class WorkloadRules:
    """The rules of one cluster's workloads. Whatever breaks them is told by the witness."""

    jobs: JobRule
    replica: SingleReplicaRule
    database: DatabaseRule

    @classmethod
    def of(cls, witness: Witness, workloads: Workloads) -> "WorkloadRules":
        return cls(
            JobRule(witness, workloads.fallback),
            SingleReplicaRule(witness, surges=workloads.surges),
            DatabaseRule(witness),
        )

    def begin(self) -> None:
        """Watch from now on, after the witness; in the lab's loop."""
        self.jobs.begin()
        self.replica.begin()
        self.database.begin()
