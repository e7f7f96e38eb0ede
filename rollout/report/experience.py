"""What journals tell of how long things took: drains, reboots, and until a wave had settled."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from rollout.planning.estimates import Past

Record = Mapping[str, Any]


@dataclass(slots=True)
class _JournalReader:
    """One journal being read: when each node was begun and when it was empty, and when a wave's last node ended."""

    begun: dict[str, datetime] = field(default_factory=dict)
    drained: dict[str, datetime] = field(default_factory=dict)
    last_ended: datetime | None = None
    drains: list[float] = field(default_factory=list)
    reboots: list[float] = field(default_factory=list)
    settles: list[float] = field(default_factory=list)

    def hear(self, record: Record) -> None:
        """Take in one record."""
        at = _moment(record)
        if at is None:
            return
        match record.get("type"):
            case "run":
                self.begun, self.drained, self.last_ended = {}, {}, None
            case "step":
                self._step(str(record.get("node")), record.get("phase"), at)
            case "node_finished":
                self._finished(str(record.get("node")), record.get("outcome"), at)
            case "wave_started" | "summary":
                self._settled(at)
            case _:
                pass

    def _step(self, node: str, phase: object, at: datetime) -> None:
        if phase == "drained":
            self.drained.setdefault(node, at)
        else:
            self.begun.setdefault(node, at)

    def _finished(self, node: str, outcome: object, at: datetime) -> None:
        began, empty = self.begun.get(node), self.drained.get(node)
        self.last_ended = at
        if outcome == "succeeded" and began and empty and began < empty:
            self.drains.append((empty - began).total_seconds())
            self.reboots.append((at - empty).total_seconds())

    def _settled(self, at: datetime) -> None:
        if self.last_ended is not None:
            self.settles.append((at - self.last_ended).total_seconds())
            self.last_ended = None


def past_of(journals: Iterable[Iterable[Record]], cluster: str) -> Past:
    """What the journals of runs on a cluster tell; `cluster` is its UID. Those of others add nothing."""
    readers = [reader for records in journals if (reader := _of_one(iter(records), cluster))]
    return Past(
        tuple(seconds for reader in readers for seconds in reader.drains),
        tuple(seconds for reader in readers for seconds in reader.reboots),
        tuple(seconds for reader in readers for seconds in reader.settles),
    )


def _of_one(records: Iterator[Record], cluster: str) -> _JournalReader | None:
    first = next(records, {})
    if first.get("type") != "run" or (first.get("cluster") or {}).get("uid") != cluster:
        return None
    reader = _JournalReader()
    for record in records:
        reader.hear(record)
    if _waits_between_waves(first.get("policy") or {}):
        reader.settles.clear()
    return reader


def _waits_between_waves(policy: Record) -> bool:
    """Whether the run waited for more than that waves settled."""
    gates = policy.get("gates") or {}
    return gates.get("soak", "0s") != "0s" or bool((gates.get("windows") or {}).get("windows"))


def _moment(record: Record) -> datetime | None:
    try:
        return datetime.fromisoformat(str(record.get("at", "")))
    except ValueError:
        return None
