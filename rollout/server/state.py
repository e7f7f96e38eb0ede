import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime

from msgspec import Struct

from rollout.errors import ApiError, FencedError
from rollout.execution.base.deadline import Guard, PatientApi
from rollout.execution.base.gate_ports import GatePorts
from rollout.execution.base.reporting import Reporter
from rollout.execution.drain.task import NodeTask
from rollout.execution.lease import (
    NO_LEASE,
    HolderState,
    LeaseState,
    LeaseWatch,
    await_renewal,
    read_lease,
)
from rollout.execution.lock import LeaseLock
from rollout.execution.record.slots import change_slots
from rollout.gather.cluster.documents import read_slots
from rollout.model.cluster import Node
from rollout.model.fleetlock import NO_SLOTS, Groups, Slot, Slots, is_fleetlock_run
from rollout.model.plan import RolloutPlan
from rollout.model.policy import Policy, Selection
from rollout.model.quantity import Duration
from rollout.model.text import name_excerpt
from rollout.planning.eligibility.pools import pools_of
from rollout.ports import Clock, ClusterApi, Observer
from rollout.server.nodes import WatchedNodes, plan_node, select_nodes

# In seconds, while a host waits: for an API call, and for its retries.
_CALL_SECONDS = 10.0
_RETRY_SECONDS = 10.0
# Cached state up to this age may deny a request.
_SLOTS_FRESH = 1.0
_LEASE_FRESH = 2.0
_MOST_ANSWER_SECONDS = 5.0


class ServerSettings(Struct, frozen=True):
    groups: Groups
    selection: Selection
    policy: Policy
    # Of the Lease, slots, memory and record.
    namespace: str
    holder: str
    lease_seconds: int
    # For a host to request its reboot again after the drain, and to come back after the grant.
    slot_timeout: Duration

    def failure_limit(self, nodes: Iterable[Node]) -> int:
        return self.policy.failure_limit(len(select_nodes(nodes, self.selection)))


@dataclass(slots=True)
class SlotStore:
    """Reads, caches and writes the slots, for many threads.

    Only `read_now` and `change` return slots that are never stale.
    """

    api: ClusterApi
    clock: Clock
    namespace: str
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _last_slots: Slots = NO_SLOTS
    # In monotonic seconds.
    _read_at: float = float("-inf")
    # Why the slots are unknown.
    _problem: str = "the slots have not been read yet"

    def read_unless_fresh(self) -> Slots:
        with self._lock:
            if self.clock.monotonic() - self._read_at <= _SLOTS_FRESH:
                return self._last_slots
        return self.read_now()

    def cached_slot(self, slot: Slot) -> Slot:
        """Return `slot` itself if it is gone."""
        return self.cached.of_run(slot.run_id) or slot

    @property
    def cached(self) -> Slots:
        with self._lock:
            return self._last_slots

    def read_now(self) -> Slots:
        began = self.clock.monotonic()
        try:
            slots = read_slots(self.api, self.namespace)
        except ApiError as error:
            self._problem = error.message
            raise
        self._problem = ""
        return self._store_if_newer(slots, began)

    def why_stale(self, fresh_seconds: float) -> str:
        if self._problem:
            return self._problem
        age = self.clock.monotonic() - self._read_at
        if age <= fresh_seconds:
            return ""
        return f"the slots were read {age:.0f} s ago"

    def change(self, change: Callable[[Slots], Slots]) -> Slots:
        """A conflict repeats `change`."""
        changed = change_slots(self.api, self.namespace, change)
        # Another thread's read since the write began is older.
        return self._store_if_newer(changed, self.clock.monotonic())

    def _store_if_newer(self, slots: Slots, read_at: float) -> Slots:
        with self._lock:
            if read_at >= self._read_at:
                self._last_slots = slots
                self._read_at = read_at
        return slots


