"""Hosts that release what they do not hold or come back as they were, and an API server that is away, in many ways."""

from pathlib import Path

import pytest

from rollout.lab.lab import Lab
from tests.conftest import StartLab
from tests.server.serving import (
    is_cordoned,
    serving,
)

pytestmark = pytest.mark.exhaustive


@pytest.fixture
def lab(start_lab: StartLab) -> Lab:
    return start_lab("default", nodes=6, speed=30)


@pytest.mark.sample
def test_a_release_by_who_holds_nothing_frees_nothing(lab: Lab, tmp_path: Path) -> None:
    with serving(lab, tmp_path) as server:
        server.await_grant("worker-1")
        assert server.steady_state("worker-2").status == 200
        assert server.pre_reboot("worker-1").status == 200
        assert server.pre_reboot("worker-2").kind == "failed_lock_semaphore_full"
        assert is_cordoned(lab, "worker-1")
