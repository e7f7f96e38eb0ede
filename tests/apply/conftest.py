import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rollout.lab.api.resources import PODS
from rollout.lab.hosts.faults import HostFaults, RebootFault
from rollout.lab.lab import Lab
from rollout.lab.scenario import Scenario
from tests.conftest import StartLab
from tests.ended import Ended, invoked, start

Rollout = Callable[..., Ended]


def command(lab: Lab, home: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start the real program on a lab."""
    return start(home, lab.environment, arguments)


def is_ending(lab: Lab, workload: str) -> bool:
    """Whether a pod of it is told to go; of one that never goes, its node's drain does not end either."""
    pods = [pod["metadata"] for pod in lab.store.items(PODS)]
    return any(pod["name"].startswith(workload) and "deletionTimestamp" in pod for pod in pods)


def lose_hosts(lab: Lab) -> None:
    """From now on no host comes back from a reboot."""
    for machine in lab.machines.values():
        machine.inflict(HostFaults(reboot=RebootFault.NEVER_RETURNS))


@pytest.fixture
def started(start_lab: StartLab) -> Callable[[Scenario | str, int], Lab]:
    """Labs by scenario, or its name, and number of nodes; time passes thirty times as fast in them."""
    return lambda scenario, nodes: start_lab(scenario, nodes=nodes, speed=30)


@pytest.fixture
def rollout(tmp_path: Path) -> Callable[..., Ended]:
    """Run the real program to its end."""

    def run(lab: Lab, *arguments: str) -> Ended:
        return invoked(tmp_path, lab.environment, arguments)

    return run
