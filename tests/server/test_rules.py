"""The rules of a rollout hold for requests of hosts: gates, hooks, rivals and pools."""

import json
import threading
from pathlib import Path

from msgspec.structs import replace

from rollout.adapters.kube.api import connect
from rollout.execution.record.memory import change_memory
from rollout.lab.api.lifecycle import with_defaults
from rollout.lab.api.resources import (
    CEPH_CLUSTERS,
    DAEMONSETS,
    LEASES,
    NAMESPACES,
    PODS,
    VOLUMEATTACHMENTS,
)
from rollout.lab.lab import Lab
from rollout.model.memory import Pause
from tests.apply.conftest import Started, is_ending
from tests.server.conftest import Client, Serve, left_on, slots_of, victim, workers
from tests.server.test_replicas import end_stubborn
from tests.state import holder_of, is_cordoned, lease_of, marks_of, node_of, write, write_spec
from tests.waiting import wait_until

HEALTHY = """
[[gates.healthy]]
resource = "cephclusters.ceph.rook.io/rook-ceph/main"
expression = "status.ceph.health == 'HEALTH_OK'"
"""


def assert_untouched(lab: Lab, client: Client) -> None:
    assert slots_of(lab) == []
    assert not is_cordoned(lab, client.node)
    assert marks_of(lab, client.node) == {}


def test_pods_that_block_a_node_hold_its_host_off(started: Started, serve: Serve) -> None:
    lab = started("default", 4)
    client = Client(lab, workers(lab)[0])
    denied = client.request_reboot(serve(lab, "--set", "gates.blocking-pod-selector=app=frontend"))
    assert denied.kind == "held_by_gate"
    assert denied.status == 423
    assert "frontend" in denied.value
    assert_untouched(lab, client)
    assert (
        client.request_reboot(serve(lab, "--set", "gates.blocking-pod-selector=app=nobody")).kind
        == "waiting_for_drain"
    )


def test_an_unhealthy_object_holds_a_host_off(
    started: Started, serve: Serve, tmp_path: Path
) -> None:
    lab = started("default", 4)
    client = Client(lab, workers(lab)[0])
    metadata = {"name": "main", "namespace": "rook-ceph"}
    cluster = {"metadata": metadata, "status": {"ceph": {"health": "HEALTH_ERR"}}}
    lab.call(lambda: lab.store.create(NAMESPACES, {"metadata": {"name": "rook-ceph"}}))
    created = lab.call(lambda: lab.store.create(CEPH_CLUSTERS, cluster))
    rules = tmp_path / "healthy.toml"
    rules.write_text(HEALTHY)
    server = serve(lab, "--config", str(rules))
    denied = client.request_reboot(server)
    assert denied.kind == "held_by_gate"
    assert "cephclusters.ceph.rook.io/rook-ceph/main is not healthy" in denied.value
    assert_untouched(lab, client)
    healthy = {**created, "status": {"ceph": {"health": "HEALTH_OK"}}}
    lab.call(lambda: lab.store.put(CEPH_CLUSTERS, healthy))
    assert client.request_reboot(server).kind == "waiting_for_drain"


def test_no_host_is_let_go_while_another_coordinator_is_at_work(
    started: Started, serve: Serve
) -> None:
    lab = started("default", 4)
    client = Client(lab, workers(lab)[0])
    template = {
        "metadata": {"labels": {"app": "kured"}},
        "spec": {"containers": [{"name": "kured", "image": "ghcr.io/kubereboot/kured:1.16.0"}]},
    }
    kured = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "kured", "namespace": "kube-system"},
        "spec": {"selector": {"matchLabels": {"app": "kured"}}, "template": template},
    }
    lab.call(lambda: lab.store.create(DAEMONSETS, with_defaults(DAEMONSETS, kured)))
    server = serve(lab)
    wait_until(lambda: client.request_reboot(server).kind == "rival")
    denied = client.request_reboot(server)
    assert denied.status == 423
    assert denied.value.startswith("daemonset kube-system/kured: ")
    assert_untouched(lab, client)
    assert client.request_reboot(serve(lab, "--allow", "kured")).kind == "waiting_for_drain"


