"""Reading the cluster: whole for planning, one object at a time for acting, and what a bad Node tells of itself.

Every function raises `ApiError` or one of its subclasses.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from datetime import datetime
from functools import partial
from typing import TypeVar
from urllib.parse import quote

import msgspec

from rollout.errors import ApiNotFoundError
from rollout.gather.cluster import decode, wire
from rollout.gather.cluster.listing import read_if_allowed, read_list
from rollout.gather.cluster.rivals import read_coordinators
from rollout.gather.cluster.storage import read_stored
from rollout.model import marks
from rollout.model.cluster import (
    ClusterIdentity,
    ClusterSnapshot,
    DaemonSet,
    Node,
    Pod,
    VolumeAttachment,
)
from rollout.model.progress import Findings, NodeCondition
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

_UNSEEN_ATTACHMENTS = "volumes cannot be seen, so their detaching is not waited for"
_UNSEEN_NAMESPACES = (
    "namespaces cannot be seen, so affinities that choose them by their labels count as far as by"
    " name"
)
_UNSEEN_VOLUMES = "volumes cannot be seen, so the plan does not know which nodes they attach to"

T = TypeVar("T")
K = TypeVar("K", bound=wire.Object)


CachedPages = dict[str, dict[str, bytes]]
"""What was read of each object, as JSON: by path, then by UID, for a list that breaks is read afresh."""


class _Written(wire.Wire, frozen=True):
    managed_fields: tuple[wire.Write, ...] = ()


class _WrittenNode(wire.Wire, frozen=True):
    metadata: _Written = _Written()


class _Version(wire.Wire, frozen=True):
    git_version: str = ""


def node_path(name: str) -> str:
    """Path of a Node."""
    return f"{NODES}/{quote(name, safe='')}"


def pod_path(namespace: str, name: str) -> str:
    """Path of a pod."""
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"


def read_snapshot(api: ClusterApi, kept: CachedPages | None = None) -> ClusterSnapshot:
    """Read all that planning needs, the kinds side by side; into `kept` goes what nodes, pods and the like were.

    Volumes and their attachments only sharpen the picture: where this user may not read them, a
    warning says so.
    """

    def begun(read: Callable[[], T]) -> "Future[T]":
        return in_background(read, "snapshot")

    def listed(path: str, shape: type[K], project: Callable[[K], T]) -> tuple[T, ...]:
        return _read(api, path, shape, project, kept)

    identity = begun(lambda: read_identity(api))
    coordinators = begun(lambda: read_coordinators(api))
    nodes = begun(lambda: listed(NODES, wire.WireNode, decode.node))
    pods = begun(lambda: listed(PODS, wire.WirePod, pod_projection()))
    budgets = begun(lambda: listed(BUDGETS, wire.WireBudget, decode.budget))
    daemon_sets = begun(lambda: listed(DAEMON_SETS, wire.WireDaemonSet, decode.daemon_set))
    attachments = begun(
        lambda: read_if_allowed(
            lambda: listed(ATTACHMENTS, wire.WireAttachment, decode.attachment), _UNSEEN_ATTACHMENTS
        )
    )
    volumes = begun(
        lambda: read_if_allowed(
            lambda: listed(VOLUMES, wire.WireVolume, decode.volume), _UNSEEN_VOLUMES
        )
    )
    all_pods = pods.result()
    namespaces = tuple[tuple[str, Mapping[str, str]], ...]()
    unseen_namespaces = tuple[str, ...]()
    # few clusters have pods whose affinities choose namespaces by their labels
    if any(pod.placement.chooses_namespaces for pod in all_pods):
        namespaces, unseen_namespaces = read_if_allowed(
            lambda: listed(NAMESPACES, wire.Object, decode.namespace), _UNSEEN_NAMESPACES
        )
    stored, unseen_stored = read_stored(api, all_pods)
    attached, unseen_attachments = attachments.result()
    bound_volumes, unseen_volumes = volumes.result()
    others, unseen_others = coordinators.result()
    return ClusterSnapshot(
        identity=identity.result(),
        nodes=nodes.result(),
        pods=all_pods,
        budgets=budgets.result(),
        daemon_sets=daemon_sets.result(),
        attachments=attached,
        warnings=(
            *unseen_attachments,
            *unseen_volumes,
            *unseen_others,
            *unseen_namespaces,
            *unseen_stored,
        ),
        volumes=tuple(filter(None, bound_volumes)),
        coordinators=others,
        namespaces=dict(namespaces),
        read_at=api.server_time(),
        stored=stored,
    )


def read_identity(api: ClusterApi) -> ClusterIdentity:
    """Which cluster this is."""
    namespace = decode.decode(api.get(KUBE_SYSTEM), wire.Object, KUBE_SYSTEM)
    version = decode.decode(api.get(VERSION), _Version, VERSION)
    return ClusterIdentity(
        uid=namespace.metadata.uid, server=api.server, version=version.git_version
    )


def read_nodes(api: ClusterApi, selector: str = "") -> tuple[Node, ...]:
    """Nodes, or those that a label selector chooses, in the API's order: by name."""
    query = {"labelSelector": selector} if selector else None
    return read_list(api, NODES, wire.WireNode, decode.node, query).items


