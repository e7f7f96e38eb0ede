"""The metrics as Prometheus' library has them: its collector, and the text that is exposed."""

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from datetime import datetime

from prometheus_client import Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from rollout import __version__
from rollout.model.progress import StepEvent
from rollout.report.metrics import families as of
from rollout.report.metrics.state import Histogram, Labels, MetricsState, PassResult, Samples

# as the library names families
_NAMES = frozenset(family.name.removesuffix("_total") for family in of.FAMILIES)


class Metrics(Collector):
    """An observer, and a collector of what it has seen, of one `cluster`. Safe to call from many threads.

    `generation` grows with each change; it is 0 before there is anything to tell.
    """

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self._state = MetricsState()
        self._lock = threading.Lock()
        self._before: Mapping[str, Metric] = {}
        self._is_skipped = False
        self.generation = 0

    def notify(self, event: StepEvent) -> None:
        """Take one event."""
        with self._changing() as state:
            state.take(event)

    def observe_nodes(self, reboot_required: Mapping[str, bool], *, among_others: bool = False) -> None:
        """Which nodes wait for a reboot; one that could not be asked is not named.

        What was known is forgotten, unless there are others which were not asked.
        """
        with self._changing() as state:
            state.reboot_required = {**(state.reboot_required if among_others else {}), **reboot_required}

    def observe_held(self, versions: Iterable[str]) -> None:
        """The versions that are held now."""
        with self._changing() as state:
            state.held_versions = frozenset(versions)

    def begin_pass(self, at: datetime) -> None:
        """A pass begins: for whoever scrapes it while it hangs. It is no news to be delivered by itself."""
        with self._lock:
            self._state.pass_began = at

    def skip_pass(self) -> None:
        """The pass that is under way is to do nothing, which is no success of it either."""
        self._is_skipped = True

    def end_pass(self, result: PassResult, at: datetime) -> None:
        """A pass has ended, with or without a rollout."""
        with self._changing() as state:
            skipped, self._is_skipped = self._is_skipped, False
            state.end_pass(PassResult.SKIPPED if skipped and result is PassResult.OK else result, at)

    @contextmanager
    def _changing(self) -> Iterator[MetricsState]:
        with self._lock:
            yield self._state
            self.generation += 1

    @property
    def is_whole(self) -> bool:
        """Whether a plan was seen: before the first, what an earlier process has exposed is the better half."""
        return self._state.identity is not None

    @property
    def is_ready(self) -> bool:
        """Whether cluster and hosts were read, and the last pass did not end with an error."""
        last = self._state.last_pass
        return self.generation > 0 and (last is None or last[0] is not PassResult.ERROR)

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
        """What the library asks for at each exposition: one moment's metrics; whoever tells of more hardly waits."""
        with self._lock:
            samples = [(family, dict(values)) for family, values in self._state.samples()]
            histograms = [(family, deepcopy(durations)) for family, durations in self._state.histograms()]
        return [self._or_before(metric) for metric in self._families(samples, histograms)]

    def describe(self) -> list[Metric]:
        """What tells the library their names."""
        return self.collect()

    def _or_before(self, metric: Metric) -> Metric:
        """The metric, or where it is not known yet, what an earlier process has exposed."""
        is_known = metric.name != of.LAST_SUCCESS.name and self.is_whole
        if metric.name == of.VERSION_HELD.name:
            is_known = self._state.held_versions is not None
        return metric if metric.samples or is_known else self._before.get(metric.name, metric)

    def _families(
        self,
        samples: Iterable[tuple[of.Family, Samples]],
        histograms: Iterable[tuple[of.Family, Mapping[Labels, Histogram]]],
    ) -> Iterator[Metric]:
        yield self._plain(of.BUILD, {(__version__,): 1})
        for family, values in samples:
            yield self._plain(family, values)
        for family, durations in histograms:
            yield self._histogram(family, durations)

    def _plain(self, family: of.Family, samples: Samples) -> Metric:
        kind = CounterMetricFamily if family.kind is of.Kind.COUNTER else GaugeMetricFamily
        metric = kind(family.name, family.help, labels=("cluster", *family.labels))
        for values, value in samples.items():
            metric.add_metric((self.cluster, *values), float(value))
        return metric

    def _histogram(self, family: of.Family, histograms: Mapping[Labels, Histogram]) -> Metric:
        metric = HistogramMetricFamily(family.name, family.help, labels=("cluster", *family.labels))
        for values, histogram in histograms.items():
            metric.add_metric((self.cluster, *values), histogram.cumulative, histogram.total)
        return metric
