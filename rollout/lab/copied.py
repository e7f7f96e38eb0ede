"""A lab that copies a real cluster: its hosts and its objects.

A snapshot has no controllers except DaemonSets, so each is made from its pods, with the first pod
as its template. Terminating pods are left out.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from rollout.errors import ScenarioError
from rollout.gather.cluster.copying import FORMAT_VERSION, KIND, ClusterCopy, CopiedHost, CopiedPace
from rollout.lab.api.lifecycle import ensure_namespace, with_defaults
from rollout.lab.api.resources import (
    BUDGETS,
    CLUSTERS,
    DAEMONSETS,
    NODES,
    PODS,
    REPLICASETS,
    STATEFULSETS,
    VOLUMES,
    Resource,
)
from rollout.lab.api.statuses import StatusError
from rollout.lab.api.store import Json, ObjectStore
from rollout.lab.hostplan import CONTROL_PLANE_LABEL, HostPlan
from rollout.lab.hosts.faults import HEALTHY, HostFaults, SshFault
from rollout.lab.hosts.machine import EngineState, HostSettings, HostTimings, Update
from rollout.lab.objects import (
    LAB_PREFIX,
    annotations_of,
    controller_of,
    is_deleting,
    is_finished,
    is_mirror,
    is_ready,
    labels_of,
    name_of,
    namespace_of,
    phase,
    spec_of,
    status_of,
    uid,
)
from rollout.lab.scenario import NodeGroup, Role, Scenario
from rollout.lab.world.databases import SWITCHOVER
from rollout.lab.world.host import Timings
from rollout.lab.world.volumes import CSI_DRIVER
from rollout.lab.world.workloads import ORDINAL, owner_reference
from rollout.model.cluster import OwnerRef
from rollout.planning.play.pace import HANDOVER_SECONDS

_ORDINAL: Final = re.compile(r"(.*-)\d+")
_OWN_TAINTS: Final = "node.kubernetes.io/"
_HINT: Final = "Write one with: rollout plan --snapshot FILE"
_MAX_ERROR: Final = 200
# The staged version of hosts whose snapshot does not name it.
_UNKNOWN_STAGED: Final = "9999.0.0"
_VERSION: Final = re.compile(r"\d+(\.\d+)+")
# How long a node's reboot takes in addition to its host's boot.
_BESIDE_BOOT: Final = HostTimings().shutdown + Timings().kubelet_ready
_CONTROLLED: Final[Mapping[str, Resource]] = {"StatefulSet": STATEFULSETS, "DaemonSet": DAEMONSETS}
# Owners that the lab does not simulate: the kubelets of static pods, and Jobs.
_UNCONTROLLED: Final = frozenset({"Node", "Job"})


def load_copy(path: Path, read_file: Callable[[Path], bytes] = Path.read_bytes) -> ClusterCopy:
    """Return the snapshot of a cluster in a file; raises ScenarioError."""
    try:
        copy = msgspec.json.decode(read_file(path), type=ClusterCopy)
    except OSError as error:
        message = f"cannot read the snapshot {path}: {error.strerror}"
        raise ScenarioError(message, hint=_HINT) from error
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        message = f"{path} is not the snapshot of a cluster: {str(error)[:_MAX_ERROR]}"
        raise ScenarioError(message, hint=_HINT) from error
    if (copy.format_version, copy.kind) != (FORMAT_VERSION, KIND) or not copy.nodes:
        raise ScenarioError(f"{path} is not a snapshot that this version reads", hint=_HINT)
    return copy


def scenario_like(path: Path, read_file: Callable[[Path], bytes] = Path.read_bytes) -> Scenario:
    """Return the scenario of a lab that copies a snapshot; its only group just counts the nodes."""
    copy = load_copy(path, read_file)
    timings = HostTimings(boot=max(1.0, copy.pace.reboot - _BESIDE_BOOT))
    group = NodeGroup(prefix="node", count=len(copy.nodes))
    return Scenario(
        description=f"a copy of the cluster in {path}, with {len(copy.pods)} pods.",
        name=path.stem,
        nodes=(group,),
        host_timings=timings,
        like=str(path.absolute()),
        steps=("rollout status", "rollout plan", "rollout apply"),
    )


def hosts_of(copy: ClusterCopy) -> tuple[HostPlan, ...]:
    """Return a host plan for each Node."""
    unknown = CopiedHost()
    return tuple(_host_plan(node, copy.hosts.get(name_of(node), unknown)) for node in copy.nodes)


@contextmanager
def refuse_invalid_objects(path: str) -> Iterator[None]:
    """Raise a ScenarioError for objects in the copy that no API server returns."""
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError, StatusError) as error:
        raise ScenarioError(
            f"{path} is not the snapshot of a cluster: one of its objects is not understood"
            f" ({type(error).__name__}: {str(error)[:_MAX_ERROR]})",
            hint=_HINT,
        ) from error


def silent_nodes(copy: ClusterCopy) -> Iterator[str]:
    """Yield the names of nodes that were not Ready, whose hosts are off."""
    return (name_of(node) for node in copy.nodes if not is_ready(node))


def _host_plan(node: Json, host: CopiedHost) -> HostPlan:
    spec = spec_of(node)
    labels = labels_of(node)
    taints = spec.get("taints") or ()
    allocatable = status_of(node).get("allocatable") or {}
    role = Role.CONTROL_PLANE if CONTROL_PLANE_LABEL in labels else Role.WORKER
    settings = HostSettings(
        version=host.version if _VERSION.fullmatch(host.version) else None,
        update=_update(host),
        faults=HEALTHY if host.answers else HostFaults(ssh=SshFault.CLOSED),
        labels=labels,
        taints=tuple(taint for taint in taints if not taint["key"].startswith(_OWN_TAINTS)),
        cordoned=bool(spec.get("unschedulable")),
        capacity={name: str(amount) for name, amount in allocatable.items()},
    )
    return HostPlan(name_of(node), role, settings)


def _update(host: CopiedHost) -> Update:
    if not host.waits:
        return Update(state=EngineState.IDLE, to=None)
    if _VERSION.fullmatch(host.staged):
        return Update(to=host.staged)
    return Update(state=EngineState.STAGED_FORGOTTEN, to=_UNKNOWN_STAGED)


def fill(store: ObjectStore, copy: ClusterCopy) -> None:
    """Store all objects of the copy except Nodes, which the kubelets have registered."""
    pods = [pod for pod in copy.pods if not is_deleting(pod)]
    _fill_namespaces(store, copy, pods)
    attached = {item["spec"]["source"].get("persistentVolumeName") for item in copy.attachments}
    for volume in copy.volumes:
        spec = spec_of(volume)
        if name_of(volume) in attached:
            spec = {**spec, "csi": {"driver": CSI_DRIVER}}
        _create(store, VOLUMES, volume, spec)
    for budget in copy.budgets:
        owners = budget["metadata"].get("ownerReferences") or []
        _create(store, BUDGETS, budget, spec_of(budget), ownerReferences=owners)
    references = _fill_controllers(store, copy, pods)
    nodes = {name_of(node): uid(node) for node in store.items(NODES)}
    for pod in pods:
        _fill_pod(store, pod, references=references, nodes=nodes, pace=copy.pace)


def _fill_controllers(
    store: ObjectStore, copy: ClusterCopy, pods: Sequence[Json]
) -> dict[str, Json]:
    """Store the controllers of the pods, and return owner references to them by their old UIDs."""
    daemon_sets = {uid(daemon_set): daemon_set for daemon_set in copy.daemon_sets}
    # DaemonSets without pods are stored, too.
    owned: dict[str, list[Json]] = {owner_uid: [] for owner_uid in daemon_sets}
    for pod in pods:
        owner = controller_of(pod)
        if owner is None or owner["kind"] in _UNCONTROLLED:
            continue
        if owner["kind"] != "DaemonSet" or owner["uid"] in daemon_sets:
            owned.setdefault(owner["uid"], []).append(pod)
    return {
        owner_uid: _fill_controller(store, own_pods, daemon_sets.get(owner_uid), copy)
        for owner_uid, own_pods in owned.items()
    }


def _fill_namespaces(store: ObjectStore, copy: ClusterCopy, pods: Sequence[Json]) -> None:
    labels = {name_of(item): labels_of(item) for item in copy.namespaces}
    objects = (*pods, *copy.budgets, *copy.daemon_sets)
    names = labels.keys() | {namespace_of(obj) for obj in objects}
    for name in sorted(names - {""}):
        ensure_namespace(store, name, labels.get(name, {}))


def _create(store: ObjectStore, resource: Resource, obj: Json, spec: Json, **metadata: Any) -> Json:
    """Store an object with name, namespace and labels of another, and with this spec."""
    for name in ("name", "namespace", "labels"):
        if name in obj["metadata"]:
            metadata[name] = obj["metadata"][name]
    return store.create(resource, with_defaults(resource, {"metadata": metadata, "spec": spec}))


def _fill_controller(
    store: ObjectStore, pods: Sequence[Json], daemon_set: Json | None, copy: ClusterCopy
) -> Json:
    """Store the controller of these pods or a DaemonSet, and return an owner reference to it.

    An owner that is not of Kubernetes' own kinds becomes a database, any other unknown one a
    ReplicaSet.
    """
    owner = controller_of(pods[0]) if pods else None
    if owner is None:
        owner = {"kind": "DaemonSet", **(daemon_set or {})["metadata"]}
    resource = _resource_of(owner)
    labels = _common_labels(pods) or {"app": owner["name"]}
    template = {
        "metadata": {"labels": labels, "annotations": _timings(owner["uid"], copy.pace)},
        "spec": _template_spec(resource, pods, daemon_set or {}),
    }
    spec: Json = {"selector": {"matchLabels": labels}, "template": template}
    names = [name_of(pod) for pod in pods if not is_finished(pod)]
    if resource is STATEFULSETS:
        spec["replicas"] = 1 + max((int(name.rpartition("-")[2]) for name in names), default=-1)
    elif resource is REPLICASETS:
        spec["replicas"] = len(names)
    elif resource is CLUSTERS:
        template["metadata"]["annotations"][SWITCHOVER] = str(HANDOVER_SECONDS)
        spec |= {"instanceNames": names, "role": _role_of(pods, copy.budgets)}
    namespace = namespace_of(pods[0] if pods else daemon_set or {})
    obj = {"metadata": {"name": owner["name"], "namespace": namespace, "labels": labels}}
    return owner_reference(_create(store, resource, obj, spec), resource)


def _resource_of(owner: Json) -> Resource:
    reference = OwnerRef(owner.get("apiVersion", ""), owner["kind"], owner["name"], "")
    return _CONTROLLED.get(owner["kind"], REPLICASETS if reference.is_of_kubernetes else CLUSTERS)


def _role_of(pods: Sequence[Json], budgets: Sequence[Json]) -> Json:
    """Return the label by which a closed budget selects some of the pods, with both its values."""
    for budget in budgets:
        if status_of(budget).get("disruptionsAllowed"):
            continue
        selected = (spec_of(budget).get("selector") or {}).get("matchLabels") or {}
        for label, value in selected.items():
            values = {labels_of(pod)[label] for pod in pods if label in labels_of(pod)}
            others = values - {value}
            if value in values and others:
                return {"label": label, "primary": value, "replica": min(others)}
    return {}


def _template_spec(resource: Resource, pods: Sequence[Json], daemon_set: Json) -> Json:
    """Return the spec of the first pod without its node.

    A DaemonSet's own spec decides which nodes its pods may run on.
    """
    spec = dict(spec_of(pods[0])) if pods else {"containers": [{"name": "main"}]}
    spec.pop("nodeName", None)
    if resource is DAEMONSETS:
        own_spec = spec_of(spec_of(daemon_set).get("template") or {})
        for name in ("nodeSelector", "affinity", "tolerations"):
            spec.pop(name, None)
            if name in own_spec:
                spec[name] = own_spec[name]
    elif resource in (STATEFULSETS, CLUSTERS):
        spec["volumes"] = [_volume_by_ordinal(volume) for volume in spec.get("volumes") or ()]
    return spec


def _volume_by_ordinal(volume: Json) -> Json:
    """Return a volume whose claim has the ordinal of its StatefulSet's pod."""
    claim = volume.get("persistentVolumeClaim")
    match = _ORDINAL.fullmatch(claim["claimName"]) if claim else None
    if match is None:
        return volume
    return {**volume, "persistentVolumeClaim": {"claimName": match[1] + ORDINAL}}


