"""Without a known past run, pods use all of their grace period."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from rollout.model.cluster import Node, Pod
from rollout.model.deployment import Deployment
from rollout.model.plan import Estimate, PlanWarning, Rolling
from rollout.model.policy import DrainPolicy, Policy
from rollout.planning.drain.budgets import BudgetIndex
from rollout.planning.drain.scheduler import Scheduler
from rollout.planning.eligibility.pools import Pools
from rollout.planning.layout.rolling import RollingQueue
from rollout.planning.layout.sharing import NodeDemand, WaveLimits
from rollout.planning.layout.waves import Batch, Layout
from rollout.planning.play.pace import Pace, last_run_seconds
from rollout.planning.play.places import PodPlaces
from rollout.planning.play.pod_flow import Action, EventQueue, PodFlow

# Nodes times pods; without past reboots, larger rollouts are estimated.
_MOST_PLAYED = 300_000


def drain_timeout_seconds(rules: Policy) -> int:
    return max(1, round(rules.drain.timeout))


def slowest_ending_seconds(
    pods_of_nodes: Sequence[Sequence[Pod]], rules: DrainPolicy, pace: Pace
) -> int:
    """Return how long the pods take to terminate, on the slowest of the nodes."""
    slowest = 0
    longest_graces = list[int]()
    for pods in pods_of_nodes:
        # Pods of an owner are alike.
        pod_by_owner = dict[str, Pod]()
        graces_without_past = list[int]()
        for pod in pods:
            if pod.owner and pod.owner.uid in pace.endings_by_owner:
                pod_by_owner[pod.owner.uid] = pod
            else:
                graces_without_past.append(rules.grace_of(pod.grace_period))
        if graces_without_past:
            longest_graces.append(max(graces_without_past))
        for uid, pod in pod_by_owner.items():
            grace = rules.grace_of(pod.grace_period)
            slowest = max(slowest, pace.ending_seconds_of((uid,), grace))
    if longest_graces:
        node_count = len(longest_graces)
        slowest_without_past = pace.ending_seconds(max(longest_graces), node_count)
        slowest = max(slowest, slowest_without_past)
    return slowest


class PlayedLayout(Struct, frozen=True):
    """Waves of nodes whose pods find room together."""

    waves: tuple[Batch, ...]
    # Pods that had moved to each node by its drain.
    arrivals: Mapping[str, int]
    warnings: tuple[PlanWarning, ...]


class Simulator(Struct, frozen=True):
    """Plays a layout's waves: what finds room together, and how long it takes."""

    policy: Policy
    pools: Pools
    pace: Pace
    limits: WaveLimits
    index: BudgetIndex
    nodes: Mapping[str, Node]
    leaving: Mapping[str, Sequence[Pod]]
    # By pod UID.
    surging: Mapping[str, Deployment]
    # Running pods, by Deployment.
    replicas: Mapping[str, Sequence[Pod]]

    def play(self, layout: Layout, scheduler: Scheduler) -> PlayedLayout:
        """Play the waves in order; `scheduler` has the cluster before the rollout.

        A node whose pods lack room is postponed to another wave of the same part.
        """
        limits = layout.limits
        flow = self._pod_flow(limits, scheduler)
        places = PodPlaces(flow, limits.allowed)
        plays_evictions = self._plays_each_eviction(layout)
        unplayed = list(layout.waves)
        played = list[Batch]()
        postponed = list[NodeDemand]()
        while unplayed or postponed:
            if postponed:
                last_wave = played[-1]
                is_end_of_part = not unplayed or unplayed[0].parts != last_wave.parts
                if is_end_of_part:
                    unplayed.insert(0, replace(last_wave, demands=()))
            wave = unplayed.pop(0)
            simulation: _WaveSimulation
            if wave.rolling:
                simulation = _RollingSimulation(self, flow, places, wave)
            else:
                wave, postponed = places.move_wave(wave, postponed, limits)
                simulation_class = _TogetherSimulation if plays_evictions else _EstimatedSimulation
                simulation = simulation_class(self, flow, places, wave)
            is_last = not unplayed and not postponed
            simulation.play(is_last=is_last)
            played.append(simulation.estimated_wave())
        warnings_once = tuple(dict.fromkeys(places.warnings))
        return PlayedLayout(tuple(played), places.arrivals, warnings_once)

    def _pod_flow(self, limits: WaveLimits, scheduler: Scheduler) -> PodFlow:
        residents = dict[str, dict[str, Pod]]()
        for name, pods in self.leaving.items():
            residents[name] = {pod.uid: pod for pod in pods}
        permits = dict[str, int]()
        handovers = dict[str, int]()
        for budget, rate in limits.rates.items():
            permits[budget] = rate.permits
            if rate.handover_seconds:
                handovers[budget] = rate.handover_seconds
        return PodFlow(
            events=EventQueue(),
            pace=self.pace,
            permits=permits,
            handovers=handovers,
            rules=self.policy.drain,
            index=self.index,
            scheduler=scheduler,
            residents=residents,
            surging=dict(self.surging),
            replicas=self.replicas,
        )

    def _plays_each_eviction(self, layout: Layout) -> bool:
        # A rolling node's start depends on how each node before it went.
        if any(wave.rolling for wave in layout.waves):
            return True
        if self.pace.has_past_reboots:
            return True
        # The estimate is too rough to play a large rollout.
        pod_count = sum(len(pods) for pods in self.leaving.values())
        return pod_count * len(self.leaving) <= _MOST_PLAYED

    def estimated_seconds(self, layout: Layout) -> int:
        delays = self.drain_delay + self.reboot_delay + self.policy.gates.soak
        usual_reboot = self.pace.reboot_seconds(before_reboot=0, nodes=1)
        besides_drain = round(delays + usual_reboot + self.pace.usual_settle)
        drains = sum(layout.limits.drain_seconds(wave.demands) for wave in layout.waves)
        return drains + besides_drain * len(layout.waves)

    @property
    def drain_delay(self) -> int:
        return round(self.policy.exclude_from_load_balancers + self.policy.courtesy.drain_delay)

    @property
    def reboot_delay(self) -> int:
        return round(self.policy.courtesy.reboot_delay)

    def seconds_away(self, wave: Batch) -> Mapping[str, int]:
        usual_reboot = self.pace.reboot_seconds(before_reboot=0, nodes=1)
        seconds = dict[str, int]()
        for demand in wave.demands:
            drain = self.limits.drain_seconds((demand,))
            seconds[demand.name] = drain + max(usual_reboot, self.last_run_seconds(demand.name))
        return seconds

    def last_run_seconds(self, name: str) -> int:
        """Return 0 if unknown."""
        return round(last_run_seconds(self.nodes[name]) or 0)

    def slowest_ending_seconds(self, names: Sequence[str]) -> int:
        pods_of_nodes = [self.leaving.get(name, ()) for name in names]
        return slowest_ending_seconds(pods_of_nodes, self.policy.drain, self.pace)