def read_node(api: ClusterApi, name: str) -> Node:
    """One Node; `ApiNotFoundError` where there is none."""
    path = node_path(name)
    return decode.one(api.get(path), wire.WireNode, decode.node, path)


def read_phase_time(api: ClusterApi, name: str) -> datetime | None:
    """When our phase was written on a Node, by the API server's clock; None where the server does not tell."""
    path = node_path(name)
    written = decode.decode(api.get(path), _WrittenNode, path).metadata.managed_fields
    return wire.written_at(written, marks.PHASE)


def read_node_pods(api: ClusterApi, node: str, selector: str = "") -> tuple[Pod, ...]:
    """Return the pods of one node, in all namespaces, or those of them that a label selector chooses."""
    query = {**on_node(node), **({"labelSelector": selector} if selector else {})}
    return read_list(api, PODS, wire.WirePod, pod_projection(), query).items


def on_node(node: str) -> Query:
    """Select the pods that are bound to a node."""
    return {"fieldSelector": f"spec.nodeName={node}"}


def pod_projection() -> Callable[[wire.WirePod], Pod]:
    """Return what makes pods of what one read, or one watch, brings; equal values are kept once."""
    return partial(decode.pod, shared=decode.Shared())


def read_pod(api: ClusterApi, namespace: str, name: str) -> Pod | None:
    """One pod; None where there is none."""
    path = pod_path(namespace, name)
    try:
        body = api.get(path)
    except ApiNotFoundError:
        return None
    return decode.one(body, wire.WirePod, pod_projection(), path)


def read_pods(api: ClusterApi, namespace: str, selector: str) -> tuple[Pod, ...]:
    """Return the pods of a namespace that a label selector chooses."""
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"
    return read_list(api, path, wire.WirePod, pod_projection(), {"labelSelector": selector}).items


def read_daemon_sets(api: ClusterApi) -> tuple[DaemonSet, ...]:
    """Every DaemonSet."""
    return read_list(api, DAEMON_SETS, wire.WireDaemonSet, decode.daemon_set).items


def read_attachments(api: ClusterApi, node: str) -> tuple[VolumeAttachment, ...]:
    """Return the VolumeAttachments of one node: the API has no field selector for them."""
    attachments = read_list(api, ATTACHMENTS, wire.WireAttachment, decode.attachment).items
    return tuple(attachment for attachment in attachments if attachment.node == node)


def _read(
    api: ClusterApi, path: str, shape: type[K], project: Callable[[K], T], kept: CachedPages | None
) -> tuple[T, ...]:
    """Return what a list's objects are read as; each is kept as the API has it where that is wanted."""
    if kept is None:
        return read_list(api, path, shape, project).items
    of_path = kept.setdefault(path, {})

    def keep(read: K) -> T:
        of_path[read.metadata.uid or read.metadata.name] = msgspec.json.encode(read)
        return project(read)

    return read_list(api, path, shape, keep).items


# The kubelet's own conditions, the cloud's, and those of the node-problem-detector as it is
# shipped. What a condition of another party means, nobody but that party knows.
_BAD_WHEN_TRUE = frozenset(
    {
        "MemoryPressure",
        "DiskPressure",
        "PIDPressure",
        "NetworkUnavailable",
        "KernelDeadlock",
        "ReadonlyFilesystem",
        "FrequentKubeletRestart",
        "FrequentContainerdRestart",
        "FrequentUnregisterNetDevice",
    }
)
_READY = "Ready"


def read_findings(api: ClusterApi, name: str) -> Findings:
    """Return what one Node tells of itself; `ApiNotFoundError` where there is none."""
    path = node_path(name)
    read = decode.decode(api.get(path), wire.WireNode, path)
    bad = (
        NodeCondition(one.type, one.status, one.reason, one.message, one.last_transition_time or "")
        for one in read.status.conditions
        if _is_bad(one)
    )
    return Findings(conditions=tuple(bad), console=console_hint(read.spec.provider_id))


def _is_bad(condition: wire.Condition) -> bool:
    if condition.type == _READY:
        return condition.status != "True"
    return condition.type in _BAD_WHEN_TRUE and condition.status != "False"


def console_hint(provider_id: str) -> str:
    """How to see the console of the machine that a providerID names; empty where that is not known.

    The ID comes from the cluster, so whatever of it stands in a command is quoted.
    """
    provider, _, rest = provider_id.partition("://")
    match provider, [piece for piece in rest.split("/") if piece]:
        case _, []:
            return ""
        case "aws", [*_, instance]:
            return (
                "aws ec2 get-console-output --latest --output text --instance-id"
                f" {shell_word(instance)}"
            )
        case "gce", [project, zone, name]:
            place = f"--zone {shell_word(zone)} --project {shell_word(project)}"
            return f"gcloud compute instances get-serial-port-output {shell_word(name)} {place}"
        case "azure", path if "virtualMachineScaleSets" not in path:
            return f"az vm boot-diagnostics get-boot-log --ids {shell_word('/' + '/'.join(path))}"
        case "openstack", [*_, server]:
            return f"openstack console log show {shell_word(server)}"
        case _:
            return ""
