"""A real control plane, and six real machines as its Nodes.

Skipped without the programs of a control plane: no package of Debian's has them. With them,
`ROLLOUT_CONTROL_PLANE=FOLDER pytest tests/control_plane`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.control_plane.kubelets import kubelets
from tests.control_plane.rest import Rest, requests_to
from tests.control_plane.servers import ControlPlane, control_plane, kubeconfig_of, missing
from tests.e2e.image import USERS, shared_root
from tests.e2e.machines import Machines, free_place, mark_tests, running_machines
from tests.e2e.machines import missing as missing_for_machines
from tests.ended import Ended, end_of, start

NAMES = ("control-0", *(f"worker-{number}" for number in range(1, 6)))
WORKLOADS = Path(__file__).with_name("workloads.yaml")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    programs = missing()
    reason = f"a control plane needs {programs}" if programs else missing_for_machines()
    mark_tests(items, Path(__file__).parent, reason=reason, timeout=600)


@dataclass(frozen=True)
class RealCluster:
    """The machines, the control plane, and the administrator's requests."""

    plane: ControlPlane
    machines: Machines
    rest: Rest
    directory: Path

    def rollout(
        self, *arguments: str, kubeconfig: Path | None = None, code: int | None = 0
    ) -> Ended:
        """Run the real program to its end."""
        ended = end_of(start(self.directory, self.environment(kubeconfig), arguments), seconds=300)
        return ended if code is None else ended.ends(code)

    def environment(self, kubeconfig: Path | None = None) -> dict[str, str]:
        """What tells the program of this cluster and of its hosts."""
        known_hosts = self.directory / "known_hosts"
        known_hosts.write_text(
            "".join(f"{each.address} {each.host_key}\n" for each in self.machines)
        )
        return {
            "KUBECONFIG": str(kubeconfig or self.plane.kubeconfig),
            "ROLLOUT_SSH_USER": "core",
            "ROLLOUT_SSH_KEY": str(self.machines.key),
            "ROLLOUT_KNOWN_HOSTS": str(known_hosts),
        }

    def kubeconfig_of(self, token: str) -> Path:
        """A kubeconfig that logs in with this token."""
        path = self.directory / "kubeconfig-of-token"
        path.write_text(kubeconfig_of(self.plane, token))
        return path

    def assert_clean(self) -> None:
        """No node is cordoned, tainted or annotated by a rollout."""
        for node in self.rest.items("/api/v1/nodes"):
            assert not node["spec"].get("unschedulable"), node["metadata"]["name"]
            assert not node["spec"].get("taints"), node["metadata"]["name"]


@pytest.fixture(scope="session")
def session_machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    directory = tmp_path_factory.mktemp("machines")
    with (
        free_place() as place,
        running_machines(NAMES, place, shared_root(), USERS, directory) as machines,
    ):
        yield machines


@pytest.fixture
def cluster(session_machines: Machines, tmp_path: Path) -> Iterator[RealCluster]:
    """Every machine is up, on the old version, with an update staged."""
    for machine in session_machines:
        machine.restore()
    directory = tmp_path / "plane"
    directory.mkdir()
    home = tmp_path / "home"
    home.mkdir()
    with (
        control_plane(directory) as plane,
        requests_to(plane) as rest,
        kubelets(rest, tuple(session_machines)),
    ):
        yield RealCluster(plane, session_machines, rest, home)
