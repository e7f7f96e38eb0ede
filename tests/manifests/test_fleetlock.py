"""The FleetLock server's objects: what the API takes, what a pod may do, and that no drain waits
for its own server.
"""

import pytest
from msgspec.structs import replace

from rollout.manifests.objects import Installation, Json, objects
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
    spec = document("Deployment")["spec"]
    budget = document("PodDisruptionBudget")["spec"]
    assert spec["replicas"] >= 2
    (term,) = pod_spec()["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    own = spec["template"]["metadata"]["labels"]
    for selector in (term["labelSelector"], spec["selector"], budget["selector"]):
        assert selector["matchLabels"].items() <= own.items()
    assert budget["maxUnavailable"] == 1
    # replicas that do not work keep no node from its drain
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_each_name_that_is_used_is_printed() -> None:
    only = container()
    service = document("Service")["spec"]
    (port,) = only["ports"]
    assert service["ports"][0]["targetPort"] == port["name"]
    assert document("NetworkPolicy")["spec"]["ingress"][0]["ports"] == [
        {"port": port["name"], "protocol": "TCP"}
    ]
    assert (
        service["selector"].items()
        <= document("Deployment")["spec"]["template"]["metadata"]["labels"].items()
    )
    volumes = {volume["name"]: volume for volume in pod_spec()["volumes"]}
    assert {mount["name"] for mount in only["volumeMounts"]} == set(volumes)
    assert volumes["settings"]["configMap"]["name"] == document("ConfigMap")["metadata"]["name"]
    assert (
        pod_spec()["serviceAccountName"]
        == document("ServiceAccount")["metadata"]["name"]
        == "node-rollout-fleetlock"
    )
    (config,) = (entry["value"] for entry in only["env"] if entry["name"] == "ROLLOUT_CONFIG")
    (path,) = (mount["mountPath"] for mount in only["volumeMounts"] if mount["name"] == "settings")
    assert config == f"{path}/rollout.toml"


@pytest.mark.parametrize(
    ("secret", "scheme", "port"), [("fleetlock-tls", "https", 443), ("", "http", 80)]
)
def test_probes_and_service_speak_what_the_server_speaks(
    secret: str, scheme: str, port: int
) -> None:
    installation = replace(SERVER, tls_secret=secret)
    only = container(installation)
    (served,) = document("Service", installation)["spec"]["ports"]
    assert served["name"] == scheme
    assert served["port"] == port
    probes = {
        name: only[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert {probe["scheme"].lower() for probe in probes.values()} == {scheme}
    # a server that cannot reach the API server must not be started anew for it
    assert [probe["path"] for probe in probes.values()] == ["/healthz", "/healthz", "/readyz"]
    assert ("--tls-cert" in only["args"]) is bool(secret)
    assert ("tls" in {volume["name"] for volume in pod_spec(installation)["volumes"]}) is bool(
        secret
    )


def test_who_may_ask_is_limited_where_the_hosts_networks_are_known() -> None:
    (rule,) = document("NetworkPolicy")["spec"]["ingress"]
    assert rule["from"] == [
        {"ipBlock": {"cidr": "10.1.0.0/16"}},
        {"ipBlock": {"cidr": "fd00::/64"}},
    ]
    (open_rule,) = document("NetworkPolicy", replace(SERVER, networks=()))["spec"]["ingress"]
    assert "from" not in open_rule
    # where API server and Prometheus are is not known here
    assert document("NetworkPolicy")["spec"]["policyTypes"] == ["Ingress"]
