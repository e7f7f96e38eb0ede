"""The life of a slot: requested, reserved, granted, reported, released, or canceled."""

import json
import urllib.request
from urllib.parse import urljoin

from rollout.lab.api.resources import CONFIGMAPS, NODES
from tests.apply.conftest import Rollout, Started
from tests.apply.test_conditions import ours_on
from tests.security.hands import set_well
from tests.server.conftest import Client, Serve, left_on, slots_of, victim, workers
from tests.state import holder_of, is_cordoned, marks_of, node_of, write_spec
from tests.waiting import wait_until


def test_a_host_reboots_once_its_node_is_drained_and_the_node_is_returned_by_proof(
    started: Started, serve: Serve
) -> None:
    lab = started("default", 4)
    server = serve(lab)
    client = Client(lab, workers(lab)[0])
    first = client.request_reboot(server)
    assert first.status == 423
    assert first.kind == "waiting_for_drain"
    granted = client.await_grant(server)
    assert granted.kind == "granted"
    assert left_on(lab, client.node) == []
    assert is_cordoned(lab, client.node)
    assert marks_of(lab, client.node)["phase"] == "rebooting"
    assert holder_of(lab).startswith("fleetlock-server/")
    assert client.request_reboot(server).kind == "granted"

    assert client.report(server).kind == "waiting_for_proof"
    client.reboot()
    assert client.await_return(server).kind == "released"
    assert not is_cordoned(lab, client.node)
    assert set(marks_of(lab, client.node)) == {"last-result"}
    wait_until(lambda: not slots_of(lab))
    wait_until(lambda: not holder_of(lab))
    assert client.report(server).kind == "not_held"
    score = lab.scoreboard()
    assert score.cordons_left == ()
    assert score.annotations_left == {}
    assert score.rebooted_undrained == ()
    assert server.end() == 0
    assert not [line for line in server.said if "warning" in line]


def test_a_node_shows_its_way_by_conditions_where_that_is_asked_for(
    started: Started, serve: Serve
) -> None:
    lab = started("default", 4)
    client = Client(lab, workers(lab)[0])
    server = serve(lab, "--set", "labels.conditions=true", "--set", "metrics.listen=127.0.0.1:0")
    client.await_grant(server)
    (metrics,) = [line for line in server.said if line.startswith("metrics: ")]
    page = urljoin(metrics.split()[1], "/")
    with urllib.request.urlopen(page, timeout=30) as response:  # noqa: S310 - loopback
        assert f"{client.node}</th>" in response.read().decode()
    wait_until(lambda: ours_on(node_of(lab, client.node)) == ("Drained", "MaintenanceInProgress"))
    client.reboot()
    client.await_return(server)
    wait_until(lambda: ours_on(node_of(lab, client.node)) == ())
    assert server.end() == 0


def test_an_operators_cordon_keeps_a_node_out_and_stays_where_it_is_asked_for(
    started: Started, serve: Serve
) -> None:
    lab = started("default", 4)
    client = Client(lab, workers(lab)[0])
    write_spec(lab, client.node, unschedulable=True)
    server = serve(lab)
    denied = client.request_reboot(server)
    assert denied.kind == "node_excluded"
    assert "cordoned manually" in denied.value
    server.end()
    server = serve(lab, "--allow", "cordoned")
    client.await_grant(server)
    client.reboot()
    client.await_return(server)
    assert is_cordoned(lab, client.node)


def test_a_slot_whose_node_is_deleted_is_released(started: Started, serve: Serve) -> None:
    lab = started("default", 5)
    client = Client(lab, workers(lab)[0])
    server = serve(lab, "--slot-timeout", "8s")
    client.await_grant(server)
    lab.call(lab.machines[client.node].cut_power)
    lab.call(lambda: lab.store.remove(NODES, client.node))
    wait_until(lambda: not slots_of(lab) and not holder_of(lab))


def test_an_absent_host_leaves_its_place_to_another_and_counts_as_unavailable_until_it_reports(
    started: Started, serve: Serve, rollout: Rollout
) -> None:
    lab = started("default", 5)
    client, other = [Client(lab, name) for name in workers(lab)[:2]]
    server = serve(lab, "--slot-timeout", "4s", "--max-unavailable", "2", "--max-failures", "3")
    client.await_grant(server)
    before = client.boot_id
    assert other.request_reboot(server).kind == "failed_lock_semaphore_full"
    lab.call(lab.machines[client.node].cut_power)
    wait_until(lambda: [slot["state"] for slot in slots_of(lab)] == ["absent"])
    assert marks_of(lab, client.node)["phase"] == "failed"
    assert "did not come back" in rollout(lab, "fleetlock", "status").stdout
    assert client.request_reboot(server).kind == "node_failed"
    assert other.request_reboot(server).kind == "waiting_for_drain"
    assert Client(lab, workers(lab)[2]).request_reboot(server).kind == "failed_lock_semaphore_full"

    lab.call(lab.machines[client.node].power_on)
    wait_until(lambda: client.boot_id != before)
    while client.report(server).status != 200:
        assert sum(slot["state"] != "absent" for slot in slots_of(lab)) <= 1
    assert not is_cordoned(lab, client.node)
    assert set(marks_of(lab, client.node)) == {"last-result"}
    wait_until(lambda: client.node not in [slot["node"] for slot in slots_of(lab)])


