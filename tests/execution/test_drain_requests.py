"""How many requests a drain costs: the pods' number and a small constant, however long it takes and
whatever breaks.
"""

import time

import pytest

from rollout.errors import DrainError
from rollout.model.progress import NodeStep, Notice
from tests.execution.conftest import Drain, Draining, Recorder
from tests.execution.drains import NODE, add_budget, add_node, allow, asked, fill, pods_on, requests
from tests.standalone_api import StandaloneApi
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("kubelet", "node")

# Of a drain that meets no trouble: discovery, the pods and their watch, the DaemonSets, the budgets
# and their watch.
CONSTANT = 6


def costs(server: StandaloneApi) -> int:
    """All requests but those of Events, of which there are ten at most."""
    return requests(server) - len(asked(server, "create", "events"))


def watches(server: StandaloneApi) -> int:
    return len(asked(server, "watch", "pods")) + len(asked(server, "watch", "poddisruptionbudgets"))


@pytest.mark.parametrize(("kind", "reads"), [("ReplicaSet", 0), ("StatefulSet", 20)])
def test_a_pod_costs_one_request_and_one_that_may_have_a_namesake_another(
    kind: str, reads: int, server: StandaloneApi, drained: Drain, recorder: Recorder
) -> None:
    fill(server, 20, kind)
    began = time.monotonic()
    drained(300, speed=1)
    steps = [event for event in recorder.events if isinstance(event, NodeStep)]
    assert 1 <= len(steps) <= 1 + (time.monotonic() - began)
    assert [record.status for record in asked(server, "create", "pods/eviction")] == [201] * 20
    assert len(asked(server, "get", "pods")) == reads
    assert costs(server) <= 20 + reads + CONSTANT


def test_an_hour_of_waiting_costs_little_more_than_a_minute(
    server: StandaloneApi, drained: Drain
) -> None:
    """Eighty held-back pods for an hour by the drain's clock: now and then one that is asked for."""
    fill(server, 80)
    add_budget(server, "web", allowed=0, needs=80, has=80)
    with pytest.raises(DrainError, match=r"80 pods left.*blocked by default/web.*; and 75 more"):
        drained(3600, speed=1200)
    assert len(asked(server, "create", "pods/eviction")) <= 10
    # Two more for the last look.
    assert costs(server) <= CONSTANT + 2 + 10


def test_a_watch_that_is_cut_is_taken_up_where_it_broke(
    server: StandaloneApi, draining: Draining, recorder: Recorder
) -> None:
    """As by a proxy that lets no connection live for long: one request each time, and no word of an
    outage.
    """
    fill(server, 5)
    add_budget(server, "web", allowed=0, needs=5, has=5)
    thread = draining(600, speed=1)
    for cut in range(1, 4):
        wait_until(lambda cut=cut: watches(server) == 2 * cut)  # type: ignore[misc]
        time.sleep(1.2)
        server.call(server.server.cut_connections)
    wait_until(lambda: watches(server) == 8)
    allow(server, "web", 5)
    thread.join()
    assert (
        len(asked(server, "list", "pods"))
        == len(asked(server, "list", "poddisruptionbudgets"))
        == 1
    )
    assert costs(server) <= 5 + CONSTANT + 2 * 3
    assert [event for event in recorder.events if isinstance(event, Notice)] == []


@pytest.mark.parametrize("history", [20])
def test_a_version_that_is_too_old_asks_for_one_list(
    server: StandaloneApi, draining: Draining
) -> None:
    """The connection breaks, and the server has forgotten by then what happened in between: 410."""
    fill(server, 5)
    add_budget(server, "web", allowed=0, needs=5, has=5)
    thread = draining(600, speed=1)
    wait_until(lambda: watches(server) == 2)
    time.sleep(1.2)
    server.outage(None)
    for number in range(40):
        add_node(server, f"other-{number}")
    allow(server, "web", 5)
    server.come_back()
    thread.join(20)
    assert pods_on(server, NODE) == set()
    assert (
        len(asked(server, "list", "pods"))
        == len(asked(server, "list", "poddisruptionbudgets"))
        == 2
    )
    assert costs(server) <= 5 + CONSTANT + 2 * 3


def test_a_silent_watch_of_budgets_is_doubted(
    server: StandaloneApi, draining: Draining, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(server, 5)
    add_budget(server, "web", allowed=0, needs=2, has=2)
    monkeypatch.setattr("rollout.lab.api.reads.Watch._event_for", lambda _watch, _change: None)
    thread = draining(6000, speed=100)
    wait_until(lambda: watches(server) == 2)
    allow(server, "web", 5)
    thread.join(20)
    assert pods_on(server, NODE) == set()


def test_a_silent_watch_of_pods_is_doubted(
    server: StandaloneApi, drained: Drain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are long gone, and nobody has said so: after a minute by its clock the drain looks for
    itself.
    """
    fill(server, 5)
    monkeypatch.setattr("rollout.lab.api.reads.Watch._event_for", lambda _watch, _change: None)
    began = time.monotonic()
    drained(6000, speed=100)
    assert time.monotonic() - began < 30
    assert len(asked(server, "list", "pods")) == 2
    assert len(asked(server, "create", "pods/eviction")) <= 10
