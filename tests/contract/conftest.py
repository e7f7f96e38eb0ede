import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollout.lab.api.standalone import standalone_api
from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario
from tests.contract.cluster import Cluster, connected

KUBECONFIG = os.environ.get("ROLLOUT_CONTRACT_KUBECONFIG", "")
# The lab is held to the contract twice: its API alone, and with a world whose controllers join in.
TARGETS = [KUBECONFIG] if KUBECONFIG else ["api", "lab"]


@pytest.fixture(scope="session", params=TARGETS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("contract")
    match request.param:
        case "api":
            with standalone_api(directory) as api, connected(api.kubeconfig, directory, controllers=False) as cluster:
                yield cluster
        case "lab":
            scenario = load_scenario("idle")
            with (
                Lab.start(scenario, directory=directory) as lab,
                connected(lab.kubeconfig, directory, controllers=True) as cluster,
            ):
                yield cluster
        case path:
            with connected(Path(path).expanduser(), directory, controllers=True) as cluster:
                yield cluster


@pytest.fixture
def cluster(server: Cluster) -> Iterator[Cluster]:
    yield server
    server.clean_up()
