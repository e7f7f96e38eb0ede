"""The real program on a lab, once with each executor: what it says and does must be the same."""

import json
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from rollout.lab.hostplan import scale
from rollout.lab.hosts.faults import HostFaults
from rollout.lab.lab import Lab
from rollout.lab.scenario import HostOverride, HostSelection, load_scenario
from tests.conftest import StartLab
from tests.ended import Ended, end_of, start


@dataclass(frozen=True)
class Program:
    """The program with one executor, as another machine would run it: an empty home."""

    executor: str
    home: Path

    def start(self, lab: Lab, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        environment = {
            # A killed process leaves its folder behind: here.
            "TMPDIR": str(self.home),
            "LC_ALL": "C.UTF-8",
            "ROLLOUT_EXECUTOR": self.executor,
            **lab.environment,
        }
        return start(self.home, {**environment, **variables}, arguments)

    def run(self, lab: Lab, *arguments: str, **variables: str) -> Ended:
        return end_of(self.start(lab, *arguments, **variables))

    @contextmanager
    def ended_at(
        self, lab: Lab, phase: str, number: signal.Signals, *arguments: str
    ) -> Iterator[str]:
        """A command that gets this signal once it tells of a node in this phase; that node."""
        process = self.start(lab, *arguments, "-o", "json")
        assert process.stdout is not None
        lines = (json.loads(line) for line in process.stdout)
        told = (line["node"] for line in lines if line["type"] == "step" and line["phase"] == phase)
        node = next(told, None)
        assert node is not None, process.communicate()
        process.send_signal(number)
        process.communicate(timeout=100)
        yield node


@pytest.fixture(params=["ssh", "ansible"])
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Program:
    home = tmp_path / "home"
    home.mkdir()
    return Program(request.param, home)


@pytest.fixture
def with_faults(start_lab: StartLab) -> StartLab:
    """Labs by number of nodes, with something wrong with the hosts that are named."""

    def start(
        nodes: int,
        faults: Mapping[str, HostFaults] | None = None,
        *,
        scenario_name: str = "default",
    ) -> Lab:
        scenario = scale(load_scenario(scenario_name), nodes)
        hosts = (
            HostOverride(select=HostSelection(names=(name,)), faults=fault)
            for name, fault in (faults or {}).items()
        )
        return start_lab(msgspec.structs.replace(scenario, hosts=(*scenario.hosts, *hosts)))

    return start


def ansible_processes(home: Path) -> list[str]:
    """Command lines of what a test's Ansible has started, told by its home."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"HOME={home}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return [line for line in found if "ansible" in line]
