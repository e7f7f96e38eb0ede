"""Reads the cluster; functions raise `ApiError`."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from functools import partial
from typing import TypeVar
from urllib.parse import quote

import msgspec

from rollout.errors import ApiNotFoundError
from rollout.gather.cluster import decode, wire
from rollout.gather.cluster.jobs import read_jobs
from rollout.gather.cluster.listing import ReadIfAllowed, read_if_allowed, read_list
from rollout.gather.cluster.rivals import DEPLOYMENTS, read_coordinators
from rollout.gather.cluster.storage import read_stored_data
from rollout.model import marks
from rollout.model.cluster import (
    Budget,
    ClusterIdentity,
    ClusterSnapshot,
    DaemonSet,
    Job,
    Node,
    PersistentVolume,
    Pod,
    VolumeAttachment,
)
from rollout.model.deployment import Deployment
from rollout.model.progress import NodeCondition, NodeDiagnosis
from rollout.model.text import shell_word
from rollout.ports import ClusterApi, Query
from rollout.threads import in_background

NODES = "/api/v1/nodes"
PODS = "/api/v1/pods"
BUDGETS = "/apis/policy/v1/poddisruptionbudgets"
DAEMON_SETS = "/apis/apps/v1/daemonsets"
VOLUMES = "/api/v1/persistentvolumes"
ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"
NAMESPACES = "/api/v1/namespaces"
KUBE_SYSTEM = "/api/v1/namespaces/kube-system"
VERSION = "/version"

_UNSEEN_ATTACHMENTS = "volumes cannot be listed, so rollout does not wait until they are detached"
_UNSEEN_NAMESPACES = (
    "namespaces cannot be listed, so affinities that select them by labels count only by name"
)
_UNSEEN_VOLUMES = "volumes cannot be listed, so the plan does not know which nodes they attach to"

T = TypeVar("T")
K = TypeVar("K", bound=wire.Object)

CachedObjects = dict[str, dict[str, bytes]]
"""The fields of each object that were read, as JSON, by list path and UID."""


class _MetaWithWrites(wire.Wire, frozen=True):
    managed_fields: tuple[wire.Write, ...] = ()


class _NodeWithWrites(wire.Wire, frozen=True):
    metadata: _MetaWithWrites = _MetaWithWrites()


class _Version(wire.Wire, frozen=True):
    git_version: str = ""


def node_path(name: str) -> str:
    return f"{NODES}/{quote(name, safe='')}"


def pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"


def read_snapshot(
    api: ClusterApi, cache: CachedObjects | None = None, *, with_jobs: bool = False
) -> ClusterSnapshot:
    """Read all that planning needs, most kinds in threads.

    Unreadable optional kinds become warnings. Objects are also put into `cache`.
    """

    def start(read: Callable[[], T]) -> "Future[T]":
        return in_background(read, "snapshot")

    def read_kind(path: str, shape: type[K], project: Callable[[K], T]) -> tuple[T, ...]:
        return _read_and_cache(api, path, shape, project, cache=cache)

    read_all_attachments = partial(read_kind, ATTACHMENTS, wire.WireAttachment, decode.attachment)
    read_all_volumes = partial(read_kind, VOLUMES, wire.WireVolume, decode.volume)
    identity = start(lambda: read_identity(api))
    coordinators = start(lambda: read_coordinators(api))
    nodes = start(lambda: read_kind(NODES, wire.WireNode, decode.node))
    pods = start(lambda: read_kind(PODS, wire.WirePod, pod_projection(with_start=with_jobs)))
    budgets = start(lambda: read_kind(BUDGETS, wire.WireBudget, decode.budget))
    daemon_sets = start(lambda: read_kind(DAEMON_SETS, wire.WireDaemonSet, decode.daemon_set))
    attachments = start(lambda: read_if_allowed(read_all_attachments, _UNSEEN_ATTACHMENTS))
    volumes = start(lambda: read_if_allowed(read_all_volumes, _UNSEEN_VOLUMES))
    jobs, unseen_jobs = read_jobs(api) if with_jobs else ReadIfAllowed[Job]()
    all_pods = pods.result()
    all_budgets = budgets.result()
    namespaces, unseen_namespaces = _read_namespaces(api, all_pods, cache)
    stored, unseen_stored = read_stored_data(api, all_pods)
    attached, unseen_attachments = attachments.result()
    bound_volumes, unseen_volumes = volumes.result()
    rivals, unseen_rivals = coordinators.result()
    unseen = (*unseen_attachments, *unseen_volumes, *unseen_rivals, *unseen_jobs)
    return ClusterSnapshot(
        identity=identity.result(),
        nodes=nodes.result(),
        pods=all_pods,
        budgets=all_budgets,
        daemon_sets=daemon_sets.result(),
        attachments=attached,
        warnings=(*unseen, *unseen_namespaces, *unseen_stored),
        volumes=tuple(filter(None, bound_volumes)),
        coordinators=rivals,
        namespaces=dict(namespaces),
        read_at=api.server_time(),
        stored=stored,
        jobs=jobs,
        deployments=_read_deployments(api, all_budgets, cache),
    )


def _read_deployments(
    api: ClusterApi, budgets: Sequence[Budget], cache: CachedObjects | None
) -> tuple[Deployment, ...]:
    """Return Deployments if a budget needs every pod: a restart may help.

    Empty if forbidden.
    """
    may_need_restart = any(budget.needs_every_pod for budget in budgets)
    if not may_need_restart:
        return ()
    return read_if_allowed(
        lambda: _read_and_cache(
            api, DEPLOYMENTS, wire.WireDeployment, decode.deployment, cache=cache
        ),
        warning="",
    ).items


def _read_namespaces(
    api: ClusterApi, pods: Sequence[Pod], cache: CachedObjects | None
) -> ReadIfAllowed[tuple[str, Mapping[str, str]]]:
    if not any(pod.placement.chooses_namespaces for pod in pods):
        return ReadIfAllowed()
    return read_if_allowed(
        lambda: _read_and_cache(api, NAMESPACES, wire.Object, decode.namespace, cache=cache),
        _UNSEEN_NAMESPACES,
    )


def read_identity(api: ClusterApi) -> ClusterIdentity:
    namespace = decode.decode(api.get(KUBE_SYSTEM), wire.Object, KUBE_SYSTEM)
    version = decode.decode(api.get(VERSION), _Version, VERSION)
    return ClusterIdentity(
        uid=namespace.metadata.uid, server=api.server, version=version.git_version
    )


def read_nodes(api: ClusterApi, selector: str = "") -> tuple[Node, ...]:
    query = {"labelSelector": selector} if selector else None
    return read_list(api, NODES, wire.WireNode, decode.node, query=query).items


def read_node(api: ClusterApi, name: str) -> Node:
    path = node_path(name)
    return decode.decode_object(api.get(path), wire.WireNode, decode.node, path)


def read_phase_time(api: ClusterApi, name: str) -> datetime | None:
    """Return when the phase annotation was last written, if known."""
    path = node_path(name)
    written = decode.decode(api.get(path), _NodeWithWrites, path).metadata.managed_fields
    return wire.written_at(written, marks.PHASE)


def read_node_pods(api: ClusterApi, node: str, selector: str = "") -> tuple[Pod, ...]:
    query = {**on_node(node)}
    if selector:
        query["labelSelector"] = selector
    return read_list(api, PODS, wire.WirePod, pod_projection(), query=query).items


def on_node(node: str) -> Query:
    return {"fieldSelector": f"spec.nodeName={node}"}


def pod_projection(*, with_start: bool = True) -> Callable[[wire.WirePod], Pod]:
    return partial(decode.pod, shared=decode.SharedValues(), with_start=with_start)


def read_pod(api: ClusterApi, namespace: str, name: str) -> Pod | None:
    path = pod_path(namespace, name)
    try:
        body = api.get(path)
    except ApiNotFoundError:
        return None
    return decode.decode_object(body, wire.WirePod, pod_projection(), path)


def read_pods(api: ClusterApi, namespace: str, selector: str) -> tuple[Pod, ...]:
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"
    query = {"labelSelector": selector}
    return read_list(api, path, wire.WirePod, pod_projection(), query=query).items


def read_budgets(api: ClusterApi) -> tuple[Budget, ...]:
    return read_list(api, BUDGETS, wire.WireBudget, decode.budget).items


def read_daemon_sets(api: ClusterApi) -> tuple[DaemonSet, ...]:
    return read_list(api, DAEMON_SETS, wire.WireDaemonSet, decode.daemon_set).items


def read_volumes(api: ClusterApi) -> tuple[PersistentVolume, ...]:
    volumes = read_list(api, VOLUMES, wire.WireVolume, decode.volume).items
    return tuple(filter(None, volumes))


def read_attachments(api: ClusterApi, node: str) -> tuple[VolumeAttachment, ...]:
    attachments = read_list(api, ATTACHMENTS, wire.WireAttachment, decode.attachment).items
    return tuple(attachment for attachment in attachments if attachment.node == node)


def _read_and_cache(
    api: ClusterApi,
    path: str,
    shape: type[K],
    project: Callable[[K], T],
    *,
    cache: CachedObjects | None,
) -> tuple[T, ...]:
    if cache is None:
        return read_list(api, path, shape, project).items
    cached_objects = cache.setdefault(path, {})

    def cache_and_project(item: K) -> T:
        key = item.metadata.uid or item.metadata.name
        cached_objects[key] = msgspec.json.encode(item)
        return project(item)

    return read_list(api, path, shape, cache_and_project).items


# Problems if True.
_PROBLEM_CONDITIONS = (
    *("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"),
    *("KernelDeadlock", "ReadonlyFilesystem", "FrequentUnregisterNetDevice"),
    *("FrequentKubeletRestart", "FrequentContainerdRestart"),
)
_READY = "Ready"


def read_diagnosis(api: ClusterApi, name: str) -> NodeDiagnosis:
    path = node_path(name)
    node = decode.decode(api.get(path), wire.WireNode, path)
    return NodeDiagnosis(
        conditions=tuple(
            _node_condition(condition)
            for condition in node.status.conditions
            if _shows_problem(condition)
        ),
        console=console_command(node.spec.provider_id),
    )


def _node_condition(condition: wire.Condition) -> NodeCondition:
    return NodeCondition(
        type=condition.type,
        status=condition.status,
        reason=condition.reason,
        message=condition.message,
        since=condition.last_transition_time or "",
    )


def _shows_problem(condition: wire.Condition) -> bool:
    if condition.type == _READY:
        return condition.status != "True"
    return condition.type in _PROBLEM_CONDITIONS and condition.status != "False"


def console_command(provider_id: str) -> str:
    """Return a command that prints the console; empty if unknown.

    A provider ID is such as `aws:///ZONE/i-0123`.
    """
    provider, _, path = provider_id.partition("://")
    parts = [part for part in path.split("/") if part]
    match provider, parts:
        case _, []:
            return ""
        case "aws", [*_, instance]:
            command = "aws ec2 get-console-output --latest --output text --instance-id"
            return f"{command} {shell_word(instance)}"
        case "gce", [project, zone, name]:
            place = f"--zone {shell_word(zone)} --project {shell_word(project)}"
            return f"gcloud compute instances get-serial-port-output {shell_word(name)} {place}"
        case "azure", _ if "virtualMachineScaleSets" not in parts:
            return f"az vm boot-diagnostics get-boot-log --ids {shell_word('/' + '/'.join(parts))}"
        case "openstack", [*_, server]:
            return f"openstack console log show {shell_word(server)}"
        case _:
            return ""
