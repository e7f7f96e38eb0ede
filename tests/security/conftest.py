"""What the attacks start: labs, and the real program on them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rollout.lab.lab import Lab
from tests.apply.conftest import rollout, started
from tests.conftest import StartLab

__all__ = ["rollout", "started"]


@pytest.fixture(scope="module")
def untouched(shared_lab: StartLab) -> Iterator[Lab]:
    """One lab for all that is to be refused, held up or only planned: nothing may have happened to
    it.
    """
    lab = shared_lab(nodes=5)
    yield lab
    score = lab.scoreboard()
    assert sum(score.reboots.values()) == 0
    assert score.evictions == 0
    assert score.cordons_left == ()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    made.mkdir()
    return made
