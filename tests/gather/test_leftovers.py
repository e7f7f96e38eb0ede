"""What is read of leftovers, over a real wire: who wrote a cordon, and which Leases are a FleetLock server's."""

from pathlib import Path
from typing import Any

import pytest

from rollout.adapters.kube.api import connect
from rollout.gather.cluster.leftovers import LEASES, read_standing
from rollout.gather.cluster.rivals import DAEMON_SETS, DEPLOYMENTS
from rollout.gather.cluster.snapshot import NODES
from rollout.model.leftovers import Standing
from tests.scripted_api import Exchange, Kubeconfig, scripted

Json = dict[str, Any]
CORDON: Json = {"f:spec": {"f:unschedulable": {}}}
STATUS: Json = {"f:metadata": {"f:annotations": {".": {}, "f:rebootmanager/status": {}}}}


def managed(*entries: tuple[str, Json]) -> Json:
    return {
        "metadata": {
            "name": "w-1",
            "managedFields": [{"manager": name, "operation": "Update", "fieldsV1": fields} for name, fields in entries],
        },
        "spec": {"unschedulable": True},
    }


def standing(
    tmp_path: Path, *, node: Json | None = None, leases: tuple[Json, ...] = (), lease_status: int = 200
) -> Standing:
    lists: dict[str, object] = {
        NODES: [node or {"metadata": {"name": "w-1"}}],
        DEPLOYMENTS: [],
        DAEMON_SETS: [],
        LEASES: leases,
    }

    def answer(exchange: Exchange) -> None:
        path = exchange.split.path
        if path == LEASES and lease_status != 200:
            exchange.json({"kind": "Status", "status": "Failure", "code": lease_status, "message": "no"}, lease_status)
        else:
            exchange.json({"metadata": {}, "items": lists[path]})

    with scripted(answer) as server:
        return read_standing(connect(Kubeconfig(server.url).write(tmp_path / "kubeconfig"), None))


@pytest.mark.parametrize(
    ("entries", "cordoned_by", "written_by"),
    [
        ((), "", {}),
        ((("kubelet", {"f:status": {"f:conditions": {}}}),), "", {}),
        ((("kubectl-cordon", CORDON),), "kubectl-cordon", {}),
        ((("php", {**CORDON, **STATUS}),), "php", {"rebootmanager/status": "php"}),
        ((("a", CORDON), ("a", STATUS)), "a", {"rebootmanager/status": "a"}),
        ((("a", CORDON), ("b", STATUS)), "a", {"rebootmanager/status": "b"}),
        ((("a", CORDON), ("b", CORDON)), "", {}),
        ((("a", {"f:metadata": {"f:labels": {"f:x/y": {}}}}),), "", {"x/y": "a"}),
    ],
)
def test_who_wrote_a_cordon_and_the_marks_beside_it_is_read(
    entries: tuple[tuple[str, Json], ...], cordoned_by: str, written_by: dict[str, str], tmp_path: Path
) -> None:
    (written,) = standing(tmp_path, node=managed(*entries)).nodes
    assert (written.cordoned_by, written.written_by) == (cordoned_by, written_by)
    assert written.node.unschedulable


def lease(name: str, *, metadata: Json | None = None, **spec: object) -> Json:
    return {"metadata": {"name": name, "namespace": "default", **(metadata or {})}, "spec": spec or None}


def test_only_leases_as_poseidons_server_makes_them_are_its_own(tmp_path: Path) -> None:
    leases = (
        lease("fleetlock-a", holderIdentity="c988d2509fdf5cdcbed39037c56406fb", leaseTransitions=3),
        lease("fleetlock-b"),
        lease("fleetlock-timed", holderIdentity="x", leaseDurationSeconds=15, renewTime="2026-01-01T00:00:00Z"),
        lease("fleetlock-ours", metadata={"annotations": {"node-rollout.dev/run": "a"}}, holderIdentity="x"),
        lease("node-rollout", holderIdentity="x"),
    )
    read = standing(tmp_path, leases=leases).leases
    assert [(held.name, held.holder) for held in read] == [
        ("fleetlock-a", "c988d2509fdf5cdcbed39037c56406fb"),
        ("fleetlock-b", ""),
    ]


@pytest.mark.parametrize(("status", "unseen"), [(403, 1), (404, 0)])
def test_leases_that_may_not_be_seen_are_said_and_the_rest_is_read(status: int, unseen: int, tmp_path: Path) -> None:
    read = standing(tmp_path, lease_status=status)
    assert (len(read.nodes), read.leases, len(read.unseen)) == (1, (), unseen)
