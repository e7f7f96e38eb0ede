"""What events make of the metrics: the instruments of Prometheus' library, and the text that is exposed."""

import threading
from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum

from prometheus_client import Counter, Gauge, Histogram, Metric, disable_created_metrics, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from rollout import __version__
from rollout.model.plan import RolloutPlan
from rollout.model.progress import (
    NodeFinished,
    NodeStep,
    Outcome,
    Phase,
    PlanReady,
    PodBlocked,
    PodReleased,
    RunFinished,
    StepEvent,
    VersionHeld,
    WaveStarted,
)
from rollout.report.metrics import families as of


class PassResult(StrEnum):
    """How a pass ended: the words of its exit code; or skipped, where an operating process was not to do anything."""

    OK = "ok"
    ERROR = "error"
    PARTIAL = "partial"
    STALE = "stale"
    BLOCKED = "blocked"
    DECLINED = "declined"
    INTERRUPTED = "interrupted"
    SKIPPED = "skipped"


# Not begun, or given back because somebody wished so: no failure of the node's.
NO_FAILURES = (Outcome.SUCCEEDED, Outcome.SKIPPED, Outcome.ABORTED)
_NOT_IN_FLIGHT = (Phase.PENDING, Phase.DONE, Phase.FAILED)
# Budgets come and go with namespaces; what is above shares one series.
_MOST_BUDGETS = 100
OTHER_BUDGETS = "(others)"
# as the library names families
_NAMES = frozenset(family.name.removesuffix("_total") for family in of.FAMILIES)


class _Instruments:
    """One of the library's for each family, with the label `cluster` first."""

    def __init__(self, cluster: str) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._cluster = cluster
        self._gauges: dict[of.Family, Gauge] = {}
        self._counters: dict[of.Family, Counter] = {}
        self._histograms: dict[of.Family, Histogram] = {}
        for family in of.FAMILIES:
            labels = ("cluster", *family.labels)
            if family.kind is of.Kind.GAUGE:
                self._gauges[family] = Gauge(family.name, family.help, labels, registry=None)
            elif family.kind is of.Kind.COUNTER:
                self._counters[family] = Counter(family.name, family.help, labels, registry=None)
            else:
                buckets = of.BUCKETS[family.name]
                self._histograms[family] = Histogram(family.name, family.help, labels, registry=None, buckets=buckets)

    def set(self, family: of.Family, value: float, *labels: str) -> None:
        self._gauges[family].labels(self._cluster, *labels).set(value)

    def move(self, family: of.Family, by: int, *labels: str) -> None:
        self._gauges[family].labels(self._cluster, *labels).inc(by)

    def remove(self, family: of.Family, *labels: str) -> None:
        self._gauges[family].remove(self._cluster, *labels)

    def count(self, family: of.Family, by: int, *labels: str) -> None:
        """What is counted by 0 is exposed from then on."""
        self._counters[family].labels(self._cluster, *labels).inc(by)

    def observe(self, family: of.Family, seconds: float | None, *labels: str) -> None:
        """Without a duration the family is exposed from then on."""
        histogram = self._histograms[family].labels(self._cluster, *labels)
        if seconds is not None:
            histogram.observe(seconds)

    def forget(self, *families: of.Family) -> None:
        for family in families:
            self._gauges[family].clear()

    def collect(self) -> Iterator[Metric]:
        for family in of.FAMILIES:
            instrument = self._gauges.get(family) or self._counters.get(family) or self._histograms[family]
            yield from instrument.collect()


