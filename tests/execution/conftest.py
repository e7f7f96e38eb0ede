import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rollout.adapters.clock import SystemClock
from rollout.adapters.kube.api import Timeouts, connect
from rollout.execution.drain.drain import drain
from rollout.execution.drain.task import NodeTask
from rollout.model.policy import DrainPolicy
from rollout.model.progress import StepEvent
from rollout.model.quantity import Duration
from rollout.ports import ClusterApi
from tests.execution.drains import NODE, add_node, end_pods_at_once, task_of
from tests.execution.fake_cluster import FakeCluster, FakeServer
from tests.standalone_api import StandaloneApi, standalone_api

Drain = Callable[..., NodeTask]
Draining = Callable[..., threading.Thread]


class Recorder:
    """Keeps every event."""

    def __init__(self) -> None:
        self.events: list[StepEvent] = []
        self._turn = threading.Lock()

    def notify(self, event: StepEvent) -> None:
        with self._turn:
            self.events.append(event)


@pytest.fixture
def history() -> int:
    """How many changes the server remembers."""
    return 50_000


@pytest.fixture
def server(request: pytest.FixtureRequest, tmp_path: Path, history: int) -> Iterator[StandaloneApi]:
    """One over the real wire; for tests marked `in_memory`, and not `wire`, one without."""
    if request.node.get_closest_marker("in_memory") and not request.node.get_closest_marker("wire"):
        yield FakeServer(history=history)
        return
    with standalone_api(tmp_path, history=history) as running:
        yield running


@pytest.fixture
def kubelet(server: StandaloneApi) -> None:
    """Pods that are told to go are gone a moment later."""
    end_pods_at_once(server)


@pytest.fixture
def node(server: StandaloneApi) -> None:
    """There is one that can be drained."""
    add_node(server, NODE)


@pytest.fixture
def api(server: StandaloneApi) -> ClusterApi:
    if isinstance(server, FakeServer):
        return FakeCluster(server)
    return connect(server.kubeconfig, None, timeouts=Timeouts(connect=2, read=5))


@pytest.fixture
def clock() -> SystemClock:
    return SystemClock()


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def drained(api: ClusterApi, recorder: Recorder) -> Drain:
    """Drain a node within so many seconds, which pass twenty times as fast as the wall clock's."""

    def run(
        seconds: int = 300, *, node: str = NODE, speed: float = 20.0, evicting: bool = True
    ) -> NodeTask:
        policy = DrainPolicy(Duration(seconds), disable_eviction=not evicting)
        task = task_of(node, api, recorder, policy, speed=speed)
        drain(task)
        return task

    return run


@pytest.fixture
def draining(drained: Drain) -> Iterator[Draining]:
    """A drain beside the test; it has to end."""
    threads = []

    def start(seconds: int = 300, *, speed: float = 20.0) -> threading.Thread:
        thread = threading.Thread(target=lambda: drained(seconds, speed=speed))
        threads.append(thread)
        thread.start()
        return thread

    yield start
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
