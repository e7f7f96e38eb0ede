"""Watching a rollout that another process carries out, to its end.

Nodes and Events are watched; of the lock one small object is read every second or two, and the record when the lock
changes hands. Nothing is written, and nothing is decided by what is seen.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

from rollout.errors import ApiError
from rollout.execution.base.deadline import Deadline, is_passing
from rollout.execution.base.live_view import LiveView, watch_node_events, watch_nodes
from rollout.execution.base.patience import PatientApi
from rollout.execution.base.reporting import OutageNotice, Reporter
from rollout.execution.lease import NO_LEASE, StandingLease, read_lease
from rollout.execution.lock_holder import Holder, LeaseWatch, glance
from rollout.execution.record.standing import StandingRecord, read_record
from rollout.execution.record.unfinished import RunWord, Unfinished, assess, word_of
from rollout.execution.rollout.account import Account, Look
from rollout.gather.cluster.memory import read_memory
from rollout.gather.cluster.node_events import NodeEvent
from rollout.model.cluster import Node
from rollout.model.memory import moment
from rollout.model.node_marks import last_result
from rollout.model.plan import RolloutPlan
from rollout.model.progress import RunResult
from rollout.ports import Clock, ClusterApi, Observer

_FOREVER = 10 * 365 * 86400.0
_ANSWER_SECONDS = 5.0
_LONGEST_PAUSE, _SHORTEST_PAUSE = 2.0, 0.2
_RECORD_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Standing:
    """How the rollout stands: the word, who holds the lock (empty: nobody), and what is left of it.

    `begun`: it has come so far that there is something to watch. `away`: all this is as it was last seen. `waits`:
    there is none yet; `last` is the one before, None where no node tells of one.
    """

    word: RunWord
    holder: str
    begun: bool
    unfinished: Unfinished | None
    away: bool = False
    waits: bool = False
    last: "LastRun | None" = None


@dataclass(frozen=True, slots=True)
class LastRun:
    """The rollout that ended a node last, as Nodes tell: when, RFC 3339 in UTC, and how many nodes ended how."""

    run: str
    at: str
    outcomes: Mapping[str, int]


def last_run(nodes: Sequence[Node]) -> LastRun | None:
    """None where no Node tells of any."""
    results = [result for node in nodes if (result := last_result(node)).get("run") and result.get("at")]
    if not results:
        return None
    latest = max(results, key=lambda result: result["at"])
    outcomes = Counter(result.get("outcome", "") for result in results if result["run"] == latest["run"])
    return LastRun(latest["run"], latest["at"], outcomes)


@dataclass(frozen=True, slots=True)
class Watched:
    """How a watched rollout ended. `aborted_by` is empty where it was not aborted; `left` is what stands there still.

    Without a `result` there was none to watch.
    """

    run: str = ""
    plan: RolloutPlan | None = None
    result: RunResult | None = None
    aborted_by: str = ""
    left: Unfinished | None = None
    last: LastRun | None = None


def watch(
    api: ClusterApi,
    clock: Clock,
    namespace: str,
    observer: Observer,
    standing: Callable[[Standing], None],
    *,
    has_gone: Callable[[StandingLease], bool] = lambda _lease: False,
    waits: bool = False,
) -> Watched:
    """Tell of the rollout that is under way or was interrupted, until it has ended; `ApiError` where it is not shown.

    `standing` hears how it stands whenever that changes; `has_gone` says whether a holder surely is no more.
    Where there is none it `waits` for one to begin, or says so and ends.
    """
    report = Reporter(observer, clock)
    cluster = PatientApi(api, clock, OutageNotice(report), _FOREVER)
    changed, deadline = threading.Event(), Deadline(clock, _FOREVER)
    with (
        watch_nodes(cluster, deadline, changed.set) as nodes,
        _node_events(cluster, deadline, changed, report) as events,
    ):
        views = _Views(nodes, events, changed)
        return _Watch(cluster, namespace, views, report, observer, standing, has_gone, waits=waits).until_end()


@contextmanager
def _node_events(
    cluster: PatientApi, deadline: Deadline, changed: threading.Event, report: Reporter
) -> "Iterator[LiveView[NodeEvent] | None]":
    """The Events, where this user may see them: without them what holds a drain up is not known."""
    view = watch_node_events(cluster, deadline, changed.set)
    try:
        view.__enter__()
    except ApiError as error:
        report.notice(f"warning: what holds pods, and why nodes failed, is not shown: {error.message}")
        yield None
        return
    try:
        yield view
    finally:
        view.__exit__(None, None, None)


@dataclass(frozen=True, slots=True)
class _Views:
    nodes: LiveView[Node]
    node_events: LiveView[NodeEvent] | None
    changed: threading.Event

    @property
    def events(self) -> Sequence[NodeEvent]:
        return self.node_events.items() if self.node_events is not None else ()


class _Watch:
    def __init__(
        self,
        cluster: PatientApi,
        namespace: str,
        views: _Views,
        report: Reporter,
        observer: Observer,
        standing: Callable[[Standing], None],
        has_gone: Callable[[StandingLease], bool],
        *,
        waits: bool,
    ) -> None:
        self._cluster = cluster
        self._api = cluster.api.within(_ANSWER_SECONDS)
        self._namespace = namespace
        self._views = views
        self._report = report
        self._observer = observer
        self._standing = standing
        self._has_gone = has_gone
        self._waits = waits
        self._lock = LeaseWatch(cluster.clock, has_gone)
        self._lease = NO_LEASE
        self._record: StandingRecord | None = None
        self._record_of: tuple[str, Holder] | None = None
        self._record_at = float("-inf")
        self._account: Account | None = None
        self._plan: RolloutPlan | None = None
        self._told: Standing | None = None

    def until_end(self) -> Watched:
        """Look, and look again when something changes."""
        while True:
            self._views.changed.clear()
            try:
                unfinished = self._read()
            except ApiError as error:
                if not is_passing(error):
                    raise
                self._away(error)
            else:
                self._follow(unfinished)
                if self._has_ended(unfinished):
                    return self._end(unfinished)
            self._pause()

    def _pause(self) -> None:
        """Until something changes; many changes at once are one."""
        self._views.changed.wait(min(_LONGEST_PAUSE, max(_SHORTEST_PAUSE, self._lease.renewal / 2 or _LONGEST_PAUSE)))
        time.sleep(_SHORTEST_PAUSE)

    def _read(self) -> Unfinished | None:
        """The lock, the record where that may have changed, and what both say with the nodes."""
        self._lease = read_lease(self._api, self._namespace)
        seen, now = (self._lease.holder, self._lock.look(self._lease)), self._cluster.clock.monotonic()
        if seen != self._record_of or self._record is None or now - self._record_at > _RECORD_SECONDS:
            self._record = read_record(self._api, self._namespace)
            self._record_of, self._record_at = seen, now
        return assess(self._record, self._views.nodes.items())

    def _away(self, error: ApiError) -> None:
        """No renewal that went unseen tells anything of a holder: it is watched anew when the server is back."""
        self._cluster.notice(error)
        self._lock = LeaseWatch(self._cluster.clock, self._has_gone)
        if self._told is not None:
            self._tell(replace(self._told, away=True))

    def _tell(self, standing: Standing) -> None:
        """Tell how it stands where that has changed: which nodes are left is told of node by node."""
        before = self._told
        self._told = standing
        if before is None or replace(before, unfinished=None) != replace(standing, unfinished=None):
            self._standing(standing)

    def _follow(self, unfinished: Unfinished | None) -> None:
        """Tell what is new of the run; the first that is seen is the one that is watched."""
        if self._account is None and unfinished is not None and unfinished.blocks and unfinished.run:
            self._plan = unfinished.record.plan
            self._account = Account(unfinished.run, self._plan, self._observer.notify)
            self._account.begin(min(moment(unfinished.record.started_at) or self._now, self._now))
        begun, word = self._account is not None, self._word(unfinished)
        waits = self._waits and not begun and word is RunWord.ENDED
        last = last_run(self._views.nodes.items()) if waits else None
        self._tell(Standing(word, self._lease.holder, begun, unfinished, waits=waits, last=last))
        if self._account is not None:
            self._account.look(self._look())

    def _word(self, unfinished: Unfinished | None) -> RunWord:
        """By the lock, watched; before that tells, by a glance at it."""
        alive = self._alive
        if unfinished is None:
            return RunWord.ENDED if alive is False else RunWord.RUNNING
        return word_of(unfinished, alive=alive)

    @property
    def _alive(self) -> bool | None:
        """Whether a process holds the lock; None where it should have been renewed by now, and may still be."""
        if self._lock.state in (Holder.NOBODY, Holder.GONE):
            return False
        seen = glance(self._lease, self._now)
        return seen.alive or (None if self._lock.state is Holder.ALIVE else seen.alive)

    def _has_ended(self, unfinished: Unfinished | None) -> bool:
        """Whether its run is over, and whoever worked on it has let go; where there is none, whether none will be."""
        run = self._account.run if self._account else ""
        if run and unfinished is not None and unfinished.blocks and unfinished.run == run:
            return False
        is_another = bool(run) and unfinished is not None and unfinished.blocks
        if not run and unfinished is not None and unfinished.blocks:
            # marks that are not understood: nobody can tell of which run
            return False
        if not run and self._waits:
            return False
        return is_another or self._lock.state in (Holder.NOBODY, Holder.GONE)

    def _end(self, unfinished: Unfinished | None) -> Watched:
        if self._account is None:
            return Watched(left=unfinished, last=last_run(self._views.nodes.items()))
        look = self._look()
        self._account.look(look, last=True)
        result = self._account.result(look)
        self._report.finished(result)
        return Watched(self._account.run, self._plan, result, self._aborted_by(self._account.run), unfinished)

    def _aborted_by(self, run: str) -> str:
        """Who aborted it; empty where nobody did, or this user may not see it."""
        try:
            aborted = read_memory(self._api, self._namespace).aborted
        except ApiError:
            return ""
        return aborted.by if aborted is not None and aborted.reason == run else ""

    def _look(self) -> Look:
        return Look({node.name: node for node in self._views.nodes.items()}, self._views.events, self._now)

    @property
    def _now(self) -> datetime:
        return self._cluster.api.server_time() or self._report.now