@dataclass(slots=True)
class Leadership:
    """Who holds the lock: this server, another replica or a rollout. For many threads."""

    api: ClusterApi
    watch: LeaseWatch
    namespace: str
    holder: str
    own_lock: LeaseLock | None = None
    _mutex: threading.Lock = field(default_factory=threading.Lock)
    _lease: LeaseState = NO_LEASE
    _read_at: float = float("-inf")

    def read_holder_state(self, fresh_seconds: float = _LEASE_FRESH) -> HolderState:
        # Threads that wait for the mutex share one read.
        oldest_fresh_read = self.watch.clock.monotonic() - fresh_seconds
        with self._mutex:
            if self._read_at < oldest_fresh_read:
                began = self.watch.clock.monotonic()
                self._lease = read_lease(self.api, self.namespace)
                self._read_at = began
            return self.watch.observe(self._lease)

    def other_rollout(self) -> str:
        """Return `HOLDER, for rollout RUN` of a rollout that may be alive, or empty."""
        is_free = self.read_holder_state() in (HolderState.NOBODY, HolderState.GONE)
        is_held_by_server = is_fleetlock_run(self._lease.run_id)
        if is_free or is_held_by_server:
            return ""
        run = name_excerpt(self._lease.run_id) or "unknown"
        return f"{self._lease.holder_text}, for rollout {run}"

    @property
    def safe_until(self) -> float:
        """Until when (monotonic) a check that starts now is valid.

        Another replica takes a dead holder's lock after two renewals' time at the earliest, and one
        renewal may have been under way.
        """
        return self.watch.clock.monotonic() + min(_MOST_ANSWER_SECONDS, self._lease.renewal_seconds)

    def require_server(self) -> None:
        """Raise `FencedError` unless a live FleetLock server holds the lock."""
        self._read_lease_again()
        own_lock = self.own_lock
        if own_lock is not None and self._lease.holder == self.holder:
            own_lock.check()
            return
        state = self.watch.state
        if state is HolderState.UNKNOWN:
            state = await_renewal(self.watch, self._read_lease_again, lambda _message: None)
        is_server = is_fleetlock_run(self._lease.run_id)
        if state is not HolderState.ALIVE or not is_server:
            raise FencedError("no FleetLock server is known to hold the lock")

    def _read_lease_again(self) -> LeaseState:
        self.read_holder_state(fresh_seconds=0.0)
        return self._lease


@dataclass(slots=True)
class Troubles:
    notice: Callable[[str], None]
    message_by_subject: dict[str, str] = field(default_factory=dict)

    def report(self, subject: str, message: str) -> None:
        is_new = self.message_by_subject.get(subject) != message
        if is_new:
            self.message_by_subject[subject] = message
            self.notice(f"{subject}: {message}")

    def end(self, subject: str) -> None:
        was_reported = self.message_by_subject.pop(subject, None) is not None
        if was_reported:
            self.notice(f"{subject}: continuing")


@dataclass(slots=True)
class ServerContext:
    settings: ServerSettings
    api: ClusterApi
    clock: Clock
    notice: Callable[[str], None]
    observers_of: Callable[[RolloutPlan], AbstractContextManager[Sequence[Observer]]]
    count: Callable[[str, str], None]
    gates: GatePorts = field(default_factory=GatePorts)
    slots: SlotStore = field(init=False)
    leadership: Leadership = field(init=False)
    nodes: WatchedNodes = field(init=False)

    def __post_init__(self) -> None:
        self.slots = SlotStore(self.api_for_host, self.clock, self.settings.namespace)
        self.leadership = Leadership(
            self.api_for_host, LeaseWatch(self.clock), self.settings.namespace, self.settings.holder
        )
        troubles = Troubles(self.notice)

        def report_outage(error: BaseException) -> None:
            troubles.report("waiting for the API server", str(error))

        self.nodes = WatchedNodes(PatientApi(self.api, self.clock, report_outage))

    @property
    def now(self) -> datetime:
        """The API server's time, or else the local time."""
        return self.api.server_time() or self.clock.now()

    def task_for_marking(
        self, slot: Slot, node: Node, cluster: PatientApi, check_may_act: Guard
    ) -> NodeTask:
        policy = self.settings.policy
        planned = plan_node(node, slot, policy)
        return NodeTask(
            planned,
            run_id=slot.run_id,
            cluster=cluster,
            check_may_act=check_may_act,
            report=self.silent_report,
            policy=pools_of(policy).rules(planned.pool),
        )

    @property
    def silent_report(self) -> Reporter:
        return Reporter((), self.clock)

    @property
    def api_for_host(self) -> ClusterApi:
        return self.api.within(_CALL_SECONDS)

    @property
    def cluster_for_host(self) -> PatientApi:
        """A host waits, so retry only for some seconds."""
        return PatientApi(self.api_for_host, self.clock, seconds=_RETRY_SECONDS)
