"""Hosts that release what they do not hold or come back as they were, and an API server that is away, in many ways."""

import time
from pathlib import Path

import pytest

from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.hosts.faults import HostFaults, RebootFault
from rollout.lab.lab import Lab
from tests.conftest import StartLab
from tests.server.serving import (
    Reply,
    await_true,
    is_cordoned,
    reboot,
    serving,
)

pytestmark = pytest.mark.exhaustive


@pytest.fixture
def lab(start_lab: StartLab) -> Lab:
    return start_lab("default", nodes=6, speed=30)


def assert_denied(reply: Reply) -> None:
    assert not 200 <= reply.status < 300, reply.body
    assert reply.kind
    assert reply.value


@pytest.mark.sample
def test_a_release_by_who_holds_nothing_frees_nothing(lab: Lab, tmp_path: Path) -> None:
    with serving(lab, tmp_path) as server:
        server.await_grant("worker-1")
        assert server.steady_state("worker-2").status == 200
        assert server.pre_reboot("worker-1").status == 200
        assert server.pre_reboot("worker-2").kind == "failed_lock_semaphore_full"
        assert is_cordoned(lab, "worker-1")


def test_a_host_that_rolls_back_is_told_of_and_given_back(start_lab: StartLab, tmp_path: Path) -> None:
    """It has rebooted, and its node works: that no update has taken is said."""
    lab = start_lab("default", nodes=5, speed=30)
    lab.call(lambda: lab.machines["worker-1"].inflict(HostFaults(reboot=RebootFault.ROLLS_BACK)))
    with serving(lab, tmp_path) as server:
        server.await_grant("worker-1")
        reboot(lab, "worker-1")
        server.await_release("worker-1")
        assert not is_cordoned(lab, "worker-1")
        await_true(lambda: any("as before: no update" in line for line in server.said), "it is told")


# Each ask waits for as long as an answer of the API server may take.
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "fault",
    [
        *(FaultAnswer.UNAVAILABLE, FaultAnswer.DROP, FaultAnswer.HTML, FaultAnswer.HANG),
        *(FaultAnswer.TOO_MANY_REQUESTS, FaultAnswer.INTERNAL_ERROR, FaultAnswer.TIMEOUT),
    ],
)
def test_while_the_api_server_is_away_nobody_is_granted(fault: FaultAnswer, lab: Lab, tmp_path: Path) -> None:
    """Not even who was granted a moment before: what stands on the cluster cannot be seen."""
    with serving(lab, tmp_path, "--set", "lock.duration=4s") as server:
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


def test_an_api_server_that_is_away_for_long_is_told_once_and_that_it_is_back(lab: Lab, tmp_path: Path) -> None:
    with serving(lab, tmp_path) as server:
        before = len(server.said)
        lab.inflict(ApiFault(answer=FaultAnswer.UNAVAILABLE))
        until = time.monotonic() + 15
        while time.monotonic() < until:
            assert not any(server.pre_reboot(node).granted for node in ("worker-1", "worker-2"))
            time.sleep(0.2)
        told = server.said[before:]
        assert 0 < len(told) <= 4, told
        lab.behave()
        await_true(lambda: any("going on" in line for line in server.said[before:]), "its end is told")
