from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.cluster import Cluster, connected
from tests.standalone_api import StandaloneApi, standalone_api


@pytest.fixture
def api(tmp_path: Path) -> Iterator[StandaloneApi]:
    """An API server of its own over real HTTPS, without a world; simulated time passes twenty times faster."""
    with standalone_api(tmp_path, speed=20) as running:
        yield running


@pytest.fixture
def client(api: StandaloneApi, tmp_path: Path) -> Iterator[Cluster]:
    with connected(api.kubeconfig, tmp_path, controllers=False) as cluster:
        yield cluster
