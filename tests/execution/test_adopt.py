"""What `rollout adopt` writes where others write, too, where it is interrupted, and where answers are lost."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest

from rollout.adapters.clock import SystemClock
from rollout.adapters.kube.api import connect
from rollout.errors import BlockedError, LockedError
from rollout.execution.base.reporting import Observers
from rollout.execution.lease_terms import LeaseTerms
from rollout.execution.lock import LeaseLock
from rollout.execution.rollout.adopt import Adopted, Scope, adopt
from rollout.gather.cluster.leftovers import read_standing
from rollout.gather.cluster.snapshot import node_path, read_nodes
from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.api.resources import LEASES
from rollout.lab.lab import Lab
from rollout.model.fleetlock import zincati_id
from rollout.model.leftovers import Adoption
from rollout.planning.leftovers import adoption
from rollout.ports import ClusterApi, Query
from tests.conftest import StartLab

FLUO = "flatcar-linux-update.v1.flatcar-linux.net/"
KEPT = {"worker-2", "worker-6", "worker-9"}
KURED = "/apis/apps/v1/namespaces/kube-system/daemonsets/kured"
LOCK = "weave.works/kured-node-lock"


def terms(holder: str = "somebody@here/1") -> LeaseTerms:
    return LeaseTerms("kube-system", holder, "", 3, patience=20.0)


def look(api: ClusterApi) -> tuple[Adoption, Scope]:
    standing = read_standing(api)
    names = frozenset(written.node.name for written in standing.nodes)
    return adoption(standing, names, whole=True), Scope(names, whole=True, check=lambda _shown: None)


def clean(api: ClusterApi, shown: Adoption | None = None, scope: Scope | None = None) -> Adopted:
    if shown is None or scope is None:
        shown, scope = look(api)
    return adopt(shown, scope, api, SystemClock(), Observers(()), terms())


def cordoned(api: ClusterApi) -> set[str]:
    return {node.name for node in read_nodes(api) if node.unschedulable}


def assert_clean(api: ClusterApi) -> None:
    assert not look(api)[0].has_work
    assert cordoned(api) == KEPT


@pytest.fixture
def lab(start_lab: StartLab) -> Lab:
    return start_lab("leftovers")


@pytest.fixture
def api(lab: Lab) -> ClusterApi:
    return connect(lab.kubeconfig, None)


CHANGES: dict[str, Mapping[str, Any]] = {
    "another mark": {"metadata": {"annotations": {FLUO + "reboot-needed-2": "true"}}},
    "its proof is gone": {"metadata": {"annotations": {FLUO + "agent-made-unschedulable": None}}},
    "uncordoned by a person": {"spec": {"unschedulable": None}},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_node_that_has_changed_since_it_was_shown_stays_as_it_is(change: Mapping[str, Any], api: ClusterApi) -> None:
    shown, scope = look(api)
    api.patch(node_path("worker-1"), change)
    before = next(node for node in read_nodes(api) if node.name == "worker-1")
    adopted = clean(api, shown, scope)
    assert set(adopted.left) == {"worker-1"}
    assert "changed since it was shown" in adopted.left["worker-1"]
    after = next(node for node in read_nodes(api) if node.name == "worker-1")
    assert (after.annotations, after.labels, after.unschedulable) == (
        before.annotations,
        before.labels,
        before.unschedulable,
    )
    assert set(adopted.cleaned) == set(shown.nodes) - {"worker-1"}
    clean(api)
    assert not look(api)[0].has_work


def test_a_lock_that_another_node_has_taken_since_stays(api: ClusterApi) -> None:
    shown, scope = look(api)
    taken = '{"nodeID":"worker-4","metadata":{"unschedulable":false},"created":"2026-01-02T00:00:00Z","TTL":0}'
    api.patch(KURED, {"metadata": {"annotations": {LOCK: taken}}})
    adopted = clean(api, shown, scope)
    assert "changed since" in adopted.left["worker-3"]
    assert "daemonset/kube-system/kured" in adopted.left
    (kured,) = read_standing(api).workloads
    assert [holder.name for holder in kured.holders] == ["worker-4"]


def test_a_lease_that_another_host_has_taken_since_stays(lab: Lab, api: ClusterApi) -> None:
    """It was nobody's, so no node has to be clean before it goes."""
    shown, scope = look(api)
    taker = zincati_id(lab.machines["worker-9"].machine_id)

    def take() -> None:
        lease = lab.store.get(LEASES, "fleetlock-default", "default")
        assert lease is not None
        lab.store.put(LEASES, {**lease, "spec": {**lease["spec"], "holderIdentity": taker}})

    lab.call(take)
    adopted = clean(api, shown, scope)
    assert "changed since it was shown" in adopted.left["lease/default/fleetlock-default"]
    assert lab.call(lambda: lab.store.get(LEASES, "fleetlock-default", "default")) is not None


def test_a_lock_stays_while_its_node_is_not_clean(api: ClusterApi) -> None:
    shown, scope = look(api)
    api.patch(node_path("worker-3"), {"spec": {"unschedulable": None}})
    adopted = clean(api, shown, scope)
    assert "changed since" in adopted.left["worker-3"]
    assert adopted.left["daemonset/kube-system/kured"] == "its node is not clean"
    (kured,) = read_standing(api).workloads
    assert [holder.name for holder in kured.holders] == ["worker-3"]


