"""The program as it runs in a cluster: by the printed objects, as process 1, as nobody, with the pod's own account.

Namespaces of the kernel stand in for the container; its root cannot be written to.
"""

import json
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
from tests.ended import invoked
from tests.used_rights import grants_of

ROOT = Path(__file__).parents[2]
ACCOUNT = "/run/secrets/kubernetes.io/serviceaccount"
# What a runtime does before it starts a container: the account and the volumes, and nothing else to
# write to. The Python that runs is root's, and stands in a folder that only root may enter: reading
# it is what the capability is for.
POD = f"""
set -e
mount -t tmpfs tmpfs /run
cp -a "$POD_FILES" /run/pod && mkdir -p {ACCOUNT} && cp /run/pod/account/* {ACCOUNT}
cp -a /etc /run/etc && mount --bind /run/etc /etc && mkdir -p /etc/rollout
cp -a /run/pod/settings /run/pod/ssh /etc/rollout
chown -R 0:65532 /etc/rollout && chmod 0440 /etc/rollout/ssh/*
mount -o remount,ro,bind /etc
mkdir -p /run/program && mount --rbind "$PROGRAM" /run/program
mount -t tmpfs -o mode=1777 tmpfs /tmp
case $PROGRAM in /tmp/*) mkdir -p "$PROGRAM" && mount --move /run/program "$PROGRAM"; esac
mount -o remount,ro,bind /
exec setpriv --reuid=65532 --regid=65532 --clear-groups --inh-caps=+dac_read_search --ambient-caps=+dac_read_search "$@"
"""
SETTINGS = '[waves]\ncontrol-plane = "exclude"\n'


def installed(lab: Lab, directory: Path, settings: str = SETTINGS) -> dict[str, Any]:
    """The printed objects by their kinds; of the roles, what the lab's API server grants from now
    on.
    """
    (directory / "cluster.toml").write_text(settings)
    options = ("--known-hosts", str(lab.known_hosts), "--config", "cluster.toml", "-o", "json")
    ended = invoked(
        directory, {}, ("manifests", "job", "--image", "registry.example/rollout:1", *options)
    ).ends(0)
    documents: list[dict[str, Any]] = json.loads(ended.stdout)["items"]
    grants = grants_of(
        document for document in documents if document["kind"] in ("ClusterRole", "Role")
    )
    lab.call(lambda: setattr(lab.api.access, "grants", tuple(grant.covers for grant in grants)))
    return {document["kind"]: document for document in documents}


