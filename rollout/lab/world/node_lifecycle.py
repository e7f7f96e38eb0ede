"""The node lifecycle controller: silent nodes turn Unknown, taints follow conditions, pods leave tainted nodes.

And the pods' garbage collector, as far as it is about nodes: those of a Node that is gone are
deleted.

Nodes without a kubelet, which clients of the lab make to try things, are nobody's to judge: only
the taint of a cordon is kept for them.
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
from rollout.lab.world.placement import NOT_READY, UNREACHABLE, UNSCHEDULABLE, Taint, seconds_on

# A node may be silent for so long before it is called Unknown, which is looked at now and then;
# pods of a Node that was deleted stay for so long.
_GRACE_SECONDS = 40
_MONITOR_SECONDS = 5
_ORPHAN_SECONDS = 40
_EFFECTS = ("NoSchedule", "NoExecute")


class NodeLifecycle:
    """Watches Leases and Nodes."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._store = cluster.store
        self._heard: dict[str, float] = {}

    def lease_changed(self, change: Change) -> None:
        """Somebody renewed a Lease: a kubelet, if it is one of theirs."""
        namespace, name = key(change.obj)
        if namespace == "kube-node-lease" and not change.gone:
            self._heard[name] = self._cluster.agenda.time
            if change.previous is None:
                # From its first Lease on the Node is judged by its conditions, which may stand
                # there already.
                self._cluster.agenda.soon(self._follow, name)

    def node_changed(self, change: Change) -> None:
        """Take in a Node that changed: its taints and its pods follow."""
        name = name_of(change.obj)
        if change.gone:
            self._heard.pop(name, None)
            self._cluster.agenda.after(_ORPHAN_SECONDS, self._collect_orphans, name, settles=False)
            return
        self._cluster.agenda.soon(self._follow, name)
        if change.previous is not None and is_ready(change.previous) and not is_ready(change.obj):
            self._cluster.agenda.soon(self._give_up_pods, name)
        if change.differs(_no_execute):
            self._cluster.agenda.soon(self._plan_evictions, name)

    def begin_monitoring(self) -> None:
        """Look for silent nodes from now on."""
        self._cluster.agenda.repeat(_MONITOR_SECONDS, self._monitor)

    def _monitor(self) -> None:
        silent_since = self._cluster.agenda.time - _GRACE_SECONDS
        for name, heard in self._heard.items():
            if heard < silent_since and (node := self._store.get(NODES, name)):
                self._store.put(NODES, mark_silent(node, self._cluster.now()))

    def _follow(self, name: str) -> None:
        """Set the taints that follow from the conditions and from a cordon."""
        node = self._store.get(NODES, name)
        if node is None:
            return
        taints = self._wanted_taints(node, list(spec_of(node).get("taints") or ()))
        spec = {field: value for field, value in spec_of(node).items() if field != "taints"}
        self._store.put(NODES, {**node, "spec": {**spec, **({"taints": taints} if taints else {})}})

    def _wanted_taints(self, node: Json, taints: list[Json]) -> list[Json]:
        judged = self._store.get(LEASES, name_of(node), "kube-node-lease") is not None
        ready = condition(node, "Ready")
        if judged or (ready is not None and ready["status"] == "Unknown"):
            verdict = ready["status"] if ready is not None else "Unknown"
            taints = self._toggle(taints, NOT_READY, _EFFECTS, wanted=verdict == "False")
            taints = self._toggle(taints, UNREACHABLE, _EFFECTS, wanted=verdict == "Unknown")
        cordoned = bool(spec_of(node).get("unschedulable"))
        return self._toggle(taints, UNSCHEDULABLE, ("NoSchedule",), wanted=cordoned)

    def _toggle(
        self, taints: list[Json], taint_key: str, effects: tuple[str, ...], *, wanted: bool
    ) -> list[Json]:
        others = [taint for taint in taints if taint["key"] != taint_key]
        if not wanted:
            return others
        if len(taints) - len(others) == len(effects):
            return taints
        moment = timestamp(self._cluster.now())
        return [
            *others,
            *({"key": taint_key, "effect": effect, "timeAdded": moment} for effect in effects),
        ]

    def _give_up_pods(self, name: str) -> None:
        """Mark the pods of a node that is not Ready as not ready, so that budgets and services see it."""
        node = self._store.get(NODES, name)
        if node is None or is_ready(node):
            return
        for pod in filter(is_ready, self._store.pods_on(name)):
            self._store.put(
                PODS, with_condition(pod, {"type": "Ready", "status": "False"}, self._cluster.now())
            )

    def _collect_orphans(self, name: str) -> None:
        """Delete the pods of a Node that is gone at once: no kubelet is there to end them."""
        if self._store.get(NODES, name) is None:
            for pod in self._store.pods_on(name):
                self._cluster.delete(PODS, pod, grace_seconds=0)

    def _plan_evictions(self, name: str) -> None:
        node = self._store.get(NODES, name)
        for taint in _no_execute(node) if node is not None else ():
            for pod in self._store.pods_on(name):
                seconds = seconds_on(spec_of(pod), taint)
                if seconds is not None and is_active(pod) and not is_mirror(pod):
                    args = (name, pod, taint)
                    self._cluster.agenda.after(seconds, self._evict, *args, settles=seconds == 0)

    def _evict(self, name: str, tainted: Json, taint: Taint) -> None:
        """Delete a pod that has stayed under the taint as long as it tolerates it."""
        node = self._store.get(NODES, name)
        pod = self._cluster.current(PODS, tainted)
        if node is None or pod is None or is_deleting(pod) or taint not in _no_execute(node):
            return
        target = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint",
        }
        marked = with_condition(pod, target, self._cluster.now())
        self._cluster.delete(PODS, self._store.put(PODS, marked))


def _no_execute(node: Json) -> list[Json]:
    return [taint for taint in spec_of(node).get("taints") or () if taint["effect"] == "NoExecute"]
