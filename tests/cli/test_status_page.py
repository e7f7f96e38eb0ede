"""How often, and for how long, the page of `status --web` reads the cluster."""

from types import SimpleNamespace
from typing import Any

import pytest

from rollout.cli.stages import status
from rollout.errors import ApiError, ApiUnavailableError
from rollout.execution.base.cached_value import CachedValue
from rollout.gather.cluster import snapshot
from rollout.model.progress import Phase
from tests.execution.simulated import SetClock


def unfinished(phase: Phase) -> Any:
    names = [f"worker-{number}" for number in range(30)]
    nodes = [SimpleNamespace(node=SimpleNamespace(name=name), phase=phase) for name in names]
    drain = SimpleNamespace(completion=SimpleNamespace(is_used=True))
    plan = SimpleNamespace(policy=SimpleNamespace(drain=drain), estimate=None)
    return SimpleNamespace(record=SimpleNamespace(plan=plan), in_flight=nodes)


@pytest.mark.parametrize(
    ("error", "count"), [(ApiUnavailableError("it does not respond"), 1), (ApiError("gone"), 30)]
)
def test_an_api_server_that_does_not_respond_is_not_asked_about_each_node(
    error: ApiError, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[str]()

    def fail(_api: object, name: str) -> None:
        asked.append(name)
        raise error

    api: Any = SimpleNamespace(server_time=lambda: None)
    monkeypatch.setattr(status, "usual_reboot_clause", lambda _estimate: "")
    monkeypatch.setattr(snapshot, "read_node_pods", fail)
    monkeypatch.setattr(snapshot, "read_phase_time", fail)
    assert status._read_awaited_pods(api, unfinished(Phase.DRAINING)) == {}
    assert len(asked) == count
    asked.clear()
    assert status._read_wait_texts(api, unfinished(Phase.REBOOTING), {}) == {}
    assert len(asked) == count


@pytest.mark.parametrize(("reading", "kept"), [(0.1, 2.0), (1.0, 10.0), (100.0, 130.0)])
def test_a_status_is_kept_for_a_share_of_the_time_and_not_for_long(
    reading: float, kept: float
) -> None:
    clock = SetClock()
    readings = list[float]()

    def read() -> str:
        readings.append(clock.seconds)
        clock.seconds += reading
        return "running"

    status_of_page = CachedValue(read, 2.0, clock, share=0.1, longest=30.0)
    status_of_page.get()
    for seconds, count in ((kept - 0.01, 1), (kept + 0.01, 2)):
        clock.seconds = readings[0] + seconds
        status_of_page.get()
        assert len(readings) == count


def test_the_page_says_when_its_status_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_api: object, _namespace: str) -> None:
        raise ApiUnavailableError("it does not respond")

    monkeypatch.setattr(status, "_read_rollout", fail)
    api: Any = None
    before, read_at = status._status_for_page(api, "kube-system").split("\nread at ")
    assert before == "the cluster cannot be read: it does not respond"
    assert len(read_at) == len("03:04:05")
