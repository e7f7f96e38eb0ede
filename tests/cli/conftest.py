import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rollout.lab.lab import Lab


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stdout.splitlines()]


Command = Callable[..., Ended]


def start(home: Path, environment: dict[str, str], arguments: Sequence[str], stdin: int) -> subprocess.Popen[str]:
    """The real program in an empty home, with nothing of this machine's settings."""
    return subprocess.Popen(
        [sys.executable, "-m", "rollout", *arguments],
        env={"PATH": os.environ["PATH"], "HOME": str(home), **environment},
        cwd=home,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    made.mkdir()
    return made


@pytest.fixture
def command(home: Path) -> Command:
    """Run the real program to its end; `lab` is what it works on, `variables` are its environment."""

    def run(*arguments: str, lab: Lab | None = None, variables: dict[str, str] | None = None) -> Ended:
        environment = {**(lab.environment if lab else {}), **(variables or {})}
        process = start(home, environment, arguments, subprocess.DEVNULL)
        stdout, stderr = process.communicate(timeout=100)
        assert "Traceback" not in stderr
        return Ended(process.returncode, stdout, stderr)

    return run
