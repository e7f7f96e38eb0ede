"""Where Longhorn and Rook store data on nodes.

Sources: Longhorn's Replica (healthyAt, failedAt) and node-drain-policy; Rook's CephCluster, which
repeats `ceph health detail`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from rollout.gather.cluster import wire
from rollout.gather.cluster.listing import read_if_allowed, read_list
from rollout.model.cluster import Pod, StoredData
from rollout.ports import ClusterApi

REPLICAS = "/apis/longhorn.io/v1beta2/replicas"
LONGHORN_SETTINGS = "/apis/longhorn.io/v1beta2/settings"
CEPH_CLUSTERS = "/apis/ceph.rook.io/v1/cephclusters"
_UNSEEN = "storage cannot be seen, so its last healthy copies are spared by its own budgets alone"
_DRAIN_POLICY = "node-drain-policy"
_STRICT = "block-if-contains-last-replica"
# Ceph's health checks that mean missing copies. HEALTH_WARN alone may be about a clock.
_LACKING = ("MON_DOWN", "OSD_", "PG_AVAILABILITY", "PG_DAMAGED", "PG_DEGRADED", "OBJECT_UNFOUND")
_NOT_LACKING = (
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


def read_stored(
    api: ClusterApi, pods: Sequence[Pod]
) -> tuple[tuple[StoredData, ...], tuple[str, ...]]:
    """Return the stored data, and warnings."""
    osds = [pod for pod in pods if pod.is_osd]
    has_longhorn = any(pod.is_of_longhorn for pod in pods)
    volumes, unseen = read_if_allowed(lambda: _volumes(api) if has_longhorn else (), _UNSEEN)
    clusters, also_unseen = read_if_allowed(
        lambda: _ceph_clusters(api, osds) if osds else (), _UNSEEN
    )
    return (*volumes, *clusters), (*unseen, *also_unseen)


def _volumes(api: ClusterApi) -> Iterator[StoredData]:
    """Yield Longhorn's volumes. Those on the same nodes are one, named by the first.

    Longhorn rebuilds only a volume with an unhealthy replica. One with one healthy replica is left
    out if the policy allows draining it.
    """
    settings = read_list(
        api, LONGHORN_SETTINGS, _LonghornSetting, lambda item: (item.metadata.name, item.value)
    ).items
    is_strict = dict(settings).get(_DRAIN_POLICY, _STRICT) == _STRICT
    nodes = defaultdict[str, set[str]](set)
    healthy_nodes = defaultdict[str, set[str]](set)
    degraded = set[str]()
    for replica in read_list(api, REPLICAS, _Replica, lambda item: item).items:
        spec = replica.spec
        volume = f"{replica.metadata.namespace}/{spec.volume_name}"
        is_healthy = bool(spec.node_id and spec.healthy_at and not spec.failed_at)
        if not is_healthy:
            degraded.add(volume)
        if spec.node_id:
            nodes[volume].add(spec.node_id)
        if is_healthy:
            healthy_nodes[volume].add(spec.node_id)
    # By all nodes, nodes with a healthy replica, and whether another replica is unhealthy.
    groups = defaultdict[tuple[frozenset[str], frozenset[str], bool], list[str]](list)
    for volume in sorted(nodes):
        key = (frozenset(nodes[volume]), frozenset(healthy_nodes[volume]), volume in degraded)
        groups[key].append(volume)
    for (holding, healthy, is_degraded), volumes in groups.items():
        if healthy and (is_strict or len(healthy) > 1):
            subject = f"and {len(volumes) - 1} more have their" if len(volumes) > 1 else "has its"
            yield StoredData(
                object=f"volumes.longhorn.io/{volumes[0]}",
                nodes=holding,
                healthy=healthy,
                needed=1,
                problem=f"{subject} only healthy replica there",
                fix="wait for its rebuild, or add a replica" if is_degraded else "add a replica",
            )


def _ceph_clusters(api: ClusterApi, osds: Iterable[Pod]) -> Iterator[StoredData]:
    """One node may be away if no copies are missing."""
    by_namespace = defaultdict[str, list[Pod]](list)
    for pod in osds:
        by_namespace[pod.namespace].append(pod)
    for cluster in read_list(api, CEPH_CLUSTERS, _CephCluster, lambda item: item).items:
        namespace = cluster.metadata.namespace
        pods = by_namespace.get(namespace, ())
        nodes = frozenset(pod.node for pod in pods)
        if not nodes:
            continue
        healthy = nodes - {pod.node for pod in pods if not pod.ready}
        lacking = _missing_copies(cluster.status.ceph)
        needed = len(nodes) if lacking else len(nodes) - 1
        yield StoredData(
            object=f"cephclusters.ceph.rook.io/{namespace}/{cluster.metadata.name}",
            nodes=nodes,
            healthy=healthy,
            needed=needed,
            problem=f"is not healthy ({lacking or 'OSDs are not Ready'})",
            fix="wait until it is",
        )


def _missing_copies(ceph: _CephHealth) -> str:
    """Return why copies may be missing; empty if none are."""
    if not ceph.health:
        return "its health is not known"
    lacking = [name for name in sorted(ceph.details) if name.startswith(_LACKING)]
    checks = [name for name in lacking if name not in _NOT_LACKING]
    if not checks and ceph.health == "HEALTH_ERR":
        return ceph.health
    return ", ".join(checks)
