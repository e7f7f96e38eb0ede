"""Several replicas on one cluster: all answer alike, one leads, and another continues if it dies."""

import json
import random
import signal
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from rollout.lab.api.resources import CONFIGMAPS, PODS
from rollout.lab.api.store import Change
from rollout.lab.lab import Lab
from tests.apply.conftest import Started
from tests.server.conftest import Answer, Client, Serve, Serving, slots_of, victim, workers
from tests.state import holder_of, is_cordoned, marks_of
from tests.waiting import wait_until


def test_every_replica_gives_the_same_answers(started: Started, serve: Serve) -> None:
    lab = started("default", 4)
    one = serve(lab)
    two = serve(lab)
    client = Client(lab, workers(lab)[0])
    client.request_reboot(one)
    wait_until(lambda: marks_of(lab, client.node).get("phase") == "drained")
    client.await_grant(two)
    assert client.request_reboot(one).kind == "granted"
    assert Client(lab, workers(lab)[1]).request_reboot(two).kind == "failed_lock_semaphore_full"
    client.reboot()
    client.await_return(two)
    wait_until(lambda: not slots_of(lab))
    # for a second it goes by the slot as it saw it last
    wait_until(lambda: client.report(one).kind == "not_held")


def test_a_replica_that_is_killed_in_a_drain_is_taken_over(started: Started, serve: Serve) -> None:
    lab = started("drain-hangs", 5)
    client = Client(lab, victim(lab))
    first = serve(lab)
    client.request_reboot(first)
    wait_until(lambda: marks_of(lab, client.node).get("phase") == "draining")
    second = serve(lab)
    holder = holder_of(lab)
    run = marks_of(lab, client.node)["run"]
    first.end(signal.SIGKILL)
    assert client.request_reboot(second).status != 200
    wait_until(lambda: holder_of(lab) not in ("", holder))
    end_stubborn(lab)
    client.await_grant(second)
    assert marks_of(lab, client.node)["run"] == run
    client.reboot()
    client.await_return(second)
    assert not is_cordoned(lab, client.node)
    assert lab.scoreboard().rebooted_undrained == ()


def test_what_is_granted_stays_so_when_all_servers_end(started: Started, serve: Serve) -> None:
    lab = started("default", 4)
    client = Client(lab, workers(lab)[0])
    first = serve(lab)
    client.await_grant(first)
    assert first.end() == 0
    assert holder_of(lab) == ""
    assert is_cordoned(lab, client.node)
    assert marks_of(lab, client.node)["phase"] == "rebooting"
    second = serve(lab)
    client.await_grant(second)
    second.end(signal.SIGKILL)
    client.reboot()
    third = serve(lab)
    client.await_return(third)
    assert not is_cordoned(lab, client.node)
    wait_until(lambda: not slots_of(lab))


def test_fifty_requests_at_once_for_three_slots_never_hold_more_than_three(
    started: Started, serve: Serve
) -> None:
    lab = started("default", 24)
    servers = [serve(lab, "--slots", "3", "--max-unavailable", "9") for _ in range(2)]
    most = most_held(lab)
    clients = [Client(lab, name) for name in workers(lab)]
    with ThreadPoolExecutor(25) as pool:
        pairs = [(client, server) for client in clients for server in servers]
        kinds = list(pool.map(lambda pair: pair[0].request_reboot(pair[1]).kind, pairs))
    held = {slot["node"] for slot in slots_of(lab)}
    assert len(held) == 3
    assert most == [3]
    assert kinds.count("failed_lock_semaphore_full") >= 30
    assert {name for name in lab.machines if is_cordoned(lab, name)} <= held


