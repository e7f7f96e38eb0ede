"""Whole rollouts through the real program in a fleet of its users' size, of which a few nodes wait."""

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from rollout.lab.hostplan import scale
from rollout.lab.hosts.engine import UpdateEngine
from rollout.lab.hosts.faults import HostFaults
from rollout.lab.hosts.machine import EngineState, Update
from rollout.lab.lab import Lab
from rollout.lab.scenario import HostOverride, HostSelection, load_scenario
from tests.conftest import StartLab
from tests.ended import PROGRAM, assert_well_said
from tests.state import inflict, record
from tests.waiting import wait_until

pytestmark = pytest.mark.exhaustive

HOSTS = 600
# MB of one process; 100 were measured, of which 50 are its imports.
MOST_MEMORY = 200
WAITING = range(30, 46)


@pytest.fixture(scope="module")
def lab(shared_lab: StartLab) -> Lab:
    """Nothing is staged in it yet."""
    scenario = scale(load_scenario("default"), HOSTS)
    idle = HostOverride(select=HostSelection(), update=Update(state=EngineState.IDLE, to=None))
    return shared_lab(msgspec.structs.replace(scenario, hosts=(*scenario.hosts, idle)), speed=10)


def stage(lab: Lab, numbers: Sequence[int], version: str) -> dict[str, int]:
    """These workers wait for a reboot; how often each host was rebooted before."""

    def write() -> None:
        for number in numbers:
            lab.machines[f"worker-{number}"].update_engine = UpdateEngine.with_staged(
                version, checked=int(time.time())
            )

    lab.call(write)
    return dict(lab.scoreboard().reboots)


def rebooted_since(lab: Lab, before: Mapping[str, int]) -> dict[str, int]:
    now = lab.scoreboard().reboots
    return {name: times - before[name] for name, times in now.items() if times > before[name]}


def any_rebooted(lab: Lab) -> bool:
    """Whether one that waited is up again; cheap, for it is asked again and again in the lab's
    loop.
    """
    return any(lab.machines[f"worker-{number}"].update_engine.staged is None for number in WAITING)


def one_pass(lab: Lab, scratch: Path) -> subprocess.Popen[str]:
    """As in its pod: nothing but a scratch folder is to be written, and what it says is always
    taken.
    """
    environment = {
        **lab.environment,
        "TMPDIR": str(scratch),
        "XDG_STATE_HOME": str(scratch / "state"),
    }
    rules = ("--max-unavailable", "8", "--control-plane", "exclude")
    hurried = ("--set", "waves.health-checks=1", "--set", "lock.duration=2s")
    with (scratch / "said").open("a") as said:
        return subprocess.Popen(
            [
                *PROGRAM,
                *("operate", "--once", "--active-deadline", "6h", "-o", "json"),
                *rules,
                *hurried,
            ],
            env={"PATH": os.environ["PATH"], "HOME": "/proc", **environment},
            cwd="/proc",
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            text=True,
        )


@contextmanager
def measured(process: subprocess.Popen[str]) -> Iterator[list[int]]:
    """The most memory that it has had so far, again and again, in MB."""
    peaks = [0]
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.1):
            with suppress(OSError):
                status = Path(f"/proc/{process.pid}/status").read_text()
                peaks.extend(int(peak) >> 10 for peak in re.findall(r"VmHWM:\s+(\d+)", status))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield peaks
    finally:
        over.set()
        looking.join()


def test_what_a_killed_pass_leaves_the_next_one_finishes(lab: Lab, tmp_path: Path) -> None:
    """As a kubelet ends a pod that takes longer than its grace."""
    before = stage(lab, WAITING, "4400.0.1")
    said = tmp_path / "said"
    for worker in WAITING[1::2]:
        # still away when the first ones are back, however fast this machine is
        inflict(lab, HostFaults(boot_seconds=100), f"worker-{worker}")
    with one_pass(lab, tmp_path) as first, measured(first) as peaks:
        wait_until(lambda: lab.call(lambda: any_rebooted(lab)) or first.poll() is not None, 120)
        first.terminate()
        with suppress(subprocess.TimeoutExpired):
            first.wait(1.5)
        first.kill()
    assert first.returncode == -signal.SIGKILL, said.read_text()
    assert max(peaks) < MOST_MEMORY
    assert 0 < len(rebooted_since(lab, before)) < len(WAITING)
    assert lab.scoreboard().cordons_left

    with one_pass(lab, tmp_path) as second, measured(second) as peaks:
        second.wait(200)
    assert_well_said(said.read_text())
    assert second.returncode == 0, said.read_text()[-5000:]
    assert max(peaks) < MOST_MEMORY
    assert rebooted_since(lab, before) == {f"worker-{worker}": 1 for worker in WAITING}
    assert lab.scoreboard().most_unavailable <= 9
    score = lab.scoreboard()
    assert score.clean
    assert score.annotations_left == {}
    assert score.taints_left == ()
    assert record(lab) is None