class _WaveSimulation:
    """One wave as played; times are seconds since the rollout's start.

    A node begins with its cordon, is empty once its pods are gone, and is back after its reboot. A
    completion wait is what a drain first leaves to pods that must complete.
    """

    def __init__(self, simulator: Simulator, flow: PodFlow, places: PodPlaces, wave: Batch) -> None:
        self.simulator = simulator
        self.flow = flow
        self.places = places
        self.wave = wave
        self.names = wave.names
        # By node, in seconds. Pods to evict have this timeout from the drain's start. Pods that
        # have not completed have it from the wait's end.
        self._drain_timeouts = dict[str, int]()
        self._completion_waits = dict[str, int]()
        self._demands = {demand.name: demand for demand in wave.demands}
        for name, demand in self._demands.items():
            rules = simulator.pools.rules(demand.pool)
            self._drain_timeouts[name] = drain_timeout_seconds(rules)
            self._completion_waits[name] = demand.wait_seconds
        self.begun_at = dict[str, int]()
        self.empty_at = dict[str, int]()
        self.back_at = dict[str, int]()
        # Only of nodes that are known to take long.
        self.earliest_back = dict[str, int]()
        self.wave_begun_at = flow.events.now

    def play(self, *, is_last: bool) -> None:
        raise NotImplementedError

    def estimated_wave(self) -> Batch:
        raise NotImplementedError

    @property
    def now(self) -> int:
        return self.flow.events.now

    @property
    def are_all_back(self) -> bool:
        return len(self.back_at) == len(self.names)

    def slowest_drain_seconds(self) -> int:
        return max(self.empty_at[name] - self.begun_at[name] for name in self.names)

    def slowest_reboot_seconds(self, drain: int) -> int:
        """Include the reboot's delay; `drain` is in seconds."""
        simulator = self.simulator
        delay = simulator.reboot_delay
        completion_wait = max(self._completion_waits.values())
        before_reboot = drain - completion_wait + delay
        return delay + simulator.pace.reboot_seconds(before_reboot, len(self.names))

    def begin(self, name: str, least_drain: int, nodes_at_once: int) -> None:
        """`least_drain` is in seconds; `nodes_at_once` begin together.

        The more do, the longer the slowest reboot probably takes.
        """
        events = self.flow.events
        drain_start = self.now + self.simulator.drain_delay
        completion_wait = self._demands[name].completion_wait_at(drain_start)
        self.begun_at[name] = self.now
        self._completion_waits[name] = completion_wait
        earliest_empty = drain_start + max(least_drain, completion_wait)
        on_empty = partial(self._end_drain, name, earliest_empty, nodes_at_once)
        events.call_at(drain_start, lambda: self.flow.drain(name, on_empty))
        deadline = drain_start + self._drain_timeouts[name]
        events.call_at(deadline, lambda: self._time_out_drain(name, on_empty))

    def _time_out_drain(self, name: str, on_empty: Action) -> None:
        """A real drain with pods to evict would fail."""
        if name not in self.empty_at:
            self.flow.give_up_drain(name)
            on_empty()

    def _end_drain(self, name: str, earliest_empty: int, nodes_at_once: int) -> None:
        if name in self.empty_at:
            return
        simulator = self.simulator
        begun_at = self.begun_at[name]
        completion_wait = self._completion_waits[name]
        longest_drain = completion_wait + self._drain_timeouts[name]
        latest_empty = begun_at + simulator.drain_delay + longest_drain
        empty_at = min(max(self.now, earliest_empty), latest_empty)
        self.empty_at[name] = empty_at
        reboots_at = empty_at + simulator.reboot_delay
        # Past runs did not wait for completion.
        before_reboot = reboots_at - begun_at - completion_wait
        usual_back = reboots_at + simulator.pace.reboot_seconds(before_reboot, nodes_at_once)
        back_at = max(usual_back, self.earliest_back.get(name, 0))
        self.flow.events.call_at(back_at, lambda: self.return_node(name))

    def return_node(self, name: str) -> None:
        self.back_at[name] = self.now
        self.flow.uncordon(name)

    def pods_on(self, name: str) -> list[Pod]:
        return list(self.flow.residents.get(name, {}).values())


