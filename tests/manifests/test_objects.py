"""What is printed, held against the API's own schemas, release by release, and against what a pod
has to be.
"""

from typing import Any

import kubernetes_validate
import pytest
from msgspec.structs import replace

from rollout.manifests.objects import Installation, InstallationKind, Json, objects

RELEASES = [f"1.{minor}" for minor in range(28, 37)]
WHOLE = Installation(
    kind=InstallationKind.CRONJOB,
    image="registry.example/node-rollout:1",
    settings='max-unavailable = "25%"\n',
    known_hosts="10.0.0.1 ssh-ed25519 AAAA\n",
    env_secret="rollout-env",
    time_zone="Europe/Berlin",
    grace=4260,
)
SERVER = Installation(
    kind=InstallationKind.FLEETLOCK,
    image="registry.example/node-rollout:1",
    name="node-rollout-fleetlock",
    settings="[fleetlock]\nslots = 2\n",
    tls_secret="fleetlock-tls",
    cluster_ip="10.96.0.15",
    networks=("10.1.0.0/16", "fd00::/64"),
)
WORKLOADS = (InstallationKind.CRONJOB, InstallationKind.JOB, InstallationKind.DEPLOYMENT)
PODS = [*(replace(WHOLE, kind=kind) for kind in WORKLOADS), SERVER]


def of_kind(kind: str, documents: Any) -> list[Json]:
    return [document for document in documents if document["kind"] == kind]


def workload(installation: Installation) -> Json:
    kind = "deployment" if installation.kind is InstallationKind.FLEETLOCK else installation.kind
    (found,) = (document for document in objects(installation) if document["kind"].lower() == kind)
    return found


def job_spec(installation: Installation) -> Json:
    spec: Json = workload(installation)["spec"]
    inner: Json = (
        spec["jobTemplate"]["spec"] if installation.kind is InstallationKind.CRONJOB else spec
    )
    return inner


def pod_spec(installation: Installation) -> Json:
    spec: Json = job_spec(installation)["template"]["spec"]
    return spec


def container(installation: Installation) -> Json:
    (only,) = pod_spec(installation)["containers"]
    return dict(only)


@pytest.mark.sample(12)
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    "installation",
    [
        *PODS,
        replace(WHOLE, kind=InstallationKind.ROLES),
        replace(SERVER, tls_secret="", cluster_ip="", networks=()),
    ],
    ids=[*WORKLOADS, "fleetlock", "roles", "plain fleetlock"],
)
def test_every_release_takes_it(installation: Installation, release: str) -> None:
    """Strictly: a field that the release does not know is refused."""
    for document in objects(installation):
        kubernetes_validate.validate(document, release, strict=True)


@pytest.mark.parametrize("kind", WORKLOADS)
def test_each_name_that_is_used_is_printed(kind: InstallationKind) -> None:
    installation = replace(
        WHOLE, kind=kind, name="patches", namespace="ops", lock_namespace="locks"
    )
    documents = objects(installation)
    spec = pod_spec(installation)
    (account,) = of_kind("ServiceAccount", documents)
    (config,) = of_kind("ConfigMap", documents)
    assert spec["serviceAccountName"] == account["metadata"]["name"] == "patches"
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert volumes["settings"]["configMap"]["name"] == config["metadata"]["name"]
    assert {mount["name"] for mount in container(installation)["volumeMounts"]} == set(volumes)
    namespaced = [document for document in documents if "Role" not in document["kind"]]
    assert {document["metadata"].get("namespace", "ops") for document in namespaced} == {"ops"}


@pytest.mark.parametrize(
    ("installation", "are_replaced"),
    [(pod, pod.kind not in (InstallationKind.CRONJOB, InstallationKind.JOB)) for pod in PODS],
    ids=[*WORKLOADS, "fleetlock"],
)
def test_new_settings_replace_the_pods_of_a_deployment(
    installation: Installation, *, are_replaced: bool
) -> None:
    """They are read once. Each pod of a CronJob reads them anew, and a Job cannot be changed."""
    changed = replace(installation, settings=f"{installation.settings}# changed\n")
    before, after = (job_spec(one)["template"] for one in (installation, changed))
    assert (before != after) is are_replaced


def test_every_role_is_bound_to_the_account() -> None:
    documents = objects(replace(WHOLE, name="patches", namespace="ops", lock_namespace="locks"))
    roles = [document for document in documents if document["kind"] in ("ClusterRole", "Role")]
    bindings = [document for document in documents if document["kind"].endswith("Binding")]
    assert [role["metadata"].get("namespace", "") for role in roles] == ["", "locks", "default"]
    for role, binding in zip(roles, bindings, strict=True):
        assert binding["kind"] == f"{role['kind']}Binding"
        assert binding["metadata"] == role["metadata"]
        assert binding["roleRef"]["kind"] == role["kind"]
        assert binding["roleRef"]["name"] == role["metadata"]["name"]
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": "patches", "namespace": "ops"}
        ]


