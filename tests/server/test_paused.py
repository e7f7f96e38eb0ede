"""A replica that is stopped for longer than its lease, in the middle of what it does, and goes on afterwards.

As where a machine's disk hangs, or a virtual machine is moved: what it believed when it was stopped is not so any more.
"""

import random
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from rollout.lab.api.resources import CONFIGMAPS
from rollout.lab.api.store import Change
from rollout.lab.lab import Lab
from tests.apply.conftest import is_ending
from tests.server.conftest import (
    Client,
    Said,
    Serve,
    Serving,
    holder_of,
    is_cordoned,
    marks_of,
    slots_of,
    victim,
    workers,
)
from tests.server.test_replicas import end_stubborn, slots_of_change
from tests.waiting import wait_until

pytestmark = pytest.mark.exhaustive

Start = Callable[[str, int], Lab]


def leading_first(lab: Lab, one: Serving, two: Serving) -> tuple[Serving, Serving]:
    wait_until(lambda: holder_of(lab).startswith("fleetlock-server/"))
    return (one, two) if holder_of(lab).endswith(f"/{one.process.pid}") else (two, one)


def most_held(lab: Lab) -> list[int]:
    """How many slots were ever held at once, from now on."""
    most, lock = [0], threading.Lock()

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


@pytest.mark.sample
@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_a_stopped_replica_was_asked_is_no_grant_once_another_holds_the_slot(
    seed: int, started: Start, serve: Serve
) -> None:
    """It is stopped somewhere within an answer that would be a grant."""
    lab, rng = started("default", 5), random.Random(seed)  # noqa: S311 - repeatable on purpose
    flags = ("--slots", "1", "--max-unavailable", "2")
    pair = serve(lab, *flags), serve(lab, *flags)
    first, second = [Client(lab, name) for name in workers(lab)[:2]]
    most = most_held(lab)
    first.await_grant(pair[0])
    leading, other = leading_first(lab, *pair)
    with ThreadPoolExecutor(8) as pool:
        hanging: list[Future[Said]] = []
        for _ in range(8):
            hanging.append(pool.submit(first.ask, leading))
            time.sleep(rng.uniform(0, 0.01))
        stop(leading)
        try:
            wait_until(lambda: str(other.process.pid) == holder_of(lab).rpartition("/")[2])
            early = {index for index, ask in enumerate(hanging) if ask.done()}
            # its host has thought better of it: its Zincati was restarted, and reports a steady state
            lab.call(lab.machines[first.node].reboot)
            first.await_release(other)
            second.await_grant(other)
        finally:
            go_on(leading)
        late = [ask.result(60) for index, ask in enumerate(hanging) if index not in early]
    assert late, "some were under way"
    assert [said for said in late if said.status == 200] == []
    assert most == [1]
    assert [slot["node"] for slot in slots_of(lab)] == [second.node]
    assert not is_cordoned(lab, first.node)
    assert second.ask(leading).kind == second.ask(other).kind == "granted"
    second.reboot()
    second.await_release(leading)
    score = lab.scoreboard()
    assert (score.rebooted_undrained, score.budgets_broken, score.killed) == ((), (), ())


@pytest.mark.timeout(240)
def test_a_drain_that_was_stopped_is_another_replicas_by_then(started: Start, serve: Serve) -> None:
    lab = started("drain-hangs", 5)
    client = Client(lab, victim(lab))
    pair = serve(lab, "--max-unavailable", "2"), serve(lab, "--max-unavailable", "2")
    most = most_held(lab)
    client.ask(pair[0])
    wait_until(lambda: marks_of(lab, client.node).get("phase") == "draining")
    leading, other = leading_first(lab, *pair)
    run = marks_of(lab, client.node)["run"]
    stop(leading)
    try:
        wait_until(lambda: str(other.process.pid) == holder_of(lab).rpartition("/")[2])
        wait_until(lambda: lab.call(lambda: is_ending(lab, "stubborn")))
        end_stubborn(lab)
        client.await_grant(other)
        client.reboot()
        client.await_release(other)
        wait_until(lambda: not slots_of(lab))
        rebooted = marks_of(lab, client.node)
    finally:
        go_on(leading)
    # its turn finds that it is over: the node is left as the other has given it back
    wait_until(lambda: leading.get("/readyz")[0] == 200)
    later = Client(lab, next(name for name in workers(lab) if name not in (client.node, victim(lab))))
    later.await_grant(leading)
    assert marks_of(lab, client.node) == rebooted
    assert run in rebooted["last-result"]
    assert (is_cordoned(lab, client.node), most) == (False, [1])
    later.reboot()
    later.await_release(other)
    score = lab.scoreboard()
    assert (score.rebooted_undrained, score.budgets_broken, score.reboots[client.node]) == ((), (), 1)
