"""Taints are written as a whole: those that others write meanwhile stay, and a node is tried until
it is done.
"""

from collections.abc import Callable

import pytest
from typing_extensions import override

from rollout.adapters.clock import SystemClock
from rollout.execution.base.deadline import GracefulStop, PatientApi
from rollout.execution.base.reporting import OutageNotice, Reporter
from rollout.execution.node.marking import fluo_agent_labels
from rollout.execution.node.tainting import Tainting
from rollout.lab.api.resources import NODES
from rollout.model.policy import CourtesyPolicy, Policy
from rollout.model.progress import Notice
from rollout.model.selectors import is_label_value
from rollout.ports import Query
from tests.execution.conftest import Recorder
from tests.execution.drains import add_node, change, stored, unfenced
from tests.execution.fake_cluster import FakeCluster, FakeServer
from tests.planning.builders import OLD

OURS = {"key": "node-rollout.dev/awaiting-reboot", "effect": "PreferNoSchedule"}


NAMES = [f"n{number}" for number in range(12)]


class Contended(FakeCluster):
    """Before each of the first `times` writes of a node somebody else writes a taint on it."""

    def __init__(self, behind: FakeServer, times: int) -> None:
        super().__init__(behind)
        self._server = behind
        self._times = times
        self.written = dict.fromkeys(NAMES, 0)

    @override
    def patch(self, path: str, body: object, query: Query | None = None) -> bytes:
        name = path.rpartition("/")[2]
        if self.written[name] < self._times:
            put_taint(self._server, name, f"example.org/{self.written[name]}")
        self.written[name] += 1
        return super().patch(path, body, query)


def put_taint(server: FakeServer, name: str, key: str) -> None:
    more = [
        *(stored(server, NODES, name).get("spec", {}).get("taints") or ()),
        {"key": key, "effect": "NoSchedule"},
    ]
    change(server, NODES, name, spec={"taints": more})


def taints(server: FakeServer, name: str) -> list[dict[str, str]]:
    written = stored(server, NODES, name).get("spec", {}).get("taints") or ()
    cluster_own = "node.kubernetes.io/"
    return [
        {field: value for field, value in taint.items() if value}
        for taint in written
        if not taint["key"].startswith(cluster_own)
    ]


def others(times: int) -> list[dict[str, str]]:
    return [{"key": f"example.org/{number}", "effect": "NoSchedule"} for number in range(times)]


@pytest.fixture
def tainting(server: FakeServer, recorder: Recorder) -> Callable[[int], Tainting]:
    """One whose writes meet so many of somebody else's on each node."""
    for name in NAMES:
        add_node(server, name)

    def made(times: int) -> Tainting:
        clock = SystemClock()
        report = Reporter((recorder,), clock)
        cluster = PatientApi(Contended(server, times), clock, OutageNotice(report))
        return Tainting(cluster, unfenced, report, GracefulStop())

    return made


@pytest.mark.in_memory
def test_what_others_write_meanwhile_stays_and_ours_comes_and_goes(
    server: FakeServer, tainting: Callable[[int], Tainting], recorder: Recorder
) -> None:
    first = tainting(2)
    with first.while_waiting(waiting=NAMES, others=()):
        assert {name: taints(server, name) for name in NAMES} == {
            name: [*others(2), OURS] for name in NAMES
        }
    assert {name: taints(server, name) for name in NAMES} == {name: others(2) for name in NAMES}
    assert recorder.events == []


@pytest.mark.in_memory
def test_a_node_that_never_keeps_still_is_named_and_holds_nobody_up(
    server: FakeServer,
    tainting: Callable[[int], Tainting],
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rollout.execution.node.marking._CONTENDED_SECONDS", 0.1)
    with tainting(1000).while_waiting(waiting=NAMES, others=()):
        assert not any(OURS in taints(server, name) for name in NAMES)
    (notice,) = recorder.events
    assert isinstance(notice, Notice)
    assert "the soft taint is missing on n0; n1" in notice.message
    assert "changes too often to be written" in notice.message


# Labels that are written on Nodes for others to read.


FLUO = "flatcar-linux-update.v1.flatcar-linux.net/"


def test_fluos_labels_say_what_the_host_says_as_far_as_a_label_can_hold_it() -> None:
    rules = Policy(courtesy=CourtesyPolicy(fluo_labels=True))
    assert fluo_agent_labels(rules, OLD, "flatcar", "stable") == {
        FLUO + "id": "flatcar",
        FLUO + "group": "stable",
        FLUO + "version": OLD,
    }
    assert fluo_agent_labels(rules, "1+2", "flatcar") == {FLUO + "id": "flatcar"}
    assert not fluo_agent_labels(Policy(), OLD, "flatcar")


@pytest.mark.parametrize("value", ["", "a", "a.b_c-9", "x" * 63])
def test_a_value(value: str) -> None:
    assert is_label_value(value)


@pytest.mark.parametrize("value", [" ", "-a", "a-", "a/b", "ä", "x" * 64, "a=b", "a\n"])
def test_no_value(value: str) -> None:
    assert not is_label_value(value)
