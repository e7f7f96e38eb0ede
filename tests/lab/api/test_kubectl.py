"""A real kubectl against the lab's API: what operators type must work and print what they know."""

import asyncio
import json
import subprocess
import sys
import sysconfig
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rollout.lab.api.access import Denial
from rollout.lab.api.defaulting import with_defaults
from rollout.lab.api.resources import BUDGETS, DAEMONSETS, NODES, PODS, REPLICASETS, Resource
from rollout.lab.api.store import Change, ChangeType
from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario
from tests.standalone_api import StandaloneApi, standalone_api

pytestmark = pytest.mark.kubectl


Json = dict[str, Any]


Kubectl = Callable[..., subprocess.CompletedProcess[str]]


# The one that the development environment brings, not whatever else is installed.
KUBECTL = str(Path(sysconfig.get_path("scripts")) / "kubectl")


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneApi]:
    with standalone_api(tmp_path_factory.mktemp("kubectl")) as running:
        running.call(lambda: running.store.subscribe(terminator(running)))
        yield running


def terminator(api: StandaloneApi) -> Callable[[Change], None]:
    """The least of a world: pods that are told to go are gone a moment later."""

    def observe(change: Change) -> None:
        metadata = change.obj["metadata"]
        going = change.resource is PODS and metadata.get("deletionTimestamp")
        if going and change.type is ChangeType.MODIFIED:
            asyncio.get_running_loop().call_later(0.1, remove, metadata["name"], metadata["namespace"])

    def remove(name: str, namespace: str) -> None:
        if api.store.get(PODS, name, namespace) is not None:
            api.store.remove(PODS, name, namespace)

    return observe


@pytest.fixture(scope="module")
def kubectl(api: StandaloneApi, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    home = tmp_path_factory.mktemp("home")

    def run(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        environment = {"KUBECONFIG": str(api.kubeconfig), "HOME": str(home), "PATH": ""}
        return subprocess.run(
            [KUBECTL, *arguments],
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


@pytest.fixture
def node(api: StandaloneApi, request: pytest.FixtureRequest) -> str:
    """A ready node named after the test."""
    name: str = request.node.name.split("[")[0].removeprefix("test_").replace("_", "-")
    status = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [{"type": "InternalIP", "address": "127.1.0.1"}],
        "nodeInfo": {"osImage": "Flatcar", "kernelVersion": "6.6", "kubeletVersion": "v1.36.0"},
    }
    metadata = {"name": name, "labels": {"node-role.kubernetes.io/worker": ""}}
    add(api, NODES, {"metadata": metadata, "status": status})
    return name


def add(api: StandaloneApi, resource: Resource, obj: Json) -> None:
    api.call(lambda: api.store.create(resource, with_defaults(resource, obj)))


def add_pod(api: StandaloneApi, node: str, name: str, *, owner: Resource | None = REPLICASETS, **extra: Any) -> None:
    metadata: Json = {"name": name, "namespace": "default", "labels": {"app": name}}
    if owner is not None:
        reference = {"apiVersion": owner.api_version, "kind": owner.kind, "name": "owner", "uid": "u"}
        metadata["ownerReferences"] = [{**reference, "controller": True}]
    status = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "c", "ready": True, "restartCount": 0, "state": {"running": {}}}],
    }
    spec = {"nodeName": node, "containers": [{"name": "c", "image": "i"}], **extra}
    add(api, PODS, {"metadata": metadata, "spec": spec, "status": status})


def add_budget(api: StandaloneApi, app: str, *, allowed: int) -> None:
    status = {"observedGeneration": 1, "desiredHealthy": 1, "currentHealthy": 1, "disruptionsAllowed": allowed}
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}}
    add(api, BUDGETS, {"metadata": {"name": app, "namespace": "default"}, "spec": spec, "status": status})


def rows(text: str) -> dict[str, list[str]]:
    """A printed table by its first column."""
    return {line.split()[0]: line.split() for line in text.splitlines()}


def test_get_nodes(kubectl: Kubectl, node: str) -> None:
    assert rows(kubectl("get", "nodes").stdout)[node][1:3] == ["Ready", "worker"]
    wide = kubectl("get", "nodes", "-o", "wide").stdout
    assert {"127.1.0.1", "Flatcar", "6.6"} <= set(rows(wide)[node])
    assert json.loads(kubectl("get", "node", node, "-o", "json").stdout)["metadata"]["name"] == node


def test_get_pods(api: StandaloneApi, kubectl: Kubectl, node: str) -> None:
    add_pod(api, node, "shown")
    assert rows(kubectl("get", "pods").stdout)["shown"][1:4] == ["1/1", "Running", "0"]
    assert node in rows(kubectl("get", "pods", "-o", "wide").stdout)["shown"]
    assert kubectl("get", "pods", "--field-selector", f"spec.nodeName={node}", "-o", "name").stdout == "pod/shown\n"


