"""Daemons that restart after the grant, and servers that restart while they wait."""

import json
import time
from collections.abc import Callable, Iterator

import pytest

from rollout.lab.hosts.faults import HostFaults
from rollout.lab.lab import Lab
from tests.apply.conftest import Rollout, Started
from tests.server.conftest import Client, Serve, Serving, slots_of, victim, workers
from tests.state import holder_of, is_cordoned, marks_of
from tests.waiting import wait_until

pytestmark = pytest.mark.exhaustive


# One life of a server, in seconds: shorter than each time-out below.
LIFE = 10
# Enough on a busy machine, where a server is hardly up before its life is over.
_MOST_LIVES = 30


def outcome_of(lab: Lab, node: str) -> str:
    return str(json.loads(marks_of(lab, node)["last-result"])["outcome"])


def test_the_node_of_a_host_whose_daemon_is_restarted_after_the_grant_is_returned(
    started: Started, serve: Serve, rollout: Rollout
) -> None:
    """Zincati reports steady state in the boot from before, and requests nothing until released."""
    lab = started("zincati", 6)
    node = workers(lab)[0]
    lab.call(lambda: lab.machines[node].inflict(HostFaults(users=("ada",))))
    server = serve(lab, "--slot-timeout", "12s")
    lab.use_fleetlock("http://127.0.0.1:9/")
    client = Client(lab, node)
    client.await_grant(server)
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
    assert "its host canceled its reboot" in " ".join(status.split())
    wait_until(lambda: not is_cordoned(lab, node))
    assert outcome_of(lab, node) == "aborted", "it is no failure"
    assert set(marks_of(lab, node)) == {"last-result"}
    wait_until(lambda: any(not answer.kind for answer in lab.agents[node].answers[before:]))
    assert lab.scoreboard().reboots.get(node, 0) == 0
    assert lab.scoreboard().rebooted_undrained == ()


@pytest.fixture
def lives(serve: Serve) -> Callable[[Lab, tuple[str, ...]], Iterator[Serving]]:
    def live(lab: Lab, flags: tuple[str, ...]) -> Iterator[Serving]:
        """Servers one after the other, each for a short life; the next goes on with what the last
        has begun.
        """
        for _ in range(_MOST_LIVES):
            server = serve(lab, *flags)
            began = time.monotonic()
            yield server
            while time.monotonic() - began < LIFE and slots_of(lab):
                time.sleep(0.2)
            server.end()

    return live


@pytest.mark.parametrize(
    ("scenario", "flags", "awaited_kind", "outcome"),
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
    awaited_kind: str,
    outcome: str,
    started: Started,
    lives: Callable[[Lab, tuple[str, ...]], Iterator[Serving]],
) -> None:
    lab = started(scenario, 5)
    client = Client(lab, victim(lab) if scenario == "drain-hangs" else workers(lab)[0])
    seen: list[Serving] = []
    for server in lives(lab, flags):
        if not seen:
            assert client.request_reboot(server).kind == "waiting_for_drain"
            if awaited_kind == "granted":
                client.await_grant(server)
            wait_until(
                lambda: (
                    marks_of(lab, client.node).get("phase") in ("draining", "drained", "rebooting")
                )
            )
        elif not slots_of(lab):
            break
        seen.append(server)
    assert not slots_of(lab), "no server lives for long enough by itself"
    assert len(seen) > 1
    assert outcome_of(lab, client.node) == outcome
    assert not is_cordoned(lab, client.node)


def test_a_host_that_is_granted_a_moment_before_its_time_is_up_may_still_reboot(
    started: Started, serve: Serve
) -> None:
    """It repeats its request, and gets a grant each time: the last one is as good as the first."""
    lab = started("default", 5)
    server = serve(lab, "--slot-timeout", "8s")
    client = Client(lab, workers(lab)[0])
    client.await_grant(server)
    while (denied := client.request_reboot(server)).status == 200:
        assert is_cordoned(lab, client.node)
    assert "is about to be released" in denied.value
    assert is_cordoned(lab, client.node), "the host was granted a reboot, and has not rebooted yet"
    client.reboot()
    client.await_return(server)
    assert outcome_of(lab, client.node) == "succeeded"
    assert lab.scoreboard().rebooted_undrained == ()


# Clocks that are a day off, jump, or differ between replicas: no slot is released, held or granted
# because of what time it is.


HOUR = 3600
DAY = 86400


def step(lab: Lab, seconds: float) -> None:
    """The API server's clock, and the hosts', from one moment to the next."""
    lab.call(lambda: lab.machines["worker-1"].clock.skip(seconds))


@pytest.mark.parametrize("seconds", [-DAY, DAY])
def test_no_slot_is_released_or_reserved_because_the_clock_of_the_api_server_jumps(
    seconds: int, started: Started, serve: Serve
) -> None:
    """The Lease, the slots and their times stand there; all of them were written before the jump."""
    lab = started("default", 5)
    servers = [serve(lab, "--slot-timeout", "30s", "--max-unavailable", "2") for _ in range(2)]
    client, other = [Client(lab, name) for name in workers(lab)[:2]]
    client.await_grant(servers[0])
    holder = holder_of(lab)
    run = marks_of(lab, client.node)["run"]
    step(lab, seconds)
    end = time.monotonic() + 8
    while time.monotonic() < end:
        assert [slot["run"] for slot in slots_of(lab)] == [run]
        assert holder_of(lab) == holder
        assert is_cordoned(lab, client.node)
        assert {other.request_reboot(server).kind for server in servers} == {
            "failed_lock_semaphore_full"
        }
        time.sleep(0.5)
    assert [client.request_reboot(server).kind for server in servers] == ["granted", "granted"]
    step(lab, -seconds)
    client.reboot()
    client.await_return(servers[1])
    other.await_grant(servers[0])
    score = lab.scoreboard()
    assert score.rebooted_undrained == ()
    assert score.most_unavailable <= 2
