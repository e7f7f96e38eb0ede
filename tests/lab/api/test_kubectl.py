"""A real kubectl against a whole lab: what operators type works and prints what they know."""

import json
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario
from tests.waiting import wait_until

pytestmark = pytest.mark.kubectl

# The one that the development environment brings, not whatever else is installed.
KUBECTL = str(Path(sysconfig.get_path("scripts")) / "kubectl")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab(
        load_scenario("default"), directory=tmp_path_factory.mktemp("lab"), speed=20
    ) as running:
        yield running


def rows(text: str) -> dict[str, list[str]]:
    """A printed table by its first column."""
    return {line.split()[0]: line.split() for line in text.splitlines()}


def kubectl(lab: Lab, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"KUBECONFIG": str(lab.kubeconfig), "HOME": str(lab.directory), "PATH": ""}
    return subprocess.run(
        [KUBECTL, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def listed(lab: Lab, *arguments: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads(kubectl(lab, "get", *arguments, "-o", "json").stdout)[
        "items"
    ]
    return items


def is_whole(deployment: dict[str, Any]) -> bool:
    return bool(deployment["status"]["readyReplicas"] == deployment["spec"]["replicas"])


def test_the_cluster_looks_like_one(lab: Lab) -> None:
    nodes = rows(kubectl(lab, "get", "nodes", "-o", "wide").stdout)
    assert all(row[1] == "Ready" for name, row in nodes.items() if name != "NAME")
    assert "Flatcar" in kubectl(lab, "describe", "nodes").stdout
    assert kubectl(lab, "describe", "pods", "-A").returncode == 0
    for kind in (
        "deployments",
        "daemonsets",
        "statefulsets",
        "replicasets",
        "pdb",
        "leases",
        "events",
        "jobs",
    ):
        assert kubectl(lab, "get", kind, "-A", "-o", "wide").returncode == 0


def deployment(lab: Lab) -> tuple[str, str, int]:
    """Namespace, name and replicas of one that the lab has."""
    first = next(each for each in listed(lab, "deployments", "-A") if each["spec"]["replicas"] > 1)
    return first["metadata"]["namespace"], first["metadata"]["name"], first["spec"]["replicas"]


def test_a_workload_is_scaled(lab: Lab) -> None:
    namespace, name, replicas = deployment(lab)
    scaled = kubectl(
        lab, "scale", "-n", namespace, f"deployment/{name}", f"--replicas={replicas + 1}"
    )
    assert scaled.returncode == 0, scaled.stderr

    def is_scaled() -> bool:
        found = json.loads(
            kubectl(lab, "get", "-n", namespace, "deployment", name, "-o", "json").stdout
        )
        return is_whole(found) and found["status"]["replicas"] == replicas + 1

    wait_until(is_scaled)
    back = ("scale", "-n", namespace, f"deployment/{name}", f"--replicas={replicas}")
    refused = kubectl(lab, *back, "--current-replicas=99")
    assert "Expected replicas to be 99" in refused.stderr
    assert kubectl(lab, *back, f"--current-replicas={replicas + 1}").returncode == 0
    shown = kubectl(
        lab, "get", "-n", namespace, "deployment", name, "--subresource=scale", "-o", "json"
    )
    scale = json.loads(shown.stdout)
    assert scale["kind"] == "Scale"
    assert scale["spec"]["replicas"] == replicas


def test_workloads_are_rolled_out(lab: Lab) -> None:
    daemon_set = listed(lab, "daemonsets", "-A")[0]["metadata"]
    workloads = {deployment(lab)[:2]: "deployment"}
    workloads[daemon_set["namespace"], daemon_set["name"]] = "daemonset"
    for (namespace, name), kind in workloads.items():
        said = kubectl(lab, "rollout", "status", "-n", namespace, f"{kind}/{name}")
        assert "successfully rolled out" in said.stdout, said.stderr


def test_a_statefulset_is_scaled_and_a_daemonset_is_not(lab: Lab) -> None:
    daemon_set = listed(lab, "daemonsets", "-A")[0]["metadata"]
    refused = kubectl(
        lab,
        "scale",
        "-n",
        daemon_set["namespace"],
        f"daemonset/{daemon_set['name']}",
        "--replicas=2",
    )
    assert refused.returncode != 0
    stateful_set = next(iter(listed(lab, "statefulsets", "-A")), None)
    if stateful_set is None:
        pytest.skip("the lab has no StatefulSet")
    metadata = stateful_set["metadata"]
    replicas = stateful_set["spec"]["replicas"]
    for number in (replicas + 1, replicas):
        scaled = kubectl(
            lab,
            "scale",
            "-n",
            metadata["namespace"],
            f"statefulset/{metadata['name']}",
            f"--replicas={number}",
        )
        assert scaled.returncode == 0, scaled.stderr


POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "large", "namespace": "default"},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}


def applied(lab: Lab, obj: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    file = lab.directory / "applied.json"
    file.write_text(json.dumps(obj))
    return kubectl(lab, "apply", "-f", str(file))


def test_a_pod_that_no_node_has_room_for_stays_pending(lab: Lab) -> None:
    resources = {"requests": {"cpu": "1000"}}
    spec = {"containers": [{"name": "c", "image": "i", "resources": resources}]}
    assert applied(lab, {**POD, "spec": spec}).returncode == 0

    def is_refused() -> bool:
        found = json.loads(kubectl(lab, "get", "pod", "large", "-o", "json").stdout)
        conditions = found["status"].get("conditions") or ()
        return any("Insufficient cpu" in condition.get("message", "") for condition in conditions)

    wait_until(is_refused)
    assert kubectl(lab, "delete", "pod", "large").returncode == 0


def test_a_pod_with_a_resource_claim_is_refused_with_the_reason(lab: Lab) -> None:
    claimed = {**POD["spec"], "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}  # type: ignore[dict-item]
    refused = applied(lab, {**POD, "spec": claimed})
    assert "the lab has no ResourceClaims" in refused.stderr


def test_events_are_selected_by_their_source(lab: Lab) -> None:
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "seen", "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": "worker-1"},
        "source": {"component": "node-rollout"},
        "reason": "Drained",
        "message": "all pods are gone",
        "type": "Normal",
    }
    assert applied(lab, event).returncode == 0
    own = listed(lab, "events", "--field-selector", "source=node-rollout")
    assert [found["metadata"]["name"] for found in own] == ["seen"]
    others = listed(lab, "events", "--field-selector", "source!=node-rollout")
    assert "seen" not in [found["metadata"]["name"] for found in others]


def test_a_drained_node_is_empty_and_comes_back(lab: Lab) -> None:
    worker = next(
        node["metadata"]["name"]
        for node in listed(lab, "nodes")
        if "node-role.kubernetes.io/control-plane" not in node["metadata"]["labels"]
    )
    drained = kubectl(
        lab,
        *("drain", worker, "--ignore-daemonsets", "--delete-emptydir-data", "--force"),
        "--timeout=60s",
    )
    assert drained.returncode == 0, drained.stderr

    left = listed(lab, "pods", "-A", "--field-selector", f"spec.nodeName={worker}")
    owners = {owner["kind"] for pod in left for owner in pod["metadata"].get("ownerReferences", ())}
    assert owners <= {"DaemonSet", "Node"}
    wait_until(lambda: all(map(is_whole, listed(lab, "deployments", "-A"))))
    assert kubectl(lab, "uncordon", worker).returncode == 0
    assert rows(kubectl(lab, "get", "nodes").stdout)[worker][1] == "Ready"


def test_what_is_printed_for_a_cluster_can_be_applied_and_is_kept(lab: Lab) -> None:
    """Roles, accounts, a CronJob, what guards a server: one object a document."""
    for kind in (("cronjob", "--known-hosts", str(lab.known_hosts)), ("fleetlock",)):
        printed = subprocess.run(
            [
                sys.executable,
                "-m",
                "rollout",
                "manifests",
                *kind,
                "--image",
                "registry.example/node-rollout:1",
            ],
            env={"HOME": str(lab.directory)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        file = lab.directory / f"{kind[0]}.yaml"
        file.write_text(printed)
        applied = kubectl(lab, "apply", "-f", str(file))
        assert applied.returncode == 0, applied.stderr
        assert len(applied.stdout.splitlines()) == printed.count("\nkind: ") + printed.startswith(
            "kind: "
        )
