"""Taking back what other reboot coordinators, and earlier rollouts of ours, have left on Nodes and beside them.

All of it happens under the lock, on what was shown: a node or a lock that has changed since stays as it is. Nodes come
before locks, because a lock may be the only proof of whose a cordon is; each write names the version it was decided on.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from rollout.errors import ApiConflictError, ApiNotFoundError, BlockedError, RolloutError, StepError
from rollout.execution.base.guard import Guard
from rollout.execution.base.heard_api import patient_api
from rollout.execution.base.outage import OutageNotice
from rollout.execution.base.patience import PatientApi
from rollout.execution.base.reporting import Reporter
from rollout.execution.lease_terms import LeaseTerms
from rollout.execution.lock import LeaseLock
from rollout.execution.record.record import RunRecord
from rollout.execution.record.unfinished import look
from rollout.gather.cluster.leftovers import read_standing, read_written_node
from rollout.gather.cluster.snapshot import node_path
from rollout.model.cluster import Node
from rollout.model.leftovers import Adoption, Cordon, LeftLock, NodeLeftover, Standing, System
from rollout.model.soft_taint import without_soft_taint
from rollout.planning.leftovers import adoption
from rollout.ports import Clock, ClusterApi, Observer

_AT_ONCE = 8
_ATTEMPTS = 10
_CHANGED = "it has changed since it was shown: run rollout adopt again"


@dataclass(frozen=True, slots=True)
class Adopted:
    """What came of it. `uncordoned` are among the `cleaned` nodes; `left` are nodes and locks, each with why."""

    cleaned: tuple[str, ...] = ()
    uncordoned: tuple[str, ...] = ()
    released: tuple[str, ...] = ()
    left: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scope:
    """Which nodes are meant, and whether they are the whole cluster; the check that nothing keeps at work on them.

    `check` raises `BlockedError` for what is shown to it.
    """

    nodes: frozenset[str]
    whole: bool
    check: Callable[[Adoption], None]


def adopt(
    shown: Adoption, scope: Scope, api: ClusterApi, clock: Clock, observer: Observer, terms: LeaseTerms
) -> Adopted:
    """Take back what was shown, once the Lease is held."""
    report = Reporter(observer, clock)
    cluster = patient_api(api, clock, OutageNotice(report), terms.patience)
    with LeaseLock(api, clock, terms, cluster.notice, notice=report.notice) as lock:
        unfinished = cluster.ask(lambda server: look(server, terms.namespace))
        if unfinished is not None and unfinished.blocks:
            raise BlockedError("a rollout has begun since this was shown", hint="See: rollout status --run")
        standing = cluster.ask(read_standing)
        scope.check(adoption(standing, scope.nodes, whole=scope.whole))
        cleaning = _Cleaning(cluster, lock, shown, standing)
        adopted = cleaning.all()
        if unfinished is not None and _is_over(cluster, terms.namespace):
            RunRecord(cluster, terms.namespace, report.notice).end(complete=True)
        return adopted


def _is_over(cluster: PatientApi, namespace: str) -> bool:
    """Whether nothing but its record is left of the rollout that ended with failed nodes."""
    unfinished = cluster.ask(lambda api: look(api, namespace))
    return unfinished is not None and not (unfinished.blocks or unfinished.failed or unfinished.record.is_missing)


@dataclass(frozen=True, slots=True)
class _Cleaning:
    cluster: PatientApi
    guard: Guard
    shown: Adoption
    standing: Standing

    def all(self) -> Adopted:
        """Nodes side by side, then the locks of those that are clean."""
        names = self.shown.nodes
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="adopt") as pool:
            reasons = dict(zip(names, pool.map(self._reason_left, names), strict=True))
        left = {name: why for name, why in reasons.items() if why}
        released: list[str] = []
        for lock in (lock for lock in self.shown.locks if not lock.obstacle):
            if why := self._reason_held(lock, left):
                left[lock.place] = why
            else:
                released.append(lock.place)
        cleaned = tuple(name for name in names if name not in left)
        return Adopted(cleaned, tuple(_uncordoned(self.shown, cleaned)), tuple(released), left)

    def _reason_left(self, name: str) -> str:
        """Why what was shown of a node still stands there; empty where it does not."""
        try:
            self._clean(name)
        except ApiNotFoundError:
            return ""
        except RolloutError as error:
            return error.message
        return ""

    def _clean(self, name: str) -> None:
        wanted = _rows(self.shown, name)
        for _attempt in range(_ATTEMPTS):
            written = self.cluster.ask(lambda api: read_written_node(api, name))
            current = adoption(replace(self.standing, nodes=(written,)), {name}, whole=False)
            rows = _rows(current, name)
            if not rows:
                return
            if rows != wanted:
                raise StepError(_CHANGED)
            try:
                self._patch(node_path(name), _removal(written.node, rows))
            except ApiConflictError:
                continue
            return
        raise StepError("it changes too often to be written")

    def _reason_held(self, lock: LeftLock, left: Mapping[str, str]) -> str:
        """Why a lock is still held; empty where it is not."""
        if any(node in left for node in lock.nodes):
            return "its node is not clean"
        try:
            self._release(lock)
        except RolloutError as error:
            return error.message
        return ""

    def _release(self, lock: LeftLock) -> None:
        for _attempt in range(_ATTEMPTS):
            try:
                self._write_release(lock)
            except ApiNotFoundError:
                return
            except ApiConflictError:
                current = self._standing_lock(lock)
                if current is None:
                    return
                lock = current
            else:
                return
        raise StepError("it changes too often to be written")

    def _standing_lock(self, lock: LeftLock) -> LeftLock | None:
        """The same lock as it stands now; None where it is gone, `StepError` where it is another's."""
        standing = self.cluster.ask(read_standing)
        locks = adoption(standing, frozenset(), whole=True).locks
        current = next((other for other in locks if other.place == lock.place), None)
        if current and (current.holder, current.uid, current.annotation) != (lock.holder, lock.uid, lock.annotation):
            raise StepError(_CHANGED)
        return current

    def _write_release(self, lock: LeftLock) -> None:
        if lock.system is System.KURED:
            path = f"/apis/apps/v1/namespaces/{lock.namespace}/daemonsets/{lock.name}"
            metadata = {"resourceVersion": lock.resource_version, "annotations": {lock.annotation: None}}
            self._patch(path, {"metadata": metadata})
            return
        path = f"/apis/coordination.k8s.io/v1/namespaces/{lock.namespace}/leases/{lock.name}"
        preconditions = {"uid": lock.uid, "resourceVersion": lock.resource_version}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        self.cluster.ask(lambda api: self._checked(api).delete(path, body))

    def _patch(self, path: str, body: Mapping[str, Any]) -> None:
        self.cluster.ask(lambda api: self._checked(api).patch(path, body))

    def _checked(self, api: ClusterApi) -> ClusterApi:
        """The server, where we may still act: an outage that was waited out may have cost us the Lease."""
        self.guard.check()
        return api


def _rows(adopted: Adoption, node: str) -> Sequence[NodeLeftover]:
    return [row for row in adopted.leftovers if row.node == node and not row.obstacle]


def _uncordoned(shown: Adoption, cleaned: Iterable[str]) -> Iterator[str]:
    theirs = {row.node for row in shown.leftovers if row.cordon is Cordon.THEIRS and not row.obstacle}
    return (name for name in cleaned if name in theirs)


def _removal(node: Node, rows: Sequence[NodeLeftover]) -> Mapping[str, Any]:
    """One write that takes away what these rows name, and no more."""
    spec: dict[str, Any] = {}
    if any(row.cordon is Cordon.THEIRS for row in rows):
        spec["unschedulable"] = None
    if any(row.taint for row in rows):
        spec["taints"] = without_soft_taint(node) or None
    return {
        "metadata": {
            "resourceVersion": node.resource_version,
            "annotations": {name: None for row in rows for name in row.annotations},
            "labels": {name: None for row in rows for name in row.labels},
        },
        "spec": spec,
    }
