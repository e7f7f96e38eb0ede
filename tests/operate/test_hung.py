"""A pass of the standing process that hangs: it is bounded, visible meanwhile, and over with that pass."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.hosts.faults import HostFaults
from rollout.lab.lab import Lab
from tests.apply.scrapes import Scrape
from tests.operate.conftest import assert_all_done, assert_untouched, lease_of
from tests.operate.test_metrics import LISTEN, answer, operating, scrape, until
from tests.waiting import wait_until

pytestmark = pytest.mark.exhaustive

Start = Callable[[str, int], Lab]
OFTEN = ("--every", "1s", "--max-unavailable", "2", *LISTEN)


def ended(seen: Scrape) -> dict[str, float]:
    """How many passes have ended, by result."""
    return seen.values("node_rollout_passes_total", "result")


@pytest.mark.sample
def test_a_gate_command_that_never_ends_costs_its_pass(started: Start, tmp_path: Path) -> None:
    lab, hangs = started("default", 4), tmp_path / "hangs"
    hangs.touch()
    gate = ("--set", f"gates.command=sh -c 'while test -e {hangs}; do sleep 0.2; done'", "--set", "gates.timeout=3s")
    with operating(lab, tmp_path, *OFTEN, *gate) as (_, port):
        until(port, lambda seen: seen.value("node_rollout_pass_start_timestamp_seconds") > 0)
        until(port, lambda seen: ended(seen).get("blocked", 0) >= 2)
        assert_untouched(lab)
        hangs.unlink()
        until(port, lambda seen: ended(seen).get("ok", 0) >= 1)
        assert_all_done(lab)


@pytest.mark.sample
def test_a_gate_command_that_never_ends_is_ended_with_the_time_of_the_pass(started: Start, tmp_path: Path) -> None:
    lab = started("default", 4)
    gate = ("--set", "gates.command=sleep 1000", "--set", "gates.timeout=1h", "--active-deadline", "3s")
    with operating(lab, tmp_path, *OFTEN, *gate) as (_, port):
        until(port, lambda seen: sum(ended(seen).values()) >= 2)
        assert answer(port, "/healthz")[0] == 200
    assert_untouched(lab)


def test_hosts_that_accept_and_never_answer_are_left_out(started: Start, tmp_path: Path) -> None:
    lab = started("default", 4)
    lab.call(lambda: lab.machines["worker-1"].inflict(HostFaults(answer_delay_seconds=36000)))
    with operating(lab, tmp_path, *OFTEN, "--set", "ssh.probe-timeout=3s") as (_, port):
        until(port, lambda seen: ended(seen).get("partial", 0) >= 1)
        assert {name: count for name, count in lab.scoreboard().reboots.items() if not count} == {"worker-1": 0}


@pytest.mark.timeout(300)
def test_an_api_server_that_hangs_is_waited_for_in_sight_and_the_pass_goes_on(started: Start, tmp_path: Path) -> None:
    """The Lease goes unrenewed meanwhile, so that another process may take over; here none does."""
    lab = started("default", 4)
    with operating(lab, tmp_path, *OFTEN, "--set", "lock.duration=4s") as (_, port):
        wait_until(lambda: bool(lab.scoreboard().cordons_left))
        renewed = lease_of(lab)["spec"]["renewTime"]
        hangs, before = ApiFault(answer=FaultAnswer.HANG, resource="leases"), time.time()
        lab.inflict(hangs, ApiFault(answer=FaultAnswer.HANG))
        wait_until(lambda: lab.struck(hangs) >= 2)
        hanging = scrape(port)
        assert 0 < hanging.value("node_rollout_pass_start_timestamp_seconds") <= before
        assert (hanging.value("node_rollout_running"), answer(port, "/healthz")[0]) == (1, 200)
        lab.behave()
        until(port, lambda seen: ended(seen).get("ok", 0) >= 1, 240)
        assert scrape(port).value("node_rollout_running") == 0
        assert lease_of(lab)["spec"]["renewTime"] > renewed
        assert_all_done(lab)
