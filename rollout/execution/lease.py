"""The Lease of the lock, and whether its holder is alive: the one place that judges it, for one look or for many.

That it is dead is told by our own clock alone: it has let its whole duration pass while we watched;
or its process was on this machine, and has ended. That it lives is told by a renewal that we see,
or by one that is as young as a living holder's is, both by the API server's clock.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum, auto
from typing import Any

import msgspec

from rollout.errors import ApiNotFoundError, LockedError
from rollout.gather.cluster import wire
from rollout.gather.cluster.decode import decode
from rollout.model import marks
from rollout.model.fleetlock import is_fleetlock_run
from rollout.model.quantity import Duration, Number
from rollout.model.text import printable
from rollout.model.timestamps import elapsed, parse_timestamp
from rollout.ports import Clock, ClusterApi

SECONDS = 30
RENEWALS_PER_DURATION = 3


@dataclass(frozen=True, slots=True)
class LeaseState:
    """The Lease as it stands: who holds it (empty: nobody) for which `run`, and a word that renewals change.

    A living holder renews it within `renewal` seconds; whoever does not within `duration` has given
    it up. `renewed` is when it last did, by its own clock, and `written` by the API server's:
    neither says that it is gone. `process` is the holder's, by a word that no other has; empty
    where that is not known.
    """

    holder: str
    version: str
    renewal: float
    run: str = ""
    renewed: datetime | None = None
    written: datetime | None = None
    process: str = ""

    @property
    def duration(self) -> float:
        """In seconds."""
        return self.renewal * RENEWALS_PER_DURATION


NO_LEASE = LeaseState("", "", 0.0)


class LeaseMeta(msgspec.Struct, rename="camel"):
    """Which Lease it is, in which version, and what stands on it beside the lock."""

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
        """When it was last renewed, by the API server's clock; what others write beside the lock does not count."""
        return wire.written_at(self.managed_fields, "renewTime")

    def with_ours(self, annotations: dict[str, str]) -> dict[str, Any]:
        """Return what others have written on it, which an update would take away, beside these annotations of ours."""
        theirs = {
            name: word
            for name, word in self.annotations.items()
            if name not in (marks.RUN, marks.PROCESS)
        }
        kept = {
            "labels": self.labels,
            "finalizers": self.finalizers,
            "ownerReferences": self.owner_references,
        }
        return {
            **{field: value for field, value in kept.items() if value},
            "annotations": {**theirs, **annotations},
        }


class _LeaseSpec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    # A negative duration would make a living holder look dead.
    lease_duration_seconds: Number | None = None
    renew_time: str | None = None
    acquire_time: str | None = None
    lease_transitions: int | None = None


class Lease(msgspec.Struct):
    """The object itself."""

    metadata: LeaseMeta
    spec: _LeaseSpec = msgspec.field(default_factory=_LeaseSpec)

    @property
    def held_by(self) -> str:
        """Empty for nobody."""
        return self.spec.holder_identity or ""

    @property
    def renewal(self) -> str:
        """A word that each renewal changes; what others write beside the lock does not."""
        return f"{self.spec.acquire_time} {self.spec.renew_time} {self.spec.lease_transitions}"

    @property
    def state(self) -> LeaseState:
        """What it says of the lock."""
        seconds = self.spec.lease_duration_seconds or SECONDS
        run, process = (
            self.metadata.annotations.get(name, "") for name in (marks.RUN, marks.PROCESS)
        )
        renewal = seconds / RENEWALS_PER_DURATION
        renewed = parse_timestamp(self.spec.renew_time or "")
        return LeaseState(
            self.held_by, self.renewal, renewal, run, renewed, self.metadata.written, process
        )


