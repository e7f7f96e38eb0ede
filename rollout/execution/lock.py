"""One rollout at a time: a Lease held for the length of the run, renewed in the background.

Clocks of two machines are never compared. Somebody else's Lease counts as abandoned when its renew
time has not changed for its whole duration on our own clock; ours counts as held while our last
renewal is younger than its duration on our clock, and has to be renewed before the next act
otherwise. Every write names the version it read, so that of two who try only one succeeds.

A renewal that is not answered must leave time for another: each is given a third of the duration,
and is tried again soon. Nothing that an answer may be ends the renewing; only another holder, or
nobody in our place, does.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from rollout.errors import (
    ApiConflictError,
    ApiError,
    ApiNotFoundError,
    BlockedError,
    FencedError,
    InterruptedRunError,
    LockedError,
)
from rollout.execution.base.deadline import Deadline, PatientApi, StopRequest, is_passing, patiently
from rollout.execution.lease import (
    RENEWALS_PER_DURATION,
    SECONDS,
    HolderState,
    Lease,
    LeaseMeta,
    LeaseWatch,
    leases,
    locked_error,
    read_lease_object,
    unlocking,
)
from rollout.gather.cluster.decode import decode
from rollout.model import marks
from rollout.model.quantity import Duration
from rollout.ports import ClusterApi

T = TypeVar("T")

_FIRST_PAUSE = 0.25
# What is sent at the last moment still has a way to go: an act must begin while this share of the
# duration lasts.
_SURE_SHARE = 0.8
# In seconds: how often whoever waits for another's lock says so, and how long giving it up may take
# on the way out.
_SAID_AGAIN = 10.0
_LAST_SECONDS = 2.0
_PLAN_AGAIN = "The cluster has changed: check it, and plan again."


@dataclass(frozen=True, slots=True)
class LockRequest:
    """Who takes the Lease, and how.

    `seconds` is how long others must see no renewal before they may take it. `force_unlock` names a
    run whose Lease is taken at once, because an operator has made sure that its process is gone.
    `process` is a word that no other process has. `watch` is what this process has seen of the
    Lease so far: it does not wait again for a holder that is gone.
    """

    holder: str
    namespace: str = marks.LEASE_NAMESPACE
    seconds: int = SECONDS
    force_unlock: str = ""
    process: str = ""
    watch: LeaseWatch | None = None


@dataclass
class LeaseLock:
    """Holds the Lease for `run` while it is entered. `check` is called before every act.

    While it waits for the Lease, `notice` reports the holder, and a request to `stop` raises
    `InterruptedRunError`.
    """

    cluster: PatientApi
    request: LockRequest
    run: str
    stop: StopRequest = field(default_factory=StopRequest)
    notice: Callable[[str], None] = lambda _message: None

    def __post_init__(self) -> None:
        self._clock = self.cluster.clock
        self._interval = self.request.seconds / RENEWALS_PER_DURATION
        self._hurried = self.cluster.api.within(self._interval)
        self._watch = self.request.watch or LeaseWatch(self._clock)
        self._collection = leases(self.request.namespace)
        self._path = f"{self._collection}/{marks.LEASE_NAME}"
        self._turn = threading.Lock()
        self._ended = threading.Event()
        self._leaving = threading.Event()
        self._renewed_at = float("-inf")
        self._stored = LeaseMeta(marks.LEASE_NAME)
        self._acquired = ""
        self._transitions = 0
        self._lost_to: str | None = None
        self._thread = threading.Thread(target=self._keep, name="lease-renewal", daemon=True)

    def __enter__(self) -> Self:
        self._acquire()
        self.stop.before_leaving(self._let_go)
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self._thread.join(timeout=self.request.seconds)
        self._release()

    def check(self) -> None:
        """Return only while the Lease is surely ours; `FencedError` where it is not."""
        if self._leaving.is_set():
            # the process ends in a moment, and another may begin before that
            threading.Event().wait()
        if self._ended.is_set():
            raise FencedError(
                "the lock was given up",
                hint="This process has ended; nothing further is done by it.",
            )
        if (
            self._lost_to is None
            and self._clock.monotonic() - self._renewed_at >= self.request.seconds * _SURE_SHARE
        ):
            # whoever waits here shares the patience of the run; the renewals in the background wait
            # for nothing
            renew = self.cluster.heard(marks.LEASE_NAME)(self._renew)
            patiently(renew, self.cluster.deadline(), self.cluster.notice, passing=_is_passing)
        if self._lost_to is not None:
            holder = f"held by {self._lost_to}" if self._lost_to else "free"
            raise FencedError(
                f"the Lease {self.request.namespace}/{marks.LEASE_NAME} is {holder} now",
                hint="This process stops here; see who runs the other rollout.",
            )

    def _is_mine(self, lease: Lease) -> bool:
        """Whether it is this very process's: user, machine and process id may be alike in two containers."""
        return (lease.held_by, lease.spec.acquire_time) == (self.request.holder, self._acquired)

    def _may_go_on(self, before: Lease | None, current: Lease) -> bool:
        """Whether it was not taken, renewed or freed since: others have written only beside the lock.

        The renewals of a holder that is passed over count for nothing.
        """
        if before is None or before.held_by != current.held_by:
            return False
        return (
            before.renewal == current.renewal
            or self.request.force_unlock == current.state.run != ""
        )

    def _acquire(self) -> None:
        lease = self._read()
        if lease is None:
            self._claim(lambda: self.cluster.api.create(self._collection, self._body()))
            return
        if lease.held_by:
            lease = lease if self._is_unlocked(lease) else self._outwait(lease)
        self._stored = lease.metadata
        self._transitions = (lease.spec.lease_transitions or 0) + 1
        self._claim(lambda: self.cluster.api.replace(self._path, self._body()), lease)

    def _claim(self, write: Callable[[], bytes], before: Lease | None = None) -> None:
        """Of two who write, one meets a conflict; so does whoever writes again because an answer was lost."""
        while True:
            try:
                self._patiently(lambda: self._hold(write))
            except ApiConflictError as error:
                current = self._read()
                if current is None or not (
                    self._is_mine(current) or self._may_go_on(before, current)
                ):
                    raise _conflict_error(current) from error
                # since when an attempt that was not answered holds it is not known: the next act
                # renews it
                self._stored = current.metadata
                if self._is_mine(current):
                    return
            else:
                return

    def _read(self) -> Lease | None:
        return self._patiently(lambda: read_lease_object(self.cluster.api, self.request.namespace))

    def _patiently(self, action: Callable[[], T]) -> T:
        return patiently(action, self.cluster.deadline(), self.cluster.notice, sleep=self._sleep)

    def _sleep(self, seconds: float) -> None:
        if self._clock.wait(self.stop, seconds):
            raise InterruptedRunError("stopped while waiting for the lock: nothing was started")

    def _is_unlocked(self, lease: Lease) -> bool:
        """Whether the holder is to be passed over; `BlockedError` where another run than the named one holds it."""
        run = lease.state.run
        if self.request.force_unlock not in ("", run):
            held = (
                f"{lease.held_by} holds the lock {f'for run {run}' if run else 'and names no run'}"
            )
            unlock = unlocking(lease.state, self.request.namespace)
            raise BlockedError(
                f"--force-unlock {self.request.force_unlock}, but {held}",
                hint=f"Once you are sure that no process is working on it: {unlock}",
            )
        return bool(self.request.force_unlock)

    def _outwait(self, lease: Lease) -> Lease:
        """Watch until the holder is gone; what was planned before another held it fits no more."""
        if self.request.watch is not None and self._watch.holder != lease.held_by:
            raise _conflict_error(lease)
        told = Deadline(self._clock, 0.0)
        while (state := self._watch.look(lease.state)) is not HolderState.GONE:
            if state is HolderState.NOBODY:
                raise LockedError(
                    "another rollout was running, and has just ended", hint=_PLAN_AGAIN
                )
            if state is HolderState.ALIVE:
                raise locked_error(lease.state, self.request.namespace)
            if told.expired:
                told = Deadline(self._clock, _SAID_AGAIN)
                left = Duration(round(max(1.0, lease.state.duration - self._watch.unrenewed)))
                holds = f"{lease.held_by} holds the lock: watching up to {left} for a renewal"
                self.notice(
                    f"{holds}; if its process is gone: {unlocking(lease.state, self.request.namespace)}"
                )
            self._sleep(min(1.0, lease.state.renewal))
            current = self._read()
            if current is None:
                return lease
            lease = current
        return lease

    def _hold(self, write: Callable[[], bytes | None]) -> None:
        """Write it: where it is ours then, it is from when that was sent."""
        sent = self._clock.monotonic()
        if (answer := write()) is not None:
            self._stored = decode(answer, Lease, self._path).metadata
            self._renewed_at = sent
            self.cluster.over(marks.LEASE_NAME)

    def _keep(self) -> None:
        """Renew it again and again; no failure of whatever kind may end the thread that does."""
        failures = 0
        while not self._clock.wait(self._ended, self._pause(failures)):
            try:
                self._renew()
                failures = 0
            except Exception as error:  # noqa: BLE001 - it is told, tried again soon, and before the next act at the latest
                failures += 1
                with suppress(Exception):
                    self.cluster.notice(error)

    def _pause(self, failures: int) -> float:
        """Seconds to the next renewal: soon after one that failed, ever later after several."""
        return (
            min(self._interval, _FIRST_PAUSE * 2.0 ** min(failures - 1, 10))
            if failures
            else self._interval
        )

    def _renew(self) -> None:
        with self._turn:
            if self._lost_to is not None or self._ended.is_set():
                return
            try:
                self._hold(lambda: self._write(self._hurried))
            except ApiNotFoundError:
                self._lost_to = ""

    def _write(self, api: ClusterApi, *, released: bool = False) -> bytes | None:
        """Write it, and again after a conflict: an unanswered attempt of ours may have succeeded.

        Another holder means that it is lost: None.
        """
        try:
            return api.replace(self._path, self._body(released=released))
        except ApiConflictError:
            current = read_lease_object(api, self.request.namespace)
            if current is None or not self._is_mine(current):
                self._lost_to = current.held_by if current else ""
                return None
            self._stored = current.metadata
            return api.replace(self._path, self._body(released=released))

    def _release(self) -> None:
        """Give it up, trying again for a while: whoever comes next would have to wait for it to run out."""
        deadline = self.cluster.deadline_within(2 * self._interval)
        with self._turn, suppress(ApiError):
            patiently(lambda: self._give_up(self._hurried), deadline, self.cluster.notice)

    def _let_go(self) -> None:
        """Give it up before the process ends at once; from here on nothing is begun that asks first."""
        self._leaving.set()
        self._ended.set()
        # a renewal that is not answered is not waited for: the conflict that it may make is solved
        # as any other
        has_turn = self._turn.acquire(timeout=_LAST_SECONDS)
        try:
            self._give_up(self.cluster.api.within(_LAST_SECONDS))
        finally:
            if has_turn:
                self._turn.release()

    def _give_up(self, api: ClusterApi) -> None:
        if self._lost_to is None:
            self._write(api, released=True)

    def _body(self, *, released: bool = False) -> dict[str, Any]:
        """As it is to stand; what others have written on it stays."""
        now = self._clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        self._acquired = self._acquired or now
        ours = {
            marks.RUN: self.run,
            **({marks.PROCESS: self.request.process} if self.request.process else {}),
        }
        metadata = self._stored.with_ours({} if released else ours)
        metadata |= {"name": marks.LEASE_NAME, "namespace": self.request.namespace}
        if self._stored.resource_version:
            # Without the UID an update of a Lease that somebody has deleted would quietly make it
            # anew.
            metadata |= {"resourceVersion": self._stored.resource_version, "uid": self._stored.uid}
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                "holderIdentity": "" if released else self.request.holder,
                "leaseDurationSeconds": self.request.seconds,
                "acquireTime": self._acquired,
                "renewTime": now,
                "leaseTransitions": self._transitions,
            },
        }


def _conflict_error(lease: Lease | None) -> LockedError:
    holder = lease.held_by if lease and lease.held_by else "another process"
    return LockedError(f"{holder} has taken the lock meanwhile", hint=_PLAN_AGAIN)


def _is_passing(error: BaseException) -> bool:
    """Count a conflict as passing, too: whose the Lease is by now, the next look tells."""
    return is_passing(error) or isinstance(error, ApiConflictError)
