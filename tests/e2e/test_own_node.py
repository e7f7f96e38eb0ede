"""Two passes of the real program in pods: the first leaves its own node, the second, elsewhere, takes it.

Namespaces of the kernel stand in for the container. Nothing tells either pod its node but what every pod has: the first
its account and its name, the second its kernel.
"""

import os
import subprocess
import sys
from base64 import b64decode
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from rollout.lab.api.resources import NODES, PODS
from rollout.lab.lab import Lab
from tests.conftest import StartLab
from tests.ended import Ended
from tests.state import node_of

ACCOUNT = "/run/secrets/kubernetes.io/serviceaccount"
MARK = "node-rollout.dev/deferred"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
POD = f"""
set -e
hostname "$POD_NAME"
mount -t tmpfs tmpfs /run
mkdir -p {ACCOUNT}
cp "$POD_ACCOUNT"/token "$POD_ACCOUNT"/ca.crt "$POD_ACCOUNT"/namespace {ACCOUNT}
if [ -n "$POD_KERNEL" ]; then
    mount --bind "$POD_KERNEL" {BOOT_ID}
fi
exec "$@"
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="takes namespaces of its own")


class Pods:
    """Pods of the lab's cluster, by name: what each has beside the account is given."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self._lab, self._folder = lab, folder
        config = yaml.safe_load(lab.kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        (folder / "token").write_text(config["users"][0]["user"]["token"])
        (folder / "ca.crt").write_bytes(b64decode(cluster["certificate-authority-data"]))
        (folder / "namespace").write_text("kube-system")
        self._server = urlsplit(cluster["server"])

    def create(self, name: str, node: str) -> None:
        """A Pod without an owner, as the API server has it; the process is not the lab's."""
        metadata = {"name": name, "namespace": "kube-system", "uid": f"uid-{name}"}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {"nodeName": node, "containers": [{"name": "rollout", "image": "rollout"}]},
            "status": {"phase": "Succeeded"},
        }
        self._lab.call(lambda: self._lab.store.create(PODS, body))

    def kernel_of(self, node: str) -> str:
        """A file with what the kernel of this node says its boot is."""
        found = self._lab.store.get(NODES, node)
        assert found is not None
        file = self._folder / f"boot-{node}"
        file.write_text(f"{found['status']['nodeInfo']['bootID']}\n")
        return str(file)

    def run(self, name: str, *arguments: str, kernel: str = "") -> Ended:
        """The real program to its end, in a pod of this name."""
        ended = subprocess.run(
            ["unshare", "--mount", "--uts", "sh", "-c", POD, "sh", sys.executable, "-m", "rollout", *arguments],
            env={
                "PATH": os.environ["PATH"],
                "HOME": "/nowhere",
                "XDG_STATE_HOME": str(self._folder),
                "KUBERNETES_SERVICE_HOST": str(self._server.hostname),
                "KUBERNETES_SERVICE_PORT": str(self._server.port),
                "POD_ACCOUNT": str(self._folder),
                "POD_NAME": name,
                "POD_KERNEL": kernel,
                **{key: value for key, value in self._lab.environment.items() if key.startswith("ROLLOUT_")},
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)


def test_two_passes_in_pods_on_different_nodes(start_lab: StartLab, tmp_path: Path) -> None:
    lab = start_lab("default", nodes=5, speed=30)
    pods = Pods(lab, tmp_path)
    pods.create("rollout-1", "worker-2")
    first = pods.run("rollout-1", "apply", "--yes", "-o", "json", "--settle-timeout", "20s")
    assert first.code == 4, first.stderr
    assert first.summary["not_done"] == [
        {
            "node": "worker-2",
            "reason": "deferred",
            "message": "this process runs on it, in the pod kube-system/rollout-1: the next run takes it, from another "
            "node",
        }
    ]
    assert len(first.summary["succeeded"]) == 4
    assert lab.scoreboard().reboots["worker-2"] == 0
    node = node_of(lab, "worker-2")
    assert "kube-system/rollout-1" in node["metadata"]["annotations"][MARK]
    assert node["metadata"]["labels"][MARK] == "true"
    second = pods.run("rollout-2", "apply", "--yes", "-o", "json", kernel=pods.kernel_of("worker-1"))
    assert second.code == 0, second.stderr
    assert second.summary["succeeded"] == ["worker-2"]
    score = lab.scoreboard()
    assert set(score.reboots.values()) == {1}
    assert score.clean
    assert score.annotations_left == {}
    node = node_of(lab, "worker-2")
    assert MARK not in {**node["metadata"]["annotations"], **node["metadata"]["labels"]}


def test_the_kernel_alone_tells_the_node(start_lab: StartLab, tmp_path: Path) -> None:
    lab = start_lab("default", nodes=5, speed=30)
    pods = Pods(lab, tmp_path)
    planned = pods.run("rollout-1", "plan", kernel=pods.kernel_of("worker-2"))
    assert planned.code == 0, planned.stderr
    assert "deferred" in planned.stdout
    assert "this process runs on it, in a pod" in " ".join(planned.stdout.split())


def test_a_pod_that_cannot_tell_says_so(start_lab: StartLab, tmp_path: Path) -> None:
    lab = start_lab("default", nodes=5, speed=30)
    planned = Pods(lab, tmp_path).run("rollout-1", "plan")
    assert planned.code == 0, planned.stderr
    assert "which node this pod is on is not known" in planned.stderr
    assert "ROLLOUT_NODE_NAME" in planned.stderr
    assert "deferred" not in planned.stdout