def test_describe(api: StandaloneApi, kubectl: Kubectl, node: str) -> None:
    add_pod(api, node, "described")
    told = kubectl("describe", "node", node).stdout
    assert "Unschedulable:      false" in told
    assert "described" in told
    assert f"{node}/" in rows(kubectl("describe", "pod", "described").stdout)["Node:"]


def test_cordon_taint_label(kubectl: Kubectl, node: str) -> None:
    assert kubectl("cordon", node).stdout == f"node/{node} cordoned\n"
    assert rows(kubectl("get", "nodes").stdout)[node][1] == "Ready,SchedulingDisabled"
    assert kubectl("uncordon", node).stdout == f"node/{node} uncordoned\n"
    assert rows(kubectl("get", "nodes").stdout)[node][1] == "Ready"
    assert kubectl("taint", "node", node, "a=b:NoSchedule").returncode == 0
    assert kubectl("taint", "node", node, "a-").returncode == 0
    assert kubectl("label", "node", node, "x=y").returncode == 0
    assert kubectl("get", "nodes", "-l", "x=y", "-o", "name").stdout == f"node/{node}\n"


def test_watching(api: StandaloneApi, kubectl: Kubectl, node: str) -> None:
    def cordon_later() -> None:
        time.sleep(1)
        kubectl("cordon", node)

    thread = threading.Thread(target=cordon_later)
    thread.start()
    seen = kubectl("get", "node", node, "-w", "--request-timeout=3s").stdout.splitlines()
    thread.join()
    assert "SchedulingDisabled" not in seen[1]
    assert "SchedulingDisabled" in seen[-1]


def test_version_and_rights(api: StandaloneApi, kubectl: Kubectl) -> None:
    assert "Server Version: v1.36.2" in kubectl("version").stdout
    assert kubectl("auth", "can-i", "create", "pods", "--subresource=eviction").stdout == "yes\n"
    denial = Denial(verb="patch", resource="nodes")
    api.call(lambda: api.server.access.denials.add(denial))
    assert kubectl("auth", "can-i", "patch", "nodes").stdout == "no\n"
    refused = kubectl("label", "node", "any", "x=y")
    api.call(lambda: api.server.access.denials.discard(denial))
    assert refused.returncode == 1


def test_create_and_delete(kubectl: Kubectl, node: str) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "made"},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
    }
    created = kubectl("create", "-f", "-", stdin=json.dumps(pod))
    assert created.stdout == "pod/made created\n", created.stderr
    assert kubectl("apply", "-f", "-", stdin=json.dumps({**pod, "metadata": {"name": "applied"}})).returncode == 0
    assert kubectl("delete", "pod", "made").returncode == 0
    assert kubectl("get", "pod", "made").returncode == 1
    assert kubectl("create", "namespace", "made").returncode == 0
    assert kubectl("create", "configmap", "made", "--from-literal=a=b").returncode == 0
    assert rows(kubectl("get", "configmaps").stdout)["made"][1] == "1"


def test_drain(api: StandaloneApi, kubectl: Kubectl, node: str) -> None:
    for name in ("d1", "d2"):
        add_pod(api, node, name)
    done = kubectl("drain", node)
    assert (done.returncode, f"node/{node} drained" in done.stdout) == (0, True)
    assert api.call(lambda: api.store.pods_on(node)) == []
    evictions = api.call(lambda: api.server.requests.asked("create", "pods/eviction", "d1"))
    assert [record.status for record in evictions] == [201]


def test_drain_refuses_what_would_be_lost(api: StandaloneApi, kubectl: Kubectl, node: str) -> None:
    add(api, DAEMONSETS, {"metadata": {"name": "owner", "namespace": "default"}, "spec": {}})
    add_pod(api, node, "agent", owner=DAEMONSETS)
    add_pod(api, node, "naked", owner=None)
    add_pod(api, node, "scratch", volumes=[{"name": "v", "emptyDir": {}}])
    refused = kubectl("drain", node)
    assert refused.returncode == 1
    for flag in ("--ignore-daemonsets", "--force", "--delete-emptydir-data"):
        assert flag in refused.stderr
    assert len(api.call(lambda: api.store.pods_on(node))) == 3

    done = kubectl("drain", node, "--ignore-daemonsets", "--force", "--delete-emptydir-data")
    assert done.returncode == 0, done.stderr
    left = api.call(lambda: api.store.pods_on(node))
    assert [pod["metadata"]["name"] for pod in left] == ["agent"]


def test_drain_waits_for_a_budget(api: StandaloneApi, kubectl: Kubectl, node: str) -> None:
    add_pod(api, node, "guarded")
    add_budget(api, "guarded", allowed=0)

    def allow_after_refusal() -> None:
        while not api.call(lambda: api.server.requests.asked("create", "pods/eviction", "guarded")):
            time.sleep(0.05)
        api.call(allow)

    def allow() -> None:
        budget = api.store.get(BUDGETS, "guarded", "default")
        assert budget is not None
        api.store.put(BUDGETS, {**budget, "status": {**budget["status"], "disruptionsAllowed": 1}})

    thread = threading.Thread(target=allow_after_refusal)
    thread.start()
    done = kubectl("drain", node)
    thread.join()
    assert done.returncode == 0
    assert "would violate the pod's disruption budget" in done.stderr
    asked = api.call(lambda: api.server.requests.asked("create", "pods/eviction", "guarded"))
    assert [record.status for record in asked] == [429, 201]


