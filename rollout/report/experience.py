"""What journals tell of how long things took: drains, reboots, the turns of budgets, and until a wave had settled."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from rollout.errors import UsageError
from rollout.model.progress import NodeFinished, NodeStep, Outcome, Phase, PodReleased, WaveStarted
from rollout.model.quantity import Duration
from rollout.planning.play.pace import Past
from rollout.report.lines import AnyLine, Record, RunRecord, entries

# A permit that is back sooner was not waited for.
_AT_ONCE = 1.0
_NEARLY = 0.75
# In seconds: how far apart threads may write what they see at one moment, and how late an end may be told of.
_SLACK = 5.0


@dataclass(slots=True)
class _JournalReader:
    """One journal being read: when each node was begun and when it was empty, and when a wave's last node ended.

    `emptied` are nodes of which pods had to leave, `waited` is how long each waited for permits of budgets. `granted`
    is when one of a budget was last given to a pod that had been refused it, `freed` the same by node, and `whole` how
    long the first of a drain was waited for. `asked` is when a host was first asked to reboot; reboots count from there
    where empty nodes waited (`delayed`). `owners` is how long pods of each took to end.

    Moments are a wall clock's, which is set back or on at times, and goes on while a machine sleeps. What spans such a
    step teaches nothing: a moment of a node before its last one (`heard`), a turn that took longer than its process has
    counted, a wave that settled for longer than it may (`longest_settle`, in seconds) or before its last node's end.
    """

    longest_settle: float = float("inf")
    heard: dict[str, datetime] = field(default_factory=dict)
    begun: dict[str, datetime] = field(default_factory=dict)
    drained: dict[str, datetime] = field(default_factory=dict)
    emptied: set[str] = field(default_factory=set)
    waited: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    granted: dict[str, datetime] = field(default_factory=dict)
    whole: dict[str, float] = field(default_factory=dict)
    freed: dict[str, datetime] = field(default_factory=dict)
    last_ended: datetime | None = None
    drains: list[float] = field(default_factory=list)
    reboots: list[float] = field(default_factory=list)
    settles: list[float] = field(default_factory=list)
    endings: list[float] = field(default_factory=list)
    turns: list[float] = field(default_factory=list)
    asked: dict[str, datetime] = field(default_factory=dict)
    delayed: bool = False
    owners: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def hear(self, line: AnyLine) -> None:
        """Take in one line."""
        match line:
            case RunRecord():
                self._forget()
            case NodeStep():
                self._hold_to_order(line.node, line.at)
                self._step(line)
            case PodReleased():
                self._hold_to_order(line.node, line.at)
                self._released(line)
            case NodeFinished():
                self._hold_to_order(line.node, line.at)
                self._finished(line)
            case WaveStarted():
                self._settled(line.at)
            case _:
                pass

    def _hold_to_order(self, node: str, at: datetime) -> None:
        """Forget what has begun of a node whose clock was set back in its turn."""
        if (self.heard.get(node, at) - at).total_seconds() > _SLACK:
            for moments in (self.begun, self.drained, self.asked, self.waited, self.freed):
                moments.pop(node, None)
        self.heard[node] = at

    def _forget(self) -> None:
        """Whatever has begun, and not ended."""
        self.begun, self.drained, self.asked, self.last_ended = {}, {}, {}, None
        for waits in (self.waited, self.granted, self.whole, self.freed):
            waits.clear()

    def _step(self, line: NodeStep) -> None:
        if line.phase is Phase.DRAINED:
            self.drained.setdefault(line.node, line.at)
        elif line.phase is not Phase.CORDONED:  # waits between cordon and drain are reckoned by their flags
            self.begun.setdefault(line.node, line.at)
        if line.phase is Phase.REBOOTING:
            self.asked.setdefault(line.node, line.at)
        if line.phase is Phase.DRAINING and line.detail:
            self.emptied.add(line.node)
        for owner, seconds in (line.endings or {}).items():
            self.owners[owner].append(seconds)

    def _released(self, line: PodReleased) -> None:
        if line.budget:
            last = self.granted.get(line.budget, line.since)
            seconds = (line.at - max(line.since, last)).total_seconds()
            # of several permits that were used together the later ones come back sooner after the one before
            whole = seconds if last <= line.since else self.whole.get(line.budget, seconds)
            if seconds >= _NEARLY * whole:
                self.waited[line.node].append(seconds)
            self.whole[line.budget] = whole
            self.granted[line.budget] = self.freed[line.node] = line.at

    def _finished(self, line: NodeFinished) -> None:
        node, at = line.node, line.at
        began, empty = self.begun.get(node), self.drained.get(node)
        self.last_ended = at
        if began and line.seconds and (at - began).total_seconds() > line.seconds + _SLACK:
            return
        if line.outcome is Outcome.SUCCEEDED and began and empty and began < empty:
            self.drains.append((empty - began).total_seconds())
            self.reboots.append((at - (self.asked.get(node, empty) if self.delayed else empty)).total_seconds())
            self._drained_by(node, began, empty)

    def _drained_by(self, node: str, began: datetime, empty: datetime) -> None:
        """How long the turns of budgets were, and how long pods took to end once all of them might go."""
        self.turns += [waited for waited in self.waited.pop(node, ()) if waited >= _AT_ONCE]
        if node in self.emptied:
            self.endings.append((empty - self.freed.get(node, began)).total_seconds())

    def _settled(self, at: datetime) -> None:
        if self.last_ended is not None:
            seconds = (at - self.last_ended).total_seconds()
            self.settles += [seconds] if 0 <= seconds <= self.longest_settle + _SLACK else []
            self.last_ended = None


def past_of(journals: Iterable[Iterable[Record]], cluster: str) -> Past:
    """What the journals of runs on a cluster tell; `cluster` is its UID. Those of others add nothing."""
    readers = [reader for records in journals if (reader := _of_one(iter(records), cluster))]
    owners: dict[str, tuple[float, ...]] = {}
    for reader in readers:
        owners |= {owner: (*owners.get(owner, ()), *seconds) for owner, seconds in reader.owners.items()}
    return Past(
        tuple(seconds for reader in readers for seconds in reader.drains),
        tuple(seconds for reader in readers for seconds in reader.reboots),
        tuple(seconds for reader in readers for seconds in reader.settles),
        tuple(seconds for reader in readers for seconds in reader.endings),
        tuple(seconds for reader in readers for seconds in reader.turns),
        owners,
    )


def _of_one(records: Iterator[Record], cluster: str) -> _JournalReader | None:
    first = next(records, {})
    if first.get("type") != "run" or (first.get("cluster") or {}).get("uid") != cluster:
        return None
    policy = first.get("policy") or {}
    reader = _JournalReader(delayed=_waits_before_reboots(policy), longest_settle=_longest_settle(policy))
    for line in entries(records):
        if line is not None:
            reader.hear(line)
    if _waits_between_waves(policy):
        reader.settles.clear()
    return reader


def _longest_settle(policy: Record) -> float:
    """In seconds; no limit where the journal does not say."""
    try:
        return Duration.parse(str(policy.get("settle_timeout")))
    except UsageError:
        return float("inf")


def _waits_between_waves(policy: Record) -> bool:
    """Whether the run waited for more than that waves settled."""
    gates = policy.get("gates") or {}
    windows = gates.get("windows") or {}
    return gates.get("soak", "0s") != "0s" or bool(windows.get("windows") or windows.get("freezes"))


def _waits_before_reboots(policy: Record) -> bool:
    """Whether drained nodes waited, for a while or for users: what is reckoned by flags, or cannot be foreseen."""
    courtesy = policy.get("courtesy") or {}
    return any(courtesy.get(name, "0s") != "0s" for name in ("reboot_delay", "wait_for_users"))
