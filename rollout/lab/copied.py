"""A lab that copies a real cluster, without its terminating pods."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from rollout.errors import ScenarioError
from rollout.gather.cluster.copying import FORMAT_VERSION, KIND, ClusterCopy, CopiedHost, CopiedPace
from rollout.lab.api.lifecycle import ensure_namespace
from rollout.lab.api.resources import (
    BUDGETS,
    NODES,
    PODS,
    VOLUMES,
)
from rollout.lab.api.statuses import StatusError
from rollout.lab.api.store import Json, ObjectStore
from rollout.lab.copied_workloads import (
    create_copy,
    fill_controllers,
    fill_operators,
    timings_of,
)
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
from rollout.lab.world.host import Timings
from rollout.lab.world.volumes import CSI_DRIVER

_OWN_TAINTS: Final = "node.kubernetes.io/"
_HINT: Final = "Write one with: rollout plan --snapshot FILE"
_MAX_ERROR: Final = 200
# The staged version if the snapshot does not name it.
_UNKNOWN_STAGED: Final = "9999.0.0"
_VERSION: Final = re.compile(r"\d+(\.\d+)+")
# A reboot's time in addition to the host's boot.
_BESIDE_BOOT: Final = HostTimings().shutdown + Timings().kubelet_ready


def load_copy(path: Path, read_file: Callable[[Path], bytes] = Path.read_bytes) -> ClusterCopy:
    try:
        copy = msgspec.json.decode(read_file(path), type=ClusterCopy)
    except OSError as error:
        message = f"cannot read the snapshot {path}: {error.strerror}"
        raise ScenarioError(message, hint=_HINT) from error
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        message = f"{path} is not the snapshot of a cluster: {str(error)[:_MAX_ERROR]}"
        raise ScenarioError(message, hint=_HINT) from error
    if (copy.format_version, copy.kind) != (FORMAT_VERSION, KIND) or not copy.nodes:
        raise ScenarioError(f"{path} is not a snapshot that this version can read", hint=_HINT)
    return copy


def scenario_like(path: Path, read_file: Callable[[Path], bytes] = Path.read_bytes) -> Scenario:
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
    unknown = CopiedHost()
    return tuple(_host_plan(node, copy.hosts.get(name_of(node), unknown)) for node in copy.nodes)


@contextmanager
def refuse_invalid_objects(path: str) -> Iterator[None]:
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError, StatusError) as error:
        raise ScenarioError(
            f"{path} is not the snapshot of a cluster: one of its objects cannot be read"
            f" ({type(error).__name__}: {str(error)[:_MAX_ERROR]})",
            hint=_HINT,
        ) from error


def silent_nodes(copy: ClusterCopy) -> Iterator[str]:
    """The hosts of these nodes are off."""
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
    """Store all objects except Nodes, which the kubelets have registered."""
    pods = [pod for pod in copy.pods if not is_deleting(pod)]
    _fill_namespaces(store, copy, pods)
    attached = {item["spec"]["source"].get("persistentVolumeName") for item in copy.attachments}
    for volume in copy.volumes:
        spec = spec_of(volume)
        if name_of(volume) in attached:
            spec = {**spec, "csi": {"driver": CSI_DRIVER}}
        create_copy(store, VOLUMES, volume, spec)
    for budget in copy.budgets:
        owners = budget["metadata"].get("ownerReferences") or []
        create_copy(store, BUDGETS, budget, spec_of(budget), ownerReferences=owners)
    references = fill_controllers(store, copy, pods)
    fill_operators(store, copy, pods)
    nodes = {name_of(node): uid(node) for node in store.items(NODES)}
    for pod in pods:
        _fill_pod(store, pod, references=references, nodes=nodes, pace=copy.pace)


def _fill_namespaces(store: ObjectStore, copy: ClusterCopy, pods: Sequence[Json]) -> None:
    labels = {name_of(item): labels_of(item) for item in copy.namespaces}
    objects = (*pods, *copy.budgets, *copy.daemon_sets)
    names = labels.keys() | {namespace_of(obj) for obj in objects}
    for name in sorted(names - {""}):
        ensure_namespace(store, name, labels.get(name, {}))


def _fill_pod(
    store: ObjectStore,
    pod: Json,
    *,
    references: Mapping[str, Json],
    nodes: Mapping[str, str],
    pace: CopiedPace,
) -> None:
    """`references` are by the owner's old UID, `nodes` UIDs by name."""
    annotations = dict(annotations_of(pod))
    metadata: Json = {"annotations": annotations}
    spec = spec_of(pod)
    owner = controller_of(pod)
    if owner is not None:
        if owner["uid"] in pace.completions:
            # A plan for the copy estimates the same.
            spec = {**spec, "activeDeadlineSeconds": round(pace.completions[owner["uid"]])}
        annotations |= timings_of(owner["uid"], pace)
        if is_mirror(pod):
            owner = {**owner, "uid": nodes.get(owner["name"], owner["uid"])}
        metadata["ownerReferences"] = [references.get(owner["uid"], owner)]
    if not is_ready(pod):
        annotations[f"{LAB_PREFIX}ready"] = "never"
    stored = create_copy(store, PODS, pod, spec, **metadata)
    if is_finished(pod):
        store.put(PODS, {**stored, "status": {"phase": phase(pod)}})
