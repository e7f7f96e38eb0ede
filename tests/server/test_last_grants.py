"""Grants at the edge: a moment before a slot's time is up, beside a slow API server, by replicas that do not lead."""

import json
from collections.abc import Callable

import pytest

from rollout.lab.lab import Lab
from tests.server.conftest import Client, Serve, is_cordoned, marks_of, slots_of, workers
from tests.waiting import wait_until

pytestmark = pytest.mark.exhaustive

Start = Callable[[str, int], Lab]
# Of the lab's seconds, of which thirty pass in one.
SLOW = 18


def outcome_of(client: Client) -> str:
    return str(json.loads(marks_of(client.lab, client.node)["last-result"])["outcome"])


@pytest.mark.sample
@pytest.mark.timeout(240)
def test_a_host_that_is_granted_a_moment_before_its_time_is_up_may_still_reboot(started: Start, serve: Serve) -> None:
    """It asks again and again, and gets its grant each time: the last one is as good as the first."""
    lab = started("default", 5)
    server, client = serve(lab, "--slot-timeout", "8s"), Client(lab, workers(lab)[0])
    client.await_grant(server)
    while (denied := client.ask(server)).status == 200:
        assert is_cordoned(lab, client.node)
    assert "is about to be freed" in denied.value
    assert is_cordoned(lab, client.node), "whoever was granted last has not rebooted yet"
    client.reboot()
    client.await_release(server)
    assert outcome_of(client) == "succeeded"
    assert lab.scoreboard().rebooted_undrained == ()


@pytest.mark.timeout(240)
def test_a_host_that_goes_down_as_its_time_is_up_is_waited_for(started: Start, serve: Serve) -> None:
    lab = started("default", 5)
    server, client = serve(lab, "--slot-timeout", "8s"), Client(lab, workers(lab)[0])
    client.await_grant(server)
    wait_until(lambda: [slot.get("closing") for slot in slots_of(lab)] == [True])
    before = client.boot_id
    lab.call(lab.machines[client.node].cut_power)
    wait_until(lambda: not any(slot.get("closing") for slot in slots_of(lab)))
    assert [slot["state"] for slot in slots_of(lab)] == ["held"]
    assert is_cordoned(lab, client.node)
    lab.call(lab.machines[client.node].power_on)
    wait_until(lambda: client.boot_id != before)
    client.await_release(server)
    assert outcome_of(client) == "succeeded"