def _common_labels(pods: Sequence[Json]) -> dict[str, str]:
    """Return the labels that all pods have."""
    if not pods:
        return {}
    labels = [set(labels_of(pod).items()) for pod in pods]
    return dict(sorted(set.intersection(*labels)))


def _timings(owner_uid: str, pace: CopiedPace) -> dict[str, str]:
    """Return annotations of the lab: how long an owner's pods take to start, run and end."""
    if owner_uid not in pace.owners:
        return {}
    termination, startup = pace.owners[owner_uid]
    timings = {
        f"{LAB_PREFIX}termination-seconds": str(termination),
        f"{LAB_PREFIX}startup-seconds": str(startup),
    }
    if owner_uid in pace.completions:
        timings[f"{LAB_PREFIX}run-seconds"] = str(pace.completions[owner_uid])
    return timings


def _fill_pod(
    store: ObjectStore,
    pod: Json,
    *,
    references: Mapping[str, Json],
    nodes: Mapping[str, str],
    pace: CopiedPace,
) -> None:
    """Store a pod; `references` are new owner references by old UID, `nodes` UIDs by name."""
    annotations = dict(annotations_of(pod))
    metadata: Json = {"annotations": annotations}
    spec = spec_of(pod)
    owner = controller_of(pod)
    if owner is not None:
        if owner["uid"] in pace.completions:
            # A plan for the copy estimates the same.
            spec = {**spec, "activeDeadlineSeconds": round(pace.completions[owner["uid"]])}
        annotations |= _timings(owner["uid"], pace)
        if is_mirror(pod):
            owner = {**owner, "uid": nodes.get(owner["name"], owner["uid"])}
        metadata["ownerReferences"] = [references.get(owner["uid"], owner)]
    if not is_ready(pod):
        annotations[f"{LAB_PREFIX}ready"] = "never"
    stored = _create(store, PODS, pod, spec, **metadata)
    if is_finished(pod):
        store.put(PODS, {**stored, "status": {"phase": phase(pod)}})
