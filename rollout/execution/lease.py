from collections.abc import Callable, Mapping
from datetime import datetime
from enum import Enum, auto
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from rollout.errors import ApiNotFoundError, LockedError
from rollout.gather.cluster import wire
from rollout.gather.cluster.decode import decode
from rollout.model import marks
from rollout.model.fleetlock import is_fleetlock_run
from rollout.model.quantity import Duration, Number
from rollout.model.text import is_run_id, name_excerpt
from rollout.model.timestamps import elapsed, parse_timestamp
from rollout.ports import Clock, ClusterApi

SECONDS = 30
RENEWALS_PER_DURATION = 3


class LeaseState(Struct, frozen=True):
    holder: str
    # Changes with each renewal.
    version: str
    renewal_seconds: float
    run_id: str = ""
    renewed: datetime | None = None
    # By the API server's clock.
    written: datetime | None = None
    # Empty if unknown.
    process: str = ""

    @property
    def holder_text(self) -> str:
        """Shortened, because anyone may have written the Lease."""
        return name_excerpt(self.holder) or "another process"

    @property
    def duration(self) -> float:
        """Seconds without a renewal after which another process may take the lock."""
        return self.renewal_seconds * RENEWALS_PER_DURATION


NO_LEASE = LeaseState("", "", 0.0)


class LeaseMeta(msgspec.Struct, rename="camel"):
    name: str
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}
    finalizers: list[str] = []
    owner_references: list[dict[str, Any]] = []
    managed_fields: list[wire.Write] = []

    @property
    def written(self) -> datetime | None:
        return wire.written_at(self.managed_fields, "renewTime")

    def for_update(self, own_annotations: Mapping[str, str]) -> dict[str, Any]:
        annotations = dict(self.annotations)
        annotations.pop(marks.RUN, None)
        annotations.pop(marks.PROCESS, None)
        annotations.update(own_annotations)
        metadata: dict[str, Any] = {"annotations": annotations}
        if self.labels:
            metadata["labels"] = self.labels
        if self.finalizers:
            metadata["finalizers"] = self.finalizers
        if self.owner_references:
            metadata["ownerReferences"] = self.owner_references
        return metadata


class _LeaseSpec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    # A negative duration would make a living holder look dead.
    lease_duration_seconds: Number | None = None
    renew_time: str | None = None
    acquire_time: str | None = None
    lease_transitions: int | None = None


class Lease(msgspec.Struct):
    metadata: LeaseMeta
    spec: _LeaseSpec = msgspec.field(default_factory=_LeaseSpec)

    @property
    def held_by(self) -> str:
        return self.spec.holder_identity or ""

    @property
    def version(self) -> str:
        return f"{self.spec.acquire_time} {self.spec.renew_time} {self.spec.lease_transitions}"

    @property
    def state(self) -> LeaseState:
        seconds = self.spec.lease_duration_seconds or SECONDS
        annotations = self.metadata.annotations
        return LeaseState(
            holder=self.held_by,
            version=self.version,
            renewal_seconds=seconds / RENEWALS_PER_DURATION,
            run_id=annotations.get(marks.RUN, ""),
            renewed=parse_timestamp(self.spec.renew_time or ""),
            written=self.metadata.written,
            process=annotations.get(marks.PROCESS, ""),
        )