class Metrics(Collector):
    """An observer, and a collector of what it has seen, of one `cluster`. Safe to call from many threads.

    `generation` grows with each change; it is 0 before there is anything to tell.
    """

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self._lock = threading.Lock()
        self._shown = _Instruments(cluster)
        self._before: Mapping[str, Metric] = {}
        self._is_skipped = False
        self._last_pass: PassResult | None = None
        self._held_is_known = False
        # of planned nodes
        self._pools: dict[str, str] = {}
        self._phases: dict[str, tuple[Phase, datetime]] = {}
        self._outcomes: dict[str, Outcome] = {}
        # since when hosts have been told to reboot; the budgets of held pods, by node and pod
        self._rebooting: dict[str, datetime] = {}
        self._held: dict[tuple[str, str], str] = {}
        self._budgets: set[str] = set()
        self.is_whole = False
        self.generation = 0
        self._shown.set(of.BUILD, 1, __version__)
        self._shown.set(of.RUNNING, 0)
        self._shown.set(of.PASS_START, 0)
        for result in PassResult:
            self._shown.count(of.PASSES, 0, result)

    @contextmanager
    def _changing(self) -> Iterator[_Instruments]:
        with self._lock:
            yield self._shown
            self.generation += 1

    def observe_nodes(self, reboot_required: Mapping[str, bool], *, among_others: bool = False) -> None:
        """Which nodes wait for a reboot; one that could not be asked is not named.

        What was known is forgotten, unless there are others which were not asked.
        """
        with self._changing() as shown:
            if not among_others:
                shown.forget(of.REBOOT_REQUIRED)
            for node, required in sorted(reboot_required.items()):
                shown.set(of.REBOOT_REQUIRED, required, node)

    def observe_held(self, versions: Iterable[str]) -> None:
        """The versions that are held now."""
        with self._changing() as shown:
            self._held_is_known = True
            shown.forget(of.VERSION_HELD)
            for version in versions:
                shown.set(of.VERSION_HELD, 1, version)

    def begin_pass(self, at: datetime) -> None:
        """A pass begins: for whoever scrapes it while it hangs. It is no news to be delivered by itself."""
        with self._lock:
            self._shown.set(of.PASS_START, at.timestamp())

    def skip_pass(self) -> None:
        """The pass that is under way is to do nothing, which is no success of it either."""
        self._is_skipped = True

    def end_pass(self, result: PassResult, at: datetime) -> None:
        """A pass has ended, with or without a rollout, however: nothing is under way."""
        with self._changing() as shown:
            skipped, self._is_skipped = self._is_skipped, False
            self._last_pass = PassResult.SKIPPED if skipped and result is PassResult.OK else result
            self._let_go()
            shown.set(of.RUNNING, 0)
            shown.set(of.PASS_START, 0)
            shown.count(of.PASSES, 1, self._last_pass)
            shown.set(of.LAST_PASS, at.timestamp())
            for word in PassResult:
                shown.set(of.LAST_RESULT, word is self._last_pass, word)
            if self._last_pass is PassResult.OK:
                shown.set(of.LAST_SUCCESS, at.timestamp())

    def notify(self, event: StepEvent) -> None:
        """Take one event."""
        with self._changing() as shown:
            match event:
                case PlanReady():
                    self._plan(event.plan, event.at)
                case WaveStarted():
                    shown.set(of.WAVE, event.index)
                    shown.set(of.WAVES, event.waves)
                case NodeStep():
                    self._step(event.node, event.phase, event.at)
                case PodBlocked():
                    self._blocked(event)
                case PodReleased():
                    self._held.pop((event.node, event.pod), None)
                    self._show_held()
                case NodeFinished():
                    self._finished(event)
                case VersionHeld():
                    self._held_is_known = True
                    shown.set(of.VERSION_HELD, 1, event.version)
                case RunFinished():
                    shown.set(of.RUNNING, 0)
                    self._let_go()
                case _:
                    return

    def _plan(self, plan: RolloutPlan, at: datetime) -> None:
        shown, self.is_whole = self._shown, True
        beside = self._still_in_flight()
        self._pools = {name: self._pools.get(name, "") for name in beside} | {
            node.name: node.pool for node in plan.nodes
        }
        self._phases, self._outcomes = {}, {}
        self._let_go()
        shown.forget(of.CLUSTER, of.NODES, of.FINISHED, of.EXCLUDED, of.PHASE_START)
        shown.set(of.CLUSTER, 1, plan.cluster.server, plan.cluster.uid, plan.cluster.version)
        shown.set(of.RUNNING, 1)
        shown.set(of.WAVE, 0)
        shown.set(of.WAVES, len(plan.waves))
        for pool in sorted(set(self._pools.values())) or [""]:
            self._show_pool(pool)
        for name, (phase, since) in beside.items():
            self._enter(name, phase, since)
        for node in plan.nodes:
            self._enter(node.name, Phase.PENDING, at)
            if node.staged:
                shown.set(of.REBOOT_REQUIRED, 1, node.name)
        for exclusion in plan.excluded:
            shown.move(of.EXCLUDED, 1, exclusion.reason, exclusion.pool)

    def _show_pool(self, pool: str) -> None:
        """Zeros are said, for what is absent cannot be compared."""
        for phase in Phase:
            self._shown.set(of.NODES, 0, phase, pool)
            if phase is not Phase.DONE:
                self._shown.count(of.FAILURES, 0, phase, pool)
        for outcome in Outcome:
            self._shown.set(of.FINISHED, 0, outcome, pool)
        self._shown.observe(of.DRAIN, None, pool)
        self._shown.observe(of.REBOOT, None, pool)

    def _still_in_flight(self) -> dict[str, tuple[Phase, datetime]]:
        """Nodes of other plans that are under way beside this one, as where hosts ask for their reboots.

        Of an operating process there are none: what an earlier pass has left, the new plan takes up.
        """
        if self._last_pass is not None:
            return {}
        return {name: state for name, state in self._phases.items() if state[0] not in _NOT_IN_FLIGHT}

    def _enter(self, node: str, phase: Phase, at: datetime) -> None:
        before, _since = self._phases.get(node, (None, at))
        pool = self._pools.get(node, "")
        if before is not None:
            self._shown.move(of.NODES, -1, before, pool)
            if before not in _NOT_IN_FLIGHT:
                self._shown.remove(of.PHASE_START, node, before)
        self._phases[node] = (phase, at)
        self._shown.move(of.NODES, 1, phase, pool)
        if phase not in _NOT_IN_FLIGHT:
            self._shown.set(of.PHASE_START, at.timestamp(), node, phase)

    def _step(self, node: str, phase: Phase, at: datetime) -> None:
        before, since = self._phases.get(node, (None, at))
        if before is phase:
            return
        self._enter(node, phase, at)
        pool = self._pools.get(node, "")
        match before, phase:
            case Phase.DRAINING, Phase.DRAINED:
                self._shown.observe(of.DRAIN, _seconds(since, at), pool)
            case Phase.DRAINED, Phase.REBOOTING:
                self._rebooting[node] = at
            case _, Phase.READY if node in self._rebooting:
                self._shown.observe(of.REBOOT, _seconds(self._rebooting.pop(node), at), pool)
            case _:
                return

    def _blocked(self, event: PodBlocked) -> None:
        budget = event.budget
        if budget not in self._budgets and len(self._budgets) >= _MOST_BUDGETS:
            budget = OTHER_BUDGETS
        if (event.node, event.pod) not in self._held:
            self._budgets.add(budget)
            self._shown.count(of.HOLDS, 1, budget)
        self._held[event.node, event.pod] = budget
        self._show_held()

    def _finished(self, result: NodeFinished) -> None:
        node, pool = result.node, self._pools.get(result.node, "")
        if node in self._outcomes:
            self._shown.move(of.FINISHED, -1, self._outcomes[node], pool)
        self._outcomes[node] = result.outcome
        self._shown.move(of.FINISHED, 1, result.outcome, pool)
        self._enter(node, _last_phase(result), result.at)
        self._rebooting.pop(node, None)
        if result.succeeded:
            self._shown.set(of.REBOOT_REQUIRED, 0, node)
        elif result.outcome not in NO_FAILURES:
            self._shown.count(of.FAILURES, 1, result.phase, pool)
        self._held = {key: budget for key, budget in self._held.items() if key[0] != node}
        self._show_held()

    def _let_go(self) -> None:
        self._held.clear()
        self._show_held()

    def _show_held(self) -> None:
        self._shown.forget(of.HELD_EVICTIONS)
        for budget, number in Tally(self._held.values()).items():
            self._shown.set(of.HELD_EVICTIONS, number, budget)

    @property
    def is_ready(self) -> bool:
        """Whether cluster and hosts were read, and the last pass did not end with an error."""
        return self.generation > 0 and self._last_pass is not PassResult.ERROR

    def remember(self, text: str) -> None:
        """Take over what an earlier process has exposed: it stands until it is known anew.

        `ValueError`, or another error of the parser, for what is no such text.
        """
        families = text_string_to_metric_families(text)
        before = {family.name: self._own(family) for family in families if family.name in _NAMES}
        with self._lock:
            self._before = before

    def _own(self, family: Metric) -> Metric:
        """What it says of this cluster."""
        family.samples = [sample for sample in family.samples if sample.labels.get("cluster") == self.cluster]
        return family

    def text(self) -> bytes:
        """All of it in Prometheus' text format."""
        return generate_latest(self)

    def last_success(self) -> list[Metric]:
        """The metric that outlives failures, alone; empty where there was no success yet."""
        return [metric for metric in self.collect() if metric.name == of.LAST_SUCCESS.name and metric.samples]

    def collect(self) -> list[Metric]:
        """What the library asks for at each exposition: one moment's metrics."""
        with self._lock:
            return [self._or_before(metric) for metric in self._shown.collect()]

    def describe(self) -> list[Metric]:
        """What tells the library their names."""
        return self.collect()

    def _or_before(self, metric: Metric) -> Metric:
        """The metric, or where it is not known yet, what an earlier process has exposed."""
        is_known = metric.name != of.LAST_SUCCESS.name and self.is_whole
        if metric.name == of.VERSION_HELD.name:
            is_known = self._held_is_known
        return metric if metric.samples or is_known else self._before.get(metric.name, metric)


def _seconds(since: datetime, until: datetime) -> float:
    """How long it was; a clock that was set back makes nothing negative."""
    return max(0.0, (until - since).total_seconds())


def _last_phase(result: NodeFinished) -> Phase:
    """Where a node stands that has ended: one that was given back untouched waits as before."""
    if result.succeeded:
        return Phase.DONE
    return Phase.PENDING if result.outcome in NO_FAILURES else Phase.FAILED
