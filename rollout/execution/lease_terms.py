"""What a process asks of the lock: which Lease, as whom, and whose it need not wait for."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from rollout.model import marks
from rollout.model.memory import moment

SECONDS = 30


class _Write(msgspec.Struct, rename={"fields": "fieldsV1"}):
    """When each writer wrote which fields last, by the API server's clock."""

    time: str | None = None
    fields: msgspec.Raw = msgspec.Raw(b"")


class LeaseMeta(msgspec.Struct, rename="camel"):
    """Which Lease it is, in which version, and what stands on it beside the lock."""

    name: str
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}
    finalizers: list[str] = []
    owner_references: list[dict[str, Any]] = []
    managed_fields: list[_Write] = []

    @property
    def written(self) -> datetime | None:
        """When it was last renewed, by the API server's clock; what others write beside the lock does not count."""
        renewals = (write for write in self.managed_fields if b'"f:renewTime"' in bytes(write.fields))
        times = (moment(write.time or "") for write in renewals)
        return max((time for time in times if time is not None), default=None)

    def with_ours(self, annotations: dict[str, str]) -> dict[str, Any]:
        """What others have written on it, which an update would take away, beside these annotations of ours."""
        theirs = {name: word for name, word in self.annotations.items() if name not in (marks.RUN, marks.PROCESS)}
        kept = {"labels": self.labels, "finalizers": self.finalizers, "ownerReferences": self.owner_references}
        return {**{field: value for field, value in kept.items() if value}, "annotations": {**theirs, **annotations}}


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """What to hold and as whom. `seconds` is how long others must see no renewal before they may take it.

    The Lease of the run `unlock` is taken at once: an operator has made sure that its process is gone. So is its
    version `stale`, which was seen to go unrenewed for its whole duration, or whose process has ended here. Without
    `waits` no other is waited out: what was planned before another held it fits no more. `process` is a word that no
    other process has.
    """

    namespace: str
    holder: str
    run: str
    seconds: int = SECONDS
    patience: float = 600.0
    unlock: str = ""
    stale: str = ""
    waits: bool = True
    process: str = ""

    @property
    def annotations(self) -> dict[str, str]:
        """What the Lease says of its holder, beside the name."""
        return {marks.RUN: self.run, **({marks.PROCESS: self.process} if self.process else {})}
