from collections.abc import Callable
from pathlib import Path

import pytest

from rollout.lab.lab import Lab
from tests.conftest import StartLab
from tests.ended import Ended, invoked

Command = Callable[..., Ended]
# of three workers
TINY = str(Path(__file__).with_name("tiny.yaml"))


@pytest.fixture
def lab(start_lab: StartLab) -> Lab:
    return start_lab(TINY)


@pytest.fixture(scope="module")
def mixed(shared_lab: StartLab) -> Lab:
    """A cluster in which hosts differ, for tests that only look."""
    return shared_lab("mixed")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    made.mkdir()
    return made


@pytest.fixture
def command(home: Path) -> Command:
    """Run the real program to its end; `lab` is what it works on, `variables` are its environment."""

    def run(
        *arguments: str, lab: Lab | None = None, variables: dict[str, str] | None = None
    ) -> Ended:
        environment = {**(lab.environment if lab else {}), **(variables or {})}
        return invoked(home, environment, arguments)

    return run