def test_checks_on_the_node_are_waited_for_before_and_after(started: Started, serve: Serve) -> None:
    """FLUO's hooks: nothing is drained before the first has said so, and the slot is held until the
    second has.
    """
    lab = started("default", 4)
    flags = (
        *("--set", "gates.before-reboot-annotations=check.example/before"),
        *("--set", "gates.after-reboot-annotations=check.example/after"),
    )
    server = serve(lab, *flags)
    client = Client(lab, workers(lab)[0])
    client.request_reboot(server)
    wait_until(
        lambda: "before-reboot" in json.dumps(node_of(lab, client.node)["metadata"].get("labels"))
    )
    assert client.request_reboot(server).kind == "waiting_for_drain"
    assert lab.scoreboard().evictions == 0
    write(lab, client.node, "annotations", **{"check.example/before": "true"})
    client.await_grant(server)
    client.reboot()
    wait_until(lambda: marks_of(lab, client.node).get("phase") == "ready")
    assert client.report(server).kind == "waiting_for_proof"
    assert is_cordoned(lab, client.node)
    write(lab, client.node, "annotations", **{"check.example/after": "true"})
    client.await_return(server)
    assert not is_cordoned(lab, client.node)


def test_a_node_that_is_not_meant_is_left_alone(started: Started, serve: Serve) -> None:
    lab = started("default", 4)
    out, other = [Client(lab, name) for name in workers(lab)[:2]]
    write(lab, other.node, "labels", tier="db")
    server = serve(lab, "--selector", "tier=db")
    denied = out.request_reboot(server)
    assert denied.kind == "node_excluded"
    assert "is left out by --selector, --node or --exclude" in denied.value
    assert_untouched(lab, out)
    assert other.request_reboot(server).kind == "waiting_for_drain"


def test_a_pool_has_its_own_limit(started: Started, serve: Serve, tmp_path: Path) -> None:
    lab = started("default", 6)
    one, two, other = [Client(lab, name) for name in workers(lab)[:3]]
    for client in (one, two):
        write(lab, client.node, "labels", tier="db")
    (tmp_path / "pools.toml").write_text(
        '[[pool]]\nname = "db"\nselector = "tier=db"\nmax-unavailable = 1\n'
    )
    server = serve(lab, "--slots", "3", "--max-unavailable", "3", "--config", "pools.toml")
    assert one.request_reboot(server).kind == "waiting_for_drain"
    denied = two.request_reboot(server)
    assert denied.kind == "max_unavailable"
    assert "of the pool db is used up" in denied.value
    assert other.request_reboot(server).kind == "waiting_for_drain"


def test_no_reboot_is_granted_while_a_pod_is_left(started: Started, serve: Serve) -> None:
    lab = started("drain-hangs", 5)
    server = serve(lab)
    client = Client(lab, victim(lab))
    client.request_reboot(server)
    wait_until(lambda: lab.call(lambda: is_ending(lab, "stubborn")))
    for _ in range(10):
        assert client.request_reboot(server).kind == "waiting_for_drain"
    end_stubborn(lab)
    assert client.await_grant(server).kind == "granted"
    assert left_on(lab, client.node) == []


def test_no_reboot_is_granted_while_a_volume_is_attached(started: Started, serve: Serve) -> None:
    """The last look comes before a node is drained, which is what may be granted."""
    lab = started("default", 4)
    server = serve(lab)
    client = Client(lab, workers(lab)[0])
    spec = {
        "nodeName": client.node,
        "attacher": "csi.example",
        "source": {"persistentVolumeName": "pv-1"},
    }
    attached = {"metadata": {"name": "attached"}, "spec": spec, "status": {"attached": True}}
    lab.call(lambda: lab.store.create(VOLUMEATTACHMENTS, attached))
    client.request_reboot(server)
    server.await_words("waiting for 1 volume to detach")
    assert client.request_reboot(server).kind == "waiting_for_drain"
    assert marks_of(lab, client.node)["phase"] == "draining"
    lab.call(lambda: lab.store.remove(VOLUMEATTACHMENTS, "attached"))
    client.await_grant(server)