class _TogetherSimulation(_WaveSimulation):
    def play(self, *, is_last: bool) -> None:
        names = self.names
        events = self.flow.events
        simulator = self.simulator
        # `PodPlaces.move_wave` has moved the pods; here they move as budgets allow.
        self.places.put_back(names)
        pods_of_nodes = [self.pods_on(name) for name in names]
        away_before = self.flow.away_count
        self.flow.cordon(names)
        least_drain = slowest_ending_seconds(pods_of_nodes, simulator.policy.drain, simulator.pace)
        for name in names:
            self.begin(name, least_drain, nodes_at_once=len(names))
        events.run_until(lambda: self.are_all_back)
        if not is_last:
            moved_pods = list(chain.from_iterable(pods_of_nodes))
            self._await_settled(moved_pods, away_before)
        soak = round(simulator.policy.gates.soak)
        events.advance_to(self.now + soak)

    def estimated_wave(self) -> Batch:
        seconds = self.now - self.wave_begun_at
        drain = self.slowest_drain_seconds()
        reboot = self.slowest_reboot_seconds(drain)
        soak = round(self.simulator.policy.gates.soak)
        settle = max(0, seconds - drain - reboot - soak)
        estimate = Estimate(seconds, drain, reboot, settle=settle, soak=soak)
        return replace(self.wave, estimate=estimate)

    def _await_settled(self, moved_pods: Sequence[Pod], away_before: int) -> None:
        """Wait until no more pods are away than before, and as long as past waves did."""
        events = self.flow.events
        back_at = self.now
        deadline = back_at + round(self.simulator.policy.settle_timeout)
        events.run_until(lambda: self.flow.away_count <= away_before, deadline)
        if moved_pods:
            events.advance_to(back_at + self.simulator.pace.least_settle_seconds(moved_pods))