class _Meddling:
    """An API server to which somebody else writes, once, between the look at a node and our write on it."""

    def __init__(self, api: ClusterApi, path: str, change: Mapping[str, Any]) -> None:
        self._api = api
        self._path = path
        self._change: Mapping[str, Any] | None = change

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(self._api, name)
        if name != "patch":
            return method

        def patch(path: str, body: Mapping[str, Any], query: Query | None = None) -> object:
            if path == self._path and self._change is not None:
                change, self._change = self._change, None
                self._api.patch(path, change)
            return method(path, body, query)

        return patch


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_node_that_changes_as_it_is_written_stays_as_it_is(change: Mapping[str, Any], api: ClusterApi) -> None:
    shown, scope = look(api)
    path = node_path("worker-1")
    adopted = clean(_Meddling(api, path, change), shown, scope)  # type: ignore[arg-type]
    assert set(adopted.left) == {"worker-1"}
    assert "changed since it was shown" in adopted.left["worker-1"]


def test_a_rollout_that_has_begun_since_is_not_adopted(api: ClusterApi) -> None:
    shown, scope = look(api)
    begun = {"run": "fedcba9876543210", "phase": "draining", "boot-id-before": "0", "cordoned-by-us": "true"}
    annotations = {f"node-rollout.dev/{name}": text for name, text in begun.items()}
    api.patch(node_path("worker-9"), {"metadata": {"annotations": annotations}})
    with pytest.raises(BlockedError, match="a rollout has begun since this was shown"):
        clean(api, shown, scope)
    api.patch(node_path("worker-9"), {"metadata": {"annotations": dict.fromkeys(annotations)}})
    assert look(api)[0] == shown


class _Usurping:
    """An API server on which somebody takes the Lease by force once the first node has been written."""

    def __init__(self, api: ClusterApi, usurp: Callable[[], None]) -> None:
        self._api = api
        self._usurp = usurp
        self.written: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(self._api, name)
        if name != "patch":
            return method

        def patch(path: str, body: Mapping[str, Any], query: Query | None = None) -> object:
            self.written.append(path)
            if len(self.written) == 1:
                self._usurp()
                # longer than the Lease lasts that was lost: by then its holder has met the other's name
                time.sleep(4)
            return method(path, body, query)

        return patch


def test_nothing_more_is_written_once_the_lock_is_lost(lab: Lab, api: ClusterApi) -> None:
    def usurp() -> None:
        lease = lab.store.get(LEASES, "node-rollout", "kube-system")
        assert lease is not None
        lab.store.put(LEASES, {**lease, "spec": {**lease["spec"], "holderIdentity": "somebody@else/1"}})

    shown, scope = look(api)
    usurping = _Usurping(api, lambda: lab.call(usurp))
    adopted = clean(usurping, shown, scope)  # type: ignore[arg-type]
    # nodes are written side by side, and locks after them
    assert adopted.cleaned
    assert adopted.released == ()
    assert {lock.place for lock in shown.locks if not lock.obstacle} <= set(adopted.left)


def test_a_lock_whose_object_has_merely_changed_is_removed(api: ClusterApi) -> None:
    shown, scope = look(api)
    api.patch(KURED, {"metadata": {"annotations": {"somebody.example/note": "x"}}})
    assert clean(api, shown, scope).left == {}
    assert_clean(api)


def test_what_somebody_else_has_cleaned_meanwhile_is_done(api: ClusterApi) -> None:
    shown, scope = look(api)
    clean(api)
    adopted = clean(api, shown, scope)
    assert adopted.left == {}
    assert_clean(api)


def test_a_workload_that_has_come_back_keeps_it_from_beginning(api: ClusterApi) -> None:
    shown, scope = look(api)

    def refuse(_shown: Adoption) -> None:
        raise BlockedError("it runs again")

    with pytest.raises(BlockedError, match="runs again"):
        clean(api, shown, Scope(scope.nodes, whole=True, check=refuse))
    assert look(api)[0] == shown


def test_whoever_holds_the_lock_is_waited_out_and_nothing_is_touched(api: ClusterApi) -> None:
    shown, _scope = look(api)
    with LeaseLock(api, SystemClock(), terms("another@there/2")), pytest.raises(LockedError, match="another@there/2"):
        clean(api)
    assert look(api)[0] == shown


LOST = [
    ApiFault(answer=FaultAnswer.LOSE_ANSWER, verb="patch", probability=0.5, requests=8),
    ApiFault(answer=FaultAnswer.LOSE_ANSWER, verb="delete", requests=1),
    ApiFault(answer=FaultAnswer.CONFLICT, verb="patch", resource="nodes", requests=6),
    ApiFault(answer=FaultAnswer.CONFLICT, verb="patch", resource="daemonsets", requests=2),
    ApiFault(answer=FaultAnswer.UNAVAILABLE, probability=0.3, requests=12),
]


@pytest.mark.parametrize("fault", LOST, ids=lambda fault: f"{fault.answer}-{fault.resource or fault.verb}")
def test_lost_answers_conflicts_and_outages_change_nothing_in_the_end(
    fault: ApiFault, lab: Lab, api: ClusterApi
) -> None:
    shown, scope = look(api)
    lab.inflict(fault)
    adopted = clean(api, shown, scope)
    assert lab.struck(fault) > 0
    assert adopted.left == {}
    lab.behave()
    assert_clean(api)


class _KilledError(Exception):
    """The process is killed."""


class _Dying:
    """An API server for a process that is killed after so many writes of nodes and locks."""

    def __init__(self, api: ClusterApi, writes: int) -> None:
        self._api = api
        self._left = writes

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(self._api, name)
        if name not in ("patch", "delete"):
            return method

        def write(*arguments: object) -> object:
            if not self._left:
                raise _KilledError
            self._left -= 1
            return method(*arguments)

        return write


def test_what_a_killed_process_has_left_is_cleaned_by_the_next(lab: Lab, api: ClusterApi) -> None:
    writes = 0
    while look(api)[0].has_work:
        with suppress(_KilledError):
            clean(_Dying(api, 1))  # type: ignore[arg-type]
        writes += 1
    assert 8 <= writes <= 12
    assert_clean(api)