def pod_spec(documents: Mapping[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = documents["Job"]["spec"]["template"]["spec"]
    return spec


class Pod:
    """Runs the printed container on a lab, by its arguments and variables, with its volumes at
    their places.
    """

    def __init__(self, lab: Lab, directory: Path, settings: str = SETTINGS) -> None:
        documents = installed(lab, directory, settings)
        self._files = directory / "pod"
        (self._container,) = pod_spec(documents)["containers"]
        self._own = {
            "spec.nodeName": "cp-1",
            "metadata.name": "now-x",
            "metadata.namespace": "node-rollout",
        }
        self._environment = {
            "PATH": os.environ["PATH"],
            "POD_FILES": str(self._files),
            "PROGRAM": str(ROOT),
            "ROLLOUT_SSH_PORT": lab.environment["ROLLOUT_SSH_PORT"],
            **self._account(lab),
        }
        self._mount("settings", documents["ConfigMap"]["data"])
        self._mount("ssh", {"ssh-privatekey": lab.key.read_text()})

    def _mount(self, name: str, files: Mapping[str, str]) -> None:
        (self._files / name).mkdir(parents=True)
        for file, text in files.items():
            (self._files / name / file).write_text(text)

    def _account(self, lab: Lab) -> Mapping[str, str]:
        """The lab's user as a pod's account."""
        config = yaml.safe_load(lab.kubeconfig.read_text())
        (cluster,) = config["clusters"]
        (user,) = config["users"]
        authority = b64decode(cluster["cluster"]["certificate-authority-data"]).decode()
        self._mount("account", {"token": user["user"]["token"], "ca.crt": authority})
        server = urlsplit(cluster["cluster"]["server"])
        return {
            "KUBERNETES_SERVICE_HOST": str(server.hostname),
            "KUBERNETES_SERVICE_PORT": str(server.port),
        }

    def start(self) -> "subprocess.Popen[str]":
        """Start it."""
        variables = {
            entry["name"]: (
                entry.get("value") or self._own[entry["valueFrom"]["fieldRef"]["fieldPath"]]
            )
            for entry in self._container["env"]
        }
        program = [sys.executable, "-m", "rollout", *self._container["args"]]
        return subprocess.Popen(
            [
                *("unshare", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", POD, "sh"),
                *program,
            ],
            cwd=ROOT,
            env={**self._environment, **variables},
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
    return (
        int(children[0])
        if names and b"rollout" in names[0] and not names[0].startswith(b"sh")
        else 0
    )


def test_the_printed_pod_does_its_work(lab: Lab, pod: Pod) -> None:
    """Every worker, by the settings that it was given, with the printed rights alone; then nothing
    is left to do.
    """
    for _ in range(2):
        stdout, stderr = (process := pod.start()).communicate(timeout=100)
        assert process.returncode == 0, stdout + stderr
        assert "Traceback" not in stderr
        assert "warning" not in stderr
    score = lab.scoreboard()
    assert {name for name, count in score.reboots.items() if count} == {
        n for n in score.reboots if "worker" in n
    }
    assert score.clean
    assert not [record for record in lab.call(lambda: list(lab.requests)) if record.status == 403]


def test_a_gate_command_runs_where_only_tmp_can_be_written(lab: Lab, tmp_path: Path) -> None:
    """And the cluster's certificate authority comes from the pod's account."""
    pod = Pod(lab, tmp_path, f"{SETTINGS}[gates]\ncommand = 'touch /tmp/gate'\n")
    stdout, stderr = (process := pod.start()).communicate(timeout=100)
    assert process.returncode == 0, stdout + stderr
    assert sum(lab.scoreboard().reboots.values())


def test_sigterm_finishes_the_nodes_in_flight(lab: Lab, pod: Pod) -> None:
    process = pod.start()
    assert process.stdout is not None
    for line in process.stdout:
        if '"draining"' in line:
            os.kill(first_process(process), signal.SIGTERM)
            break
    process.communicate(timeout=100)
    score = lab.scoreboard()
    assert sum(score.reboots.values()) == 1
    assert score.cordons_left == ()
    assert score.annotations_left == {}


def test_sigterm_before_the_run_ends_it_at_once(lab: Lab, pod: Pod) -> None:
    """Process 1 gets no signal that it does not handle: a pod that is stopped while it plans must
    not go on to act.
    """
    slow = HostFaults(answer_delay_seconds=1200)
    lab.call(lambda: lab.machines["worker-1"].inflict(slow))
    process = pod.start()
    wait_for(lambda: bool(lab.call(lambda: list(lab.requests))), "the first request", 30)
    wait_for(lambda: first_process(process) > 0, "the container", 10)
    time.sleep(1)
    assert process.poll() is None
    os.kill(first_process(process), signal.SIGTERM)
    process.communicate(timeout=15)
    assert not any(lab.scoreboard().reboots.values())


def test_a_real_kubectl_takes_it(lab: Lab, tmp_path: Path) -> None:
    """The kinds that the lab serves, over its API; the Job as it stands, and the Secret as it is
    said.
    """
    documents = installed(lab, tmp_path)
    lab.call(lambda: setattr(lab.api.access, "grants", None))
    file = tmp_path / "made.yaml"
    file.write_text(
        yaml.safe_dump_all([documents["Namespace"], documents["ConfigMap"], documents["Job"]])
    )
    assert "job.batch/node-rollout created" in kubectl(lab, tmp_path, "apply", "-f", str(file))
    namespace = ("-n", "node-rollout")
    key = ("--type=kubernetes.io/ssh-auth", f"--from-file=ssh-privatekey={lab.key}")
    # without --dry-run this one request of kubectl's is protobuf, which the lab does not speak
    secret = tmp_path / "secret.yaml"
    create = ("create", "secret", "generic", "rollout-ssh", *key, "--dry-run=client", "-o", "yaml")
    secret.write_text(kubectl(lab, tmp_path, *namespace, *create))
    kubectl(lab, tmp_path, *namespace, "apply", "-f", str(secret))
    assert kubectl(lab, tmp_path, *namespace, "get", "job", "node-rollout", "-o", "name").strip()
    volumes = {volume["name"]: volume for volume in pod_spec(documents)["volumes"]}
    assert volumes["ssh"]["secret"]["secretName"] == "rollout-ssh"


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
