"""A lab that is the copy of a real cluster: its hosts, and what its store is filled with.

What the copy does not tell is made up: of the controllers of its pods as many as there are pods,
with a template like the first of them. Pods that were on their way out are gone, as if that had
been waited for.
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
    controller_of,
    is_deleting,
    is_finished,
    is_mirror,
    is_ready,
    labels_of,
    name_of,
    namespace_of,
    spec_of,
    status_of,
)
from rollout.lab.scenario import NodeGroup, Role, Scenario
from rollout.lab.world.host import Timings
from rollout.lab.world.volumes import CSI_DRIVER
from rollout.lab.world.workloads import ORDINAL, owner_reference

_ORDINAL: Final = re.compile(r"(.*-)\d+")
_OWN_TAINTS: Final = "node.kubernetes.io/"
_WRITE: Final = "Write one with: rollout plan --snapshot FILE"
_EXCERPT: Final = 200
_MADE_UP: Final = "9999.0.0"
_VERSION: Final = re.compile(r"\d+(\.\d+)+")
# What a node's way takes besides the time that its host is down for.
_BESIDE_BOOT: Final = HostTimings().shutdown + Timings().kubelet_ready
_CONTROLLED: Final[Mapping[str, Resource]] = {"StatefulSet": STATEFULSETS, "DaemonSet": DAEMONSETS}
# Of these no controller is rehearsed: a static pod's kubelet, and what runs once.
_UNCONTROLLED: Final = frozenset({"Node", "Job"})


def load_copy(path: Path, read_file: Callable[[Path], bytes] = Path.read_bytes) -> ClusterCopy:
    """Read the file; `ScenarioError` where it is none."""
    try:
        copy = msgspec.json.decode(read_file(path), type=ClusterCopy)
    except OSError as error:
        raise ScenarioError(
            f"cannot read the snapshot {path}: {error.strerror}", hint=_WRITE
        ) from error
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ScenarioError(
            f"{path} is not the snapshot of a cluster: {str(error)[:_EXCERPT]}", hint=_WRITE
        ) from error
    if (copy.format_version, copy.kind) != (FORMAT_VERSION, KIND) or not copy.nodes:
        raise ScenarioError(f"{path} is not a snapshot that this version reads", hint=_WRITE)
    return copy


def scenario_like(path: Path, read_file: Callable[[Path], bytes] = Path.read_bytes) -> Scenario:
    """Return the scenario of a lab that is a copy; its groups only count nodes."""
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
    """Return a host for each Node."""
    return tuple(
        _host_plan(node, copy.hosts.get(name_of(node), CopiedHost())) for node in copy.nodes
    )


@contextmanager
def understood(path: str) -> Iterator[None]:
    """Raise `ScenarioError` for an object in the copy that no API server gives."""
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError, StatusError) as error:
        raise ScenarioError(
            f"{path} is not the snapshot of a cluster: one of its objects is not understood"
            f" ({type(error).__name__}: {str(error)[:_EXCERPT]})",
            hint=_WRITE,
        ) from error


def silent_nodes(copy: ClusterCopy) -> Iterator[str]:
    """Return the nodes whose hosts are off: they were not Ready."""
    return (name_of(node) for node in copy.nodes if not is_ready(node))


def _host_plan(node: Json, host: CopiedHost) -> HostPlan:
    spec = spec_of(node)
    status = status_of(node)
    labels = labels_of(node)
    taints = tuple(
        taint for taint in spec.get("taints") or () if not taint["key"].startswith(_OWN_TAINTS)
    )
    role = Role.CONTROL_PLANE if CONTROL_PLANE_LABEL in labels else Role.WORKER
    settings = HostSettings(
        version=host.version if _VERSION.fullmatch(host.version) else None,
        update=_update(host),
        faults=HEALTHY if host.answers else HostFaults(ssh=SshFault.CLOSED),
        labels=labels,
        taints=taints,
        cordoned=bool(spec.get("unschedulable")),
        capacity={name: str(amount) for name, amount in (status.get("allocatable") or {}).items()},
    )
    return HostPlan(name_of(node), role, settings)


def _update(host: CopiedHost) -> Update:
    if not host.waits:
        return Update(state=EngineState.IDLE, to=None)
    if _VERSION.fullmatch(host.staged):
        return Update(to=host.staged)
    return Update(state=EngineState.STAGED_FORGOTTEN, to=_MADE_UP)


def fill(store: ObjectStore, copy: ClusterCopy) -> None:
    """Store all but the Nodes, which their kubelets have registered."""
    pods = [pod for pod in copy.pods if not is_deleting(pod)]
    _fill_namespaces(store, copy, pods)
    attached = {item["spec"]["source"].get("persistentVolumeName") for item in copy.attachments}
    for volume in copy.volumes:
        driver = {"csi": {"driver": CSI_DRIVER}} if name_of(volume) in attached else {}
        _create(store, VOLUMES, volume, {**spec_of(volume), **driver})
    for budget in copy.budgets:
        _create(store, BUDGETS, budget, spec_of(budget))
    daemon_sets = {item["metadata"]["uid"]: item for item in copy.daemon_sets}
    # also of DaemonSets that have no pod
    owned: dict[str, list[Json]] = {uid: [] for uid in daemon_sets}
    for pod in pods:
        owner = controller_of(pod)
        if (
            owner
            and owner["kind"] not in _UNCONTROLLED
            and (owner["kind"] != "DaemonSet" or owner["uid"] in owned)
        ):
            owned.setdefault(owner["uid"], []).append(pod)
    references = {
        uid: _controller(store, own, daemon_sets.get(uid), copy.pace) for uid, own in owned.items()
    }
    nodes = {name_of(node): node["metadata"]["uid"] for node in store.items(NODES)}
    for pod in pods:
        _fill_pod(store, pod, references, nodes, copy.pace)


def _fill_namespaces(store: ObjectStore, copy: ClusterCopy, pods: Sequence[Json]) -> None:
    labels = {name_of(item): labels_of(item) for item in copy.namespaces}
    of_objects = {namespace_of(item) for item in (*pods, *copy.budgets, *copy.daemon_sets)}
    for name in sorted({*labels, *of_objects} - {""}):
        ensure_namespace(store, name, labels.get(name, {}))


def _create(store: ObjectStore, resource: Resource, obj: Json, spec: Json, **metadata: Any) -> Json:
    """Store what is copied of an object, by a spec of its own."""
    known = {
        name: obj["metadata"][name]
        for name in ("name", "namespace", "labels")
        if name in obj["metadata"]
    }
    return store.create(
        resource, with_defaults(resource, {"metadata": {**known, **metadata}, "spec": spec})
    )


def _controller(
    store: ObjectStore, pods: Sequence[Json], daemon_set: Json | None, pace: CopiedPace
) -> Json:
    """Store a controller like that of these pods; what they refer to. One of an unknown kind does as ReplicaSets do."""
    reference = controller_of(pods[0]) if pods else None
    known: Json = reference or {"kind": "DaemonSet", **(daemon_set or {})["metadata"]}
    resource = _CONTROLLED.get(known["kind"], REPLICASETS)
    labels = _common([labels_of(pod) for pod in pods]) or {"app": known["name"]}
    template = {
        "metadata": {"labels": labels, "annotations": _timing(known["uid"], pace)},
        "spec": _template(resource, pods, daemon_set or {}),
    }
    spec: Json = {"selector": {"matchLabels": labels}, "template": template}
    active = [name_of(pod) for pod in pods if not is_finished(pod)]
    if resource is STATEFULSETS:
        spec["replicas"] = 1 + max((int(name.rpartition("-")[2]) for name in active), default=-1)
    elif resource is REPLICASETS:
        spec["replicas"] = len(active)
    namespace = namespace_of(pods[0] if pods else daemon_set or {})
    obj = {"metadata": {"name": known["name"], "namespace": namespace, "labels": labels}}
    return owner_reference(_create(store, resource, obj, spec), resource)


def _template(resource: Resource, pods: Sequence[Json], daemon_set: Json) -> Json:
    """Return the spec of its first pod, for any node; a DaemonSet's own demands of its nodes."""
    spec = dict(spec_of(pods[0])) if pods else {"containers": [{"name": "main"}]}
    spec.pop("nodeName", None)
    if resource is DAEMONSETS:
        demands = spec_of(spec_of(daemon_set).get("template") or {})
        for name in ("nodeSelector", "affinity", "tolerations"):
            spec.pop(name, None)
            spec |= {name: demands[name]} if name in demands else {}
    elif resource is STATEFULSETS:
        spec["volumes"] = [_by_ordinal(volume) for volume in spec.get("volumes") or ()]
    return spec


def _by_ordinal(volume: Json) -> Json:
    """Return a volume of which each pod of a StatefulSet has its own."""
    source = volume.get("persistentVolumeClaim")
    match = _ORDINAL.fullmatch(source["claimName"]) if source else None
    return (
        {**volume, "persistentVolumeClaim": {"claimName": match[1] + ORDINAL}} if match else volume
    )


def _common(labels: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the labels that all of these have."""
    return dict(sorted(set.intersection(*(set(own.items()) for own in labels)))) if labels else {}


def _timing(uid: str, pace: CopiedPace) -> dict[str, str]:
    """How long its pods take, as the lab has it."""
    if uid not in pace.owners:
        return {}
    ending, starting = pace.owners[uid]
    return {
        f"{LAB_PREFIX}termination-seconds": str(ending),
        f"{LAB_PREFIX}startup-seconds": str(starting),
    }


def _fill_pod(
    store: ObjectStore,
    pod: Json,
    references: Mapping[str, Json],
    nodes: Mapping[str, str],
    pace: CopiedPace,
) -> None:
    reference = controller_of(pod)
    annotations: dict[str, str] = dict(pod["metadata"].get("annotations") or {})
    metadata: Json = {"annotations": annotations}
    if reference is not None:
        annotations |= _timing(reference["uid"], pace)
        uid = {"uid": nodes.get(reference["name"], reference["uid"])} if is_mirror(pod) else {}
        metadata["ownerReferences"] = [references.get(reference["uid"], {**reference, **uid})]
    if not is_ready(pod):
        annotations[f"{LAB_PREFIX}ready"] = "never"
    known = _create(store, PODS, pod, spec_of(pod), **metadata)
    if is_finished(pod):
        store.put(PODS, {**known, "status": {"phase": pod["status"]["phase"]}})
