import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rollout.lab.hostplan import scale
from rollout.lab.lab import Lab
from rollout.lab.scenario import Scenario, load_scenario


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
    def summary(self) -> dict[str, Any]:
        """The last of them, which is the summary."""
        last = self.lines[-1]
        assert last["type"] == "summary"
        return last


Rollout = Callable[..., Ended]


def command(lab: Lab, home: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start the real program, as another machine would: an empty home, and the lab's variables."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), **lab.environment}
    return subprocess.Popen(
        [sys.executable, "-m", "rollout", *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[Scenario | str, int], Lab]]:
    """Labs by scenario, or its name, and number of nodes; time passes thirty times as fast in them."""
    with ExitStack() as stack:

        def start(scenario: Scenario | str, nodes: int) -> Lab:
            wanted = load_scenario(scenario) if isinstance(scenario, str) else scenario
            lab = Lab.start(scale(wanted, nodes), directory=tmp_path / "lab", speed=30)
            return stack.enter_context(lab)

        yield start


@pytest.fixture
def rollout(tmp_path: Path) -> Callable[..., Ended]:
    """Run the real program to its end."""

    def run(lab: Lab, *arguments: str) -> Ended:
        process = command(lab, tmp_path, *arguments)
        stdout, stderr = process.communicate(timeout=100)
        assert "Traceback" not in stderr
        return Ended(process.returncode, stdout, stderr)

    return run
