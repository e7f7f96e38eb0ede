"""What the parts of a server share: its settings and its world, the slots as it knows them, and who holds the Lease."""

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime

from rollout.errors import ApiError, FencedError
from rollout.execution.base.deadline import PatientApi
from rollout.execution.base.reporting import Reporter
from rollout.execution.gates import GatePorts
from rollout.execution.lease import (
    NO_LEASE,
    HolderState,
    LeaseState,
    LeaseWatch,
    await_sign,
    read_lease,
)
from rollout.execution.lock import LeaseLock
from rollout.execution.record.slots import change_slots
from rollout.gather.cluster.documents import read_slots
from rollout.model.fleetlock import NO_SLOTS, Groups, Slots, is_fleetlock_run
from rollout.model.plan import RolloutPlan
from rollout.model.policy import Policy, Selection
from rollout.model.quantity import Duration
from rollout.ports import Clock, ClusterApi, Observer
from rollout.server.nodes import Machines

# Seconds that may be asked of the cluster while a host waits for its answer.
PATIENCE = 10.0
_FRESH = 2.0
# An answer takes milliseconds from its last look to the wire; more than this many seconds is no
# delay of a network.
_SOON = 5.0


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """All that a server goes by. `holder` is how it calls itself in the Lease; times are in seconds.

    `slot_timeout` is how long a host may take to ask again once it is drained, and to come back
    once it was granted.
    """

    groups: Groups
    selection: Selection
    policy: Policy
    namespace: str
    holder: str
    lease_seconds: int
    slot_timeout: Duration


@dataclass(slots=True)
class SlotBook:
    """For many threads at once. Raises `ApiError` where the slots cannot be read, written or understood."""

    api: ClusterApi
    clock: Clock
    namespace: str
    _turn: threading.Lock = field(default_factory=threading.Lock)
    _seen: Slots = NO_SLOTS
    _seen_at: float = float("-inf")
    _problem: str = "the slots have not been read yet"

    def seen(self, age: float) -> Slots:
        """As they stood at most `age` seconds ago: good for saying no, never for a yes."""
        with self._turn:
            if self.clock.monotonic() - self._seen_at <= age:
                return self._seen
        return self.read()

    @property
    def latest(self) -> Slots:
        """As they were seen last, however long ago."""
        with self._turn:
            return self._seen

    def read(self) -> Slots:
        """As they stand now."""
        began = self.clock.monotonic()
        try:
            slots = read_slots(self.api, self.namespace)
        except ApiError as error:
            self._problem = error.message
            raise
        self._problem = ""
        return self._keep(slots, began)

    def why_unread(self, age: float) -> str:
        """Why the last look at them failed, or that there was none for `age` seconds; empty where they are known."""
        seconds = self.clock.monotonic() - self._seen_at
        return self._problem or (
            "" if seconds <= age else f"the slots were read {seconds:.0f} s ago"
        )

    def change(self, change: Callable[[Slots], Slots]) -> Slots:
        """Change them as they stand now; what `change` raises leaves them as they are."""
        changed = change_slots(self.api, self.namespace, change)
        # what was read meanwhile may be from before it
        return self._keep(changed, self.clock.monotonic())

    def _keep(self, slots: Slots, began: float) -> Slots:
        with self._turn:
            if began >= self._seen_at:
                self._seen = slots
                self._seen_at = began
        return slots


