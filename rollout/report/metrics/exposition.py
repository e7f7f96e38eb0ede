"""The metrics as Prometheus' library has them: its collector, and the text that is exposed."""

import threading
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from rollout import __version__
from rollout.model.progress import StepEvent
from rollout.report.metrics import families as of
from rollout.report.metrics.state import Histogram, Labels, MetricsState, PassResult, Samples


class Metrics:
    """An observer, and a collector of what it has seen, of one `cluster`. Safe to call from many threads.

    `registry` holds nothing else. `generation` grows with each change; it is 0 before there is anything to tell.
    """

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self._state = MetricsState()
        self._lock = threading.Lock()
        self.generation = 0
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)

    def notify(self, event: StepEvent) -> None:
        """Take one event."""
        with self._lock:
            self._state.take(event)
            self.generation += 1

    def end_pass(self, result: PassResult, at: datetime) -> None:
        """A pass has ended, with or without a rollout."""
        with self._lock:
            self._state.end_pass(result, at)
            self.generation += 1

    def observe_nodes(self, reboot_required: Mapping[str, bool]) -> None:
        """Which nodes wait for a reboot; one that could not be asked is not named."""
        with self._lock:
            self._state.reboot_required = dict(reboot_required)

    def observe_held(self, versions: Iterable[str]) -> None:
        """The versions that are held now."""
        with self._lock:
            self._state.held_versions = frozenset(versions)

    def remember(self, text: str) -> None:
        """Take over from what was exposed before what outlives a process: when a pass of this cluster last went well.

        `ValueError` for what is no such text.
        """
        for family in text_string_to_metric_families(text):
            for sample in family.samples if family.name == of.LAST_SUCCESS.name else ():
                if sample.labels.get("cluster") == self.cluster:
                    with self._lock:
                        self._state.last_success = self._state.last_success or sample.value

    def text(self) -> bytes:
        """All of it in Prometheus' text format."""
        return generate_latest(self.registry)

    def collect(self) -> list[Metric]:
        """What the library asks for at each exposition: one moment's metrics."""
        with self._lock:
            return list(self._families())

    describe = collect

    def _families(self) -> Iterator[Metric]:
        yield self._plain(of.BUILD, {(__version__,): 1})
        for family, samples in self._state.samples():
            yield self._plain(family, samples)
        for family, histograms in self._state.histograms():
            yield self._histogram(family, histograms)

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
