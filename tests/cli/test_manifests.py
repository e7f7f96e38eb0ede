"""`rollout manifests` as an operator uses it: what it prints, and what it refuses to print."""

import json
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from rollout.errors import ExitCode
from tests.cli.conftest import Command
from tests.ended import Ended

IMAGE = ("--image", "registry.example/node-rollout:1")
MANIFESTS = ("manifests", *IMAGE, "--known-hosts", "known_hosts")
KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIDUZMyDBd9iXkKn22InkyIUaInFSUDHLdP2Gci4b7iX+"


@pytest.fixture
def known_hosts(home: Path) -> Path:
    file = home / "known_hosts"
    file.write_text(f"# ours\n10.0.0.1 ssh-ed25519 {KEY}\n")
    return file


def printed(ended: Ended) -> dict[str, Any]:
    """The documents by kind, the last of each."""
    assert ended.code == ExitCode.OK, ended.stderr
    return {document["kind"]: document for document in yaml.safe_load_all(ended.stdout)}


def pod(document: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = document["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    return spec


def refused(ended: Ended) -> str:
    """Why, where nothing is printed for kubectl to apply."""
    assert ended.code in (ExitCode.USAGE, ExitCode.ERROR)
    assert ended.stdout == ""
    return ended.stderr


def test_without_a_word_more_it_is_a_cron_job(command: Command, known_hosts: Path) -> None:
    ended = command(*MANIFESTS)
    documents = printed(ended)
    assert documents["ConfigMap"]["data"] == {"known_hosts": known_hosts.read_text()}
    assert pod(documents["CronJob"])["containers"][0]["image"] == IMAGE[1]
    assert (
        "kubectl -n node-rollout create secret generic rollout-ssh --type=kubernetes.io/ssh-auth"
        in ended.stderr
    )


@pytest.mark.parametrize(("kind", "other"), [("cronjob", "Deployment"), ("deployment", "CronJob")])
def test_it_warns_of_the_other_kind(
    kind: str, other: str, command: Command, known_hosts: Path
) -> None:
    comment = f"of the same name. Delete the {other}; otherwise, both run."
    assert comment in command(*MANIFESTS, kind).stdout


@pytest.mark.parametrize("kind", ["cronjob", "deployment", "job"])
def test_json_is_a_list_that_kubectl_takes(kind: str, command: Command, known_hosts: Path) -> None:
    ended = command(*MANIFESTS, kind, "-o", "json")
    document = json.loads(ended.stdout)
    assert document["kind"] == "List"
    assert document["items"][-1]["kind"].lower() == kind
    text = command(*MANIFESTS, kind).stdout
    assert document["items"] == list(yaml.safe_load_all(text))


def test_the_settings_file_goes_along_as_it_is(
    command: Command, known_hosts: Path, home: Path
) -> None:
    """What it says of rollout itself counts for what is printed: the roles, the lock, the time that
    a node takes.
    """
    text = (
        '# ours\n[drain]\ntimeout = "1h"\ndisable-eviction = true\n[operate]\nactive-deadline ='
        ' "2h"\n[reboot]\nrescue = "/etc/rollout/power-cycle"\nrescue-timeout = "20m"\n'
    )
    (home / "cluster.toml").write_text(text)
    documents = printed(
        command(*MANIFESTS, "--config", "cluster.toml", "--set", "lock.namespace=locks")
    )
    assert documents["ConfigMap"]["data"]["rollout.toml"] == text
    spec = pod(documents["CronJob"])
    # 1h for the drain, and 15m until the host is asked to reboot, 15m until it is back, the rescue
    # and 15m after it, 10m for the kubelet, 5m for its pods
    least = 3600 + 900 + 900 + 1200 + 900 + 600 + 300
    assert spec["terminationGracePeriodSeconds"] >= least
    assert spec["containers"][0]["args"][:4] == ["operate", "--once", "--active-deadline", "7200s"]
    values = {entry["name"]: entry.get("value") for entry in spec["containers"][0]["env"]}
    assert values["ROLLOUT_CONFIG"] == "/etc/rollout/settings/rollout.toml"
    assert values["ROLLOUT_DISABLE_EVICTION"] == "true"
    assert spec["containers"][0]["args"][-2:] == ["--set", "lock.namespace=locks"]
    rules = documents["ClusterRole"]["rules"]
    assert any("pods" in rule["resources"] and "delete" in rule["verbs"] for rule in rules)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (
            "[waves]\nmax-unavailable = 0",
            "cluster.toml:2: waves.max-unavailable: 0 would allow no node to be rebooted",
        ),
        (
            "[cluster]\nkubeconfig = 'admin.conf'",
            "cluster.kubeconfig (the pod uses its service account)",
        ),
        (
            "[ssh]\ninventory = 'hosts.ini'",
            "ssh.inventory (use an absolute path inside the pod, from the image",
        ),
        ("[gates]\ninteractive = true", "gates.interactive (a pod cannot ask for confirmation)"),
        (
            "[output]\njournal = '/var/log/rollout'",
            "output.journal (the pod can write only to /tmp)",
        ),
        (
            "[alerts]\nprometheus-url = 'https://me:hunter22@prometheus'",
            "cluster.toml:2 may contain a secret",
        ),
        (
            "[notify]\nurl = 'slack://one/two/three'",
            "notify.url (it is secret: store it in a Secret under the key ROLLOUT_NOTIFY",
        ),
        (
            "[metrics]\npushgateway = 'https://me:hunter22@pushgateway'",
            "cluster.toml:2 may contain a secret",
        ),
        (
            "[metrics]\ntextfile = '/var/lib/node.prom'",
            "metrics.textfile (the pod can write only to /tmp)",
        ),
        (
            "[gates]\ncommand = 'check --token abc'\n# token=abc",
            "cluster.toml:3 may contain a secret",
        ),
        ("notify = {url = 'slack://a/b/c'}", "notify.url (it is secret"),
    ],
)
def test_settings_that_cannot_be_a_pods_are_refused(
    settings: str, reason: str, command: Command, known_hosts: Path, home: Path
) -> None:
    (home / "cluster.toml").write_text(settings)
    ended = command(*MANIFESTS, "--config", "cluster.toml")
    assert reason in refused(ended)
    assert "hunter22" not in ended.stderr


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "contains no hosts"),
        ("<html>not here</html>\n", "contains no hosts"),
        # which rollout's own SSH does not follow
        ("@cert-authority * ssh-ed25519 AAAA\n", "contains no hosts"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\n", "contains a private key"),
    ],
)
def test_known_hosts_that_know_nobody_are_refused(
    content: str, reason: str, command: Command, home: Path
) -> None:
    (home / "known_hosts").write_text(content)
    assert reason in refused(command(*MANIFESTS))
    if content.startswith("@"):
        (home / "cluster.toml").write_text("[ssh]\nexecutor = 'ansible'")
        command(*MANIFESTS, "--config", "cluster.toml").ends(0)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--known-hosts", "known_hosts"), "no --image"),
        (IMAGE, "no --known-hosts"),
        ((*IMAGE, "--known-hosts", "nowhere"), "cannot read nowhere"),
        (("--image", "registry.example/node-rollout"), "has no tag"),
        (("--image", "registry.example/Node:1 2"), "is not an image"),
        (
            (*IMAGE, "--known-hosts", "known_hosts", "--tls-secret", "x"),
            "these flags apply only to fleetlock",
        ),
        ((*IMAGE, "--time-zone", "Europe/Berlinn"), "Did you mean Europe/Berlin?"),
        ((*IMAGE, "--name", "x" * 53), "at most 52"),
        ((*IMAGE, "--namespace", "Ops"), "is not a namespace name"),
        *(
            (("fleetlock", *IMAGE, "--cluster-ip", address), f"{address!r} is not an IP address")
            for address in ("fd00::1%eth0", "0x0a.1", "10.96.0.15/16", "None", "::ffff:10.0.0.1")
        ),
        (("fleetlock", *IMAGE, "--cluster-ip", "127.0.0.1"), "cannot be a cluster IP"),
        (("fleetlock", *IMAGE, "--hosts-network", "10.0.0.1/8"), "has host bits set"),
        (("fleetlock", *IMAGE, "--hosts-network", "hosts"), "Use a network such as 10.1.0.0/16"),
        (
            ("fleetlock", *IMAGE, "--hosts-network", "fe80::%eth0/64"),
            "contains a network interface",
        ),
        (("fleetlock", *IMAGE, "--tls-secret", "a b"), "is not the name of a Secret"),
    ],
)
def test_what_cannot_be_is_refused(
    arguments: tuple[str, ...], reason: str, command: Command, known_hosts: Path
) -> None:
    assert reason in refused(command("manifests", *arguments))


