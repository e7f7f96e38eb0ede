"""What events make of the metrics: the instruments of Prometheus' library, and the text that is exposed."""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum
from itertools import pairwise

from prometheus_client import Counter, Gauge, Histogram, Metric, disable_created_metrics, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from rollout import __version__
from rollout.model.progress import (
    NodeFinished,
    NodeStep,
    Outcome,
    Phase,
    PlanReady,
    PodBlocked,
    RunFinished,
    StepEvent,
    VersionHeld,
)
from rollout.report.metrics import families as of
from rollout.report.run_view import NodeView, RunView


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


_REBOOT_BEGINS = (Phase.DRAINED, Phase.REBOOTING)
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
        self._view = RunView()
        # of planned nodes, and of budgets those with a series of their own
        self._pools: dict[str, str] = {}
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

    def observe_lateness(self, seconds: float) -> None:
        """By how much the forecast is later than the date that was given; infinite for never."""
        with self._changing() as shown:
            shown.set(of.LATE, seconds)

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
            self._let_go(at)
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
                    self._plan(event)
                case NodeStep():
                    self._step(event)
                case PodBlocked():
                    self._blocked(event)
                case NodeFinished():
                    self._finished(event)
                case VersionHeld():
                    self._held_is_known = True
                    shown.set(of.VERSION_HELD, 1, event.version)
                case RunFinished():
                    # plans that stand side by side have nodes under way still
                    shown.set(of.RUNNING, 0)
                    self._let_go(event.at)
                case _:
                    self._view.take(event)

    def _plan(self, event: PlanReady) -> None:
        """Begin anew, but for nodes of other plans that are under way beside this one, as where hosts ask to reboot.

        Of an operating process there are none: what an earlier pass has left, the new plan takes up.
        """
        shown, plan, self.is_whole = self._shown, event.plan, True
        pools = {node.name: node.pool for node in plan.nodes}
        in_flight = self._view.in_flight if self._last_pass is None else ()
        beside = {node.name: node for node in in_flight if node.name not in pools}
        self._view = RunView(nodes=beside)
        self._view.take(event)
        self._pools = {name: self._pools.get(name, "") for name in beside} | pools
        shown.forget(of.CLUSTER, of.EXCLUDED)
        shown.set(of.CLUSTER, 1, plan.cluster.server, plan.cluster.uid, plan.cluster.version)
        shown.set(of.RUNNING, 1)
        for pool in self._all_pools:
            for phase in Phase:
                if phase is not Phase.DONE:
                    shown.count(of.FAILURES, 0, phase, pool)
            shown.observe(of.DRAIN, None, pool)
            shown.observe(of.REBOOT, None, pool)
        for node in plan.nodes:
            if node.staged:
                shown.set(of.REBOOT_REQUIRED, 1, node.name)
        for exclusion in plan.excluded:
            shown.move(of.EXCLUDED, 1, exclusion.reason, exclusion.pool)

    @property
    def _all_pools(self) -> Sequence[str]:
        return sorted(set(self._pools.values())) or [""]

    def _step(self, event: NodeStep) -> None:
        """Measure what a new phase ends: a drain that emptied its node, or a reboot that this process began."""
        before = self._view.nodes.get(event.node, NodeView(event.node)).phase
        self._view.take(event)
        if event.phase is before:
            return
        pool, phases = self._pools.get(event.node, ""), self._view.nodes[event.node].phases
        if (before, event.phase) == (Phase.DRAINING, Phase.DRAINED):
            self._shown.observe(of.DRAIN, _seconds(phases[-1].begin, event.at), pool)
        asked = [then.begin for last, then in pairwise(phases) if (last.phase, then.phase) == _REBOOT_BEGINS]
        if event.phase is Phase.READY and asked:
            self._shown.observe(of.REBOOT, _seconds(asked[-1], event.at), pool)

    def _blocked(self, event: PodBlocked) -> None:
        node = self._view.nodes.get(event.node)
        if not (node and event.pod in node.held):
            if len(self._budgets) < _MOST_BUDGETS:
                self._budgets.add(event.budget)
            self._shown.count(of.HOLDS, 1, self._series(event.budget))
        self._view.take(event)

    def _series(self, budget: str) -> str:
        return budget if budget in self._budgets else OTHER_BUDGETS

    def _finished(self, event: NodeFinished) -> None:
        self._view.take(event)
        if event.succeeded:
            self._shown.set(of.REBOOT_REQUIRED, 0, event.node)
        elif event.outcome.is_failure:
            self._shown.count(of.FAILURES, 1, event.phase, self._pools.get(event.node, ""))

    def _let_go(self, at: datetime) -> None:
        for node in self._view.nodes.values():
            node.let_go(at)

    def _show_run(self) -> None:
        """How the rollout stands; zeros are said, for what is absent cannot be compared."""
        shown, view = self._shown, self._view
        if not view.plans:
            return
        shown.forget(of.NODES, of.FINISHED, of.PHASE_START, of.HELD_EVICTIONS)
        shown.set(of.WAVE, view.waves[-1].index if view.waves else 0)
        shown.set(of.WAVES, view.waves[-1].of if view.waves else len(view.plans[-1].waves))
        for pool in self._all_pools:
            for phase in Phase:
                shown.set(of.NODES, 0, phase, pool)
            for outcome in Outcome:
                shown.set(of.FINISHED, 0, outcome, pool)
        for name in {**self._pools, **view.nodes}:
            self._show_node(view.nodes.get(name) or NodeView(name), self._pools.get(name, ""))

    def _show_node(self, node: NodeView, pool: str) -> None:
        phase = _phase(node)
        self._shown.move(of.NODES, 1, phase, pool)
        if node.end:
            self._shown.move(of.FINISHED, 1, node.end.outcome, pool)
        elif node.since and phase not in _NOT_IN_FLIGHT:
            self._shown.set(of.PHASE_START, node.since.timestamp(), node.name, phase)
        for hold in node.held.values():
            self._shown.move(of.HELD_EVICTIONS, 1, self._series(hold.event.budget))

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
            self._show_run()
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


def _phase(node: NodeView) -> Phase:
    """Where a node stands: one that was given back untouched waits as before."""
    if node.phase:
        return node.phase
    if node.end and node.end.outcome.is_failure:
        return Phase.FAILED
    return Phase.DONE if node.end and node.end.succeeded else Phase.PENDING