def test_while_the_api_server_is_away_nothing_is_granted(started: Started, serve: Serve) -> None:
    lab = started("default", 4)
    server = serve(lab)
    client = Client(lab, workers(lab)[0])
    client.await_grant(server)
    other = Client(lab, workers(lab)[1])
    lab.run(lambda: lab.api.outage(None))
    for host in (client, other):
        answer = host.request_reboot(server)
        assert answer.status != 200, answer
    assert client.request_reboot(server).kind in ("api_unavailable", "lock_lost")
    # what it has read is good for half a second
    wait_until(lambda: server.get("/readyz")[0] == 503, 60)
    assert server.get("/healthz")[0] == 200
    assert client.report(server).status != 200
    lab.call(lab.api.come_back)
    client.await_grant(server)
    client.reboot()
    client.await_return(server)


def slots_of_change(change: Change) -> list[object]:
    obj = change.obj
    if obj["metadata"]["name"] != "node-rollout-fleetlock":
        return []
    return list(json.loads(obj["data"]["slots.json"])["held"])


def end_stubborn(lab: Lab) -> None:
    """The pod that never ends is gone, as if somebody had forced it."""

    def remove() -> None:
        for pod in lab.store.items(PODS):
            if (
                pod["metadata"]["name"].startswith("stubborn")
                and "deletionTimestamp" in pod["metadata"]
            ):
                lab.store.remove(PODS, pod["metadata"]["name"], pod["metadata"]["namespace"])

    lab.call(remove)


# A replica that is stopped for longer than its lease, in the middle of what it does, and goes on
# afterwards.


def leading_first(lab: Lab, one: Serving, two: Serving) -> tuple[Serving, Serving]:
    wait_until(lambda: holder_of(lab).startswith("fleetlock-server/"))
    return (one, two) if holder_of(lab).endswith(f"/{one.process.pid}") else (two, one)


def most_held(lab: Lab) -> list[int]:
    """How many slots were ever held at once, from now on."""
    most = [0]
    lock = threading.Lock()

    def watch(change: Change) -> None:
        if change.resource is CONFIGMAPS:
            with lock:
                most[0] = max(most[0], len(slots_of_change(change)))

    lab.call(lambda: lab.store.subscribe(watch))
    return most


def stop(server: Serving) -> None:
    server.process.send_signal(signal.SIGSTOP)


def go_on(server: Serving) -> None:
    server.process.send_signal(signal.SIGCONT)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_replica_that_was_stopped_grants_nothing_once_another_host_holds_the_slot(
    seed: int, started: Started, serve: Serve
) -> None:
    """The replica is stopped while it answers requests that it would grant."""
    lab = started("default", 5)
    rng = random.Random(seed)  # noqa: S311 - repeatable on purpose
    flags = ("--slots", "1", "--max-unavailable", "2")
    pair = serve(lab, *flags), serve(lab, *flags)
    first, second = [Client(lab, name) for name in workers(lab)[:2]]
    most = most_held(lab)
    first.await_grant(pair[0])
    leading, other = leading_first(lab, *pair)
    with ThreadPoolExecutor(8) as pool:
        hanging: list[Future[Answer]] = []
        for _ in range(8):
            hanging.append(pool.submit(first.request_reboot, leading))
            time.sleep(rng.uniform(0, 0.01))
        stop(leading)
        try:
            wait_until(lambda: str(other.process.pid) == holder_of(lab).rpartition("/")[2])
            early = {index for index, request in enumerate(hanging) if request.done()}
            # The Zincati of its host was restarted, and reports steady state.
            lab.call(lab.machines[first.node].reboot)
            first.await_return(other)
            second.await_grant(other)
        finally:
            go_on(leading)
        late = [request.result(60) for index, request in enumerate(hanging) if index not in early]
    assert late, "some were under way"
    assert [answer for answer in late if answer.status == 200] == []
    assert most == [1]
    assert [slot["node"] for slot in slots_of(lab)] == [second.node]
    assert not is_cordoned(lab, first.node)
    assert second.request_reboot(leading).kind == second.request_reboot(other).kind == "granted"
    second.reboot()
    second.await_return(leading)
    score = lab.scoreboard()
    assert score.rebooted_undrained == ()
    assert score.budgets_broken == ()
    assert score.killed == ()