def test_a_pod_that_comes_to_a_granted_node_ends_the_grant(started: Started, serve: Serve) -> None:
    """As one that tolerates the cordon: its host is told to wait, and the node is drained again."""
    lab = started("default", 5)
    server = serve(lab, "--force")
    client = Client(lab, workers(lab)[0])
    client.await_grant(server)
    spec = {"nodeName": client.node, "containers": [{"name": "main", "image": "late:1"}]}
    late = with_defaults(PODS, {"metadata": {"name": "late", "namespace": "default"}, "spec": spec})
    lab.call(lambda: lab.store.create(PODS, late))
    assert client.request_reboot(server).kind == "waiting_for_drain"
    client.await_grant(server)
    assert left_on(lab, client.node) == []
    client.reboot()
    client.await_return(server)
    assert lab.scoreboard().rebooted_undrained == ()


def test_a_slot_fails_but_is_held_if_its_node_is_back_and_fails_its_checks(
    started: Started, serve: Serve
) -> None:
    """It is not away: nothing proves that another may go in its place."""
    lab = started("default", 5)
    flags = (
        *("--set", "gates.after-reboot-annotations=check.example/after"),
        *("--set", "gates.hook-timeout=2s", "--max-unavailable", "3"),
    )
    server = serve(lab, *flags)
    client, other = [Client(lab, name) for name in workers(lab)[:2]]
    client.await_grant(server)
    client.reboot()
    client.report(server)
    wait_until(lambda: [slot["state"] for slot in slots_of(lab)] == ["failed"])
    assert is_cordoned(lab, client.node)
    assert other.request_reboot(server).kind == "failed_lock_semaphore_full"


def test_a_lock_that_is_lost_ends_the_grant_though_the_slot_is_still_held(
    started: Started, serve: Serve
) -> None:
    """As where somebody takes it by force, or edits it: whoever holds it may be at work on any
    node.
    """
    lab = started("default", 4)
    server = serve(lab)
    client = Client(lab, workers(lab)[0])
    client.await_grant(server)

    def hold() -> None:
        lease = lease_of(lab)
        metadata = {
            **lease["metadata"],
            "annotations": {"node-rollout.dev/run": "0123456789abcdef"},
        }
        changes = {
            "holderIdentity": "ann",
            "leaseTransitions": lease["spec"]["leaseTransitions"] + 1,
        }
        lab.store.put(LEASES, {**lease, "metadata": metadata, "spec": {**lease["spec"], **changes}})

    def renew() -> None:
        while not given_up.wait(0.3):
            lab.call(hold)

    given_up = threading.Event()
    ann = threading.Thread(target=renew)
    lab.call(hold)
    ann.start()
    try:
        for _ in range(3):
            denied = client.request_reboot(server)
            assert (denied.kind, denied.status) in {("lock_lost", 503), ("locked_by_rollout", 423)}
    finally:
        given_up.set()
        ann.join()
    assert [slot["node"] for slot in slots_of(lab)] == [client.node]
    assert is_cordoned(lab, client.node)
    wait_until(lambda: holder_of(lab).startswith("fleetlock-server/"))
    client.await_grant(server)
    assert lab.scoreboard().rebooted_undrained == ()


def test_a_pause_that_has_just_come_lets_nobody_in(started: Started, serve: Serve) -> None:
    lab = started("default", 4)
    one, two = (Client(lab, node) for node in workers(lab)[:2])
    server = serve(lab, "--slots", "2", "--max-unavailable", "2")
    # what is remembered has been read for this, and is good enough to say no by for a while
    assert one.request_reboot(server).kind == "waiting_for_drain"
    paused = Pause("alice", "2026-11-22T00:00:00Z", "a test")
    change_memory(
        connect(lab.kubeconfig, None), "kube-system", lambda memory: replace(memory, pause=paused)
    )
    assert two.request_reboot(server).kind == "paused"
    assert not is_cordoned(lab, two.node)


def test_a_node_that_somebody_uncordons_is_no_drained_one(started: Started, serve: Serve) -> None:
    lab = started("default", 5)
    server = serve(lab)
    client = Client(lab, workers(lab)[0])
    client.await_grant(server)
    write_spec(lab, client.node, unschedulable=False)
    for _ in range(3):
        assert client.request_reboot(server).status != 200
