"""How many requests a drain costs: the pods' number and a small constant, however long it takes and whatever breaks."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from rollout.adapters.kube.api import KubeApi, Timeouts, connect
from rollout.errors import DrainError
from rollout.execution.draining.drain import drain
from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.api.standalone import StandaloneApi, standalone_api
from rollout.model.policy import DrainPolicy
from rollout.model.progress import NodeStep, Notice
from rollout.model.quantity import Duration
from tests.execution.conftest import Recorder
from tests.execution.drains import (
    add_budget,
    add_node,
    add_pod,
    allow,
    asked,
    context_of,
    end_pods_at_once,
    owner,
    pods_on,
    requests,
    until,
)

RS = owner("ReplicaSet")
WEB = {"labels": {"app": "web"}}
NODE = "n1"
# Of a drain that meets no trouble: discovery, the pods and their watch, the DaemonSets, the budgets and their watch.
CONSTANT = 6
Start = Callable[..., threading.Thread]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StandaloneApi]:
    with serving(tmp_path) as running:
        yield running


@contextmanager
def serving(directory: Path, *, history: int = 50_000) -> Iterator[StandaloneApi]:
    with standalone_api(directory, history=history) as running:
        end_pods_at_once(running)
        add_node(running, NODE)
        yield running


def run(api: KubeApi, recorder: Recorder, seconds: int, *, speed: float = 20.0) -> None:
    drain(context_of(NODE, api, recorder, DrainPolicy(Duration(seconds)), speed=speed))


@pytest.fixture
def draining(api: KubeApi, recorder: Recorder) -> Iterator[Start]:
    """A drain beside the test; it has to end."""
    threads = []

    def start(seconds: int = 600, *, speed: float = 20.0) -> threading.Thread:
        thread = threading.Thread(target=lambda: run(api, recorder, seconds, speed=speed))
        threads.append(thread)
        thread.start()
        return thread

    yield start
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def fill(server: StandaloneApi, number: int, kind: str = "ReplicaSet") -> None:
    for each in range(number):
        add_pod(server, NODE, f"p{each}", owned=owner(kind), metadata=WEB)


def costs(server: StandaloneApi) -> int:
    """All requests but those of Events, of which there are ten at most."""
    return requests(server) - len(asked(server, "create", "events"))


def watches(server: StandaloneApi) -> int:
    return len(asked(server, "watch", "pods")) + len(asked(server, "watch", "poddisruptionbudgets"))


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet"])
def test_a_pod_costs_one_request(
    kind: str, server: StandaloneApi, api: KubeApi, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of StatefulSets too: they were read a moment before, and can have no namesake yet."""
    # How long a moment is must not depend on what else this machine does.
    monkeypatch.setattr("rollout.execution.draining.evictor._CERTAIN", 30.0)
    fill(server, 20, kind)
    began = time.monotonic()
    run(api, recorder, 300, speed=1)
    steps = [event for event in recorder.events if isinstance(event, NodeStep)]
    assert 1 <= len(steps) <= 1 + (time.monotonic() - began)
    assert [record.status for record in asked(server, "create", "pods/eviction")] == [201] * 20
    assert costs(server) <= 20 + CONSTANT


def test_eight_evictions_are_under_way_at_a_time(server: StandaloneApi, api: KubeApi, recorder: Recorder) -> None:
    fill(server, 12)
    slow = ApiFault(answer=FaultAnswer.SLOW, resource="pods/eviction", delay=1)
    server.call(lambda: server.server.faults.add(slow))
    run(api, recorder, 300, speed=1)
    at = sorted(record.at for record in asked(server, "create", "pods/eviction"))
    assert len([moment for moment in at if moment - at[0] < 0.7]) == 8


