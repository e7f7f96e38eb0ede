"""Storage on the cluster's own nodes, by Longhorn's and Rook's objects: the last healthy copy of
nothing goes.
"""

import json
from pathlib import Path

import pytest

from rollout.adapters.kube.api import connect
from rollout.gather.cluster.snapshot import read_pods
from rollout.gather.cluster.storage import read_stored_data
from rollout.lab.api.lifecycle import with_defaults
from rollout.lab.api.resources import (
    CEPH_CLUSTERS,
    LONGHORN_SETTINGS,
    NAMESPACES,
    PODS,
    REPLICAS,
    Resource,
)
from rollout.lab.api.store import Json
from rollout.lab.lab import Lab
from rollout.model.cluster import StoredData
from tests.apply.conftest import ONE_LOOK, Rollout, Started
from tests.security.hands import at_phase
from tests.state import rebooted, stored
from tests.waiting import wait_until

LONGHORN = "longhorn-system"
CEPH = "rook-ceph"
WORKERS = ("worker-1", "worker-2", "worker-3")
APPLY = ("apply", "--yes", "-o", "json", "--control-plane", "exclude", *ONE_LOOK)


@pytest.fixture
def lab(started: Started) -> Lab:
    return started("default", 6)


def put(lab: Lab, resource: Resource, namespace: str, name: str, **fields: object) -> None:
    lab.store.create(resource, {"metadata": {"name": name, "namespace": namespace}, **fields})


def open_namespace(lab: Lab, name: str) -> None:
    lab.store.create(NAMESPACES, {"metadata": {"name": name}})


def put_pod(
    lab: Lab, namespace: str, name: str, node: str, owner: tuple[str, str], app: str
) -> None:
    version, kind = owner
    reference = {"apiVersion": version, "kind": kind, "name": name, "uid": name, "controller": True}
    meta = {
        "name": name,
        "namespace": namespace,
        "labels": {"app": app},
        "ownerReferences": [reference],
    }
    spec = {
        "nodeName": node,
        "containers": [{"name": "main", "image": "registry.example/storage:1"}],
    }
    lab.store.create(PODS, with_defaults(PODS, {"metadata": meta, "spec": spec}))


def with_longhorn(
    lab: Lab, policy: str = "block-if-contains-last-replica", **volumes: tuple[str, ...]
) -> None:
    """Volumes by name, each with the nodes of its healthy replicas."""

    def begin() -> None:
        open_namespace(lab, LONGHORN)
        put(lab, LONGHORN_SETTINGS, LONGHORN, "node-drain-policy", value=policy)
        for node in WORKERS:
            manager = ("longhorn.io/v1beta2", "InstanceManager")
            put_pod(lab, LONGHORN, f"instance-manager-{node}", node, manager, "longhorn-manager")
        for volume, nodes in volumes.items():
            for node in nodes:
                spec = {
                    "volumeName": volume,
                    "nodeID": node,
                    "healthyAt": "2026-03-01T12:00:00Z",
                    "failedAt": "",
                }
                put(lab, REPLICAS, LONGHORN, f"{volume}-{node}", spec=spec)

    lab.call(begin)


def fail(lab: Lab, replica: str, at: str = "2026-03-01T13:00:00Z") -> None:
    """Its copy is lost; whole again with no time. In the lab's loop."""
    found = stored(lab, REPLICAS, replica, LONGHORN)
    lab.store.put(REPLICAS, {**found, "spec": {**found["spec"], "failedAt": at}})


def with_ceph(lab: Lab, health: str, **details: Json) -> None:
    def begin() -> None:
        open_namespace(lab, CEPH)
        status = {"ceph": {"health": health, "details": details}}
        put(lab, CEPH_CLUSTERS, CEPH, "main", spec={}, status=status)
        for node in WORKERS:
            put_pod(lab, CEPH, f"osd-{node}", node, ("apps/v1", "ReplicaSet"), "rook-ceph-osd")

    lab.call(begin)
    wait_until(lambda: all(data.healthy == data.nodes for data in read(lab)))


def read(lab: Lab) -> tuple[StoredData, ...]:
    api = connect(Path(lab.environment["KUBECONFIG"]), None)
    return read_stored_data(
        api, [pod for namespace in (LONGHORN, CEPH) for pod in read_pods(api, namespace, "")]
    )[0]


