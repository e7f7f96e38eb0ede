"""Daemons that are restarted after the grant, and servers that are restarted while they wait: nothing begins anew."""

import json
import time
from collections.abc import Callable, Iterator

import pytest

from rollout.lab.hosts.faults import HostFaults
from rollout.lab.lab import Lab
from rollout.lab.scenario import Scenario
from tests.ended import Ended
from tests.server.conftest import Client, Serve, Serving, is_cordoned, marks_of, slots_of, victim, workers
from tests.waiting import wait_until

pytestmark = pytest.mark.exhaustive

Start = Callable[[Scenario | str, int], Lab]
Rollout = Callable[..., Ended]
# One life of a server, in seconds: shorter than each time-out below.
LIFE = 10


def outcome_of(lab: Lab, node: str) -> str:
    return str(json.loads(marks_of(lab, node)["last-result"])["outcome"])


@pytest.mark.sample
@pytest.mark.timeout(240)
def test_a_host_whose_daemon_is_restarted_after_the_grant_gets_its_node_back(
    started: Start, serve: Serve, rollout: Rollout
) -> None:
    """Zincati then reports steady state, in the boot from before, and asks for nothing until that is a yes."""
    lab = started("zincati", 6)
    node = workers(lab)[0]
    lab.call(lambda: lab.machines[node].inflict(HostFaults(users=("ada",))))
    server = serve(lab, "--slot-timeout", "12s")
    lab.use_fleetlock("http://127.0.0.1:9/")
    asked = Client(lab, node)
    asked.await_grant(server)
    assert is_cordoned(lab, node)
    base = server.url.removesuffix("v1/")
    lab.use_fleetlock(base)
    before = len(lab.agents[node].answers)
    lab.call(lab.agents[node].restart)

    def shown() -> dict[str, str]:
        held = json.loads(rollout(lab, "fleetlock", "status", "-o", "json").stdout)["held"]
        return next((slot for slot in held if slot["node"] == node), {})

    wait_until(lambda: shown().get("awaited") == "calm")
    status = rollout(lab, "fleetlock", "status").stdout
    assert "its host gave its reboot up" in " ".join(status.split())
    wait_until(lambda: not is_cordoned(lab, node))
    assert outcome_of(lab, node) == "aborted", "it is no failure"
    assert set(marks_of(lab, node)) == {"last-result"}
    wait_until(lambda: any(not answer.kind for answer in lab.agents[node].answers[before:]))
    assert lab.scoreboard().reboots.get(node, 0) == 0
    assert lab.scoreboard().rebooted_undrained == ()


@pytest.fixture
def lives(serve: Serve) -> Callable[[Lab, tuple[str, ...]], Iterator[Serving]]:
    def live(lab: Lab, flags: tuple[str, ...]) -> Iterator[Serving]:
        """Servers one after the other, each for a short life; the next goes on with what the last has begun."""
        for _ in range(8):
            server = serve(lab, *flags)
            began = time.monotonic()
            yield server
            while time.monotonic() - began < LIFE and slots_of(lab):
                time.sleep(0.2)
            server.end()

    return live


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("scenario", "flags", "asks_until", "outcome"),
    [
        ("default", ("--slot-timeout", "15s"), "waiting_for_drain", "not-rebooted"),
        # both the wait for its boot and the last look at whether it goes down after all
        ("default", ("--slot-timeout", "15s"), "granted", "not-rebooted"),
        ("drain-hangs", ("--drain-timeout", "15s"), "waiting_for_drain", "drain-failed"),
    ],
)
def test_time_outs_go_on_while_servers_come_and_go(
    scenario: str,
    flags: tuple[str, ...],
    asks_until: str,
    outcome: str,
    started: Start,
    lives: Callable[[Lab, tuple[str, ...]], Iterator[Serving]],
) -> None:
    lab = started(scenario, 5)
    client = Client(lab, victim(lab) if scenario == "drain-hangs" else workers(lab)[0])
    seen: list[Serving] = []
    for server in lives(lab, flags):
        if not seen:
            assert client.ask(server).kind == "waiting_for_drain"
            if asks_until == "granted":
                client.await_grant(server)
            wait_until(lambda: marks_of(lab, client.node).get("phase") in ("draining", "drained", "rebooting"))
        elif not slots_of(lab):
            break
        seen.append(server)
    assert not slots_of(lab), "no server lives for long enough by itself"
    assert len(seen) > 1
    assert (outcome_of(lab, client.node), is_cordoned(lab, client.node)) == (outcome, False)
