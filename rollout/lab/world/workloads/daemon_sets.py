"""DaemonSets: one pod on each fitting node, cordoned ones included; replaced when the old one is gone."""

from typing_extensions import override

from rollout.lab.api.resources import DAEMONSETS, NODES
from rollout.lab.api.store import Change, ChangeType, Json
from rollout.lab.world.objects import (
    is_active,
    is_deleting,
    is_finished,
    is_ready,
    labels_of,
    node_name,
    spec_of,
)
from rollout.lab.world.placement import pinned_node
from rollout.lab.world.selectors import node_affinity_holds
from rollout.lab.world.tolerations import NOT_READY, UNREACHABLE, UNSCHEDULABLE, untolerated
from rollout.lab.world.workloads.controller import WorkloadController, kept_conditions
from rollout.lab.world.workloads.pod_template import pod_from, template_hash

_PRESSURES = ("disk-pressure", "memory-pressure", "pid-pressure")
_TOLERATIONS: tuple[Json, ...] = (
    {"key": NOT_READY, "operator": "Exists", "effect": "NoExecute"},
    {"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute"},
    *(
        {"key": f"node.kubernetes.io/{pressure}", "operator": "Exists", "effect": "NoSchedule"}
        for pressure in _PRESSURES
    ),
    {"key": UNSCHEDULABLE, "operator": "Exists", "effect": "NoSchedule"},
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
        present = self._by_node(obj)
        spec = daemon_spec(obj)
        for node in self._cluster.store.items(NODES):
            self._see_to(obj, spec, node, present.pop(node["metadata"]["name"], []))
        for pods in present.values():
            self._delete(pods)

    @override
    def _status(self, obj: Json) -> Json:
        spec, present = daemon_spec(obj), self._by_node(obj)
        nodes = self._cluster.store.items(NODES)
        wanted = {node["metadata"]["name"] for node in nodes if _should_run(spec, node)}
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
            **{name: count for name, count in counts.items() if count},
            **kept_conditions(obj),
        }

    def _by_node(self, obj: Json) -> dict[str, list[Json]]:
        """The DaemonSet's pods by the node they run on or are meant for."""
        pods: dict[str, list[Json]] = {}
        for pod in self._pods(obj):
            pods.setdefault(node_name(pod) or pinned_node(pod) or "", []).append(pod)
        return pods

    def _see_to(self, obj: Json, spec: Json, node: Json, pods: list[Json]) -> None:
        if not pods and _should_run(spec, node):
            self._create(self._new_pod(obj, spec, node["metadata"]["name"]))
        elif pods and not _may_stay(spec, node):
            self._delete(pods)
        else:
            self._delete([pod for pod in pods if is_finished(pod)])

    def _delete(self, pods: list[Json]) -> None:
        for pod in pods:
            if not is_deleting(pod):
                self._cluster.delete_pod(pod)

    def _new_pod(self, obj: Json, spec: Json, node: str) -> Json:
        prefix = f"{obj['metadata']['name']}-"
        name = self._free_name(obj["metadata"].get("namespace", ""), prefix)
        template = {**spec_of(obj)["template"], "spec": {**spec, "affinity": _pinned(spec, node)}}
        labels = {"controller-revision-hash": template_hash(spec_of(obj)["template"]), "pod-template-generation": "1"}
        return pod_from(template, obj, DAEMONSETS, name, labels=labels, generate_name=prefix)


def daemon_spec(obj: Json) -> Json:
    """The template's pod spec with the tolerations that the controller adds."""
    spec = spec_of(spec_of(obj)["template"])
    return {**spec, "tolerations": [*(spec.get("tolerations") or ()), *_TOLERATIONS]}


def _pinned(spec: Json, node: str) -> Json:
    """The affinity that binds the pod to one node, as the real controller writes it."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {**(spec.get("affinity") or {}), "nodeAffinity": required}


def _fits(spec: Json, node: Json) -> bool:
    return node_affinity_holds({"spec": spec}, node["metadata"]["name"], labels_of(node))


def _should_run(spec: Json, node: Json) -> bool:
    return _fits(spec, node) and untolerated(spec, spec_of(node).get("taints") or ()) is None


def _may_stay(spec: Json, node: Json) -> bool:
    taints = spec_of(node).get("taints") or ()
    return _fits(spec, node) and untolerated(spec, taints, ("NoExecute",)) is None