class _EstimatedSimulation(_WaveSimulation):
    def play(self, *, is_last: bool) -> None:  # noqa: ARG002 - the interface of simulations
        flow = self.flow
        self._moved_pods = list[Pod]()
        for name in self.names:
            self._moved_pods += self.pods_on(name)
            del flow.residents[name]
        for pod in self._moved_pods:
            node = flow.scheduler.node_of(pod)
            flow.residents.setdefault(node, {})[pod.uid] = pod
        flow.scheduler.untaint(self.names)

    def estimated_wave(self) -> Batch:
        simulator = self.simulator
        pace = simulator.pace
        budgets_drain = simulator.limits.drain_seconds(self.wave.demands)
        likely_drain = max(budgets_drain, simulator.slowest_ending_seconds(self.names))
        completion_wait = max(self._completion_waits.values())
        longest_drain = completion_wait + max(self._drain_timeouts.values())
        drain = simulator.drain_delay + min(longest_drain, likely_drain)
        reboot = self.slowest_reboot_seconds(drain)
        settle = 0
        if self._moved_pods:
            owner_uids = {pod.owner.uid for pod in self._moved_pods if pod.owner}
            starting_after_reboot = pace.starting_seconds(owner_uids) - reboot
            settle = max(starting_after_reboot, pace.least_settle_seconds(self._moved_pods))
        soak = round(simulator.policy.gates.soak)
        seconds = drain + reboot + settle + soak
        estimate = Estimate(seconds, drain, reboot, settle=settle, soak=soak)
        return replace(self.wave, estimate=estimate)


@dataclass(slots=True)
class _PodOwner:
    """An owner of pods on nodes in flight; all fields have names of such nodes."""

    # Pods away when the node began.
    away_before: dict[str, int] = field(default_factory=dict)
    # Nodes that had its ready pods and are not back.
    nodes_away: set[str] = field(default_factory=set)
    # Nodes that are back and wait for its pods.
    unsettled: list[str] = field(default_factory=list)

    def note_begin(self, node: str, away_now: int) -> None:
        # The least number counts, because pods that nodes in flight evicted come back.
        self.away_before[node] = min([away_now, *self.away_before.values()])
        self.nodes_away.add(node)


class _NodeInFlight(Struct, frozen=True):
    owner_uids: Sequence[str]
    # Seconds from its return.
    least_settle: int