def test_the_fleetlock_server_is_installed_by_one_command(command: Command, home: Path) -> None:
    """Beside an operating process: by a name of its own. No key and no known_hosts: hosts reboot by
    themselves.
    """
    text = '[waves]\nmax-unavailable = 2\n[fleetlock]\nslots = 2\ngroup = ["workers=1"]\n'
    (home / "cluster.toml").write_text(text)
    where = (
        *("--cluster-ip", "10.96.0.15", "--tls-secret", "lock-tls"),
        *("--hosts-network", "10.1.0.0/16"),
    )
    ended = command("manifests", "fleetlock", *IMAGE, *where, "--config", "cluster.toml")
    documents = printed(ended)
    assert {
        document["metadata"]["name"] for kind, document in documents.items() if kind != "Namespace"
    } == {"node-rollout-fleetlock", "node-rollout-fleetlock-config"}
    assert documents["ConfigMap"]["data"] == {"rollout.toml": text}
    assert documents["Deployment"]["spec"]["replicas"] == 2
    create = "kubectl -n node-rollout create secret tls lock-tls --cert=FILE --key=FILE"
    assert create in ended.stderr
    assert 'base_url = "https://10.96.0.15/"' in ended.stderr
    assert "ssh" not in ended.stderr
    assert "warning" not in ended.stderr


