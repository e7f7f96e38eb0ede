"""The standing process: pass after pass, by the settings of now, whatever goes wrong; and who takes over."""

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rollout.lab.lab import Lab
from tests.apply.conftest import command
from tests.operate.conftest import assert_all_done, assert_untouched, lease_of, open_now
from tests.overheard import Overheard
from tests.waiting import wait_until

Start = Callable[[str, int], Lab]
CALM = ("--every", "1s", "--max-unavailable", "2", "--set", "waves.health-checks=1")


Begin = Callable[..., Overheard]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    running: list[Overheard] = []

    def start(lab: Lab, *arguments: str) -> Overheard:
        running.append(Overheard(command(lab, tmp_path, "operate", *CALM, *arguments)))
        return running[-1]

    yield start
    for standing in running:
        standing.end(signal.SIGKILL)


def test_it_makes_pass_after_pass_and_ends_well_while_it_is_idle(started: Start, begin: Begin) -> None:
    lab = started("default", 4)
    standing = begin(lab)
    standing.await_words("Nothing to do")
    assert_all_done(lab)
    standing.await_words("Nothing to do", len(standing.said))
    assert standing.end() == 0
    assert standing.said[-1] == "stopped on request: no further pass is made\n"
    assert lease_of(lab)["spec"]["holderIdentity"] == ""


def test_an_api_server_that_is_away_costs_a_pass_and_no_more(started: Start, begin: Begin) -> None:
    lab = started("default", 4)
    standing = begin(lab, "--window", open_now(hours=6))
    standing.await_words("outside the maintenance window")
    before = len(standing.said)
    lab.run(lambda: lab.api.outage(120))
    standing.await_words("error: ", before)
    standing.await_words("outside the maintenance window", len(standing.said))
    assert standing.end() == 0
    assert_untouched(lab)


def test_one_works_and_the_other_stands_by_and_takes_over(started: Start, begin: Begin) -> None:
    """Within the duration of the Lease, and though its own next pass is an hour away."""
    lab = started("default", 5)
    other = begin(lab, "--every", "1h", "--set", "lock.duration=4s", "--window", open_now(hours=6))
    other.await_words("outside the maintenance window")
    other.end()
    leader = begin(lab, "--every", "1h", "--set", "lock.duration=4s", "--max-unavailable", "1")
    wait_until(lambda: bool(lab.scoreboard().cordons_left))
    follower = begin(lab, "--every", "1h", "--set", "lock.duration=4s", "--max-unavailable", "1")
    follower.await_words("No node is started: a rollout is running on")
    leader.end(signal.SIGKILL)
    died = time.monotonic()
    wait_until(lambda: lease_of(lab)["spec"]["holderIdentity"].endswith(f"/{follower.process.pid}"), 60)
    took = time.monotonic() - died
    wait_until(lambda: set(lab.scoreboard().reboots.values()) == {1}, 60)
    assert follower.end() == 0
    assert_all_done(lab)
    assert took < 4 + 2 + 2, took
