import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from rollout.adapters.kube.api import KubeApi, connect
from rollout.errors import ApiError
from rollout.gather.cluster import jobs, rivals, snapshot
from rollout.gather.cluster.storage import CEPH_CLUSTERS, LONGHORN_SETTINGS, read_stored_data
from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario
from rollout.model.cluster import ClusterIdentity, DaemonSet, Job, OwnerRef, VolumeAttachment
from tests.planning.builders import pod
from tests.scripted_api import Exchange, Kubeconfig, ScriptedServer, scripted

Json = dict[str, Any]


Script = Callable[[Exchange], None]


EXPIRED = {
    "kind": "Status",
    "code": 410,
    "reason": "Expired",
    "message": "The provided continue parameter is too old",
}


def client(tmp_path: Path, server: ScriptedServer) -> KubeApi:
    return connect(Kubeconfig(server.url).write(tmp_path / "kubeconfig"), None)


def refusal(exchange: Exchange, status: int, reason: str) -> None:
    body = {
        "kind": "Status",
        "code": status,
        "reason": reason,
        "message": f"{reason}: {exchange.split.path}",
    }
    exchange.json(body, status)


def serving(answers: dict[str, Json | int]) -> Script:
    """Serve these paths; a number is a refusal, any other path is 404."""

    def script(exchange: Exchange) -> None:
        answer = answers.get(exchange.split.path, 404)
        if isinstance(answer, int):
            refusal(exchange, answer, {403: "Forbidden", 404: "NotFound"}[answer])
        else:
            exchange.json(answer)

    return script


def listed(*objects: Json) -> Json:
    return {"metadata": {"resourceVersion": "5"}, "items": list(objects)}


def named(name: str, **more: Any) -> Json:
    return {"metadata": {"name": name, "namespace": "a", "uid": f"uid-{name}"}, **more}


CLUSTER: dict[str, Json | int] = {
    snapshot.KUBE_SYSTEM: named("kube-system"),
    snapshot.VERSION: {"gitVersion": "v1.36.2"},
    snapshot.NODES: listed(named("n1"), named("n2")),
    snapshot.PODS: listed(named("p1", spec={"nodeName": "n1"})),
    snapshot.BUDGETS: listed(named("b1", spec={"selector": {}})),
    snapshot.DAEMON_SETS: listed(named("d1")),
    snapshot.ATTACHMENTS: listed(
        named("va1", spec={"nodeName": "n1", "source": {"persistentVolumeName": "pv1"}}),
        named("va2", spec={"nodeName": "n2", "source": {}}),
    ),
    snapshot.VOLUMES: listed(),
    rivals.DEPLOYMENTS: listed(),
}


def test_a_snapshot_holds_every_kind(tmp_path: Path) -> None:
    with scripted(serving(CLUSTER)) as server:
        read = snapshot.read_snapshot(client(tmp_path, server))
        assert read.identity == ClusterIdentity("uid-kube-system", server.url, "v1.36.2")
    assert [node.name for node in read.nodes] == ["n1", "n2"]
    assert [(pod.key, pod.node) for pod in read.pods] == [("a/p1", "n1")]
    assert [budget.key for budget in read.budgets] == ["a/b1"]
    assert read.daemon_sets == (DaemonSet("a", "d1", "uid-d1"),)
    assert read.attachments == (
        VolumeAttachment("va1", "n1", "pv1"),
        VolumeAttachment("va2", "n2", ""),
    )
    assert read.warnings == ()


BEGAN = "2026-03-01T00:00:00Z"
NIGHTLY = {"kind": "CronJob", "name": "nightly", "uid": "uid-nightly", "controller": True}
JOBS: dict[str, Json | int] = {
    jobs.JOBS: listed(
        named(
            "running", spec={"activeDeadlineSeconds": 900}, status={"active": 1, "startTime": BEGAN}
        ),
        {
            "metadata": {"name": "done", "uid": "uid-done", "ownerReferences": [NIGHTLY]},
            "status": {"startTime": BEGAN, "completionTime": "2026-03-01T00:40:00Z"},
        },
    )
}