def test_the_node_of_a_host_that_forgets_its_grant_is_returned_in_time(
    started: Started, serve: Serve
) -> None:
    lab = started("default", 4)
    client = Client(lab, workers(lab)[0])
    server = serve(lab, "--slot-timeout", "2s")
    client.await_grant(server)
    wait_until(lambda: not slots_of(lab))
    assert not is_cordoned(lab, client.node)
    assert json.loads(marks_of(lab, client.node)["last-result"])["outcome"] == "not-rebooted"
    # For a second, the server still goes by the slot as it last read it.
    wait_until(lambda: client.request_reboot(server).kind == "failed_recently")


def test_slots_are_shown_and_released_by_command(
    started: Started, serve: Serve, rollout: Rollout
) -> None:
    lab = started("drain-hangs", 5)
    client = Client(lab, victim(lab))
    server = serve(lab)
    assert "No slot is held." in rollout(lab, "fleetlock", "status").stdout
    assert (
        rollout(lab, "fleetlock", "release", client.node).stdout
        == f"Nothing to release: {client.node} holds no slot.\n"
    )
    rollout(lab, "fleetlock", "release", "nobody").ends(1)
    client.request_reboot(server)
    wait_until(lambda: marks_of(lab, client.node).get("phase") == "draining")
    shown = json.loads(rollout(lab, "fleetlock", "status", "-o", "json").stdout)
    assert [(slot["group"], slot["node"]) for slot in shown["held"]] == [("default", client.node)]
    assert shown["phases"] == {client.node: "draining"}
    assert shown["server"].startswith("fleetlock-server/")
    other = next(name for name in workers(lab) if name != client.node)
    told = json.loads(rollout(lab, "fleetlock", "release", other, "-o", "json").stdout)
    assert told == {"node": other, "released": False}
    released = rollout(lab, "fleetlock", "release", client.node)
    assert (released.code, released.stdout) == (0, f"The slot of {client.node} is released.\n"), (
        released.stderr
    )
    assert not is_cordoned(lab, client.node)
    assert "No slot is held." in rollout(lab, "fleetlock", "status").stdout


def test_a_lost_slot_is_restored_and_its_node_is_returned_by_proof(
    started: Started, serve: Serve
) -> None:
    lab = started("default", 4)
    server = serve(lab)
    client = Client(lab, workers(lab)[0])
    client.await_grant(server)
    lab.call(lambda: lab.store.remove(CONFIGMAPS, "node-rollout-fleetlock", "kube-system"))
    wait_until(lambda: not holder_of(lab))
    assert client.request_reboot(server).status != 200
    assert is_cordoned(lab, client.node)
    client.reboot()
    client.await_return(server)
    assert not is_cordoned(lab, client.node)
    assert set(marks_of(lab, client.node)) == {"last-result"}
    wait_until(lambda: not slots_of(lab))


# Static pods and those of DaemonSets count as in a rollout.


def test_no_member_of_the_control_plane_goes_beside_one_that_is_not_well(
    started: Started, serve: Serve
) -> None:
    lab = started("default", 6)
    lab.call(lambda: set_well(lab, "cp-1", "etcd", well=False))
    server = serve(lab)
    denied = Client(lab, "cp-2").request_reboot(server)
    assert denied.kind == "held_by_gate"
    assert "cp-2: pod kube-system/etcd-cp-1 is not Ready on cp-1" in denied.value
    assert not slots_of(lab)
    Client(lab, "cp-1").await_grant(server)


def test_slots_are_a_groups_own_and_the_limit_of_unavailable_nodes_is_everybodys(
    started: Started, serve: Serve
) -> None:
    lab = started("default", 6)
    one, two, three = [Client(lab, name) for name in workers(lab)[:3]]
    of_cp = ("--group", "cp=1", "--group-selector", "cp=node-role.kubernetes.io/control-plane")
    server = serve(lab, "--group", "a=1", "--group", "b=50%", *of_cp, "--max-unavailable", "2")
    assert one.request_reboot(server, "cp").kind == "group_mismatch"
    one.await_grant(server, group="a")
    assert two.request_reboot(server, "a").kind == "failed_lock_semaphore_full"
    assert two.request_reboot(server, "b").kind == "waiting_for_drain"
    denied = three.request_reboot(server, "b")
    assert denied.kind == "max_unavailable"
    assert one.node in denied.value
    assert three.request_reboot(server, "c").kind == "unknown_group"
    assert two.request_reboot(server, "a").kind == "waiting_for_proof", (
        "it holds a slot of another group"
    )


def test_a_host_that_reports_before_its_reboot_cancels_it(started: Started, serve: Serve) -> None:
    lab = started("drain-hangs", 5)
    client = Client(lab, victim(lab))
    server = serve(lab)
    client.request_reboot(server)
    wait_until(lambda: marks_of(lab, client.node).get("phase") == "draining")
    client.await_return(server)
    assert not is_cordoned(lab, client.node)
    wait_until(lambda: not slots_of(lab) and not holder_of(lab))