def test_the_fleetlock_servers_metrics_can_be_scraped(command: Command, home: Path) -> None:
    """Hosts' networks limit who asks for a slot, not who reads metrics."""
    (home / "cluster.toml").write_text("[metrics]\nlisten = ':9732'\n")
    network = ("--hosts-network", "10.1.0.0/16", "--config", "cluster.toml")
    documents = printed(command("manifests", "fleetlock", *IMAGE, *network))
    (container,) = documents["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert {port["name"]: port["containerPort"] for port in container["ports"]} == {
        "fleetlock": 8080,
        "metrics": 9732,
    }
    assert container["readinessProbe"]["httpGet"]["port"] == "fleetlock"
    assert "metrics.listen=:9732" in container["args"]
    hosts, scrapes = documents["NetworkPolicy"]["spec"]["ingress"]
    assert hosts["from"] == [{"ipBlock": {"cidr": "10.1.0.0/16"}}]
    assert scrapes == {"ports": [{"port": "metrics", "protocol": "TCP"}]}
    (home / "cluster.toml").write_text("[metrics]\nlisten = '127.0.0.1:9732'\n")
    documents = printed(command("manifests", "fleetlock", *IMAGE, *network))
    (hosts,) = documents["NetworkPolicy"]["spec"]["ingress"]
    assert hosts["ports"][0]["port"] == "fleetlock"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ("[metrics]\nlisten = ':8080'", "port 8080 is already used for FleetLock requests"),
        ("[fleetlock]\nslots = 0", "fleetlock.slots: 0 would allow no node to be rebooted"),
        ("[reboot]\npre-playbook = '/a.yml'", "which does not use SSH"),
        ("[fleetlock]\ngroup = 'workers'", "does not specify a FleetLock group"),
        ("[operate]\nevery = '5m'", ""),
    ],
)
def test_the_servers_settings_are_judged_as_the_server_will(
    settings: str, reason: str, command: Command, home: Path
) -> None:
    (home / "cluster.toml").write_text(settings)
    ended = command("manifests", "fleetlock", *IMAGE, "--config", "cluster.toml")
    if reason:
        assert reason in refused(ended)
    else:
        printed(ended)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--schedule", "0 99 * * *"), "Invalid value for '--schedule': hour '99'"),
        (("deployment", "--schedule", "0 2 * * *"), "deployment has no schedule"),
        (("fleetlock", "--time-zone", "Europe/Berlin"), "fleetlock has no schedule"),
    ],
)
def test_a_schedule_that_would_not_run_is_refused(
    arguments: tuple[str, ...], reason: str, command: Command, known_hosts: Path
) -> None:
    assert reason in refused(command(*MANIFESTS, *arguments))


