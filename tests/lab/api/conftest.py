from collections.abc import Iterator
from pathlib import Path

import pytest

from rollout.lab.api.standalone import StandaloneApi, standalone_api


@pytest.fixture
def api(tmp_path: Path) -> Iterator[StandaloneApi]:
    """An API server of its own over real HTTPS, without a world."""
    with standalone_api(tmp_path) as running:
        yield running
