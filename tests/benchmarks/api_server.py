"""A plan of one node beside curl of the lists that it reads, on a real kube-apiserver.

The lab's objects are written to etcd. The lab stays up for its hosts. It
needs `etcd` and `kube-apiserver` in PATH, or in the directory that ROLLOUT_CONTROL_PLANE names.

Run: python tests/benchmarks/api_server.py [--nodes 1000] [--runs 5]
"""

import argparse
import base64
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import urllib3
import yaml

sys.path.insert(0, str(Path(__file__).parents[2]))

from rollout.gather.cluster.rivals import DEPLOYMENTS
from rollout.gather.cluster.snapshot import (
    ATTACHMENTS,
    BUDGETS,
    DAEMON_SETS,
    NODES,
    PODS,
    VOLUMES,
)
from tests.benchmarks.fleet import curl, program
from tests.benchmarks.lab_process import LabProcess, lab_process, measured
from tests.control_plane.servers import api_server, missing

# etcd's key, API version and kind, by the path of the list.
STORED = {
    "/api/v1/namespaces": ("namespaces", "v1", "Namespace"),
    NODES: ("minions", "v1", "Node"),
    PODS: ("pods", "v1", "Pod"),
    BUDGETS: ("poddisruptionbudgets", "policy/v1", "PodDisruptionBudget"),
    DAEMON_SETS: ("daemonsets", "apps/v1", "DaemonSet"),
    DEPLOYMENTS: ("deployments", "apps/v1", "Deployment"),
    ATTACHMENTS: ("volumeattachments", "storage.k8s.io/v1", "VolumeAttachment"),
    VOLUMES: ("persistentvolumes", "v1", "PersistentVolume"),
}
_OBJECTS_PER_TRANSACTION = 100


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=5)
    asked = parser.parse_args()
    if programs := missing():
        sys.exit(f"not here: {programs}")
    with (
        lab_process("large", speed=1.0, nodes=asked.nodes) as lab,
        tempfile.TemporaryDirectory() as directory,
        api_server(Path(directory), lambda url: fill(url, lab)) as plane,
    ):
        variables = {**lab.environment, "KUBECONFIG": str(plane.kubeconfig)}
        real = replace(lab, environment=variables)
        compare(real, asked.runs)


def compare(lab: LabProcess, runs: int) -> None:
    """The first of each warms the caches of the API server, and does not count."""
    words = program(None, "plan", "--node", "worker-1", "-o", "json")
    seconds: dict[str, list[float]] = {"curl": [], "plan": []}
    for _ in range(1 + runs):
        seconds["curl"].append(curl(lab).wall)
        cost = measured(lab, words, lab.directory / "plan.json")
        assert cost.code == 0, f"plan ended with {cost.code}"
        seconds["plan"].append(cost.wall)
    median = {name: statistics.median(values[1:]) for name, values in seconds.items()}
    print(
        f"curl of the lists {median['curl']:.2f} s, plan of one node {median['plan']:.2f} s:"
        f" {median['plan'] / median['curl']:.2f} times as long"
    )


def fill(store: str, lab: LabProcess) -> None:
    """Write the lab's objects to etcd at this URL."""
    began = time.monotonic()
    count = 0
    # The lab's certificate is its own.
    urllib3.disable_warnings()
    with urllib3.PoolManager(cert_reqs="CERT_NONE") as pool:
        _wait_for_store(pool, store)
        for writes in _batches(_objects_of_lab(pool, lab)):
            count += len(writes)
            pool.request("POST", f"{store}/v3/kv/txn", json={"success": writes})
    print(f"{count} objects in etcd after {time.monotonic() - began:.0f} s", flush=True)


def _wait_for_store(pool: urllib3.PoolManager, store: str) -> None:
    # Retries while etcd does not listen yet.
    retries = urllib3.Retry(total=20, backoff_factor=0.1)
    pool.request("GET", f"{store}/health", retries=retries)


def _objects_of_lab(
    pool: urllib3.PoolManager, lab: LabProcess
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield etcd's key and the object, of all kinds in `STORED`."""
    context = yaml.safe_load(Path(lab.environment["KUBECONFIG"]).read_text())
    server = context["clusters"][0]["cluster"]["server"]
    headers = {"Authorization": f"Bearer {context['users'][0]['user']['token']}"}
    for path, (folder, version, kind) in STORED.items():
        for item in pool.request("GET", f"{server}{path}", headers=headers).json()["items"]:
            metadata = item["metadata"]
            # etcd keeps the resource version itself.
            del metadata["resourceVersion"]
            place = [metadata["namespace"]] if "namespace" in metadata else []
            key = "/".join(("/registry", folder, *place, metadata["name"]))
            yield key, {**item, "apiVersion": version, "kind": kind}


def _batches(
    objects: Iterator[tuple[str, Mapping[str, Any]]],
) -> Iterator[Sequence[Mapping[str, Any]]]:
    """Yield transactions of etcd's JSON gateway, which takes base64."""
    while batch := list(islice(objects, _OBJECTS_PER_TRANSACTION)):
        yield [
            {"requestPut": {"key": _base64(key), "value": _base64(json.dumps(item))}}
            for key, item in batch
        ]


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


if __name__ == "__main__":
    main()
