import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollout.adapters.clock import SystemClock
from rollout.adapters.kube.api import KubeApi, Timeouts, connect
from rollout.lab.api.standalone import StandaloneApi, standalone_api
from rollout.model.progress import StepEvent


class Recorder:
    """Keeps every event."""

    def __init__(self) -> None:
        self.events: list[StepEvent] = []
        self._turn = threading.Lock()

    def notify(self, event: StepEvent) -> None:
        with self._turn:
            self.events.append(event)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StandaloneApi]:
    with standalone_api(tmp_path) as running:
        yield running


@pytest.fixture
def api(server: StandaloneApi) -> KubeApi:
    return connect(server.kubeconfig, None, timeouts=Timeouts(connect=2, read=5))


@pytest.fixture
def clock() -> SystemClock:
    return SystemClock()


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()
