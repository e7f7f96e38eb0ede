"""The program as it runs in a cluster: by the manifest, as process 1, as nobody, with the pod's own account.

Namespaces of the kernel stand in for the container; its root cannot be written to.
"""

import os
import signal
import subprocess
import sys
import time
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from rollout.lab.hosts.faults import HostFaults
from rollout.lab.lab import Lab
from tests.conftest import StartLab
from tests.e2e.machines import wait_for

ROOT = Path(__file__).parents[2]
MANIFEST = ROOT / "rollout" / "manifests" / "cronjob.yaml"
ACCOUNT = "/run/secrets/kubernetes.io/serviceaccount"
# What a runtime does before it starts a container: the account, a place for the state, and nothing else to write to.
POD = f"""
set -e
mount -t tmpfs tmpfs /run
mkdir -p {ACCOUNT} /run/state /run/ssh
cp "$POD_TOKEN" {ACCOUNT}/token
cp "$POD_CA" {ACCOUNT}/ca.crt
cp "$POD_KEY" "$POD_KNOWN_HOSTS" /run/ssh
chown -R 65532:65532 /run/state /run/ssh
mount -o remount,ro,bind /
mount -o remount,ro,bind /tmp 2>/dev/null || true
exec setpriv --reuid=65532 --regid=65532 --clear-groups --inh-caps=+dac_read_search --ambient-caps=+dac_read_search "$@"
"""


def documents() -> dict[str, Any]:
    return {found["kind"]: found for found in yaml.safe_load_all(MANIFEST.read_text())}


def pod_spec() -> dict[str, Any]:
    spec: dict[str, Any] = documents()["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    return spec


def account_of(lab: Lab, directory: Path) -> Mapping[str, str]:
    """The lab's user as a pod's account."""
    config = yaml.safe_load(lab.kubeconfig.read_text())
    (cluster,), (user,) = config["clusters"], config["users"]
    token, authority = directory / "token", directory / "ca.crt"
    token.write_text(user["user"]["token"])
    authority.write_bytes(b64decode(cluster["cluster"]["certificate-authority-data"]))
    server = urlsplit(cluster["cluster"]["server"])
    return {
        "POD_TOKEN": str(token),
        "POD_CA": str(authority),
        "KUBERNETES_SERVICE_HOST": str(server.hostname),
        "KUBERNETES_SERVICE_PORT": str(server.port),
    }


class Pod:
    """Runs containers of the manifest on a lab: with their arguments and variables, files at other paths."""

    def __init__(self, lab: Lab, directory: Path) -> None:
        self._lab = lab
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": "/nowhere",
            "POD_KEY": str(lab.key),
            "POD_KNOWN_HOSTS": str(lab.known_hosts),
            "ROLLOUT_SSH_PORT": lab.environment["ROLLOUT_SSH_PORT"],
            **account_of(lab, directory),
        }

    def start(self, container: Mapping[str, Any]) -> "subprocess.Popen[str]":
        """Start it; the variables that the manifest names are those that the lab gives."""
        named = {each["name"] for each in container["env"]}
        assert named == {"ROLLOUT_SSH_KEY", "ROLLOUT_KNOWN_HOSTS", "XDG_STATE_HOME"}
        program = [sys.executable, "-m", "rollout", *container["args"]]
        return subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", POD, "sh", *program],
            cwd=ROOT,
            env={
                **self._environment,
                "ROLLOUT_SSH_KEY": f"/run/ssh/{self._lab.key.name}",
                "ROLLOUT_KNOWN_HOSTS": f"/run/ssh/{self._lab.known_hosts.name}",
                "XDG_STATE_HOME": "/run/state",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def lab(start_lab: StartLab) -> Lab:
    return start_lab("default", nodes=5, speed=30)


@pytest.fixture
def pod(lab: Lab, tmp_path: Path) -> Pod:
    return Pod(lab, tmp_path)


def first_process(process: "subprocess.Popen[str]") -> int:
    """The container's process 1, as it is seen from outside; 0 while it is not there."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    names = [Path(f"/proc/{child}/cmdline").read_bytes() for child in children]
    return int(children[0]) if names and b"rollout" in names[0] and not names[0].startswith(b"sh") else 0


def test_the_manifest_does_its_work(lab: Lab, pod: Pod) -> None:
    """First what was interrupted, which is nothing; then every worker, and no control-plane node."""
    spec = pod_spec()
    for container in (*spec["initContainers"], *spec["containers"]):
        stdout, stderr = (process := pod.start(container)).communicate(timeout=100)
        assert process.returncode == 0, stdout + stderr
        assert "Traceback" not in stderr
        assert "no journal" not in stderr
    score = lab.scoreboard()
    assert {name for name, count in score.reboots.items() if count} == {n for n in score.reboots if "worker" in n}
    assert score.clean


def test_sigterm_finishes_the_nodes_in_flight(lab: Lab, pod: Pod) -> None:
    (container,) = pod_spec()["containers"]
    process = pod.start(container)
    assert process.stdout is not None
    for line in process.stdout:
        if '"draining"' in line:
            os.kill(first_process(process), signal.SIGTERM)
            break
    process.communicate(timeout=100)
    assert process.returncode == 130
    score = lab.scoreboard()
    assert sum(score.reboots.values()) == 1
    assert (score.cordons_left, score.annotations_left) == ((), {})


def test_sigterm_before_the_run_ends_it_at_once(lab: Lab, pod: Pod) -> None:
    """Process 1 gets no signal that it does not handle: a pod that is stopped while it plans must not go on to act."""
    slow = HostFaults(answer_delay_seconds=1200)
    lab.call(lambda: lab.machines["worker-1"].inflict(slow))
    (container,) = pod_spec()["containers"]
    process = pod.start(container)
    wait_for(lambda: bool(lab.call(lambda: list(lab.requests))), "the first request", 30)
    wait_for(lambda: first_process(process) > 0, "the container", 10)
    time.sleep(1)
    assert process.poll() is None
    os.kill(first_process(process), signal.SIGTERM)
    process.communicate(timeout=15)
    assert process.returncode == 130
    assert not any(lab.scoreboard().reboots.values())


def test_a_real_kubectl_takes_it(lab: Lab, tmp_path: Path) -> None:
    """The kinds that the lab serves, over its API; the CronJob as the Job that it makes."""
    metadata = {"namespace": "default"}
    kinds = documents()
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "now", **metadata}}
    data = {"known_hosts": lab.known_hosts.read_text()}
    made = [
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "rollout-ssh", **metadata}},
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "rollout-known-hosts", **metadata},
            "data": data,
        },
        {**job, **kinds["CronJob"]["spec"]["jobTemplate"]},
    ]
    file = tmp_path / "made.yaml"
    file.write_text(yaml.safe_dump_all(made))
    told = kubectl(lab, tmp_path, "apply", "-f", str(file))
    assert "job.batch/now created" in told
    assert kubectl(lab, tmp_path, "get", "job", "now", "-o", "name").strip() == "job.batch/now"
    volumes = {volume["name"]: volume for volume in pod_spec()["volumes"]}
    assert volumes["key"]["secret"]["secretName"] == "rollout-ssh"
    assert volumes["known-hosts"]["configMap"]["name"] == "rollout-known-hosts"


def kubectl(lab: Lab, home: Path, *arguments: str) -> str:
    ended = subprocess.run(
        ["kubectl", *arguments],
        env={"PATH": os.environ["PATH"], "HOME": str(home), **lab.environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout
