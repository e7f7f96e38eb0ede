"""Nodes that are not what they were: created again, installed anew, of another group; hosts that
speak too early.
"""

import json
import time

import pytest

from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.api.resources import CONFIGMAPS, NODES
from rollout.lab.lab import Lab
from rollout.model.marks import LAST_RESULT
from tests.apply.conftest import Rollout, Started
from tests.server.conftest import Client, Serve, left_on, slots_of, workers
from tests.state import holder_of, is_cordoned, marks_of, node_of, replace_machine
from tests.waiting import wait_until


def create_again(lab: Lab, name: str) -> None:
    """As when a Node is deleted and its kubelet, which runs on, registers again."""

    def again() -> None:
        body = node_of(lab, name)
        lab.store.remove(NODES, name)
        metadata = {"name": name, "labels": body["metadata"]["labels"]}
        lab.store.create(NODES, {"metadata": metadata, "spec": {}, "status": body["status"]})

    lab.call(again)


def test_a_node_that_is_created_again_is_drained_again_before_its_host_may_reboot(
    started: Started, serve: Serve
) -> None:
    lab = started("default", 5)
    server = serve(lab)
    client = Client(lab, workers(lab)[0])
    client.await_grant(server)
    uid = node_of(lab, client.node)["metadata"]["uid"]
    run = marks_of(lab, client.node)["run"]
    create_again(lab, client.node)
    assert node_of(lab, client.node)["metadata"]["uid"] != uid
    assert not is_cordoned(lab, client.node)

    def granted() -> bool:
        answer = client.request_reboot(server)
        if answer.status == 200:
            assert is_cordoned(lab, client.node)
            assert left_on(lab, client.node) == []
            assert marks_of(lab, client.node)["run"] != run
        return answer.status == 200

    wait_until(granted)
    client.reboot()
    client.await_return(server)
    assert lab.scoreboard().rebooted_undrained == ()


def go_down_without_node(lab: Lab, client: Client) -> None:
    """The host is down, and a cloud controller deletes its Node."""
    lab.call(lab.machines[client.node].cut_power)
    lab.call(lambda: lab.store.remove(NODES, client.node))
    # No host is back within the second of its pods' last condition, which has whole seconds.
    time.sleep(1)


def last_outcome(lab: Lab, name: str) -> str:
    node = lab.call(lambda: lab.store.get(NODES, name))
    result = node and (node["metadata"].get("annotations") or {}).get(LAST_RESULT)
    return str(json.loads(result)["outcome"]) if result else ""


@pytest.mark.parametrize("restarts", [False, True])
def test_a_host_whose_node_is_registered_again_keeps_its_slot_and_is_proven(
    started: Started, serve: Serve, *, restarts: bool
) -> None:
    lab = started("default", 5)
    client, other = [Client(lab, name) for name in workers(lab)[:2]]
    server = serve(lab, "--slot-timeout", "2h")
    client.await_grant(server)
    before = node_of(lab, client.node)["metadata"]["uid"]
    wait_until(lambda: [slot["awaited"] for slot in slots_of(lab)] == ["boot"])
    go_down_without_node(lab, client)
    if restarts:
        server.end()
        server = serve(lab, "--slot-timeout", "2h")
    assert other.request_reboot(server).kind == "failed_lock_semaphore_full"
    lab.call(lab.machines[client.node].power_on)
    wait_until(lambda: lab.call(lambda: lab.store.get(NODES, client.node)) is not None)
    client.await_return(server)
    assert node_of(lab, client.node)["metadata"]["uid"] != before
    assert last_outcome(lab, client.node) == "succeeded"
    assert not is_cordoned(lab, client.node)
    wait_until(lambda: slots_of(lab) == [])