def test_whoever_may_have_a_namesake_is_read_again_once_time_has_passed(
    server: StandaloneApi, draining: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rollout.execution.draining.evictor._CERTAIN", 0.5)
    fill(server, 2, "StatefulSet")
    add_budget(server, "web", allowed=0, needs=2, has=2)
    thread = draining()
    time.sleep(0.6)
    allow(server, "web", 2)
    thread.join()
    log = [record.target.verb for record in server.call(lambda: list(server.server.requests)) if record.target.name]
    assert sorted(log) == ["create"] * 2 + ["get"] * 2
    assert log[0] == "get"


def test_an_hour_of_waiting_costs_little_more_than_a_minute(
    server: StandaloneApi, api: KubeApi, recorder: Recorder
) -> None:
    """Eighty held-back pods for an hour by the drain's clock: their Events, and now and then one that is asked for."""
    fill(server, 80)
    add_budget(server, "web", allowed=0, needs=80, has=80)
    with pytest.raises(DrainError, match=r"80 pods left.*held back by default/web.*; and 75 more"):
        run(api, recorder, 3600, speed=1200)
    assert len(asked(server, "create", "events")) == 10
    assert len(asked(server, "patch", "events")) <= 10 * 3
    assert len(asked(server, "create", "pods/eviction")) <= 10
    others = costs(server) - len(asked(server, "patch", "events"))
    # Two more for the last look.
    assert others <= CONSTANT + 2 + 10


def test_an_outage_in_the_middle_costs_a_request_or_two(
    server: StandaloneApi, api: KubeApi, recorder: Recorder
) -> None:
    """Nobody is there to be asked; the watches are taken up where they broke, and a pod or two are asked for again."""
    fill(server, 60)
    rule = ApiFault(answer=FaultAnswer.OUTAGE, resource="pods/eviction", from_request=10, duration=1)
    server.call(lambda: server.server.faults.add(rule))
    run(api, recorder, 600)
    assert pods_on(server, NODE) == set()
    accepted = [record for record in asked(server, "create", "pods/eviction") if record.status == 201]
    assert len({record.target.name for record in accepted}) == 60
    # Eight were under way when it went.
    assert costs(server) <= 60 + CONSTANT + 3 * 8
    assert len(asked(server, "list", "pods")) <= 2


def test_a_server_that_is_back_is_asked_at_once(server: StandaloneApi, api: KubeApi, recorder: Recorder) -> None:
    """Whatever it was heard of by: the pause before the next eviction is over then, long as it may have been."""
    fill(server, 20)
    rule = ApiFault(answer=FaultAnswer.OUTAGE, resource="pods/eviction", from_request=10, duration=1)
    server.call(lambda: server.server.faults.add(rule))
    # The first pause is half a second by its clock, and twenty-five by the wall's.
    run(api, recorder, 60, speed=0.02)
    log = server.call(lambda: list(server.server.requests))
    away = max(second.at - first.at for first, second in pairwise(log))
    assert away < 10
    assert pods_on(server, NODE) == set()


def test_an_outage_while_it_waits_costs_two_watches(server: StandaloneApi, draining: Start, recorder: Recorder) -> None:
    fill(server, 10)
    add_budget(server, "web", allowed=0, needs=10, has=10)
    thread = draining(speed=1)
    until(lambda: watches(server) == 2)
    time.sleep(1.1)
    server.outage(0.5)
    until(lambda: watches(server) == 4)
    allow(server, "web", 10)
    thread.join()
    assert costs(server) <= 10 + CONSTANT + 2
    told = [event.message for event in recorder.events if isinstance(event, Notice)]
    assert len([message for message in told if "waiting for the API server" in message]) == 1


def test_a_server_that_answers_but_cannot_is_asked_ever_more_rarely(server: StandaloneApi, draining: Start) -> None:
    fill(server, 30)
    rule = ApiFault(answer=FaultAnswer.UNAVAILABLE, resource="pods/eviction", duration=2)
    server.call(lambda: server.server.faults.add(rule))
    draining(speed=40).join()
    log = asked(server, "create", "pods/eviction")
    # Eighty seconds by the drain's clock: eight at first, then one at a time.
    assert len([record for record in log if record.status == 503]) <= 8 + 8
    assert costs(server) <= 30 + CONSTANT + 2 * 16


def test_a_watch_that_is_cut_is_taken_up_where_it_broke(
    server: StandaloneApi, draining: Start, recorder: Recorder
) -> None:
    """As by a proxy that lets no connection live for long: one request each time, and no word of an outage."""
    fill(server, 5)
    add_budget(server, "web", allowed=0, needs=5, has=5)
    thread = draining(speed=1)
    for cut in range(1, 4):
        until(lambda cut=cut: watches(server) == 2 * cut)  # type: ignore[misc]
        time.sleep(1.2)
        server.call(server.server.cut_connections)
    until(lambda: watches(server) == 8)
    allow(server, "web", 5)
    thread.join()
    assert len(asked(server, "list", "pods")) == len(asked(server, "list", "poddisruptionbudgets")) == 1
    assert costs(server) <= 5 + CONSTANT + 2 * 3
    assert [event for event in recorder.events if isinstance(event, Notice)] == []


def test_a_watch_that_ends_by_itself_goes_on(
    server: StandaloneApi, draining: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rollout.execution.draining.live_view._WATCH_SECONDS", 1.0)
    fill(server, 5)
    add_budget(server, "web", allowed=0, needs=5, has=5)
    thread = draining(speed=1)
    until(lambda: watches(server) >= 6)
    allow(server, "web", 5)
    thread.join()
    assert len(asked(server, "list", "pods")) == 1
    assert pods_on(server, NODE) == set()


def test_a_version_that_is_too_old_asks_for_one_list(tmp_path: Path, recorder: Recorder) -> None:
    """The connection breaks, and the server has forgotten by then what happened in between: 410."""
    with serving(tmp_path, history=20) as server:
        api = connect(server.kubeconfig, None, timeouts=Timeouts(connect=2, read=5))
        fill(server, 5)
        add_budget(server, "web", allowed=0, needs=5, has=5)
        thread = threading.Thread(target=lambda: run(api, recorder, 600, speed=1))
        thread.start()
        until(lambda: watches(server) == 2)
        time.sleep(1.2)
        server.outage(None)
        for number in range(40):
            add_node(server, f"other-{number}")
        allow(server, "web", 5)
        server.come_back()
        thread.join(20)
        assert pods_on(server, NODE) == set()
        assert len(asked(server, "list", "pods")) == len(asked(server, "list", "poddisruptionbudgets")) == 2
        assert costs(server) <= 5 + CONSTANT + 2 * 3


def test_a_silent_watch_of_pods_is_doubted(
    server: StandaloneApi, api: KubeApi, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are long gone, and nobody has said so: after a minute by its clock the drain looks for itself."""
    fill(server, 5)
    monkeypatch.setattr("rollout.lab.api.watching.Watch._event", lambda _watch, _change: None)
    began = time.monotonic()
    run(api, recorder, 6000, speed=100)
    assert time.monotonic() - began < 30
    assert len(asked(server, "list", "pods")) == 2
    assert len(asked(server, "create", "pods/eviction")) <= 10


def test_views_end_with_the_drain(server: StandaloneApi, api: KubeApi, recorder: Recorder) -> None:
    fill(server, 1)
    run(api, recorder, 600)
    until(lambda: not [thread for thread in threading.enumerate() if thread.name == "live-view"])
