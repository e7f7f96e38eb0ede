"""Hosts that stage another version between their request and their reboot."""

import json

import msgspec

from rollout.lab.hosts.engine import UpdateEngine
from rollout.lab.lab import Lab
from rollout.lab.scenario import HostOverride, HostSelection, load_scenario
from tests.apply.conftest import Started
from tests.apply.test_memory import remembered
from tests.server.conftest import Client, Serve, slots_of, workers
from tests.server.test_refusals import annotate, failed_on, remember
from tests.state import is_cordoned, marks_of, node_of, rebooted
from tests.waiting import wait_until

FIRST = "4152.2.0"
OTHER = "4300.0.0"


def stage(client: Client, version: str) -> None:
    """The host stages this version, and its agent says so."""

    def change() -> None:
        client.lab.machines[client.node].update_engine = UpdateEngine.with_staged(
            version, checked=1
        )

    client.lab.call(change)
    annotate(
        client.lab, client.node, status="UPDATE_STATUS_UPDATED_NEED_REBOOT", new_version=version
    )


def await_phase(client: Client, phase: str) -> None:
    wait_until(lambda: marks_of(client.lab, client.node).get("phase") == phase)


def running(client: Client) -> str:
    return str(node_of(client.lab, client.node)["status"]["nodeInfo"]["osImage"])


def never_ready(started: Started) -> tuple[Lab, Client]:
    """A host whose kubelet is not Ready after a reboot."""
    override = HostOverride(select=HostSelection(names=("worker-1",)), flaps=((0, False),))
    lab = started(msgspec.structs.replace(load_scenario("default"), hosts=(override,)), 5)
    return lab, Client(lab, "worker-1")


def test_a_host_that_alternates_is_judged_by_what_is_staged_at_each_request(
    started: Started, serve: Serve
) -> None:
    lab = started("default", 5)
    remember(lab, v4300_0_0=failed_on("worker-9"))
    server = serve(lab)
    client = Client(lab, workers(lab)[0])
    stage(client, OTHER)
    assert client.request_reboot(server).kind == "version_held"
    stage(client, FIRST)
    client.await_drain(server)
    await_phase(client, "drained")
    stage(client, OTHER)
    wait_until(lambda: client.request_reboot(server).kind == "version_held")
    wait_until(lambda: not slots_of(lab))
    assert not is_cordoned(lab, client.node)
    assert rebooted(lab) == set()
    stage(client, FIRST)
    client.await_grant(server)
    client.reboot()
    client.await_return(server)
    assert FIRST in running(client)
    assert remembered(lab)["versions"].keys() == {OTHER}


def test_a_version_that_is_staged_after_the_grant_is_blamed_for_its_boot(
    started: Started, serve: Serve
) -> None:
    lab, client = never_ready(started)
    server = serve(lab, "--ready-timeout", "2s", "--slot-timeout", "6s")
    stage(client, FIRST)
    client.await_grant(server)
    stage(client, OTHER)
    client.reboot()
    wait_until(lambda: [slot["state"] for slot in slots_of(lab)] in (["absent"], ["failed"]))
    assert OTHER in running(client)
    assert remembered(lab)["versions"].keys() == {OTHER}
    assert remembered(lab)["versions"][OTHER]["nodes"] == [client.node]
    result = json.loads(marks_of(lab, client.node)["last-result"])
    assert result["failed_version"] == OTHER


def test_a_host_that_never_returns_blames_the_version_that_it_staged_last(
    started: Started, serve: Serve
) -> None:
    lab = started("default", 5)
    client = Client(lab, workers(lab)[0])
    server = serve(lab, "--slot-timeout", "4s")
    stage(client, FIRST)
    client.await_grant(server)
    stage(client, OTHER)
    lab.call(lab.machines[client.node].cut_power)
    wait_until(lambda: [slot["state"] for slot in slots_of(lab)] == ["absent"])
    assert remembered(lab)["versions"].keys() == {OTHER}
    result = json.loads(marks_of(lab, client.node)["last-result"])
    assert result["failed_version"] == OTHER
    assert result["failed_as"] == "not-back"


def test_a_success_ends_the_hold_of_the_version_that_was_booted_and_of_no_other(
    started: Started, serve: Serve
) -> None:
    lab = started("default", 5)
    remember(lab, v4152_2_0=failed_on("worker-8"), v4300_0_0=failed_on("worker-9"))
    server = serve(lab, "--allow", "held")
    client = Client(lab, workers(lab)[0])
    stage(client, FIRST)
    client.await_grant(server)
    stage(client, OTHER)
    client.reboot()
    client.await_return(server)
    result = json.loads(marks_of(lab, client.node)["last-result"])
    assert result["version"] == OTHER
    # The server forgets the failure after it has released the slot.
    wait_until(lambda: remembered(lab)["versions"].keys() == {FIRST})