def leases_path(namespace: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


def read_lease_object(api: ClusterApi, namespace: str) -> Lease | None:
    path = f"{leases_path(namespace)}/{marks.LEASE_NAME}"
    try:
        return decode(api.get(path), Lease, path)
    except ApiNotFoundError:
        return None


def read_lease(api: ClusterApi, namespace: str) -> LeaseState:
    lease = read_lease_object(api, namespace)
    return lease.state if lease else NO_LEASE


# A busy machine renews late.
_RENEWAL_SLACK = 2.0
_PAUSE = 0.5


class LockSnapshot(Struct, frozen=True):
    """Who held the lock when the Lease was read."""

    lease: LeaseState = NO_LEASE
    # By the API server's clock.
    now: datetime | None = None
    # The holder's process on this machine has ended.
    has_ended: bool = False

    @property
    def holder(self) -> str:
        return self.lease.holder

    @property
    def has_exact_age(self) -> bool:
        return self.lease.written is not None

    @property
    def age(self) -> float | None:
        """Seconds since the last renewal, None if unknown."""
        renewed = self.lease.written or self.lease.renewed
        if self.now is None or renewed is None:
            return None
        return max(0.0, (self.now - renewed).total_seconds())

    @property
    def alive(self) -> bool | None:
        """Whether a living process holds the lock; None if one snapshot cannot tell.

        False is good enough to show; taking the lock needs a `LeaseWatch`.
        """
        if not self.holder or self.has_ended:
            return False
        age = self.age
        if age is None:
            return None
        is_renewed_in_time = age <= self.lease.renewal_seconds + _RENEWAL_SLACK
        if is_renewed_in_time:
            return True
        # The slack also covers the API server's timestamps, which have whole seconds.
        is_expired = age > self.lease.duration + _RENEWAL_SLACK
        if is_expired and self.has_exact_age:
            return False
        return None


class HolderState(Enum):
    NOBODY = auto()
    UNKNOWN = auto()
    ALIVE = auto()
    GONE = auto()


class _Sighting(Struct, frozen=True):
    """The Lease as last seen, unchanged since monotonic `since`."""

    lease: LeaseState = NO_LEASE
    since: float = 0.0
    is_renewed: bool = False
    has_ended: bool = False


_NEVER_SEEN = _Sighting()


class LeaseWatch(Struct):
    """Watches a Lease: a living holder renews it within its duration.

    A holder is ALIVE once it was seen to renew the Lease, or has just done so, and GONE if it does
    not. Before that, its state is UNKNOWN.
    """

    clock: Clock
    # The holder's process on this machine has ended.
    has_ended: Callable[[LeaseState], bool] = lambda _lease: False
    _last: _Sighting = _NEVER_SEEN

    @property
    def holder(self) -> str:
        return self._last.lease.holder

    @property
    def expired_version(self) -> str | None:
        return self._last.lease.version if self.state is HolderState.GONE else None

    @property
    def seconds_unrenewed(self) -> float:
        return self.clock.monotonic() - self._last.since

    def observe(self, lease: LeaseState, now: datetime | None = None) -> HolderState:
        """Return what is known about the holder.

        A recent renewal by the API server's time `now` proves a living holder. An old one proves
        nothing, because one of several API servers may lag behind.
        """
        sighting = self._last
        snapshot = LockSnapshot(lease, now)
        is_recent = snapshot.has_exact_age and snapshot.alive is True
        is_same_holder = lease.holder == sighting.lease.holder
        is_unchanged = is_same_holder and lease.version == sighting.lease.version
        if not is_unchanged:
            is_renewal = is_same_holder and bool(lease.holder)
            sighting = _Sighting(lease, self.clock.monotonic(), is_renewal or is_recent)
        has_ended = sighting.has_ended or self.has_ended(lease)
        self._last = replace(sighting, has_ended=has_ended)
        return self.state

    @property
    def state(self) -> HolderState:
        last = self._last
        if not last.lease.holder:
            return HolderState.NOBODY
        if last.has_ended or self.seconds_unrenewed >= last.lease.duration:
            return HolderState.GONE
        return HolderState.ALIVE if last.is_renewed else HolderState.UNKNOWN


def await_renewal(
    watch: LeaseWatch,
    read: Callable[[], LeaseState],
    notice: Callable[[str], None],
    now: Callable[[], datetime | None] = lambda: None,
) -> HolderState:
    lease = read()
    is_age_known = lease.written is not None and now() is not None
    state = watch.observe(lease, now())
    if state is not HolderState.UNKNOWN:
        return state
    if is_age_known:
        # The next renewal is overdue, so waiting for it is useless.
        return state
    seconds = lease.renewal_seconds + _RENEWAL_SLACK
    notice(
        f"waiting up to {Duration(round(seconds))} to see if {lease.holder_text} renews the lock"
    )
    while watch.state is HolderState.UNKNOWN and watch.seconds_unrenewed < seconds:
        watch.clock.sleep(_PAUSE)
        watch.observe(read(), now())
    return watch.state


def locked_error(lease: LeaseState, namespace: str, *, age: float | None = None) -> LockedError:
    activity = "a rollout is running"
    watch_command = "rollout status --watch"
    if is_fleetlock_run(lease.run_id):
        activity = "the FleetLock server is draining and rebooting hosts"
        watch_command = "rollout fleetlock status"
    seconds_left = max(1.0, lease.duration - (age or 0.0))
    return LockedError(
        f"{activity} on {_location_text(lease, age)}",
        details=(
            f"To watch it:     {watch_command}",
            "To stop it:      rollout pause --all        (it finishes the nodes in flight)",
        ),
        hint=(
            f"If its process is gone, the lock expires in {elapsed(seconds_left)}."
            f" To take it over now, run: {unlock_commands(lease, namespace)}"
        ),
    )


def _location_text(lease: LeaseState, age: float | None) -> str:
    """Return `laptop (process 42, renewed 5s ago)` for the holder `laptop/42`."""
    location = lease.holder_text
    remarks = []
    machine, _, process = location.rpartition("/")
    has_process_id = process.isdecimal()
    if has_process_id:
        location = machine
        remarks.append(f"process {process}")
    if age is not None:
        remarks.append(f"renewed {elapsed(age)} ago")
    return f"{location} ({', '.join(remarks)})" if remarks else location


def unlock_commands(lease: LeaseState, namespace: str) -> str:
    """Without a run ID, the Lease must be deleted."""
    if not is_run_id(lease.run_id):
        return f"kubectl -n {namespace} delete lease {marks.LEASE_NAME}"
    undo = f"rollout abort --force-unlock {lease.run_id}"
    if is_fleetlock_run(lease.run_id):
        # `rollout resume` does not continue the FleetLock server's runs.
        return undo
    return f"rollout resume --force-unlock {lease.run_id} (or {undo})"
