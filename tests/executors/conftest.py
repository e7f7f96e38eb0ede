"""The real program on a lab, once with each executor: what it says and does must be the same."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rollout.lab.hostplan import scale
from rollout.lab.hosts.faults import HostFaults
from rollout.lab.lab import Lab
from rollout.lab.scenario import HostOverride, Selection, load_scenario

StartLab = Callable[..., Lab]


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Standard output as JSON lines."""
        return [json.loads(line) for line in self.stdout.splitlines()]

    @property
    def outcomes(self) -> dict[str, str]:
        """How each node ended that was begun."""
        summary = self.lines[-1]
        failed = {entry["node"]: entry["outcome"] for entry in summary["failed"]}
        return {**dict.fromkeys(summary["succeeded"], "succeeded"), **failed}

    @property
    def failures(self) -> dict[str, dict[str, Any]]:
        """The failed nodes' entries, by name."""
        return {entry["node"]: entry for entry in self.lines[-1]["failed"]}

    def steps(self, node: str) -> list[tuple[str, str]]:
        """A node's phases with what was said in them."""
        return [
            (line["phase"], line.get("detail", ""))
            for line in self.lines
            if line.get("node") == node and "phase" in line
        ]


@dataclass(frozen=True)
class Program:
    """The program with one executor, as another machine would run it: an empty home."""

    executor: str
    home: Path

    def environment(self, lab: Lab) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            # A killed process leaves its folder behind: here.
            "TMPDIR": str(self.home),
            "LC_ALL": "C.UTF-8",
            "ROLLOUT_EXECUTOR": self.executor,
            **lab.environment,
        }

    def start(self, lab: Lab, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "rollout", *arguments],
            env={**self.environment(lab), **variables},
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, lab: Lab, *arguments: str, **variables: str) -> Ended:
        process = self.start(lab, *arguments, **variables)
        try:
            stdout, stderr = process.communicate(timeout=100)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        assert "Traceback" not in stderr, stderr
        return Ended(process.returncode, stdout, stderr)

    @contextmanager
    def ended_at(self, lab: Lab, phase: str, number: signal.Signals, *arguments: str) -> Iterator[str]:
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
def with_faults(tmp_path: Path) -> Iterator[StartLab]:
    """Labs by number of nodes, with something wrong with the hosts that are named."""
    with ExitStack() as labs:

        def start(
            nodes: int,
            faults: Mapping[str, HostFaults] | None = None,
            *,
            labels: Mapping[str, Mapping[str, str]] | None = None,
        ) -> Lab:
            scenario = scale(load_scenario("default"), nodes)
            overrides = tuple(
                HostOverride(select=Selection(names=(name,)), faults=fault) for name, fault in (faults or {}).items()
            )
            overrides += tuple(
                HostOverride(select=Selection(names=(name,)), labels=given) for name, given in (labels or {}).items()
            )
            scenario = msgspec.structs.replace(scenario, hosts=(*scenario.hosts, *overrides))
            return labs.enter_context(Lab.start(scenario, directory=tmp_path / "lab", speed=60))

        yield start


def until(what: Callable[[], object], seconds: float = 20) -> None:
    """Wait for it, within bounds that a busy machine keeps."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


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
