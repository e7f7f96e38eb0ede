"""Reads where Longhorn and Rook store data.

Sources: Longhorn's Replica and node-drain-policy; Rook's CephCluster, which repeats `ceph health
detail`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from rollout.gather.cluster import wire
from rollout.gather.cluster.listing import ReadIfAllowed, read_if_allowed, read_list, read_objects
from rollout.model.cluster import Pod, StoredData
from rollout.ports import ClusterApi

REPLICAS = "/apis/longhorn.io/v1beta2/replicas"
LONGHORN_SETTINGS = "/apis/longhorn.io/v1beta2/settings"
CEPH_CLUSTERS = "/apis/ceph.rook.io/v1/cephclusters"
_UNSEEN_WARNING = (
    "storage cannot be listed, so only its own budgets protect the last healthy copies"
)
_DRAIN_POLICY = "node-drain-policy"
_STRICT_POLICY = "block-if-contains-last-replica"
# About missing copies; HEALTH_WARN alone may be about a clock.
_MISSING_COPY_CHECKS = (
    "MON_DOWN",
    "OSD_",
    "PG_AVAILABILITY",
    "PG_DAMAGED",
    "PG_DEGRADED",
    "OBJECT_UNFOUND",
)
_HARMLESS_CHECKS = (
    "OSD_NEARFULL",
    "OSD_BACKFILLFULL",
    "OSD_SLOW_PING_TIME",
    "OSD_UPGRADE_FINISHED",
    "OSD_FLAGS",
)


class _ReplicaSpec(wire.Wire, frozen=True):
    volume_name: str = ""
    node_id: str = msgspec.field(default="", name="nodeID")
    healthy_at: str = ""
    failed_at: str = ""


class _Replica(wire.Object, frozen=True):
    spec: _ReplicaSpec = _ReplicaSpec()


class _LonghornSetting(wire.Object, frozen=True):
    value: str = ""


class _CephHealth(wire.Wire, frozen=True):
    health: str = ""
    details: Mapping[str, msgspec.Raw] = {}


class _CephStatus(wire.Wire, frozen=True):
    ceph: _CephHealth = _CephHealth()


class _CephCluster(wire.Object, frozen=True):
    status: _CephStatus = _CephStatus()


class _Replicas(NamedTuple):
    nodes: frozenset[str]
    healthy_nodes: frozenset[str]
    has_unhealthy: bool


def read_stored_data(api: ClusterApi, pods: Sequence[Pod]) -> ReadIfAllowed[StoredData]:
    volumes = ReadIfAllowed[StoredData]()
    if any(pod.is_of_longhorn for pod in pods):
        volumes = read_if_allowed(lambda: _read_longhorn_volumes(api), _UNSEEN_WARNING)
    clusters = ReadIfAllowed[StoredData]()
    osds = [pod for pod in pods if pod.is_osd]
    if osds:
        clusters = read_if_allowed(lambda: _read_ceph_clusters(api, osds), _UNSEEN_WARNING)
    warnings = (*volumes.warnings, *clusters.warnings)
    return ReadIfAllowed((*volumes.items, *clusters.items), warnings)


def _read_longhorn_volumes(api: ClusterApi) -> Iterator[StoredData]:
    """Yield one for all volumes on the same nodes, named by the first."""
    settings = read_list(
        api, LONGHORN_SETTINGS, _LonghornSetting, lambda item: (item.metadata.name, item.value)
    ).items
    is_strict = dict(settings).get(_DRAIN_POLICY, _STRICT_POLICY) == _STRICT_POLICY
    replicas_by_volume = _locate_replicas(read_objects(api, REPLICAS, _Replica))
    volumes_by_replicas = defaultdict[_Replicas, list[str]](list)
    for volume in sorted(replicas_by_volume):
        volumes_by_replicas[replicas_by_volume[volume]].append(volume)
    for replicas, volumes in volumes_by_replicas.items():
        if not replicas.healthy_nodes:
            # No healthy replica is left to protect.
            continue
        has_one_healthy = len(replicas.healthy_nodes) == 1
        if has_one_healthy and not is_strict:
            # Longhorn lets a drain take the last one away.
            continue
        rebuild = "wait for its rebuild, or " if replicas.has_unhealthy else ""
        clause = f"and {len(volumes) - 1} more have their" if len(volumes) > 1 else "has its"
        yield StoredData(
            object=f"volumes.longhorn.io/{volumes[0]}",
            nodes=replicas.nodes,
            healthy=replicas.healthy_nodes,
            needed=1,
            problem=f"{clause} only healthy replica there",
            fix=f"{rebuild}add a replica",
        )


def _locate_replicas(replicas: Iterable[_Replica]) -> Mapping[str, _Replicas]:
    """By volume, NAMESPACE/NAME."""
    nodes = defaultdict[str, set[str]](set)
    healthy_nodes = defaultdict[str, set[str]](set)
    degraded = set[str]()
    for replica in replicas:
        spec = replica.spec
        volume = f"{replica.metadata.namespace}/{spec.volume_name}"
        is_healthy = bool(spec.node_id and spec.healthy_at and not spec.failed_at)
        if not is_healthy:
            degraded.add(volume)
        if spec.node_id:
            nodes[volume].add(spec.node_id)
        if is_healthy:
            healthy_nodes[volume].add(spec.node_id)
    return {
        volume: _Replicas(
            frozenset(nodes[volume]), frozenset(healthy_nodes[volume]), volume in degraded
        )
        for volume in nodes
    }


def _read_ceph_clusters(api: ClusterApi, osds: Iterable[Pod]) -> Iterator[StoredData]:
    """If no copies are missing, one node may be away."""
    osds_by_namespace = defaultdict[str, list[Pod]](list)
    for pod in osds:
        osds_by_namespace[pod.namespace].append(pod)
    for cluster in read_objects(api, CEPH_CLUSTERS, _CephCluster):
        namespace = cluster.metadata.namespace
        pods = osds_by_namespace.get(namespace, ())
        nodes = frozenset(pod.node for pod in pods)
        if not nodes:
            continue
        healthy = nodes - {pod.node for pod in pods if not pod.ready}
        why_missing = _why_copies_missing(cluster.status.ceph)
        most_unavailable = 0 if why_missing else 1
        needed = len(nodes) - most_unavailable
        yield StoredData(
            object=f"cephclusters.ceph.rook.io/{namespace}/{cluster.metadata.name}",
            nodes=nodes,
            healthy=healthy,
            needed=needed,
            problem=f"is not healthy ({why_missing or 'OSDs are not Ready'})",
            fix="wait until it is",
        )


def _why_copies_missing(ceph: _CephHealth) -> str:
    if not ceph.health:
        return "its health is not known"
    failed = [name for name in sorted(ceph.details) if name.startswith(_MISSING_COPY_CHECKS)]
    harmful_checks = [name for name in failed if name not in _HARMLESS_CHECKS]
    if not harmful_checks and ceph.health == "HEALTH_ERR":
        # Serious, for another reason.
        return ceph.health
    return ", ".join(harmful_checks)
