"""The lock that allows one rollout at a time.

    Lease     the object in the API that names the holder and its last renewal
    lock      what a process holds while it renews the Lease in time
    lost      of a lock: another process has taken it, or the Lease was deleted
    fenced    of a process: it lost the lock or another rollout has marked the Node, and its checks
              raise `FencedError`

Clocks of two machines are never compared. Another process's Lease has expired once this machine has
seen no renewal for its duration. Each write names the version that it read, so only one of two
writers succeeds.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from msgspec import Struct

from rollout.errors import (
    ApiConflictError,
    ApiError,
    ApiNotFoundError,
    BlockedError,
    FencedError,
    InterruptedRunError,
    LockedError,
)
from rollout.execution.base.deadline import (
    Deadline,
    GracefulStop,
    PatientApi,
    is_transient,
    retry_until,
)
from rollout.execution.lease import (
    NO_LEASE,
    RENEWALS_PER_DURATION,
    SECONDS,
    HolderState,
    Lease,
    LeaseMeta,
    LeaseWatch,
    leases_path,
    locked_error,
    read_lease_object,
    unlock_commands,
)
from rollout.gather.cluster.decode import decode
from rollout.model import marks
from rollout.model.quantity import Duration
from rollout.model.text import name_excerpt
from rollout.ports import ClusterApi

T = TypeVar("T")

_FIRST_PAUSE = 0.25
# Share of the duration within which a write must begin: it takes time to arrive.
_SAFE_SHARE = 0.8
_NOTICE_INTERVAL = 10.0
_LAST_SECONDS = 2.0
_PLAN_AGAIN = "The cluster has changed: check it, and plan again."


class LockOptions(Struct, frozen=True):
    holder: str
    namespace: str = marks.LEASE_NAMESPACE
    seconds: int = SECONDS
    # The run ID whose lock is taken without a wait, or empty.
    force_unlock: str = ""
    process: str = ""
    watch: LeaseWatch | None = None


@dataclass
class LeaseLock:
    """Holds the lock for a rollout while it is entered; `stop` ends waiting for it.

    Ours is the Lease that this process wrote, until another process has replaced it.
    """

    cluster: PatientApi
    options: LockOptions
    run_id: str
    stop: GracefulStop = field(default_factory=GracefulStop)
    notice: Callable[[str], None] = lambda _message: None

    def __post_init__(self) -> None:
        self._clock = self.cluster.clock
        self._renewal_interval = self.options.seconds / RENEWALS_PER_DURATION
        self._api_for_renewals = self.cluster.api.within(self._renewal_interval)
        self._watch = self.options.watch or LeaseWatch(self._clock)
        self._collection = leases_path(self.options.namespace)
        self._path = f"{self._collection}/{marks.LEASE_NAME}"
        self._mutex = threading.Lock()
        self._ended = threading.Event()
        self._process_ending = threading.Event()
        self._renewed_at = float("-inf")
        self._metadata = LeaseMeta(marks.LEASE_NAME)
        self._acquired = ""
        self._transitions = 0
        self._is_lost = False
        self._new_holder = ""
        self._thread = threading.Thread(
            target=self._keep_renewing, name="lease-renewal", daemon=True
        )

    def __enter__(self) -> Self:
        self._acquire()
        # A second signal ends the process at once, without `__exit__`.
        self.stop.add_process_exit_action(self._release_in_a_hurry)
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self._thread.join(timeout=self.options.seconds)
        self._release()

    def check(self) -> None:
        """Raise `FencedError` unless this process surely holds the lock; renew if needed."""
        if self._process_ending.is_set():
            _block_forever()
        if self._ended.is_set():
            raise FencedError("the lock was released", hint="This process does nothing more.")
        age = self._clock.monotonic() - self._renewed_at
        is_old = age >= self.options.seconds * _SAFE_SHARE
        if is_old and not self._is_lost:
            self._renew_patiently()
        if self._is_lost:
            state = f"held by {name_excerpt(self._new_holder)}" if self._new_holder else "free"
            raise FencedError(
                f"the Lease {self.options.namespace}/{marks.LEASE_NAME} is {state} now",
                hint="This process stops here. Find out who runs the other rollout.",
            )

    def _renew_patiently(self) -> None:
        def renew() -> None:
            with self.cluster.noting_outage(marks.LEASE_NAME):
                self._renew()

        retry_until(self.cluster.deadline(), renew, self.cluster.notice, retriable=_is_retriable)

    def _is_ours(self, lease: Lease) -> bool:
        is_same_holder = lease.held_by == self.options.holder
        # Two containers may have the same holder name.
        is_same_time = lease.spec.acquire_time == self._acquired
        return is_same_holder and is_same_time

    def _is_unchanged(self, before: Lease | None, current: Lease) -> bool:
        """Whether nobody has taken, renewed or released the lock since `before`.

        Renewals by a holder that is unlocked by force do not count.
        """
        if before is None or before.held_by != current.held_by:
            return False
        run_id = current.state.run_id
        is_unlocked_by_force = bool(run_id) and self.options.force_unlock == run_id
        return is_unlocked_by_force or before.version == current.version

    def _acquire(self) -> None:
        lease = self._read()
        if lease is None:
            self._claim(
                lambda: self.cluster.api.create(self._collection, self._body()), before=None
            )
            return
        if lease.held_by:
            self._refuse_to_unlock_another(lease)
            if not self.options.force_unlock:
                lease = self._wait_until_gone(lease)
        self._metadata = lease.metadata
        self._transitions = (lease.spec.lease_transitions or 0) + 1
        self._claim(lambda: self.cluster.api.replace(self._path, self._body()), before=lease)

    def _claim(self, write: Callable[[], bytes], *, before: Lease | None) -> None:
        while True:
            try:
                self._retry(lambda: self._write_and_note(write))
            except ApiConflictError as error:
                current = self._read()
                if current is not None and self._is_ours(current):
                    # An earlier try wrote it, at an unknown time: the next check renews.
                    self._metadata = current.metadata
                    return
                if current is None or not self._is_unchanged(before, current):
                    raise _conflict_error(current) from error
                self._metadata = current.metadata
            else:
                return

    def _read(self) -> Lease | None:
        return self._retry(lambda: read_lease_object(self.cluster.api, self.options.namespace))

    def _retry(self, action: Callable[[], T]) -> T:
        return retry_until(self.cluster.deadline(), action, self.cluster.notice, sleep=self._sleep)

    def _sleep(self, seconds: float) -> None:
        if self._clock.wait(self.stop, seconds):
            raise InterruptedRunError("stopped while waiting for the lock: nothing was started")

    def _refuse_to_unlock_another(self, lease: Lease) -> None:
        run_id_to_unlock = self.options.force_unlock
        run_id = lease.state.run_id
        if not run_id_to_unlock or run_id_to_unlock == run_id:
            return
        for_run = f"for rollout {name_excerpt(run_id)}" if run_id else "and names no rollout"
        unlock = unlock_commands(lease.state, self.options.namespace)
        raise BlockedError(
            f"--force-unlock {run_id_to_unlock}, but {lease.state.holder_text} holds the lock"
            f" {for_run}",
            hint=f"Once you are sure that no process is working on it, run: {unlock}",
        )

    def _wait_until_gone(self, lease: Lease) -> Lease:
        has_watched_since_plan = self.options.watch is not None
        if has_watched_since_plan and self._watch.holder != lease.held_by:
            raise _conflict_error(lease)
        next_notice = Deadline(self._clock, 0.0)
        while self._observe(lease) is not HolderState.GONE:
            if next_notice.expired:
                next_notice = Deadline(self._clock, _NOTICE_INTERVAL)
                self._report_wait(lease)
            self._sleep(min(1.0, lease.state.renewal_seconds))
            current = self._read()
            if current is None:
                # It was deleted: `_claim` fails if another process is faster.
                return lease
            lease = current
        return lease

    def _observe(self, lease: Lease) -> HolderState:
        state = self._watch.observe(lease.state)
        if state is HolderState.NOBODY:
            raise LockedError("another rollout was running, and has just ended", hint=_PLAN_AGAIN)
        if state is HolderState.ALIVE:
            raise locked_error(lease.state, self.options.namespace)
        return state

    def _report_wait(self, lease: Lease) -> None:
        seconds_left = max(1.0, lease.state.duration - self._watch.seconds_unrenewed)
        time_left = Duration(round(seconds_left))
        unlock = unlock_commands(lease.state, self.options.namespace)
        self.notice(
            f"{lease.state.holder_text} holds the lock: waiting up to {time_left} to see if it is"
            f" renewed; if that process is gone, run: {unlock}"
        )

    def _write_and_note(self, write: Callable[[], bytes | None]) -> None:
        """`write` returns None if the lock is lost."""
        # The duration counts from when the write was sent.
        sent_at = self._clock.monotonic()
        answer = write()
        if answer is not None:
            self._metadata = decode(answer, Lease, self._path).metadata
            self._renewed_at = sent_at
            self.cluster.note_answer(marks.LEASE_NAME)

    def _keep_renewing(self) -> None:
        failures = 0
        while not self._clock.wait(self._ended, self._seconds_to_renewal(failures)):
            try:
                self._renew()
                failures = 0
            except Exception as error:  # noqa: BLE001 - it is retried
                failures += 1
                with suppress(Exception):
                    self.cluster.notice(error)

    def _seconds_to_renewal(self, failures: int) -> float:
        if failures == 0:
            return self._renewal_interval
        doublings = min(failures - 1, 10)
        return min(self._renewal_interval, _FIRST_PAUSE * 2.0**doublings)

    def _renew(self) -> None:
        with self._mutex:
            if self._is_lost or self._ended.is_set():
                return
            try:
                self._write_and_note(lambda: self._write_unless_taken(self._api_for_renewals))
            except ApiNotFoundError:
                self._note_lost(None)

    def _write_unless_taken(self, api: ClusterApi, *, released: bool = False) -> bytes | None:
        """Return None if the lock is lost.

        A conflict may come from our own earlier write, whose answer was lost, so it is retried
        once. A second conflict raises `ApiConflictError`.
        """
        try:
            return api.replace(self._path, self._body(released=released))
        except ApiConflictError:
            current = read_lease_object(api, self.options.namespace)
            if current is None or not self._is_ours(current):
                self._note_lost(current)
                return None
            self._metadata = current.metadata
            return api.replace(self._path, self._body(released=released))

    def _note_lost(self, current: Lease | None) -> None:
        self._new_holder = current.held_by if current else ""
        self._is_lost = True

    def _release(self) -> None:
        deadline = self.cluster.deadline_within(2 * self._renewal_interval)
        with self._mutex, suppress(ApiError):
            retry_until(
                deadline, lambda: self._release_by(self._api_for_renewals), self.cluster.notice
            )

    def _release_in_a_hurry(self) -> None:
        self._process_ending.set()
        self._ended.set()
        # A renewal may hold it without an answer.
        is_acquired = self._mutex.acquire(timeout=_LAST_SECONDS)
        try:
            self._release_by(self.cluster.api.within(_LAST_SECONDS))
        finally:
            if is_acquired:
                self._mutex.release()

    def _release_by(self, api: ClusterApi) -> None:
        if not self._is_lost:
            self._write_unless_taken(api, released=True)

    def _body(self, *, released: bool = False) -> dict[str, Any]:
        now = self._clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        self._acquired = self._acquired or now
        own_annotations = {}
        if not released:
            own_annotations[marks.RUN] = self.run_id
        if not released and self.options.process:
            own_annotations[marks.PROCESS] = self.options.process
        last = self._metadata
        metadata = last.for_update(own_annotations)
        metadata |= {"name": marks.LEASE_NAME, "namespace": self.options.namespace}
        if last.resource_version:
            # Without the UID, an update would recreate a deleted Lease.
            metadata |= {"resourceVersion": last.resource_version, "uid": last.uid}
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                "holderIdentity": "" if released else self.options.holder,
                "leaseDurationSeconds": self.options.seconds,
                "acquireTime": self._acquired,
                "renewTime": now,
                "leaseTransitions": self._transitions,
            },
        }


def _block_forever() -> None:
    """Another process may hold the lock already, so this one must not act."""
    threading.Event().wait()


def _conflict_error(lease: Lease | None) -> LockedError:
    state = lease.state if lease else NO_LEASE
    return LockedError(f"{state.holder_text} has taken the lock in the meantime", hint=_PLAN_AGAIN)


def _is_retriable(error: BaseException) -> bool:
    return is_transient(error) or isinstance(error, ApiConflictError)