def leases(namespace: str) -> str:
    """Return the path of all that stand there."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


def read_lease_object(api: ClusterApi, namespace: str) -> Lease | None:
    """Return the Lease itself; None where there is none."""
    path = f"{leases(namespace)}/{marks.LEASE_NAME}"
    try:
        return decode(api.get(path), Lease, path)
    except ApiNotFoundError:
        return None


def read_lease(api: ClusterApi, namespace: str) -> LeaseState:
    """Return the Lease as it stands; one that nobody holds where there is none."""
    lease = read_lease_object(api, namespace)
    return lease.state if lease else NO_LEASE


# A renewal takes a moment to arrive, on a busy machine more than one.
_ON_ITS_WAY = 2.0
_PAUSE = 0.5


@dataclass(frozen=True, slots=True)
class LeaseSnapshot:
    """What one look at the Lease tells at the API server's time `now`, before anybody watches it.

    `now` is None before the server has told it. `has_ended`: its process was on this machine, and
    is gone.
    """

    lease: LeaseState = NO_LEASE
    now: datetime | None = None
    has_ended: bool = False

    @property
    def holder(self) -> str:
        """Empty for nobody."""
        return self.lease.holder

    @property
    def one_clock(self) -> bool:
        """Whether `age` is by the API server's clock alone, else the holder's is held against that."""
        return self.lease.written is not None

    @property
    def age(self) -> float | None:
        """How many seconds ago the holder renewed it; None where that is not known."""
        seen = self.lease.written or self.lease.renewed
        return max(0.0, (self.now - seen).total_seconds()) if self.now and seen else None

    @property
    def alive(self) -> bool | None:
        """Whether a process holds it; None where one look does not tell. False is sure, True is as of its last sign."""
        if not self.holder or self.has_ended:
            return False
        age = self.age
        if age is None:
            return None
        if age <= self.lease.renewal + _ON_ITS_WAY:
            return True
        # by one clock alone, which tells whole seconds
        return False if self.one_clock and age > self.lease.duration + _ON_ITS_WAY else None


class HolderState(Enum):
    """What a watch knows of whoever holds the lock."""

    NOBODY = auto()
    UNKNOWN = auto()
    ALIVE = auto()
    GONE = auto()


@dataclass(frozen=True, slots=True)
class _Sighting:
    """The Lease as it was seen last, since when it stands so, and what that tells at once."""

    lease: LeaseState = NO_LEASE
    since: float = 0.0
    renewed: bool = False
    ended: bool = False


@dataclass
class LeaseWatch:
    """Watches a Lease from look to look: a holder renews it, or lets its whole duration pass and is gone.

    `has_ended` says whether a holder's process was on this machine, and surely is no more.
    """

    clock: Clock
    has_ended: Callable[[LeaseState], bool] = lambda _lease: False
    _sight: _Sighting = _Sighting()

    @property
    def holder(self) -> str:
        """Who held it at the last look; empty for nobody."""
        return self._sight.lease.holder

    @property
    def stale(self) -> str:
        """The version that went unrenewed for so long that the lock may be taken; empty where it may not."""
        return self._sight.lease.version if self.state is HolderState.GONE else ""

    @property
    def unrenewed(self) -> float:
        """For how many seconds it was seen as it stands."""
        return self.clock.monotonic() - self._sight.since

    def look(self, lease: LeaseState, now: datetime | None = None) -> HolderState:
        """Take the Lease as it stands now, and say what that tells of its holder.

        At the API server's time `now` a renewal that is young by its clock is a sign of life;
        without it, only one that is seen to come. An old one says nothing: one of several servers
        may be slow.
        """
        before = self._sight
        at_once = LeaseSnapshot(lease, now)
        is_young = at_once.one_clock and at_once.alive is True
        if (lease.holder, lease.version) != (before.lease.holder, before.lease.version):
            is_same = bool(lease.holder) and lease.holder == before.lease.holder
            before = _Sighting(lease, self.clock.monotonic(), is_same or is_young)
        self._sight = replace(before, ended=before.ended or self.has_ended(lease))
        return self.state

    @property
    def state(self) -> HolderState:
        """What is known by now."""
        sight = self._sight
        if not sight.lease.holder:
            return HolderState.NOBODY
        if sight.ended or self.unrenewed >= sight.lease.duration:
            return HolderState.GONE
        return HolderState.ALIVE if sight.renewed else HolderState.UNKNOWN


def await_sign(
    watch: LeaseWatch,
    read: Callable[[], LeaseState],
    notice: Callable[[str], None],
    now: Callable[[], datetime | None] = lambda: None,
) -> HolderState:
    """Return what is known of a holder once it has had the time to renew the Lease, where one look does not tell.

    `read` gives the Lease as it stands, `now` the API server's time, by which one look tells a
    living holder from one that is late; `notice` hears of the watch before it begins.
    """
    lease = read()
    is_late = lease.written is not None and now() is not None
    if watch.look(lease, now()) is not HolderState.UNKNOWN or is_late:
        return watch.state
    seconds = lease.renewal + _ON_ITS_WAY
    notice(f"watching up to {Duration(round(seconds))} for {lease.holder} to renew the lock")
    while watch.state is HolderState.UNKNOWN and watch.unrenewed < seconds:
        watch.clock.sleep(_PAUSE)
        watch.look(read(), now())
    return watch.state


def locked_error(lease: LeaseState, namespace: str, *, age: float | None = None) -> LockedError:
    """Return the refusal beside a living rollout: who runs it and where, how to watch it, and how to stop it.

    `age` is how many seconds ago its process renewed the lock, None where that is not known.
    """
    place, _, process = lease.holder.rpartition("/")
    what = "a rollout is running"
    watching = "rollout status --watch"
    if is_fleetlock_run(lease.run):
        what = "the FleetLock server is taking hosts through their reboots"
        watching = "rollout fleetlock status"
    signs = [f"process {process}"] if process.isdecimal() else []
    signs += [f"renewed {elapsed(age)} ago"] if age is not None else []
    where = printable(place if process.isdecimal() else lease.holder) or "another process"
    left = lease.duration - (age or 0.0)
    return LockedError(
        f"{what} on {where}" + (f" ({', '.join(signs)})" if signs else ""),
        details=(
            f"To watch it:     {watching}",
            "To stop it:      rollout pause --all        (it finishes the nodes in flight)",
        ),
        hint=(
            f"If its process is gone: the lock ends by itself in {elapsed(max(1.0, left))}, "
            f"or at once with: {unlocking(lease, namespace)}"
        ),
    )


def unlocking(lease: LeaseState, namespace: str) -> str:
    """Return what takes it from a holder that is gone; a Lease that names no run can only be deleted."""
    deletion = f"kubectl -n {namespace} delete lease {marks.LEASE_NAME}"
    if not lease.run:
        return deletion
    undo = f"rollout abort --force-unlock {lease.run}"
    return (
        undo
        if is_fleetlock_run(lease.run)
        else f"rollout resume --force-unlock {lease.run} (or: {undo})"
    )
