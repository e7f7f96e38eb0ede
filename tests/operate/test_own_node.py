"""An operating process leaves the node under it to the next pass: a later pod's, or that of the pod that follows it."""

from collections.abc import Callable
from pathlib import Path

from rollout.lab.api.resources import NODES, PODS
from rollout.lab.lab import Lab
from rollout.lab.scenario import Scenario
from tests.apply.test_own_node import MARK, is_marked, node_of
from tests.ended import Ended, end_of, invoked, start
from tests.operate.conftest import ONCE, RULES, assert_all_done
from tests.waiting import wait_until

Start = Callable[[Scenario | str, int], Lab]
POD = "kube-system/rollout-1"


def environment(lab: Lab, node: str, pod: str = POD) -> dict[str, str]:
    namespace, _, name = pod.partition("/")
    own = {"ROLLOUT_NODE_NAME": node, "ROLLOUT_POD_NAMESPACE": namespace, "ROLLOUT_POD_NAME": name}
    return {**lab.environment, **own}


def once(lab: Lab, home: Path, node: str, *flags: str) -> Ended:
    return invoked(home, environment(lab, node), (*ONCE, *flags))


def test_what_nobody_in_the_cluster_can_take_is_a_failure(started: Start, tmp_path: Path) -> None:
    lab = started("default", 1)
    (own,) = (node["metadata"]["name"] for node in lab.store.items(NODES))
    ended = invoked(tmp_path, environment(lab, own), ("operate", "--once"))
    assert ended.code == 4, ended.stderr
    assert "own-node" in ended.stdout
    assert "from outside the cluster" in ended.stdout
    assert not is_marked(lab, own)


def create_pod(lab: Lab, node: str) -> None:
    """The process's own, of a ReplicaSet that the lab does not play."""
    namespace, _, name = POD.partition("/")
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rollout", "uid": "uid-rollout", "controller": True}
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "ownerReferences": [owner]}
    spec = {"nodeName": node, "containers": [{"name": "rollout", "image": "rollout"}]}
    conditions = [{"type": "Ready", "status": "True"}]
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": spec,
        "status": {"phase": "Running", "conditions": conditions},
    }
    lab.call(lambda: lab.store.create(PODS, body))


def test_a_standing_process_has_its_own_pod_moved_once(started: Start, tmp_path: Path) -> None:
    """Else no pod would ever stand elsewhere. One that comes to the same node all the same stays there."""
    lab = started("default", 5)
    create_pod(lab, "worker-2")
    process = start(tmp_path, environment(lab, "worker-2"), ("operate", "--every", "1s", *RULES))
    wait_until(lambda: is_evicted(lab), 90)
    process.terminate()
    ended = end_of(process)
    assert f"{POD} is evicted" in ended.stderr
    assert MARK in node_of(lab, "worker-2")["metadata"]["annotations"]
    second = invoked(tmp_path, environment(lab, "worker-1", "kube-system/rollout-2"), ONCE)
    assert second.code == 0, second.stderr
    assert second.summary["succeeded"] == ["worker-2"]
    assert_all_done(lab)


def is_evicted(lab: Lab) -> bool:
    namespace, _, name = POD.partition("/")
    pod = lab.call(lambda: lab.store.get(PODS, name, namespace))
    return pod is None or "deletionTimestamp" in pod["metadata"]
