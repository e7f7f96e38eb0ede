"""A FleetLock server beside rollouts of persons: they keep out of each other's way, and know of
each other's nodes.
"""

import json
import signal
from pathlib import Path

from rollout.adapters.clock import SystemClock
from rollout.adapters.kube.api import connect
from rollout.execution.base.deadline import PatientApi
from rollout.execution.lock import LeaseLock, LockOptions
from rollout.lab.api.resources import PODS
from rollout.lab.lab import Lab
from tests.apply.conftest import Rollout, Started, command
from tests.ended import Ended
from tests.operate.conftest import open_now
from tests.server.conftest import Client, Serve, slots_of, victim, workers
from tests.state import annotations, holder_of, is_cordoned, marks_of, unlock, write
from tests.waiting import wait_until

APPLY = ("apply", "-y", "-o", "json", "--set", "waves.health-checks=1")


def test_apply_is_refused_while_a_server_works_and_names_it(
    started: Started, serve: Serve, rollout: Rollout
) -> None:
    lab = started("default", 4)
    server = serve(lab)
    client = Client(lab, workers(lab)[0])
    client.await_grant(server)
    refused = rollout(lab, *APPLY).ends(6)
    assert (
        "the FleetLock server is draining and rebooting hosts on fleetlock-server/"
        in refused.stderr
    )
    assert "To watch it:     rollout fleetlock status" in refused.stderr
    assert "fleetlock-server/" in rollout(lab, "operate", "--once").stdout
    shown = rollout(lab, "status", "--run")
    assert shown.stdout.startswith(
        "The FleetLock server is draining and rebooting hosts, run fleetlock-"
    )
    assert f"{client.node}: rebooting" in shown.stdout
    client.reboot()
    client.await_return(server)
    wait_until(lambda: not holder_of(lab))
    rollout(lab, *APPLY, "--node", "cp-1").ends(0)


def test_a_server_denies_while_a_rollout_runs_or_is_unfinished(
    started: Started, serve: Serve, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("drain-hangs", 5)
    stuck = victim(lab)
    server = serve(lab)
    client = Client(lab, next(name for name in workers(lab) if name != stuck))
    process = command(lab, tmp_path, *APPLY, "--node", stuck, "--set", "lock.duration=3s")
    wait_until(lambda: marks_of(lab, stuck).get("phase") == "draining")
    denied = client.request_reboot(server)
    assert denied.kind == "locked_by_rollout"
    assert denied.status == 423
    process.kill()
    process.communicate()
    for _ in range(2):
        assert client.request_reboot(server).kind == "locked_by_rollout"
    wait_until(lambda: "rollout abort" in client.request_reboot(server).value)
    assert not slots_of(lab)
    rollout(lab, "abort", "-y", *unlock(lab)).ends(0)
    # what was evicted before the kill has been replaced by now, by a pod that does not end either
    pods = lab.call(lambda: list(lab.store.items(PODS)))
    stuck_on = {
        pod["spec"].get("nodeName")
        for pod in pods
        if pod["metadata"]["name"].startswith("stubborn")
    }
    Client(lab, next(name for name in workers(lab) if name not in stuck_on)).await_grant(server)


def test_whoever_holds_the_lock_is_left_alone_though_nothing_else_tells_of_them(
    started: Started, serve: Serve
) -> None:
    """As an `apply` does before it has written its record: no node has marks of theirs."""
    lab = started("default", 4)
    client = Client(lab, workers(lab)[0])
    server = serve(lab)
    with LeaseLock(
        PatientApi(connect(lab.kubeconfig, None), SystemClock()),
        LockOptions("ann@laptop/1", seconds=3),
        "0123456789abcdef",
    ):
        for _ in range(2):
            denied = client.request_reboot(server)
            assert denied.kind == "locked_by_rollout"
            assert denied.status == 423
            assert "another rollout is running: ann@laptop/1" in denied.value
        assert not slots_of(lab)
        assert not is_cordoned(lab, client.node)
    client.await_grant(server)


def test_pauses_and_windows_hold_for_requests_of_hosts(
    started: Started, serve: Serve, rollout: Rollout
) -> None:
    lab = started("default", 4)
    server = serve(lab)
    client = Client(lab, workers(lab)[0])
    rollout(lab, "pause", "--all", "--reason", "sale")
    wait_until(lambda: client.request_reboot(server).kind == "paused")
    assert "sale" in client.request_reboot(server).value
    rollout(lab, "unpause", "--all")
    rollout(lab, "pause", client.node)
    wait_until(lambda: client.node in client.request_reboot(server).value)
    assert client.request_reboot(server).kind == "paused"
    rollout(lab, "unpause", client.node)
    shut = serve(lab, "--window", open_now(hours=6))
    denied = client.request_reboot(shut)
    assert denied.kind == "outside_window"
    assert "the next window opens" in denied.value
    assert not slots_of(lab)
    client.await_grant(server)
    client.await_grant(shut)


def aborted_once_it_is_late(lab: Lab, rollout: Rollout) -> Ended:
    """Until a living server would have renewed the lock, nobody can tell that this one is dead."""
    while (ended := rollout(lab, "abort", "-y")).code == 6:
        assert "the lock expires in" in ended.stderr
    return ended


def test_abort_returns_the_nodes_that_a_dead_server_had_started(
    started: Started, serve: Serve, rollout: Rollout
) -> None:
    lab = started("drain-hangs", 5)
    client = Client(lab, victim(lab))
    server = serve(lab)
    client.request_reboot(server)
    wait_until(lambda: marks_of(lab, client.node).get("phase") == "draining")
    assert rollout(lab, "abort", "-y").code == 6, "a server that lives holds the lock"
    server.end(signal.SIGKILL)
    aborted_once_it_is_late(lab, rollout).ends(0)
    assert not is_cordoned(lab, client.node)
    assert slots_of(lab) == []
    assert holder_of(lab) == ""
    assert json.loads(marks_of(lab, client.node)["last-result"])["outcome"] == "aborted"
    assert Client(lab, client.node).report(serve(lab)).kind == "not_held"


def test_a_server_whose_lock_is_taken_by_force_grants_nothing_more(
    started: Started, serve: Serve, rollout: Rollout
) -> None:
    lab = started("drain-hangs", 5)
    client = Client(lab, victim(lab))
    server = serve(lab)
    client.request_reboot(server)
    wait_until(lambda: marks_of(lab, client.node).get("phase") == "draining")
    run = marks_of(lab, client.node)["run"]
    rollout(lab, "abort", "-y", "--force-unlock", run).ends(0)
    assert not slots_of(lab)
    assert not is_cordoned(lab, client.node)
    assert client.request_reboot(server).status != 200
    assert server.process.poll() is None


def test_abort_releases_slots_whose_nodes_were_never_started(
    started: Started, serve: Serve, rollout: Rollout
) -> None:
    lab = started("default", 4)
    client = Client(lab, workers(lab)[0])
    server = serve(lab)
    client.await_grant(server)
    server.end(signal.SIGKILL)
    write(lab, client.node, "annotations", **dict.fromkeys(annotations(lab, client.node)))
    aborted = aborted_once_it_is_late(lab, rollout)
    assert (
        "FleetLock slots of nodes that have no rollout annotations will be released"
        in aborted.stdout
    )
    assert not slots_of(lab)
    assert "Nothing to undo" in rollout(lab, "abort").stdout
