"""Clocks that are a day off, jump, or differ between replicas: no slot is freed, kept or granted by what time it is.

A server waits by its machine's monotonic clock, and remembers by the API server's. Windows alone open and close by the
server's own time of day.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from signal import SIGKILL

import pytest

from rollout.lab.lab import Lab
from rollout.lab.scenario import Scenario
from tests.ended import Ended, HeardProcess
from tests.server.conftest import (
    CALM,
    Client,
    Serve,
    Serving,
    holder_of,
    is_cordoned,
    marks_of,
    slots_of,
    workers,
)

pytestmark = pytest.mark.exhaustive

Start = Callable[[Scenario | str, int], Lab]
Rollout = Callable[..., Ended]
HOUR, DAY = 3600, 86400
# The real program on a machine whose time of day is off by as many seconds as a file says, from one moment to the next.
STEPPED = """
import sys
from datetime import timedelta
from pathlib import Path
from rollout.adapters import clock

ahead = Path(sys.argv.pop(1))

class Stepped(clock.SystemClock):
    def now(self):
        return super().now() + timedelta(seconds=float(ahead.read_text()))

clock.SystemClock = Stepped
from rollout.cli.entry import main
main()
"""


class Machine(Serving):
    """A server whose machine's time of day may be set."""

    file: Path

    def set(self, seconds: float) -> None:
        self.file.write_text(str(seconds))


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Callable[..., Machine]]:
    running: list[Machine] = []

    def begin(lab: Lab, ahead: float, *arguments: str) -> Machine:
        file = tmp_path / f"ahead-{len(running)}"
        file.write_text(str(ahead))
        words = ("-c", STEPPED, str(file), "fleetlock", "--listen", "127.0.0.1:0", *CALM, *arguments)
        process = HeardProcess(
            [sys.executable, *words],
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **lab.environment},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(Machine(process))
        running[-1].file = file
        return running[-1]

    yield begin
    for serving in running:
        serving.end(SIGKILL)


def step(lab: Lab, seconds: float) -> None:
    """The API server's clock, and the hosts', from one moment to the next."""
    lab.call(lambda: lab.machines["worker-1"].clock.skip(seconds))


@pytest.mark.parametrize("seconds", [-DAY, DAY])
def test_an_api_server_whose_clock_jumps_frees_no_slot_and_begins_none(
    seconds: int, started: Start, serve: Serve
) -> None:
    """The Lease, the slots and their times stand there; all of them were written before the jump."""
    lab = started("default", 5)
    servers = [serve(lab, "--slot-timeout", "30s", "--max-unavailable", "2") for _ in range(2)]
    client, other = [Client(lab, name) for name in workers(lab)[:2]]
    client.await_grant(servers[0])
    holder, run = holder_of(lab), marks_of(lab, client.node)["run"]
    step(lab, seconds)
    end = time.monotonic() + 8
    while time.monotonic() < end:
        assert [slot["run"] for slot in slots_of(lab)] == [run]
        assert (holder_of(lab), is_cordoned(lab, client.node)) == (holder, True)
        assert {other.ask(server).kind for server in servers} == {"failed_lock_semaphore_full"}
        time.sleep(0.5)
    assert [client.ask(server).kind for server in servers] == ["granted", "granted"]
    step(lab, -seconds)
    client.reboot()
    client.await_release(servers[1])
    other.await_grant(servers[0])
    score = lab.scoreboard()
    assert (score.rebooted_undrained, score.most_unavailable <= 2) == ((), True)
