"""The node lifecycle controller, which also deletes the pods of deleted Nodes.

Nodes without a kubelet, which clients create, get only the taint of a cordon.
"""

from rollout.lab.api.resources import LEASES, NODES, PODS
from rollout.lab.api.store import Change, Json, timestamp
from rollout.lab.objects import (
    condition,
    is_active,
    is_deleting,
    is_mirror,
    is_ready,
    key,
    name_of,
    spec_of,
    with_condition,
)
from rollout.lab.world.cluster import SimulatedCluster
from rollout.lab.world.host import mark_silent
from rollout.lab.world.placement import (
    NOT_READY,
    UNREACHABLE,
    UNSCHEDULABLE,
    Taint,
    toleration_seconds,
)

_GRACE_SECONDS = 40
_MONITOR_SECONDS = 5
_ORPHAN_SECONDS = 40
_EFFECTS = ("NoSchedule", "NoExecute")
_DISRUPTION_TARGET = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "DeletionByTaintManager",
    "message": "Taint manager: deleting due to NoExecute taint",
}


class NodeLifecycle:
    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._store = cluster.store
        self._last_heartbeat: dict[str, float] = {}

    def lease_changed(self, change: Change) -> None:
        namespace, name = key(change.obj)
        if namespace != "kube-node-lease" or change.gone:
            return
        self._last_heartbeat[name] = self._cluster.agenda.time
        if change.previous is None:
            # The Node's conditions count from the first Lease on.
            self._cluster.agenda.soon(self._update_taints, name)

    def node_changed(self, change: Change) -> None:
        name = name_of(change.obj)
        agenda = self._cluster.agenda
        if change.gone:
            self._last_heartbeat.pop(name, None)
            agenda.after(_ORPHAN_SECONDS, self._collect_orphans, name, is_skippable=False)
            return
        agenda.soon(self._update_taints, name)
        if change.previous is not None and is_ready(change.previous) and not is_ready(change.obj):
            agenda.soon(self._mark_pods_not_ready, name)
        if change.differs(_no_execute_taints):
            agenda.soon(self._plan_evictions, name)

    def begin_monitoring(self) -> None:
        self._cluster.agenda.repeat(_MONITOR_SECONDS, self._monitor)

    def _monitor(self) -> None:
        silent_since = self._cluster.agenda.time - _GRACE_SECONDS
        for name, last_heartbeat in self._last_heartbeat.items():
            node = self._store.get(NODES, name)
            if last_heartbeat < silent_since and node is not None:
                self._store.put(NODES, mark_silent(node, self._cluster.now()))

    def _update_taints(self, name: str) -> None:
        node = self._store.get(NODES, name)
        if node is None:
            return
        taints = self._expected_taints(node)
        spec = dict(spec_of(node))
        spec.pop("taints", None)
        if taints:
            spec["taints"] = taints
        self._store.put(NODES, {**node, "spec": spec})

    def _expected_taints(self, node: Json) -> list[Json]:
        taints = list(spec_of(node).get("taints") or ())
        has_kubelet = self._store.get(LEASES, name_of(node), "kube-node-lease") is not None
        ready = condition(node, "Ready")
        status = "Unknown" if ready is None else ready["status"]
        if has_kubelet or (ready is not None and status == "Unknown"):
            taints = self._toggle(taints, NOT_READY, _EFFECTS, wanted=status == "False")
            taints = self._toggle(taints, UNREACHABLE, _EFFECTS, wanted=status == "Unknown")
        is_cordoned = bool(spec_of(node).get("unschedulable"))
        return self._toggle(taints, UNSCHEDULABLE, ("NoSchedule",), wanted=is_cordoned)

    def _toggle(
        self, taints: list[Json], taint_key: str, effects: tuple[str, ...], *, wanted: bool
    ) -> list[Json]:
        """Present taints keep their time."""
        others = [taint for taint in taints if taint["key"] != taint_key]
        if not wanted:
            return others
        if len(taints) - len(others) == len(effects):
            return taints
        now = timestamp(self._cluster.now())
        added = [{"key": taint_key, "effect": effect, "timeAdded": now} for effect in effects]
        return others + added

    def _mark_pods_not_ready(self, name: str) -> None:
        node = self._store.get(NODES, name)
        if node is None or is_ready(node):
            return
        not_ready = {"type": "Ready", "status": "False"}
        for pod in filter(is_ready, self._store.pods_on(name)):
            self._store.put(PODS, with_condition(pod, not_ready, self._cluster.now()))

    def _collect_orphans(self, name: str) -> None:
        """No kubelet terminates these pods, so they get no grace."""
        if self._store.get(NODES, name) is None:
            for pod in self._store.pods_on(name):
                self._cluster.delete(PODS, pod, grace_seconds=0)

    def _plan_evictions(self, name: str) -> None:
        node = self._store.get(NODES, name)
        if node is None:
            return
        for taint in _no_execute_taints(node):
            for pod in self._store.pods_on(name):
                seconds = toleration_seconds(spec_of(pod), taint)
                if seconds is not None and is_active(pod) and not is_mirror(pod):
                    arguments = (name, pod, taint)
                    self._cluster.agenda.after(
                        seconds, self._evict, *arguments, is_skippable=seconds == 0
                    )

    def _evict(self, name: str, tainted: Json, taint: Taint) -> None:
        node = self._store.get(NODES, name)
        pod = self._cluster.current(PODS, tainted)
        if node is None or pod is None or is_deleting(pod):
            return
        if taint in _no_execute_taints(node):
            marked = with_condition(pod, _DISRUPTION_TARGET, self._cluster.now())
            self._cluster.delete(PODS, self._store.put(PODS, marked))


def _no_execute_taints(node: Json) -> list[Json]:
    taints = spec_of(node).get("taints") or ()
    return [taint for taint in taints if taint["effect"] == "NoExecute"]