def test_drain_by_deletion_and_dry_run(api: StandaloneApi, kubectl: Kubectl, node: str) -> None:
    add_pod(api, node, "kept")
    add_budget(api, "kept", allowed=1)
    assert kubectl("drain", node, "--dry-run=server").returncode == 0
    assert len(api.call(lambda: api.store.pods_on(node))) == 1
    assert kubectl("drain", node, "--disable-eviction").returncode == 0
    assert api.call(lambda: api.store.pods_on(node)) == []
    evictions = api.call(lambda: api.server.requests.asked("create", "pods/eviction", "kept"))
    assert all("dryRun" in record.body or "All" in record.body for record in evictions)


# A real kubectl against a whole lab: pods that are drained come up again elsewhere.


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab.start(load_scenario("default"), directory=tmp_path_factory.mktemp("lab"), speed=20) as running:
        yield running


def kubectl_of_lab(lab: Lab, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"KUBECONFIG": str(lab.kubeconfig), "HOME": str(lab.directory), "PATH": ""}
    return subprocess.run(
        [KUBECTL, *arguments], env=environment, capture_output=True, text=True, timeout=90, check=False
    )


def listed(lab: Lab, *arguments: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads(kubectl_of_lab(lab, "get", *arguments, "-o", "json").stdout)["items"]
    return items


def test_the_cluster_looks_like_one(lab: Lab) -> None:
    nodes = rows(kubectl_of_lab(lab, "get", "nodes", "-o", "wide").stdout)
    assert all(row[1] == "Ready" for name, row in nodes.items() if name != "NAME")
    assert "Flatcar" in kubectl_of_lab(lab, "describe", "nodes").stdout
    assert kubectl_of_lab(lab, "describe", "pods", "-A").returncode == 0
    for kind in ("deployments", "daemonsets", "statefulsets", "replicasets", "pdb", "leases", "events", "jobs"):
        assert kubectl_of_lab(lab, "get", kind, "-A", "-o", "wide").returncode == 0


def test_a_drained_node_is_empty_and_comes_back(lab: Lab) -> None:
    worker = next(
        node["metadata"]["name"]
        for node in listed(lab, "nodes")
        if "node-role.kubernetes.io/control-plane" not in node["metadata"]["labels"]
    )
    drained = kubectl_of_lab(
        lab, "drain", worker, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=60s"
    )
    assert drained.returncode == 0, drained.stderr

    left = listed(lab, "pods", "-A", "--field-selector", f"spec.nodeName={worker}")
    owners = {owner["kind"] for pod in left for owner in pod["metadata"].get("ownerReferences", ())}
    assert owners <= {"DaemonSet", "Node"}
    waited = kubectl_of_lab(lab, "wait", "--for=condition=Available", "deployment", "--all", "-A", "--timeout=60s")
    assert waited.returncode == 0, waited.stderr
    assert kubectl_of_lab(lab, "uncordon", worker).returncode == 0
    assert rows(kubectl_of_lab(lab, "get", "nodes").stdout)[worker][1] == "Ready"


def test_what_is_printed_for_a_cluster_can_be_applied_and_is_kept(lab: Lab) -> None:
    """Roles, accounts, a CronJob, what guards a server: one object a document."""
    for kind in (("cronjob", "--known-hosts", str(lab.known_hosts)), ("fleetlock",)):
        printed = subprocess.run(
            [sys.executable, "-m", "rollout", "manifests", *kind, "--image", "registry.example/node-rollout:1"],
            env={"HOME": str(lab.directory)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        file = lab.directory / f"{kind[0]}.yaml"
        file.write_text(printed)
        applied = kubectl_of_lab(lab, "apply", "-f", str(file))
        assert applied.returncode == 0, applied.stderr
        assert len(applied.stdout.splitlines()) == printed.count("\nkind: ") + printed.startswith("kind: ")


def test_a_secret_and_a_binding_keep_what_kubectl_sends_of_them(lab: Lab) -> None:
    """It sends them as protobuf, as their short forms do."""
    made = kubectl_of_lab(
        lab, "create", "secret", "generic", "key", "--type=kubernetes.io/ssh-auth", "--from-literal=a=b"
    )
    assert made.returncode == 0, made.stderr
    secret = json.loads(kubectl_of_lab(lab, "get", "secret", "key", "-o", "json").stdout)
    assert (secret["type"], secret["data"]) == ("kubernetes.io/ssh-auth", {"a": b64encode(b"b").decode()})
    for kind in ("rolebinding", "clusterrolebinding"):
        assert kubectl_of_lab(lab, "create", kind, "own", "--clusterrole=own", "--user=me").returncode == 0
        binding = json.loads(kubectl_of_lab(lab, "get", kind, "own", "-o", "json").stdout)
        assert binding["subjects"] == [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "me"}]
        assert binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "own"}
