"""The real program in a pod that nothing tells its node but what every pod has: account, name and kernel.

Namespaces of the kernel stand in for the container.
"""

import os
import subprocess
import sys
from base64 import b64decode
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from rollout.lab.api.resources import PODS
from rollout.lab.lab import Lab
from tests.conftest import StartLab
from tests.ended import Ended
from tests.state import node_of

ACCOUNT = "/run/secrets/kubernetes.io/serviceaccount"
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
        self._lab = lab
        self._folder = folder
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
        file = self._folder / f"boot-{node}"
        file.write_text(f"{node_of(self._lab, node)['status']['nodeInfo']['bootID']}\n")
        return str(file)

    def run(self, name: str, *arguments: str, kernel: str = "") -> Ended:
        """The real program to its end, in a pod of this name."""
        ended = subprocess.run(
            [
                *("unshare", "--mount", "--uts", "sh", "-c", POD, "sh", sys.executable),
                *("-m", "rollout"),
                *arguments,
            ],
            env={
                "PATH": os.environ["PATH"],
                "HOME": "/nowhere",
                "XDG_STATE_HOME": str(self._folder),
                "KUBERNETES_SERVICE_HOST": str(self._server.hostname),
                "KUBERNETES_SERVICE_PORT": str(self._server.port),
                "POD_ACCOUNT": str(self._folder),
                "POD_NAME": name,
                "POD_KERNEL": kernel,
                **{
                    key: value
                    for key, value in self._lab.environment.items()
                    if key.startswith("ROLLOUT_")
                },
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)


def test_a_pod_knows_its_node_by_its_name_or_its_kernel_and_says_where_it_cannot(
    start_lab: StartLab, tmp_path: Path
) -> None:
    lab = start_lab("default", nodes=5, speed=30)
    pods = Pods(lab, tmp_path)
    nowhere = pods.run("rollout-1", "plan")
    assert (nowhere.code, "deferred" in nowhere.stdout) == (0, False), nowhere.stderr
    assert "cannot tell which node this pod runs on" in nowhere.stderr
    assert "ROLLOUT_NODE_NAME" in nowhere.stderr
    by_kernel = pods.run("rollout-1", "plan", kernel=pods.kernel_of("worker-2"))
    pods.create("rollout-1", "worker-2")
    by_name = pods.run("rollout-1", "plan")
    for planned, where in ((by_kernel, "in a pod"), (by_name, "in the pod kube-system/rollout-1")):
        assert (planned.code, "deferred" in planned.stdout) == (0, True), planned.stderr
        assert f"rollout itself runs on this node, {where}" in " ".join(planned.stdout.split())
