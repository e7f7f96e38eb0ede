"""Hosts that come back on the version from before: told wherever reboots are, and made to rest where they go on."""

import json
from collections.abc import Callable

import pytest

from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario
from tests.ended import Ended
from tests.server.conftest import Client, Serve, Serving, is_cordoned, marks_of, slots_of, workers
from tests.waiting import wait_until

pytestmark = pytest.mark.exhaustive

Start = Callable[..., Lab]
Rollout = Callable[..., Ended]


def rebooted(server: Serving, client: Client) -> dict[str, str]:
    """Once through, and what is left on the Node of it."""
    client.await_grant(server)
    client.reboot()
    client.await_release(server)
    wait_until(lambda: not slots_of(client.lab))
    result: dict[str, str] = json.loads(marks_of(client.lab, client.node)["last-result"])
    return result


@pytest.mark.sample
def test_a_host_that_falls_back_again_and_again_rests(started: Start, serve: Serve, rollout: Rollout) -> None:
    lab = started(load_scenario("idle"), 4)
    server, client = serve(lab), Client(lab, workers(lab)[0])
    assert (result := rebooted(server, client))["unmoved"] == "1"
    # the count stands on the Node: another server goes on with it
    server.end()
    server = serve(lab)
    result = rebooted(server, client)
    assert (result["outcome"], result["unmoved"]) == ("succeeded", "2")
    assert server.has_said("as before, after 2 reboots in a row: it rests before the next")
    assert not is_cordoned(lab, client.node)
    denied = client.ask(server)
    assert (denied.kind, denied.status) == ("failed_recently", 423)
    assert f"rollout release --node {client.node}" in denied.value
    assert sum(lab.scoreboard().reboots.values()) == 2
    assert Client(lab, workers(lab)[1]).ask(server).kind == "waiting_for_drain", "the others may go on"

    assert rollout(lab, "release", "--node", client.node).code == 0
    wait_until(lambda: client.ask(server).kind != "failed_recently")
