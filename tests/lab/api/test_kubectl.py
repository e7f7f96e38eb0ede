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
    with Lab(load_scenario("default"), directory=tmp_path_factory.mktemp("lab"), speed=20) as running:
        yield running


def rows(text: str) -> dict[str, list[str]]:
    """A printed table by its first column."""
    return {line.split()[0]: line.split() for line in text.splitlines()}


def kubectl(lab: Lab, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"KUBECONFIG": str(lab.kubeconfig), "HOME": str(lab.directory), "PATH": ""}
    return subprocess.run(
        [KUBECTL, *arguments], env=environment, capture_output=True, text=True, timeout=90, check=False
    )


def listed(lab: Lab, *arguments: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads(kubectl(lab, "get", *arguments, "-o", "json").stdout)["items"]
    return items


def is_whole(deployment: dict[str, Any]) -> bool:
    return bool(deployment["status"]["readyReplicas"] == deployment["spec"]["replicas"])


def test_the_cluster_looks_like_one(lab: Lab) -> None:
    nodes = rows(kubectl(lab, "get", "nodes", "-o", "wide").stdout)
    assert all(row[1] == "Ready" for name, row in nodes.items() if name != "NAME")
    assert "Flatcar" in kubectl(lab, "describe", "nodes").stdout
    assert kubectl(lab, "describe", "pods", "-A").returncode == 0
    for kind in ("deployments", "daemonsets", "statefulsets", "replicasets", "pdb", "leases", "events", "jobs"):
        assert kubectl(lab, "get", kind, "-A", "-o", "wide").returncode == 0


def test_a_drained_node_is_empty_and_comes_back(lab: Lab) -> None:
    worker = next(
        node["metadata"]["name"]
        for node in listed(lab, "nodes")
        if "node-role.kubernetes.io/control-plane" not in node["metadata"]["labels"]
    )
    drained = kubectl(lab, "drain", worker, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=60s")
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
            [sys.executable, "-m", "rollout", "manifests", *kind, "--image", "registry.example/node-rollout:1"],
            env={"HOME": str(lab.directory)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        file = lab.directory / f"{kind[0]}.yaml"
        file.write_text(printed)
        applied = kubectl(lab, "apply", "-f", str(file))
        assert applied.returncode == 0, applied.stderr
        assert len(applied.stdout.splitlines()) == printed.count("\nkind: ") + printed.startswith("kind: ")
