"""What `rollout manifests` prints is enough: the program with the token of the account that is
printed, and no more.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.contract.cluster import Json
from tests.contract.played import Played
from tests.contract.programs import (
    UNATTENDED,
    ask_for_reboots,
    assert_a_host_that_asks_is_served,
    assert_rebooted_once,
    ended,
    selector,
    started,
)

pytestmark = pytest.mark.usefixtures("alone")

RBAC = "/apis/rbac.authorization.k8s.io/v1"
PLURALS = {
    "ServiceAccount": ("/api/v1", "serviceaccounts"),
    "ClusterRole": (RBAC, "clusterroles"),
    "ClusterRoleBinding": (RBAC, "clusterrolebindings"),
    "Role": (RBAC, "roles"),
    "RoleBinding": (RBAC, "rolebindings"),
}


@pytest.fixture(autouse=True)
def enforced(played: Played) -> None:
    served = played.cluster.get("/api/v1").body["resources"]
    if "serviceaccounts/token" not in {resource["name"] for resource in served}:
        pytest.skip("the server gives no tokens; the lab has tests of its own for what is granted")


def printed(played: Played, home: Path, kind: str) -> Iterator[Json]:
    """Account, roles and bindings, named after this run, for the lock's namespace of these Nodes."""
    known_hosts = ("--known-hosts", str(played.files.known_hosts)) if kind != "fleetlock" else ()
    place = ("--namespace", played.namespaces[0], "--name", f"contract-{played.cluster.run}-{kind}")
    words = (
        "manifests",
        kind,
        "--image",
        "none.invalid/none:1",
        *known_hosts,
        *place,
        "--set",
        f"lock.namespace={played.namespaces[0]}",
    )
    told = subprocess.run(
        [sys.executable, "-m", "rollout", *words],
        env={"HOME": str(home)},
        capture_output=True,
        text=True,
        check=True,
    )
    yield from (each for each in yaml.safe_load_all(told.stdout) if each["kind"] in PLURALS)


def account(played: Played, home: Path, kind: str) -> dict[str, str]:
    """Make what is printed; the variables with which the program is that account."""
    name = ""
    namespace = played.namespaces[0]
    for each in printed(played, home, kind):
        base, plural = PLURALS[each["kind"]]
        place = each["metadata"].get("namespace", "")
        collection = f"{base}/namespaces/{place}/{plural}" if place else f"{base}/{plural}"
        if played.cluster.send("POST", collection, each).status == 201:
            played.cluster.remember(f"{collection}/{each['metadata']['name']}")
        name = each["metadata"]["name"] if each["kind"] == "ServiceAccount" else name
    token = played.cluster.make(
        f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token",
        {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 3600},
        },
    )["status"]["token"]
    config = yaml.safe_load(played.cluster.kubeconfig.read_text())
    for user in config["users"]:
        user["user"] = {"token": token}
    kubeconfig = home / f"{kind}.kubeconfig"
    kubeconfig.touch(0o600)
    kubeconfig.write_text(yaml.safe_dump(config))
    return {"KUBECONFIG": str(kubeconfig)}


def test_an_operating_process_does_its_work_with_them(played: Played, tmp_path: Path) -> None:
    own = account(played, tmp_path, "deployment")
    before = played.reboots
    ways = (
        *("--strategy", "rolling", "--set", "drain.exclude-from-load-balancers=500ms"),
        *("--set", "labels.fluo=true"),
    )
    ask_for_reboots(played)
    process = started(
        played, tmp_path, "operate", "--once", *UNATTENDED, *ways, *selector(played), **own
    )
    code, lines, told = ended(process)
    assert code == 0, told
    assert sorted(lines[-1]["succeeded"]) == sorted(played.kubelets)
    assert "not permitted" not in told
    assert "forbidden" not in told
    assert_rebooted_once(played, before)


def test_a_server_does_its_work_with_them(played: Played, tmp_path: Path) -> None:
    assert_a_host_that_asks_is_served(played, tmp_path, **account(played, tmp_path, "fleetlock"))
