"""Metrics of a FleetLock server: what it was asked, what it answered, and the slots as it saw them last."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from rollout.model.fleetlock import Slots, SlotState

REQUESTS = ("node_rollout_fleetlock_requests", "Answers to hosts, by request and kind of answer.")
HELD = ("node_rollout_fleetlock_slots_held", "Slots that are held, by group and state, as seen last.")
DRAINS = ("node_rollout_fleetlock_nodes_in_hand", "Nodes that this server takes through their reboots now.")
UNASKED = ("node_rollout_fleetlock_unasked_reboots", "Reboots that no host had asked for, as many as are remembered.")
UNMOVED = ("node_rollout_fleetlock_nodes_unmoved", "Nodes that their last reboot has left on the version from before.")


class FleetLockMetrics(Collector):
    """Counts answers, and asks the server for the rest. Safe to call from many threads."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._turn = threading.Lock()
        self._answers: Counter[tuple[str, str]] = Counter()
        self.slots: Callable[[], Slots] = Slots
        self.in_hand: Callable[[], int] = int
        self.unmoved: Callable[[], int] = int

    def count(self, request: str, kind: str) -> None:
        """One answer."""
        with self._turn:
            self._answers[request, kind] += 1

    def collect(self) -> Iterable[Metric]:
        """What the library asks for at each exposition."""
        with self._turn:
            answers = dict(self._answers)
        requests = CounterMetricFamily(*REQUESTS, labels=("cluster", "request", "kind"))
        for (request, kind), number in sorted(answers.items()):
            requests.add_metric((self._cluster, request, kind), number)
        yield requests
        yield from self._of_slots(self.slots())

    def _of_slots(self, slots: Slots) -> Iterable[Metric]:
        held = GaugeMetricFamily(*HELD, labels=("cluster", "group", "state"))
        groups = sorted({slot.group for slot in slots.held})
        states = Counter((slot.group, slot.state) for slot in slots.held)
        for group in groups:
            for state in SlotState:
                held.add_metric((self._cluster, group, state.value), states[group, state])
        yield held
        yield self._plain(DRAINS, self.in_hand())
        yield self._plain(UNASKED, len(slots.unasked))
        yield self._plain(UNMOVED, self.unmoved())

    def _plain(self, family: tuple[str, str], value: float) -> Metric:
        metric = GaugeMetricFamily(*family, labels=("cluster",))
        metric.add_metric((self._cluster,), value)
        return metric