def test_the_settings_never_take_the_place_of_the_record() -> None:
    """Which is a ConfigMap, and may stand in the same namespace."""
    (config,) = of_kind("ConfigMap", objects(replace(WHOLE, namespace="kube-system")))
    (role,) = (
        role
        for role in of_kind("Role", objects(WHOLE))
        if role["metadata"]["namespace"] == "kube-system"
    )
    written = {name for rule in role["rules"] for name in rule.get("resourceNames", ())}
    assert config["metadata"]["name"] not in written


@pytest.mark.parametrize("installation", PODS, ids=[*WORKLOADS, "fleetlock"])
def test_the_pod_is_restricted(installation: Installation) -> None:
    """The Pod Security Standard of that name, control by control, and a root that cannot be
    written.
    """
    spec = pod_spec(installation)
    only = container(installation)
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & set(spec)
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert only["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {next(iter({*volume} - {"name"})) for volume in spec["volumes"]} == {
        "configMap",
        "secret",
        "emptyDir",
    }
    assert {mount["mountPath"] for mount in only["volumeMounts"] if not mount.get("readOnly")} == {
        "/tmp"  # noqa: S108
    }
    assert set(only["resources"]) == {"requests", "limits"}
    assert all(port["containerPort"] > 1023 for port in only.get("ports", ()))
    (namespace,) = of_kind("Namespace", objects(installation))
    assert namespace["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "restricted"}


@pytest.mark.parametrize("kind", WORKLOADS)
def test_control_plane_nodes_are_preferred_and_never_demanded(kind: InstallationKind) -> None:
    """By the label's presence: its value is `true` on k3s, and a managed control plane has no such
    node.
    """
    spec = pod_spec(replace(WHOLE, kind=kind))
    assert "nodeSelector" not in spec
    assert set(spec["affinity"]["nodeAffinity"]) == {
        "preferredDuringSchedulingIgnoredDuringExecution"
    }
    terms = spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    wanted = [expression for term in terms for expression in term["preference"]["matchExpressions"]]
    assert {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"} in wanted
    assert {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"} in spec[
        "tolerations"
    ]
    # a node that is left for a process elsewhere outweighs both
    weights = {term["preference"]["matchExpressions"][0]["key"]: term["weight"] for term in terms}
    assert weights.pop("node-rollout.dev/deferred") > sum(weights.values())
    # a node that is being drained is no place for it
    assert not any(
        toleration["key"].startswith("node.kubernetes.io/") for toleration in spec["tolerations"]
    )


def test_a_standing_process_is_probed_where_it_listens() -> None:
    deployment = replace(WHOLE, kind=InstallationKind.DEPLOYMENT, listen=":9732", metrics_port=9732)
    only = container(deployment)
    (port,) = only["ports"]
    assert only["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": port["name"]}
    assert port["containerPort"] == 9732
    assert "metrics.listen=:9732" in only["args"]
    # never restarted sooner than a slow start is over
    assert only["startupProbe"]["periodSeconds"] * only["startupProbe"]["failureThreshold"] >= 60
    for document in objects(deployment):
        kubernetes_validate.validate(document, RELEASES[-1], strict=True)
    assert "livenessProbe" not in container(
        replace(deployment, listen="127.0.0.1:9732", metrics_port=0)
    )
    assert "livenessProbe" not in container(replace(deployment, listen="", metrics_port=0))


@pytest.mark.parametrize("kind", WORKLOADS)
def test_nobody_reaches_the_pod_but_where_it_serves_metrics_and_it_reaches_whatever_it_has_to(
    kind: InstallationKind,
) -> None:
    (closed,) = of_kind("NetworkPolicy", objects(replace(WHOLE, kind=kind)))
    assert closed["spec"]["ingress"] == []
    installation = replace(WHOLE, kind=kind, listen=":9732", metrics_port=9732)
    (policy,) = of_kind("NetworkPolicy", objects(installation))
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    assert (
        policy["spec"]["podSelector"]["matchLabels"]
        == job_spec(installation)["template"]["metadata"]["labels"]
    )
    (rule,) = policy["spec"]["ingress"]
    (port,) = container(installation)["ports"]
    assert rule == {"ports": [{"port": port["name"], "protocol": "TCP"}]}