@pytest.mark.sample
@pytest.mark.kubectl
@pytest.mark.parametrize("kind", ["cronjob", "deployment", "job", "fleetlock"])
def test_kustomize_takes_it_as_a_resource(
    kind: str, command: Command, known_hosts: Path, home: Path
) -> None:
    """The real one, in kubectl, which reads YAML as Go does."""
    listens = "[metrics]\nlisten = ':9732'\n" if kind == "deployment" else ""
    (home / "rollout.toml").write_text(f"[waves]\ncanary = 1\n{listens}")
    reached = ("--cluster-ip", "10.96.0.15", "--tls-secret", "lock-tls")
    arguments = (*IMAGE, *(reached if kind == "fleetlock" else ("--known-hosts", "known_hosts")))
    ended = command("manifests", kind, *arguments, "--config", "rollout.toml").ends(ExitCode.OK)
    assert ("containerPort: 9732" in ended.stdout) is bool(listens)
    documents = kustomized(home, ended.stdout)
    assert sorted(map(_written, documents)) == sorted(
        map(_written, yaml.safe_load_all(ended.stdout))
    )
    for document in documents:
        kubernetes_validate.validate(document, "1.36", strict=True)


def kustomized(home: Path, text: str) -> list[dict[str, Any]]:
    """The objects of a base that has this text as its one resource."""
    base = home / "base"
    base.mkdir()
    (base / "rollout.yaml").write_text(text, encoding="utf-8")
    (base / "kustomization.yaml").write_text("resources: [rollout.yaml]\n")
    made = subprocess.run(
        ["kubectl", "kustomize", base], capture_output=True, encoding="utf-8", check=True
    )
    return list(yaml.safe_load_all(made.stdout))


# As Python and Go read them.
CARRIED = {
    "umlauts": "# ü€\U0001f600\nwaves.canary = 1\n",
    "a line separator": "# a\u2028b\u2029c\nwaves.canary = 1\n",
    "ends of lines of Windows": "# a\r\nwaves.canary = 1\r\n",
    "spaces and lines first": "\n\n  waves.canary = 1\n",
    "spaces and lines last": "waves.canary = 1 \t\n\n\n",
    "no end": "waves.canary = 1",
    "tabs": "# a\n\twaves.canary\t=\t1\n",
}


@pytest.mark.kubectl
@pytest.mark.parametrize("settings", CARRIED.values(), ids=CARRIED)
def test_a_text_comes_through_byte_for_byte(settings: str, command: Command, home: Path) -> None:
    known_hosts = f"10.0.0.1 ssh-ed25519 {KEY}\n" + settings.replace("waves.canary", "# ")
    (home / "cluster.toml").write_bytes(settings.encode())
    (home / "hosts").write_bytes(known_hosts.encode())
    ended = command("manifests", *IMAGE, "--known-hosts", "hosts", "--config", "cluster.toml").ends(
        ExitCode.OK
    )
    for documents in (yaml.safe_load_all(ended.stdout), kustomized(home, ended.stdout)):
        data = next(document["data"] for document in documents if document["kind"] == "ConfigMap")
        assert data == {"rollout.toml": settings, "known_hosts": known_hosts}


def test_files_that_the_settings_name_are_the_pods(
    command: Command, known_hosts: Path, home: Path
) -> None:
    """By their paths there, whatever there is on this machine."""
    (home / "cluster.toml").write_text(
        "[gates]\ncalendar = '/etc/site/freezes.ics'\n[ssh]\nconfig = 'none'\n"
    )
    ended = command(*MANIFESTS, "--config", "cluster.toml")
    assert "/etc/site/freezes.ics" in printed(ended)["ConfigMap"]["data"]["rollout.toml"]


def _written(document: dict[str, Any]) -> str:
    return json.dumps(document, sort_keys=True)
