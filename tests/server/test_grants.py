"""What a host is answered on its way: never a yes before the drain, never a release before the proof."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.api.resources import NODES
from rollout.lab.hosts.faults import HostFaults, RebootFault
from rollout.lab.lab import Lab
from tests.conftest import StartLab
from tests.server.serving import (
    Reply,
    Server,
    await_true,
    cordoned,
    is_cordoned,
    left_on,
    reboot,
    serving,
)

Served = Callable[..., Server]


@pytest.fixture
def lab(start_lab: StartLab) -> Lab:
    return start_lab("default", nodes=6, speed=30)


def assert_denied(reply: Reply) -> None:
    assert not 200 <= reply.status < 300, reply.body
    assert reply.kind
    assert reply.value


def test_a_host_is_granted_once_its_node_is_drained_and_released_once_it_is_back(lab: Lab, tmp_path: Path) -> None:
    """The whole way: a denial that says why, the drain that goes on by itself, the same answer again, and the proof."""
    with serving(lab, tmp_path) as server:
        first = server.pre_reboot("worker-1")
        assert_denied(first)
        # nobody asks meanwhile
        await_true(lambda: is_cordoned(lab, "worker-1") and not left_on(lab, "worker-1"), "the drain goes on by itself")
        server.await_grant("worker-1")
        assert is_cordoned(lab, "worker-1")
        assert left_on(lab, "worker-1") == []
        assert [server.pre_reboot("worker-1").status for _ in range(3)] == [200, 200, 200]
        full = server.pre_reboot("worker-2")
        assert (full.status, full.kind) == (423, "failed_lock_semaphore_full")
        assert "worker-1" in full.value, "who holds it"
        # it has not gone down: no boot is proven
        assert_denied(server.steady_state("worker-1"))
        assert is_cordoned(lab, "worker-1")
        reboot(lab, "worker-1")
        server.await_release("worker-1")
        assert not is_cordoned(lab, "worker-1")
        assert [server.steady_state("worker-1").status for _ in range(3)] == [200, 200, 200]
        server.await_grant("worker-2")
    score = lab.scoreboard()
    assert (score.killed, score.budgets_broken, score.rebooted_undrained) == ((), (), ())
    assert cordoned(lab) == {"worker-2"}


def test_a_release_by_who_holds_nothing_frees_nothing(lab: Lab, tmp_path: Path) -> None:
    with serving(lab, tmp_path) as server:
        server.await_grant("worker-1")
        assert server.steady_state("worker-2").status == 200
        assert server.pre_reboot("worker-1").status == 200
        assert server.pre_reboot("worker-2").kind == "failed_lock_semaphore_full"
        assert is_cordoned(lab, "worker-1")


def test_groups_have_slots_of_their_own(lab: Lab, tmp_path: Path) -> None:
    groups = ("--group", "workers=1", "--group", "controllers=1", "--max-unavailable", "2")
    with serving(lab, tmp_path, *groups) as server:
        server.await_grant("worker-1", "workers")
        assert server.pre_reboot("worker-2", "workers").kind == "failed_lock_semaphore_full"
        server.await_grant("cp-1", "controllers")


def test_a_cordon_of_an_operators_stays(lab: Lab, tmp_path: Path) -> None:
    """It is no node to reboot without being told to; and its cordon is not ours to end."""

    def cordon() -> None:
        node = lab.store.get(NODES, "worker-1")
        assert node is not None
        lab.store.put(NODES, {**node, "spec": {**node["spec"], "unschedulable": True}})

    lab.call(cordon)
    with serving(lab, tmp_path) as server:
        assert_denied(server.pre_reboot("worker-1"))
        assert server.steady_state("worker-1").status == 200
        assert is_cordoned(lab, "worker-1")
        server.await_grant("worker-2")


def test_two_nodes_of_one_machine_id_are_never_granted(lab: Lab, tmp_path: Path) -> None:
    """As after a disk was cloned: nobody can tell which of them would go down."""
    machine_id = lab.machines["worker-1"].machine_id

    def clone() -> None:
        node = lab.store.get(NODES, "worker-2")
        assert node is not None
        status = node["status"]
        info = {**status["nodeInfo"], "machineID": machine_id}
        lab.store.put(NODES, {**node, "status": {**status, "nodeInfo": info}})

    lab.call(clone)
    with serving(lab, tmp_path) as server:
        reply = server.pre_reboot("worker-1")
        assert (reply.status, reply.kind) == (403, "doubled_id")
        server.await_grant("worker-3")
    assert cordoned(lab) == {"worker-3"}


def test_a_host_that_rolls_back_is_told_of_and_given_back(start_lab: StartLab, tmp_path: Path) -> None:
    """Its version has not moved: a failure, and a node that works."""
    lab = start_lab("default", nodes=5, speed=30)
    lab.call(lambda: lab.machines["worker-1"].inflict(HostFaults(reboot=RebootFault.ROLLS_BACK)))
    with serving(lab, tmp_path) as server:
        server.await_grant("worker-1")
        reboot(lab, "worker-1")
        server.await_release("worker-1")
        assert not is_cordoned(lab, "worker-1")


@pytest.mark.parametrize("fault", [FaultAnswer.UNAVAILABLE, FaultAnswer.DROP, FaultAnswer.HTML, FaultAnswer.HANG])
def test_while_the_api_server_is_away_nobody_is_granted(fault: FaultAnswer, lab: Lab, tmp_path: Path) -> None:
    """Not even who was granted a moment before: what stands on the cluster cannot be seen."""
    with serving(lab, tmp_path, "--lease-duration", "4s") as server:
        server.await_grant("worker-1")
        lab.inflict(ApiFault(answer=fault))
        # a server that has not noticed yet may still answer by what it has just read: for no longer than a lease
        await_true(lambda: not server.pre_reboot("worker-1").granted, "the grant ends")
        for _ in range(5):
            assert_denied(server.pre_reboot("worker-1"))
            assert_denied(server.pre_reboot("worker-2"))
        assert server.request("GET", "/healthz").status == 200
        lab.behave()
        server.await_grant("worker-1")
    assert lab.scoreboard().rebooted_undrained == ()


def test_another_replica_takes_over_what_a_killed_one_began(lab: Lab, tmp_path: Path) -> None:
    quick = ("--lease-duration", "3s")
    with serving(lab, tmp_path, *quick) as first, serving(lab, tmp_path, *quick) as second:
        first.pre_reboot("worker-1")
        await_true(lambda: is_cordoned(lab, "worker-1"), "it is begun")
        first.end(signal.SIGKILL)
        second.await_grant("worker-1")
        assert left_on(lab, "worker-1") == []
        assert second.pre_reboot("worker-2").kind == "failed_lock_semaphore_full"


def test_an_ended_server_leaves_a_granted_node_to_the_next(lab: Lab, tmp_path: Path) -> None:
    with serving(lab, tmp_path) as server:
        server.await_grant("worker-1")
        assert server.end() == 0
        assert is_cordoned(lab, "worker-1")
    reboot(lab, "worker-1")
    with serving(lab, tmp_path) as server:
        server.await_release("worker-1")
    assert cordoned(lab) == set()
