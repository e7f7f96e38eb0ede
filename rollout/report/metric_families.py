"""All metrics, in base units. `cluster` is the first label."""

from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from typing import Any, Generic, TypeVar

from msgspec import Struct
from prometheus_client import Counter, Gauge, Histogram, Metric, disable_created_metrics
from prometheus_client.registry import Collector

from rollout.model.fleetlock import Slots, SlotState

# In seconds: drains end at --drain-timeout (10m).
_DRAIN_BUCKETS = (5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
_REBOOT_BUCKETS = (30.0, 60.0, 90.0, 120.0, 180.0, 300.0, 600.0, 900.0, 1800.0)

_PREFIX = "node_rollout_"

Instrument = TypeVar("Instrument", Gauge, Counter, Histogram)


class Family(Struct, Generic[Instrument], frozen=True):
    """A metric. A call with its labels' values, except `cluster`, exposes the series."""

    instrument: Instrument
    cluster: str
    labels: tuple[str, ...]

    def __call__(self, *values: str) -> Instrument:
        return self.instrument.labels(self.cluster, *values)

    def clear(self) -> None:
        self.instrument.clear()


class _FamilyMaker(Struct, frozen=True):
    """Makes families in no registry, so that a process can have several of each."""

    cluster: str

    def gauge(self, name: str, meaning: str, *, labels: tuple[str, ...] = ()) -> Family[Gauge]:
        gauge = Gauge(_PREFIX + name, meaning, ("cluster", *labels), registry=None)
        return Family(gauge, self.cluster, labels)

    def counter(self, name: str, meaning: str, *, labels: tuple[str, ...] = ()) -> Family[Counter]:
        counter = Counter(_PREFIX + name, meaning, ("cluster", *labels), registry=None)
        return Family(counter, self.cluster, labels)

    def histogram_by_pool(
        self, name: str, meaning: str, *, buckets: Sequence[float]
    ) -> Family[Histogram]:
        labels = ("pool",)
        histogram = Histogram(
            _PREFIX + name, meaning, ("cluster", *labels), registry=None, buckets=buckets
        )
        return Family(histogram, self.cluster, labels)


class ClusterFamilies:
    def __init__(self, cluster: str) -> None:
        gauge = _FamilyMaker(cluster).gauge
        self.build = gauge(
            "build_info", "Version of rollout that wrote these metrics.", labels=("version",)
        )
        self.info = gauge(
            "cluster_info",
            "API server, UID of the kube-system namespace, and Kubernetes version.",
            labels=("server", "uid", "kubernetes"),
        )
        self.reboot_required = gauge(
            "reboot_required",
            "1 if the node has to be rebooted for an update, otherwise 0.",
            labels=("node",),
        )
        self.last_check = gauge(
            "host_last_check_timestamp_seconds",
            "Unix time at which the host last checked for updates; 0 if it no longer checks."
            " Missing while an update is staged.",
            labels=("node",),
        )
        self.hosts_behind = gauge(
            "hosts_behind",
            "Number of hosts that run an older version than the newest one in the cluster, and have"
            " not staged an update.",
        )
        self.version_held = gauge(
            "version_held",
            "1 for each version that is held.",
            labels=("version",),
        )


class RunFamilies:
    def __init__(self, cluster: str) -> None:
        maker = _FamilyMaker(cluster)
        gauge = maker.gauge
        self.running = gauge("running", "1 if a rollout is running, otherwise 0.")
        self.nodes = gauge(
            "nodes",
            "Number of planned nodes of the current or last rollout, by phase.",
            labels=("phase", "pool"),
        )
        self.finished = gauge(
            "finished_nodes",
            "Number of planned nodes that the current or last rollout has finished with, by"
            " outcome.",
            labels=("outcome", "pool"),
        )
        self.excluded = gauge(
            "excluded_nodes",
            "Number of selected nodes that the plan leaves out, by reason.",
            labels=("reason", "pool"),
        )
        self.phase_start = gauge(
            "node_phase_start_timestamp_seconds",
            "Unix time at which a node in flight entered its phase.",
            labels=("node", "phase"),
        )
        self.wave = gauge("wave", "Number of the current or last wave; 0 before the first wave.")
        self.waves = gauge("waves", "Number of waves of the current or last rollout.")
        self.held_evictions = gauge(
            "held_evictions",
            "Number of evictions that are blocked now, by disruption budget.",
            labels=("budget",),
        )
        self.drain = maker.histogram_by_pool(
            "drain_duration_seconds", "Duration of drains.", buckets=_DRAIN_BUCKETS
        )
        self.reboot = maker.histogram_by_pool(
            "reboot_duration_seconds",
            "Time from the reboot command until the node is Ready.",
            buckets=_REBOOT_BUCKETS,
        )
        self.failures = maker.counter(
            "node_failures_total",
            "Number of nodes that failed, by phase.",
            labels=("phase", "pool"),
        )
        self.rescues = maker.counter(
            "rescues_total",
            "Number of times that reboot.rescue ran for a host that did not come back.",
            labels=("pool",),
        )


class AttemptFamilies:
    """Metrics of passes and of attempts such as `apply`."""

    def __init__(self, cluster: str) -> None:
        gauge = _FamilyMaker(cluster).gauge
        counter = _FamilyMaker(cluster).counter
        self.late = gauge(
            "deadline_late_seconds",
            "Seconds by which the estimated end is later than operate.finish-by.",
        )
        self.start = gauge(
            "pass_start_timestamp_seconds",
            "Unix time at which the current pass started; 0 if none is running.",
        )
        self.ended = counter(
            "passes_total",
            "Number of passes that ended, by result; a run of apply or resume counts as one pass.",
            labels=("result",),
        )
        self.last_end = gauge(
            "last_pass_timestamp_seconds", "Unix time at which the last pass ended."
        )
        self.last_result = gauge(
            "last_pass_result",
            "1 for the result of the last pass, 0 for other results.",
            labels=("result",),
        )
        self.last_success = gauge(
            "last_success_timestamp_seconds",
            "Unix time of the end of the last pass that left no node pending.",
        )


class Families:
    def __init__(self, cluster: str) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.cluster = ClusterFamilies(cluster)
        self.run = RunFamilies(cluster)
        self.attempts = AttemptFamilies(cluster)

    @property
    def all(self) -> Sequence[Family[Any]]:
        families = list[Family[Any]]()
        for group in (self.cluster, self.run, self.attempts):
            families += vars(group).values()
        return families


class FleetLockMetrics(Collector):
    """Safe to use from many threads."""

    def __init__(self, cluster: str) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        # The FleetLock server replaces these two functions.
        self.read_slots: Callable[[], Slots] = Slots
        self.count_nodes_in_hand: Callable[[], int] = lambda: 0
        self._collect_lock = Lock()
        gauge = _FamilyMaker(cluster).gauge
        self._requests = _FamilyMaker(cluster).counter(
            "fleetlock_requests_total",
            "Responses to hosts, by request and kind of response.",
            labels=("request", "kind"),
        )
        self._held = gauge(
            "fleetlock_slots_held",
            "Slots that were held at the last check.",
            labels=("group", "state"),
        )
        self._in_hand = gauge(
            "fleetlock_nodes_in_hand", "Nodes that this FleetLock server is draining or rebooting."
        )

    def count_response(self, request: str, kind: str) -> None:
        self._requests(request, kind).inc()

    def collect(self) -> Iterable[Metric]:
        # Another scrape must not find the gauge cleared.
        with self._collect_lock:
            self._in_hand().set(self.count_nodes_in_hand())
            self._refresh_held_slots()
            metrics = list[Metric]()
            for family in (self._requests, self._held, self._in_hand):
                metrics += family.instrument.collect()
            return metrics

    def _refresh_held_slots(self) -> None:
        """Set 0 for states that no slot of a group has."""
        slots = self.read_slots().all
        self._held.clear()
        groups_and_states = [(slot.group, slot.state) for slot in slots]
        for group in {slot.group for slot in slots}:
            for state in SlotState:
                count = groups_and_states.count((group, state))
                self._held(group, state.value).set(count)