class _RollingSimulation(_WaveSimulation):
    """A wave whose next node begins once an earlier one is back and has settled.

    A node is in flight until it has settled: each owner of its pods has no more pods away than when
    the node began, apart from those that nodes in flight have evicted.
    """

    def __init__(self, simulator: Simulator, flow: PodFlow, places: PodPlaces, wave: Batch) -> None:
        super().__init__(simulator, flow, places, wave)
        self._rules = wave.rolling or Rolling(1)
        self._queue = RollingQueue(self._rules, self.names)
        self._in_flight = dict[str, _NodeInFlight]()
        # By UID.
        self._owners: dict[str, _PodOwner] = defaultdict(_PodOwner)

    def play(self, *, is_last: bool) -> None:
        self.flow.on_ready = self._retry_unsettled
        self._begin_next_nodes()
        self.flow.events.run_until(lambda: self.are_all_back)
        # A rollout does not settle after its last wave.
        if not is_last:
            self.flow.events.run_until(lambda: not self._in_flight)

    def estimated_wave(self) -> Batch:
        simulator = self.simulator
        played_seconds = self.now - self.wave_begun_at
        drain = self.slowest_drain_seconds()
        reboot = self.slowest_reboot_seconds(drain)
        slowest_ending = simulator.slowest_ending_seconds(self.names)
        slowest_drain = max(slowest_ending, *self._completion_waits.values())
        slowest_node_seconds = simulator.drain_delay + slowest_drain + reboot
        seconds = max(played_seconds, slowest_node_seconds)
        # The cluster settles while other nodes are in flight.
        soak = round(simulator.policy.gates.soak)
        estimate = Estimate(seconds, drain, reboot, soak=soak)
        rolling = replace(self._rules, begins={name: self.begun_at[name] for name in self.names})
        return replace(self.wave, rolling=rolling, estimate=estimate)

    def return_node(self, name: str) -> None:
        """It is in flight until it has settled, or until the settle timeout."""
        super().return_node(name)
        node = self._in_flight[name]
        for uid in node.owner_uids:
            self._owners[uid].nodes_away.remove(name)
        events = self.flow.events
        events.call_at(self.now + node.least_settle, lambda: self._end_once_settled(name))
        settle_deadline = self.now + round(self.simulator.policy.settle_timeout)
        events.call_at(settle_deadline, lambda: self._end(name))

    def _begin_next_nodes(self) -> None:
        for name in self._queue.begin_all():
            self._begin_one(name)

    def _begin_one(self, name: str) -> None:
        simulator = self.simulator
        owner_uids = list(self.flow.ready_pods_by_owner(name))
        for uid in owner_uids:
            self._owners[uid].note_begin(name, self.flow.away_by_owner[uid])
        pods = self.pods_on(name)
        least_settle = simulator.pace.least_settle_seconds(pods) if pods else 0
        self._in_flight[name] = _NodeInFlight(owner_uids, least_settle)
        # Its host may boot slowly.
        self.earliest_back[name] = self.now + simulator.last_run_seconds(name)
        self.places.note_drain(name)
        self.flow.cordon((name,))
        least_drain = slowest_ending_seconds((pods,), simulator.policy.drain, simulator.pace)
        self.begin(name, least_drain, nodes_at_once=1)

    def _retry_unsettled(self, owner_uid: str) -> None:
        owner = self._owners[owner_uid]
        unsettled = owner.unsettled
        owner.unsettled = []
        for name in unsettled:
            self._end_once_settled(name)

    def _end_once_settled(self, name: str) -> None:
        """If an owner lacks pods, `_retry_unsettled` tries again when its next pod is ready."""
        if name not in self._in_flight:
            return
        for uid in self._in_flight[name].owner_uids:
            if self._lacks_pods(uid, name):
                self._owners[uid].unsettled.append(name)
                return
        soaked_at = self.now + round(self.simulator.policy.gates.soak)
        self.flow.events.call_at(soaked_at, lambda: self._end(name))

    def _lacks_pods(self, owner_uid: str, name: str) -> bool:
        """Do not count pods that nodes away have evicted."""
        owner = self._owners[owner_uid]
        more_away = self.flow.away_by_owner[owner_uid] - owner.away_before[name]
        if more_away <= 0:
            return False
        evicted_by_nodes_away = 0
        for node in owner.nodes_away:
            evicted_by_nodes_away += self.flow.count_evicted_ready(node, owner_uid)
        return more_away > evicted_by_nodes_away

    def _end(self, name: str) -> None:
        """Begin the nodes that may follow, unless the node has ended already."""
        node = self._in_flight.pop(name, None)
        if node is None:
            return
        for uid in node.owner_uids:
            del self._owners[uid].away_before[name]
        self._queue.end(name)
        self._begin_next_nodes()
