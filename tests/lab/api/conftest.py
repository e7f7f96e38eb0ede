from collections.abc import Iterator
from pathlib import Path

import pytest

from rollout.lab.api.standalone import StandaloneApi, standalone_api
from tests.contract.cluster import Cluster, connected


@pytest.fixture
def api(tmp_path: Path) -> Iterator[StandaloneApi]:
    """An API server of its own over real HTTPS, without a world; simulated time passes twenty times faster."""
    with standalone_api(tmp_path, speed=20) as running:
        yield running


@pytest.fixture
def client(api: StandaloneApi, tmp_path: Path) -> Iterator[Cluster]:
    with connected(api.kubeconfig, tmp_path, controllers=False) as cluster:
        yield cluster
