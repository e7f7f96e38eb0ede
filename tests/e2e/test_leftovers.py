"""Nothing of the machines stays behind, however a run of the tests ends; where there can be none, that is said."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.leftovers import end_processes, leftovers
from tests.e2e.machines import Machines, Place, free_place, wait_for

ROOT = Path(__file__).parents[2]
ONE_MACHINE = """
import sys, time
from pathlib import Path
from tests.e2e.image import USERS, shared_root
from tests.e2e.machines import free_place, running_machines
with free_place() as place, running_machines(["lone"], place, shared_root(), USERS, Path(sys.argv[1])) as machines:
    print(place.number, flush=True)
    time.sleep(300)
"""


def lone_machine(directory: Path) -> tuple[subprocess.Popen[str], Place]:
    """Another process with a machine of its own, that has booted."""
    process = subprocess.Popen(
        [sys.executable, "-c", ONE_MACHINE, str(directory)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, Place(int(process.stdout.readline()))


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_is_ended_leaves_nothing(end: signal.Signals, machines: Machines, tmp_path: Path) -> None:
    """Killed, its machine dies with it, and the next run removes what else it had: only of runs that are over."""
    process, place = lone_machine(tmp_path)
    assert any("process" in thing for thing in leftovers(place.name))
    process.send_signal(end)
    process.communicate(timeout=60)
    if end is signal.SIGKILL:
        wait_for(lambda: not any("process" in left for left in leftovers(place.name)), "the machine to die", 15)
        assert leftovers(place.name)
        with free_place() as again:
            assert again == place
    assert leftovers(place.name) == []
    assert all(machine.booted for machine in machines)


def test_what_still_runs_is_ended_before_its_place_is_taken(tmp_path: Path) -> None:
    process, place = lone_machine(tmp_path)
    os.kill(process.pid, signal.SIGSTOP)
    end_processes(place.name)
    assert not any("process" in left for left in leftovers(place.name))
    process.kill()
    process.communicate()
    with free_place():
        assert leftovers(place.name) == []


# A stranger who may read everything: the interpreter may lie in root's home.
STRANGER = (
    "setpriv",
    "--reuid=65534",
    "--clear-groups",
    "--inh-caps=+dac_read_search",
    "--ambient-caps=+dac_read_search",
)


@pytest.mark.parametrize(
    ("before", "path", "said"),
    [
        ((), "", "real machines need debootstrap, systemd-nspawn"),
        (STRANGER, os.environ["PATH"], "real machines need root"),
    ],
    ids=["no-tools", "no-root"],
)
def test_where_there_can_be_no_machines_the_reason_is_printed(
    before: tuple[str, ...], path: str, said: str, tmp_path: Path
) -> None:
    tmp_path.chmod(0o777)
    arguments = [
        "-q",
        "-rs",
        "-m",
        "",
        "-p",
        "no:cacheprovider",
        f"--basetemp={tmp_path}/base",
        "tests/e2e/test_jump.py",
    ]
    ended = subprocess.run(
        [*before, sys.executable, "-m", "pytest", *arguments],
        cwd=ROOT,
        env={"PATH": path, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert said in ended.stdout, ended.stdout + ended.stderr
    assert "3 skipped" in ended.stdout