def test_a_slot_of_a_host_that_is_away_ends_with_its_node(started: Started, serve: Serve) -> None:
    lab = started("default", 5)
    server = serve(lab, "--slot-timeout", "4s")
    client = Client(lab, workers(lab)[0])
    client.await_grant(server)
    lab.call(lab.machines[client.node].cut_power)
    wait_until(lambda: [slot["state"] for slot in slots_of(lab)] == ["absent"])
    lab.call(lambda: lab.store.remove(NODES, client.node))
    wait_until(lambda: slots_of(lab) == [])


def install_anew(lab: Lab, client: Client) -> Client:
    """Another machine under the same Node: other ids, and a boot of its own."""

    def install() -> None:
        machine = lab.machines[client.node]
        machine.machine_id = machine.machine_id[::-1]

    lab.call(install)
    changed = Client(lab, client.node)
    changed.reboot()
    assert (
        node_of(lab, client.node)["status"]["nodeInfo"]["machineID"]
        == lab.machines[client.node].machine_id
    )
    return changed


def test_a_host_that_is_installed_anew_proves_nothing_of_the_one_before(
    started: Started, serve: Serve, rollout: Rollout
) -> None:
    lab = started("default", 5)
    server = serve(lab)
    client = Client(lab, workers(lab)[0])
    client.await_grant(server)
    changed = install_anew(lab, client)
    wait_until(lambda: [slot["state"] for slot in slots_of(lab)] == ["failed"])
    assert is_cordoned(lab, client.node)
    denied = changed.report(server)
    assert denied.kind == "waiting_for_proof"
    assert "was a different machine when its slot was reserved" in denied.value
    assert changed.request_reboot(server).status == 423
    second = serve(lab)
    assert changed.report(second).status == 423
    assert is_cordoned(lab, client.node)
    assert json.loads(marks_of(lab, client.node)["last-result"])["outcome"] == "not-back"
    rollout(lab, "fleetlock", "release", client.node).ends(0)
    assert slots_of(lab) == []
    # a server that has nothing left to do lets the lock go; abort asks for a new look where that
    # happens under it
    wait_until(lambda: not holder_of(lab))
    rollout(lab, "abort", "-y").ends(0)
    assert not is_cordoned(lab, client.node)
    assert "run" not in marks_of(lab, client.node)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"format_version": "2.0", "held": [{"anything": 1}]}', "of another version of rollout"),
        ('{"format_version": "1.0", "held": [{"group": "default"}]}', "is invalid"),
    ],
)
def test_no_slot_is_reserved_if_the_stored_slots_are_not_understood_and_they_stay_as_they_are(
    text: str, why: str, started: Started, serve: Serve
) -> None:
    lab = started("default", 4)
    server = serve(lab)
    client = Client(lab, workers(lab)[0])
    metadata = {"name": "node-rollout-fleetlock", "namespace": "kube-system"}
    lab.call(
        lambda: lab.store.create(CONFIGMAPS, {"metadata": metadata, "data": {"slots.json": text}})
    )
    wait_until(lambda: client.request_reboot(server).kind == "api_error")
    assert client.request_reboot(server).status == client.report(server).status == 500
    assert why in client.request_reboot(server).value
    wait_until(lambda: why in server.get("/readyz")[1])
    assert not is_cordoned(lab, client.node)
    body = lab.store.get(CONFIGMAPS, "node-rollout-fleetlock", "kube-system")
    assert body is not None
    assert body["data"]["slots.json"] == text


def test_no_slot_is_reserved_for_a_host_that_is_cloned_before_its_request(
    started: Started, serve: Serve
) -> None:
    lab = started("default", 5)
    lab.inflict(ApiFault(answer=FaultAnswer.HANG, verb="watch", resource="nodes"))
    server = serve(lab)
    client, clone = [Client(lab, name) for name in workers(lab)[:2]]
    replace_machine(lab, clone.node, lab.machines[client.node].machine_id)
    assert client.request_reboot(server).kind == "doubled_id"
    assert not slots_of(lab)
    assert not is_cordoned(lab, client.node)
