"""The Lease as it stands on the wire, and what reading it tells of the lock."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from rollout.errors import ApiNotFoundError
from rollout.gather.cluster import wire
from rollout.gather.cluster.decode import decode
from rollout.model import marks
from rollout.model.memory import moment
from rollout.ports import ClusterApi

SECONDS = 30
RENEWALS_PER_DURATION = 3


@dataclass(frozen=True, slots=True)
class StandingLease:
    """The Lease as it stands: who holds it (empty: nobody) for which `run`, and a word that renewals change.

    A living holder renews it within `renewal` seconds; whoever does not within `duration` has given it up. `renewed` is
    when it last did, by its own clock, and `written` by the API server's: neither says that it is gone. `process` is
    the holder's, by a word that no other has; empty where that is not known.
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


NO_LEASE = StandingLease("", "", 0.0)


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
        theirs = {name: word for name, word in self.annotations.items() if name not in (marks.RUN, marks.PROCESS)}
        kept = {"labels": self.labels, "finalizers": self.finalizers, "ownerReferences": self.owner_references}
        return {**{field: value for field, value in kept.items() if value}, "annotations": {**theirs, **annotations}}


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: str | None = None
    acquire_time: str | None = None
    lease_transitions: int | None = None


class Lease(msgspec.Struct):
    """The object itself."""

    metadata: LeaseMeta
    spec: _Spec = msgspec.field(default_factory=_Spec)

    @property
    def held_by(self) -> str:
        """Empty for nobody."""
        return self.spec.holder_identity or ""

    @property
    def renewal(self) -> str:
        """A word that each renewal changes; what others write beside the lock does not."""
        return f"{self.spec.acquire_time} {self.spec.renew_time} {self.spec.lease_transitions}"

    @property
    def standing(self) -> StandingLease:
        """What it says of the lock."""
        seconds = self.spec.lease_duration_seconds or SECONDS
        run, process = (self.metadata.annotations.get(name, "") for name in (marks.RUN, marks.PROCESS))
        renewal, renewed = seconds / RENEWALS_PER_DURATION, moment(self.spec.renew_time or "")
        return StandingLease(self.held_by, self.renewal, renewal, run, renewed, self.metadata.written, process)


def read_lease(api: ClusterApi, namespace: str) -> StandingLease:
    """Return the Lease as it stands; one that nobody holds where there is none."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{marks.LEASE_NAME}"
    try:
        return decode(api.get(path), Lease, path).standing
    except ApiNotFoundError:
        return NO_LEASE