@dataclass(slots=True)
class Leadership:
    """What is known of the Lease, and by which `watch`; for many threads at once.

    `lock` is this server's own, as `holder`, while it holds it.
    """

    api: ClusterApi
    watch: LeaseWatch
    namespace: str
    holder: str
    lock: LeaseLock | None = None
    _turn: threading.Lock = field(default_factory=threading.Lock)
    _seen: LeaseState = NO_LEASE
    _seen_at: float = float("-inf")

    def look(self, age: float = _FRESH) -> HolderState:
        """Tell what is known of its holder, from a look at most `age` seconds old; `ApiError` where it cannot be read.

        Whoever has waited for another's look, which began after this was called, needs none of
        their own.
        """
        oldest = self.watch.clock.monotonic() - age
        with self._turn:
            if self._seen_at < oldest:
                began = self.watch.clock.monotonic()
                self._seen = read_lease(self.api, self.namespace)
                self._seen_at = began
            return self.watch.look(self._seen)

    @property
    def other(self) -> str:
        """Who holds it that is no server, and may be alive; empty where none is."""
        state = self.look()
        if state in (HolderState.NOBODY, HolderState.GONE) or is_fleetlock_run(self._seen.run):
            return ""
        return f"{self._seen.holder}, for the rollout {self._seen.run or 'unknown'}"

    @property
    def safe_until(self) -> float:
        """Until when what is about to be checked holds: before another can take the Lease and free what was held by it.

        Seconds of the clock. A Lease whose holder is stopped now is not taken for two renewals, and
        another may have been under way.
        """
        return self.watch.clock.monotonic() + min(_SOON, self._seen.renewal)

    def check(self) -> None:
        """Return while a server, this one or another that was seen to renew it, holds the Lease; else `FencedError`.

        It is read anew: what was taken by force a moment ago is still ours by the clock.
        """
        state = self.look(age=0.0)
        lock = self.lock
        is_own = lock is not None and self._seen.holder == self.holder
        if lock is not None and is_own:
            lock.check()
        if state is HolderState.UNKNOWN and not is_own:
            # who has just begun to watch waits for the next renewal
            state = await_sign(self.watch, self._read_anew, lambda _message: None)
        if not is_fleetlock_run(self._seen.run) or not (is_own or state is HolderState.ALIVE):
            raise FencedError("no FleetLock server is known to hold the Lease")

    def _read_anew(self) -> LeaseState:
        self.look(age=0.0)
        return self._seen


@dataclass(slots=True)
class Troubles:
    """What goes wrong again and again, told once by its subject until it is over, or another thing is wrong."""

    notice: Callable[[str], None]
    last: dict[str, str] = field(default_factory=dict)

    def tell(self, subject: str, message: str) -> None:
        """Of one more failure."""
        if self.last.get(subject) != message:
            self.last[subject] = message
            self.notice(f"{subject}: {message}")

    def end(self, subject: str) -> None:
        """Note that it has gone well."""
        if self.last.pop(subject, None) is not None:
            self.notice(f"{subject}: going on")


@dataclass(slots=True)
class ServerContext:
    """What a server goes by and what it needs of the world; what its parts know of nodes, slots and the Lease.

    `watched` yields the observers of one node's run, for as long as that takes. `count` counts an
    answer, by the request (`pre-reboot` or `steady-state`) and its kind.
    """

    settings: ServerSettings
    api: ClusterApi
    clock: Clock
    notice: Callable[[str], None]
    watched: Callable[[RolloutPlan], AbstractContextManager[Sequence[Observer]]]
    count: Callable[[str, str], None]
    gates: GatePorts = field(default_factory=GatePorts)
    book: SlotBook = field(init=False)
    leadership: Leadership = field(init=False)
    machines: Machines = field(init=False)

    def __post_init__(self) -> None:
        """Look at slots and Lease with the patience of a host that waits for its answer."""
        self.book = SlotBook(self.patient_api, self.clock, self.settings.namespace)
        self.leadership = Leadership(
            self.patient_api, LeaseWatch(self.clock), self.settings.namespace, self.settings.holder
        )
        troubles = Troubles(self.notice)

        def wait(error: BaseException) -> None:
            troubles.tell("waiting for the API server", str(error))

        self.machines = Machines(PatientApi(self.api, self.clock, wait))

    @property
    def now(self) -> datetime:
        """The time by the API server's clock, where that is known."""
        return self.api.server_time() or self.clock.now()

    @property
    def quiet(self) -> Reporter:
        """Tell nobody."""
        return Reporter((), self.clock)

    @property
    def patient_api(self) -> ClusterApi:
        """The API, within the time for which a host waits for its answer."""
        return self.api.within(PATIENCE)
