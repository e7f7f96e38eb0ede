"""The printed Deployment on a lab: every node can be drained, those with the server's own pods as
well.
"""

import json
import re
import ssl
import subprocess
import sysconfig
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from rollout.errors import ExitCode
from rollout.lab.api.resources import PODS
from rollout.lab.lab import Lab
from rollout.lab.scenario import NodeGroup, Role, Scenario
from tests.conftest import StartLab
from tests.ended import invoked, start
from tests.server.conftest import Client, Serving, new_certificate, serving
from tests.waiting import wait_until

KUBECTL = str(Path(sysconfig.get_path("scripts")) / "kubectl")
NAME = "node-rollout-fleetlock"
# What the lab serves of it.
APPLIED = ("Namespace", "Deployment", "PodDisruptionBudget")


def printed(home: Path, variables: Mapping[str, str], *arguments: str) -> list[dict[str, Any]]:
    words = ("manifests", "fleetlock", "--image", "registry.example/node-rollout:1", *arguments)
    ended = invoked(home, variables, words).ends(ExitCode.OK)
    return [item for item in yaml.safe_load_all(ended.stdout) if item["kind"] in APPLIED]


def places(lab: Lab) -> list[str]:
    """The nodes of the replicas that run."""
    pods = lab.call(lambda: list(lab.store.items(PODS)))
    own = (
        pod
        for pod in pods
        if pod["metadata"]["name"].startswith(NAME) and "deletionTimestamp" not in pod["metadata"]
    )
    return sorted(pod["spec"]["nodeName"] for pod in own if pod["status"].get("phase") == "Running")


@pytest.mark.kubectl
def test_each_node_is_drained_whoever_runs_there(start_lab: StartLab, tmp_path: Path) -> None:
    """With two nodes in all the replica of one waits until its node is back: the other goes on."""
    nodes = (NodeGroup(prefix="worker", role=Role.WORKER, count=2),)
    lab = start_lab(Scenario(description="own replicas", nodes=nodes))
    text = json.dumps(
        {"apiVersion": "v1", "kind": "List", "items": printed(tmp_path, lab.environment)}
    )
    words = [KUBECTL, "--kubeconfig", str(lab.kubeconfig), "apply", "--validate=false", "-f", "-"]
    applied = subprocess.run(words, input=text, text=True, check=False, capture_output=True)
    assert applied.returncode == 0, applied.stderr
    wait_until(lambda: len(places(lab)) == 2)
    with serving(
        lab, tmp_path, "--set", "lock.duration=3s", "--set", "waves.health-checks=1"
    ) as server:
        for node in sorted(lab.machines):
            client = Client(lab, node)
            assert len(set(places(lab))) == len(places(lab)), "no two of them on one node"
            client.await_grant(server, 90)
            assert node not in places(lab)
            assert places(lab), "one of them goes on"
            client.reboot()
            client.await_return(server, 90)
            wait_until(lambda: len(places(lab)) == 2)
    score = lab.scoreboard()
    assert score.killed == ()
    assert score.budgets_broken == ()
    assert score.rebooted_undrained == ()
    assert set(score.reboots.values()) == {1}


def renew(certificate: Path, server: Serving) -> None:
    """As a Secret's files are replaced; one that cannot be used is not served with."""
    address = ("127.0.0.1", urlsplit(server.url).port or 0)
    before = certificate.read_text()
    certificate.write_text("no certificate")
    server.await_words("the old certificate stays in use")
    assert ssl.get_server_certificate(address).split() == before.split()
    new_certificate(certificate.parent)
    wait_until(
        lambda: ssl.get_server_certificate(address).split() == certificate.read_text().split()
    )


@pytest.mark.exhaustive
def test_the_printed_container_is_a_server(start_lab: StartLab, tmp_path: Path) -> None:
    """Its words and variables, with this machine's folders in place of what is mounted."""
    lab = start_lab("default", nodes=2)
    (tmp_path / "cluster.toml").write_text('[fleetlock]\ngroup = ["workers=1"]\n')
    documents = printed(
        tmp_path, lab.environment, "--tls-secret", "lock-tls", "--config", "cluster.toml"
    )
    (deployment,) = (item for item in documents if item["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    (tmp_path / "settings").mkdir()
    (tmp_path / "cluster.toml").rename(tmp_path / "settings" / "rollout.toml")
    (tmp_path / "tls").mkdir()
    certificate, _ = new_certificate(tmp_path / "tls")
    mounted = partial(re.sub, "^(/etc/rollout|/tmp)(?=/|$)", str(tmp_path))
    variables = {
        entry["name"]: mounted(entry["value"]) for entry in container["env"] if "value" in entry
    }
    own = {
        "ROLLOUT_NODE_NAME": "worker-1",
        "ROLLOUT_POD_NAME": "x",
        "ROLLOUT_POD_NAMESPACE": "node-rollout",
    }
    environment = {"KUBECONFIG": str(lab.kubeconfig), **variables, **own}
    words = [mounted(word).replace(":8080", "127.0.0.1:0") for word in container["args"]]
    context = ssl.create_default_context(cafile=str(certificate))
    server = Serving(start(tmp_path, environment, words), context=context)
    try:
        assert Client(lab, "worker-1").request_reboot(server).kind == "unknown_group"
        renew(certificate, server)
    finally:
        code = server.end()
    assert code == 0, server.said
    assert sum("warning" in line for line in server.said) == 1