def test_jobs_are_read_only_if_drains_wait_for_them(tmp_path: Path) -> None:
    with scripted(serving({**CLUSTER, **JOBS})) as server:
        assert snapshot.read_snapshot(client(tmp_path, server)).jobs == ()
        read = snapshot.read_snapshot(client(tmp_path, server), with_jobs=True)
    assert read.jobs == (
        Job("uid-running", cron_job="", started_at=BEGAN, deadline_seconds=900, took_seconds=None),
        Job(
            "uid-done",
            cron_job="uid-nightly",
            started_at=BEGAN,
            deadline_seconds=None,
            took_seconds=2400,
        ),
    )
    assert read.warnings == ()


def test_jobs_that_may_not_be_read_are_a_warning(tmp_path: Path) -> None:
    with scripted(serving({**CLUSTER, jobs.JOBS: 403})) as server:
        read = snapshot.read_snapshot(client(tmp_path, server), with_jobs=True)
    assert read.jobs == ()
    (warning,) = read.warnings
    assert "does not know how long their pods will run" in warning


def choosing(selector: Json) -> Json:
    """A cluster whose pod keeps away from others in namespaces that this chooses."""
    term = {"topologyKey": "zone", "labelSelector": {}, "namespaceSelector": selector}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return {
        **CLUSTER,
        snapshot.PODS: listed(named("p1", spec={"nodeName": "n1", "affinity": affinity})),
    }


BY_TEAM = {"matchLabels": {"team": "money"}}


@pytest.mark.parametrize(("selector", "asked"), [(BY_TEAM, 1), ({}, 0)])
def test_namespaces_are_read_only_where_an_affinity_chooses_them_by_labels(
    tmp_path: Path, selector: Json, asked: int
) -> None:
    bank = {"metadata": {"name": "bank", "labels": {"team": "money"}}}
    with scripted(serving({**choosing(selector), snapshot.NAMESPACES: listed(bank)})) as server:
        read = snapshot.read_snapshot(client(tmp_path, server))
    assert read.namespaces == ({"bank": {"team": "money"}} if asked else {})
    assert read.warnings == ()


@pytest.mark.parametrize(
    "path",
    [snapshot.NODES, snapshot.PODS, snapshot.BUDGETS, snapshot.DAEMON_SETS, snapshot.KUBE_SYSTEM],
)
def test_what_planning_cannot_do_without_is_an_error(tmp_path: Path, path: str) -> None:
    with (
        scripted(serving({**CLUSTER, path: 403})) as server,
        pytest.raises(ApiError, match="Forbidden") as caught,
    ):
        snapshot.read_snapshot(client(tmp_path, server))
    assert "rollout doctor" in caught.value.hint


def test_attachments_of_one_node(tmp_path: Path) -> None:
    with scripted(serving(CLUSTER)) as server:
        found = snapshot.read_attachments(client(tmp_path, server), "n1")
    assert [attachment.name for attachment in found] == ["va1"]


def test_a_storage_that_is_not_known_hides_no_other(tmp_path: Path) -> None:
    """Longhorn's kinds are of another version."""
    osds = [
        structs.replace(pod(f"osd-{number}", f"n{number}", app="rook-ceph-osd"), namespace="rook")
        for number in (1, 2)
    ]
    owner = OwnerRef("longhorn.io/v1beta3", "InstanceManager", "manager", "uid")
    ceph = {
        "metadata": {"name": "ceph", "namespace": "rook"},
        "status": {"ceph": {"health": "HEALTH_OK"}},
    }
    with scripted(serving({CEPH_CLUSTERS: listed(ceph)})) as server:
        manager = structs.replace(pod("manager", "n1", owner=""), owner=owner)
        stored, unseen = read_stored_data(client(tmp_path, server), [manager, *osds])
    assert [f"NotFound: {LONGHORN_SETTINGS}" in why for why in unseen] == [True]
    assert [(data.object, data.spare) for data in stored] == [
        ("cephclusters.ceph.rook.io/rook/ceph", 1)
    ]


def test_names_never_leave_their_place_in_the_path() -> None:
    assert snapshot.node_path("../pods") == "/api/v1/nodes/..%2Fpods"
    assert snapshot.pod_path("a", "b?c") == "/api/v1/namespaces/a/pods/b%3Fc"


def test_pods_of_a_node_are_selected_by_the_server(tmp_path: Path) -> None:
    with scripted(serving(CLUSTER)) as server:
        pods = snapshot.read_node_pods(client(tmp_path, server), "n1")
        assert server.exchanges[0].query["fieldSelector"] == "spec.nodeName=n1"
    assert [pod.name for pod in pods] == ["p1"]


