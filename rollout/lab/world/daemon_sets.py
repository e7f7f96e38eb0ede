"""DaemonSets: one pod on each fitting node, cordoned ones included; replaced when the old one is gone."""

from typing_extensions import override

from rollout.lab.api.resources import DAEMONSETS, NODES
from rollout.lab.api.store import Change, ChangeType, Json
from rollout.lab.world.objects import is_active, is_deleting, is_finished, is_ready, labels_of, node_name, spec_of
from rollout.lab.world.placement import node_affinity_holds, pinned_node
from rollout.lab.world.tolerations import NOT_READY, UNREACHABLE, UNSCHEDULABLE, untolerated
from rollout.lab.world.workloads import WorkloadController, template_spec, without_zeros

_PRESSURES = ("disk-pressure", "memory-pressure", "pid-pressure")
_TOLERATED = (
    *((taint, "NoExecute") for taint in (NOT_READY, UNREACHABLE)),
    *((f"node.kubernetes.io/{pressure}", "NoSchedule") for pressure in _PRESSURES),
    (UNSCHEDULABLE, "NoSchedule"),
)


class DaemonSets(WorkloadController):
    """Keeps each DaemonSet's pods."""

    resource = DAEMONSETS

    def node_changed(self, change: Change) -> None:
        """Look at all DaemonSets again when a node came, went, or changed what decides about its pods."""
        if change.previous is not None and change.type is not ChangeType.DELETED:
            before, after = change.previous, change.obj
            if before.get("spec") == after.get("spec") and labels_of(before) == labels_of(after):
                return
        for obj in self._cluster.store.items(DAEMONSETS):
            metadata = obj["metadata"]
            self._cluster.agenda.soon(self.reconcile, metadata.get("namespace", ""), metadata["name"])

    @override
    def _act(self, obj: Json) -> None:
        present, spec = self._by_node(obj), _daemon_spec(obj)
        for node in self._cluster.store.items(NODES):
            name = node["metadata"]["name"]
            pods = present.pop(name, [])
            if not pods and _fits(spec, node):
                self._create(obj, spec={**spec, "affinity": _pinned(spec, name)})
            elif pods and not _fits(spec, node, ("NoExecute",)):
                self._delete(pods)
            else:
                self._delete([pod for pod in pods if is_finished(pod)])
        for pods in present.values():
            self._delete(pods)

    @override
    def _status(self, obj: Json) -> Json:
        spec, present = _daemon_spec(obj), self._by_node(obj)
        wanted = {node["metadata"]["name"] for node in self._cluster.store.items(NODES) if _fits(spec, node)}
        scheduled = [name for name in wanted if present.get(name)]
        ready = sum(any(is_ready(pod) for pod in present[name] if is_active(pod)) for name in scheduled)
        counts = {
            "numberAvailable": ready,
            "updatedNumberScheduled": len(scheduled),
            "numberUnavailable": len(wanted) - ready,
        }
        return {
            "currentNumberScheduled": len(scheduled),
            "desiredNumberScheduled": len(wanted),
            "numberMisscheduled": sum(name not in wanted for name in present),
            "numberReady": ready,
            **without_zeros(counts),
        }

    def _by_node(self, obj: Json) -> dict[str, list[Json]]:
        """The DaemonSet's pods by the node they run on or are meant for."""
        pods: dict[str, list[Json]] = {}
        for pod in self._pods(obj):
            pods.setdefault(node_name(pod) or pinned_node(pod) or "", []).append(pod)
        return pods

    def _delete(self, pods: list[Json]) -> None:
        for pod in pods:
            if not is_deleting(pod):
                self._cluster.delete_pod(pod)


def _daemon_spec(obj: Json) -> Json:
    """The template's pod spec with the tolerations that the controller adds."""
    spec = template_spec(obj)
    added = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in _TOLERATED]
    return {**spec, "tolerations": [*(spec.get("tolerations") or ()), *added]}


def _pinned(spec: Json, node: str) -> Json:
    """The affinity that binds the pod to one node, as the real controller writes it."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {**(spec.get("affinity") or {}), "nodeAffinity": required}


def _fits(spec: Json, node: Json, effects: tuple[str, ...] = ("NoSchedule", "NoExecute")) -> bool:
    """Whether a pod may come to the node, or by `NoExecute` alone stay there."""
    held = node_affinity_holds({"spec": spec}, node["metadata"]["name"], labels_of(node))
    return held and untolerated(spec, spec_of(node).get("taints") or (), effects) is None
