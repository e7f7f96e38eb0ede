"""The reader against the lab, and against what kubectl makes of the same cluster."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollout.adapters.kube.api import KubeApi, connect
from rollout.gather.cluster import snapshot
from rollout.gather.cluster.watch_events import WatchEventType, decode_watch_line
from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario
from rollout.model.cluster import Node

pytestmark = pytest.mark.slow  # reads a lab

Json = dict[str, Any]
KUBECTL = Path(sys.executable).with_name("kubectl")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab.start(load_scenario("default"), directory=tmp_path_factory.mktemp("lab"), speed=20) as running:
        yield running


@pytest.fixture(scope="module")
def api(lab: Lab) -> KubeApi:
    return connect(lab.kubeconfig, None)


def kubectl(lab: Lab, *arguments: str) -> list[Json]:
    command = [str(KUBECTL), "--kubeconfig", str(lab.kubeconfig), "get", *arguments, "-o", "json"]
    done = subprocess.run(command, check=True, capture_output=True, env={**os.environ, "HOME": str(lab.directory)})
    items: list[Json] = json.loads(done.stdout)["items"]
    return items


def ready(obj: Json) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in obj["status"].get("conditions", ()))


@pytest.mark.kubectl
def test_the_snapshot_says_what_kubectl_says(lab: Lab, api: KubeApi) -> None:
    read = snapshot.read_snapshot(api)
    assert {
        (node.name, node.uid, node.boot_id, node.is_ready, node.unschedulable, node.os_image) for node in read.nodes
    } == {
        (
            node["metadata"]["name"],
            node["metadata"]["uid"],
            node["status"]["nodeInfo"]["bootID"],
            ready(node),
            node["spec"].get("unschedulable", False),
            node["status"]["nodeInfo"]["osImage"],
        )
        for node in kubectl(lab, "nodes")
    }
    assert {(pod.key, pod.uid, pod.node, pod.phase.value, pod.ready) for pod in read.pods} == {
        (
            f"{pod['metadata']['namespace']}/{pod['metadata']['name']}",
            pod["metadata"]["uid"],
            pod["spec"].get("nodeName", ""),
            pod["status"]["phase"],
            ready(pod),
        )
        for pod in kubectl(lab, "pods", "-A")
    }
    assert {(budget.key, budget.disruptions_allowed) for budget in read.budgets} == {
        (f"{budget['metadata']['namespace']}/{budget['metadata']['name']}", budget["status"]["disruptionsAllowed"])
        for budget in kubectl(lab, "poddisruptionbudgets", "-A")
    }
    assert {daemon_set.uid for daemon_set in read.daemon_sets} == {
        daemon_set["metadata"]["uid"] for daemon_set in kubectl(lab, "daemonsets", "-A")
    }
    assert (
        read.identity.uid
        == kubectl(lab, "namespaces", "--field-selector=metadata.name=kube-system")[0]["metadata"]["uid"]
    )
    assert read.nodes
    assert read.pods
    assert read.budgets
    assert read.daemon_sets


def test_a_watch_sees_a_cordon_and_ends_when_left(api: KubeApi) -> None:
    name = snapshot.read_nodes(api)[0].name
    query = {
        "fieldSelector": f"metadata.name={name}",
        "resourceVersion": snapshot.read_node(api, name).resource_version,
    }
    with api.watch(snapshot.NODES, query, seconds=30) as lines:
        api.patch(snapshot.node_path(name), {"spec": {"unschedulable": True}})
        for line in lines:
            event = decode_watch_line(line, Node)
            assert event.type in (WatchEventType.MODIFIED, WatchEventType.BOOKMARK)
            if event.object is not None and event.object.unschedulable:
                break
    api.patch(snapshot.node_path(name), {"spec": {"unschedulable": None}})
    assert not snapshot.read_node(api, name).unschedulable