def expiring(times: int) -> tuple[Script, list[tuple[str, str]]]:
    """Two pages of pods whose continue token has expired the first `times` times it is used."""
    asked: list[tuple[str, str]] = []

    def script(exchange: Exchange) -> None:
        token = exchange.query.get("continue", "")
        limit = exchange.query["limit"]
        asked.append((token, limit))
        if token and sum(1 for seen, _ in asked if seen) <= times:
            exchange.json(EXPIRED, 410)
        elif token or limit == "0":
            names = ["p1", "p2"] if limit == "0" else ["p2"]
            exchange.json(
                {"metadata": {"resourceVersion": "9"}, "items": [named(name) for name in names]}
            )
        else:
            exchange.json(
                {"metadata": {"resourceVersion": "9", "continue": "t"}, "items": [named("p1")]}
            )

    return script, asked


@pytest.mark.parametrize(
    ("times", "asked"),
    [
        (0, [("", "500"), ("t", "500")]),
        (1, [("", "500"), ("t", "500"), ("", "500"), ("t", "500")]),
        (9, [("", "500"), ("t", "500"), ("", "500"), ("t", "500"), ("", "0")]),
    ],
)
def test_a_list_that_expires_between_pages_is_begun_afresh_and_holds_nothing_twice(
    tmp_path: Path, times: int, asked: list[tuple[str, str]]
) -> None:
    script, seen = expiring(times)
    with scripted(script) as server:
        pods = snapshot.read_node_pods(client(tmp_path, server), "n1")
    assert [pod.name for pod in pods] == ["p1", "p2"]
    assert seen == asked


# The reader against the lab, and against what kubectl makes of the same cluster.


KUBECTL = Path(sys.executable).with_name("kubectl")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab(
        load_scenario("default"), directory=tmp_path_factory.mktemp("lab"), speed=20
    ) as running:
        yield running


@pytest.fixture(scope="module")
def api(lab: Lab) -> KubeApi:
    return connect(lab.kubeconfig, None)


def kubectl(lab: Lab, *arguments: str) -> list[Json]:
    command = [str(KUBECTL), "--kubeconfig", str(lab.kubeconfig), "get", *arguments, "-o", "json"]
    done = subprocess.run(
        command, check=True, capture_output=True, env={**os.environ, "HOME": str(lab.directory)}
    )
    items: list[Json] = json.loads(done.stdout)["items"]
    return items


def ready(obj: Json) -> bool:
    return any(
        c["type"] == "Ready" and c["status"] == "True" for c in obj["status"].get("conditions", ())
    )


@pytest.mark.slow
@pytest.mark.kubectl
def test_the_snapshot_says_what_kubectl_says(lab: Lab, api: KubeApi) -> None:
    read = snapshot.read_snapshot(api)
    shown = {
        kind: kubectl(lab, kind, "-A")
        for kind in ("nodes", "pods", "poddisruptionbudgets", "daemonsets")
    }

    def rows(kind: str, *ways: Callable[[Json], Any]) -> set[tuple[Any, ...]]:
        return {(item["metadata"]["uid"], *(way(item) for way in ways)) for item in shown[kind]}

    assert {
        (node.uid, node.name, node.boot_id, node.is_ready, node.unschedulable, node.os_image)
        for node in read.nodes
    } == rows(
        "nodes",
        lambda node: node["metadata"]["name"],
        lambda node: node["status"]["nodeInfo"]["bootID"],
        ready,
        lambda node: node["spec"].get("unschedulable", False),
        lambda node: node["status"]["nodeInfo"]["osImage"],
    )
    assert {(pod.uid, pod.key, pod.node, pod.phase.value, pod.ready) for pod in read.pods} == rows(
        "pods",
        lambda pod: f"{pod['metadata']['namespace']}/{pod['metadata']['name']}",
        lambda pod: pod["spec"].get("nodeName", ""),
        lambda pod: pod["status"]["phase"],
        ready,
    )
    allowed = {
        item["metadata"]["name"]: item["status"]["disruptionsAllowed"]
        for item in shown["poddisruptionbudgets"]
    }
    assert {budget.name: budget.disruptions_allowed for budget in read.budgets} == allowed
    assert {(daemon_set.uid,) for daemon_set in read.daemon_sets} == rows("daemonsets")
    assert read.nodes
    assert read.pods
    assert read.budgets
    assert read.daemon_sets