def test_the_last_healthy_replica_stays_and_the_other_nodes_go(lab: Lab, rollout: Rollout) -> None:
    with_longhorn(lab, alone=("worker-2",), alike=("worker-2",), common=WORKERS)
    refused = rollout(lab, *APPLY).ends(6)
    said = " ".join(refused.stderr.split())
    assert (
        f"worker-2 volumes.longhorn.io {LONGHORN}/alike and 1 more have their only healthy replica"
        " there" in said
    )
    assert not rebooted(lab)
    rollout(lab, *APPLY, "--skip", "blocked").ends(0)
    assert rebooted(lab) == {"worker-1", "worker-3"}
    assert rollout(lab, *APPLY, "--allow", "unhealthy").code == 0
    assert rebooted(lab) == set(WORKERS)


def test_a_node_waits_until_its_copy_is_not_the_only_one(lab: Lab, rollout: Rollout) -> None:
    """The replica on the first node is lost by its reboot, and rebuilt a while after it is back."""
    with_longhorn(lab, data=("worker-1", "worker-2"))
    at_phase(lab, "rebooting", lambda node: fail(lab, f"data-{node}"), node="worker-1")
    lost: list[str] = []

    def mend(node: str) -> None:
        lab.world.cluster.agenda.after(360, lambda: fail(lab, f"data-{node}", at=""))

    def note(_node: str) -> None:
        lost.append(stored(lab, REPLICAS, "data-worker-1", LONGHORN)["spec"]["failedAt"])

    at_phase(lab, "cordoned", note, node="worker-2")
    at_phase(lab, "ready", mend, node="worker-1")
    nodes = ("--node", "worker-1", "--node", "worker-2", "--max-unavailable", "2")
    ended = rollout(lab, *APPLY, *nodes, "--set", "gates.timeout=30s").ends(0)
    assert lost == [""]
    assert f"volumes.longhorn.io {LONGHORN}/data has its only healthy" in ended.stdout


def test_where_longhorn_may_lose_the_last_replica_only_pairs_are_kept_apart(lab: Lab) -> None:
    with_longhorn(lab, "always-allow", alone=("worker-2",), pair=("worker-1", "worker-3"))
    (data,) = read(lab)
    assert data.object.rpartition("/")[2] == "pair"
    assert data.spare == 1


def test_only_a_volume_that_longhorn_rebuilds_is_waited_for(lab: Lab) -> None:
    with_longhorn(lab, single=("worker-2",), degraded=("worker-1", "worker-3"))
    lab.call(lambda: fail(lab, "degraded-worker-1"))
    fixes = {data.object.rpartition("/")[2]: data.fix for data in read(lab)}
    assert fixes == {
        "single": "add a replica",
        "degraded": "wait for its rebuild, or add a replica",
    }


def test_ceph_that_lacks_copies_keeps_its_nodes(lab: Lab, rollout: Rollout) -> None:
    with_ceph(
        lab, "HEALTH_WARN", PG_DEGRADED={"message": "Degraded data redundancy"}, OSD_NEARFULL={}
    )
    refused = rollout(lab, *APPLY).ends(6)
    assert f"cephclusters.ceph.rook.io {CEPH}/main is not healthy (PG_DEGRADED)" in " ".join(
        refused.stderr.split()
    )
    found = lab.store.get(CEPH_CLUSTERS, "main", CEPH)
    assert found is not None
    well = {**found, "status": {"ceph": {"health": "HEALTH_WARN", "details": {"OSD_NEARFULL": {}}}}}
    lab.call(lambda: lab.store.put(CEPH_CLUSTERS, well))
    planned = json.loads(
        rollout(
            lab, "plan", "--max-unavailable", "3", "--control-plane", "exclude", "-o", "json"
        ).stdout
    )
    assert [len(wave["nodes"]) for wave in planned["waves"]] == [1, 1, 1]


@pytest.mark.parametrize(
    ("health", "is_well"), [("HEALTH_OK", True), ("HEALTH_ERR", False), ("", False)]
)
def test_what_ceph_says_of_itself_counts(lab: Lab, health: str, *, is_well: bool) -> None:
    with_ceph(lab, health)
    (data,) = read(lab)
    assert data.spare == (1 if is_well else 0)
