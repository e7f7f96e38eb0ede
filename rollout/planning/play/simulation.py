"""Without a known past run, pods use all of their grace period."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
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

# Nodes times pods; without past reboots, larger rollouts are estimated from budgets' rates.
_MOST_PLAYED = 300_000


def drain_timeout_seconds(rules: Policy) -> int:
    return max(1, round(rules.drain.timeout))


def slowest_ending_seconds(
    pods_of_nodes: Sequence[Sequence[Pod]], rules: DrainPolicy, pace: Pace
) -> int:
    """Return how long the pods take to end, on the slowest of the nodes."""
    slowest = 0
    # On each node, of pods whose owner has no past.
    longest_graces = list[int]()
    for pods in pods_of_nodes:
        # One of each owner with a past is enough: they are alike.
        pod_by_owner = dict[str, Pod]()
        without_past = list[Pod]()
        for pod in pods:
            if pod.owner and pod.owner.uid in pace.endings_by_owner:
                pod_by_owner[pod.owner.uid] = pod
            else:
                without_past.append(pod)
        if without_past:
            longest_graces.append(max(rules.grace_of(pod.grace_period) for pod in without_past))
        for uid, pod in pod_by_owner.items():
            grace = rules.grace_of(pod.grace_period)
            slowest = max(slowest, pace.ending_seconds_of((uid,), grace))
    if longest_graces:
        ending = pace.ending_seconds(max(longest_graces), len(longest_graces))
        slowest = max(slowest, ending)
    return slowest


class PlayedLayout(Struct, frozen=True):
    """Waves as played: each has only nodes that find room together."""

    waves: tuple[Batch, ...]
    # Pods that had moved to each node by its drain.
    arrivals: Mapping[str, int]
    warnings: tuple[PlanWarning, ...]


class Simulator(Struct, frozen=True):
    """Plays layouts: which nodes find room, and how long they take."""

    policy: Policy
    pools: Pools
    pace: Pace
    limits: WaveLimits
    index: BudgetIndex
    nodes: Mapping[str, Node]
    # What each node's drain moves elsewhere.
    leaving: Mapping[str, Sequence[Pod]]
    # Deployments whose restart moves a pod, by the pod's UID.
    surging: Mapping[str, Deployment]
    # Their running pods, by Deployment.
    replicas: Mapping[str, Sequence[Pod]]

    def play(self, layout: Layout, scheduler: Scheduler) -> PlayedLayout:
        """Play the waves in order; `scheduler` has the cluster before the rollout.

        A node whose pods lack room because others are away goes later.
        """
        limits = layout.limits
        flow = self._pod_flow(limits, scheduler)
        places = PodPlaces(flow, limits.allowed)
        is_simulated = self._moves_one_by_one(layout)
        together_class = _TogetherSimulation if is_simulated else _EstimatedSimulation
        played = list[Batch]()
        ahead = list(layout.waves)
        # Nodes that lacked room in an earlier wave of their part.
        waiting_nodes = list[NodeDemand]()
        while ahead or waiting_nodes:
            # Waiting nodes get a wave at the end of their part.
            if waiting_nodes and not (ahead and ahead[0].parts == played[-1].parts):
                ahead.insert(0, replace(played[-1], demands=()))
            wave = ahead.pop(0)
            if wave.rolling is None:
                wave, waiting_nodes = places.move_wave(wave, waiting_nodes, limits)
            simulation_class = together_class if wave.rolling is None else _RollingSimulation
            simulation = simulation_class(self, flow, places, wave)
            simulation.play(is_last=not (ahead or waiting_nodes))
            played.append(simulation.estimated_wave())
        return PlayedLayout(tuple(played), places.arrivals, tuple(dict.fromkeys(places.warnings)))

    def _pod_flow(self, limits: WaveLimits, scheduler: Scheduler) -> PodFlow:
        residents = dict[str, dict[str, Pod]]()
        for name, pods in self.leaving.items():
            residents[name] = {pod.uid: pod for pod in pods}
        return PodFlow(
            events=EventQueue(),
            pace=self.pace,
            permits={key: rate.permits for key, rate in limits.rates.items()},
            handovers={
                key: rate.handover_seconds
                for key, rate in limits.rates.items()
                if rate.handover_seconds
            },
            rules=self.policy.drain,
            index=self.index,
            scheduler=scheduler,
            residents=residents,
            surging=dict(self.surging),
            replicas=self.replicas,
        )

    def _moves_one_by_one(self, layout: Layout) -> bool:
        # A rolling node's start depends on all before it.
        if self.pace.has_past_reboots or any(wave.rolling for wave in layout.waves):
            return True
        pods = sum(len(pods) for pods in self.leaving.values())
        return pods * len(self.leaving) <= _MOST_PLAYED

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
            last_run = round(last_run_seconds(self.nodes[demand.name]) or 0)
            seconds[demand.name] = drain + max(usual_reboot, last_run)
        return seconds

    def slowest_ending_seconds(self, names: Sequence[str]) -> int:
        pods_of_nodes = [self.leaving.get(name, ()) for name in names]
        return slowest_ending_seconds(pods_of_nodes, self.policy.drain, self.pace)


class _WaveSimulation:
    """One wave as played; times are seconds since the rollout's start."""

    def __init__(self, simulator: Simulator, flow: PodFlow, places: PodPlaces, wave: Batch) -> None:
        self.simulator = simulator
        self.flow = flow
        self.places = places
        self.wave = wave
        self.names = wave.names
        # By node, in seconds. Pods to evict have this timeout from the drain's start, even while
        # others are awaited. Pods that the wait for completion leaves have it from the wait's end.
        self._timeouts = dict[str, int]()
        self._completion_waits = dict[str, int]()
        self._demands = {demand.name: demand for demand in wave.demands}
        for name, demand in self._demands.items():
            rules = simulator.pools.rules(demand.pool)
            self._timeouts[name] = drain_timeout_seconds(rules)
            self._completion_waits[name] = demand.wait_seconds
        # By node.
        self.begun_at = dict[str, int]()
        self.empty_at = dict[str, int]()
        self.back_at = dict[str, int]()
        self.earliest_back = dict[str, int]()
        self.wave_begun_at = flow.events.now

    @property
    def now(self) -> int:
        return self.flow.events.now

    @property
    def are_all_back(self) -> bool:
        return len(self.back_at) == len(self.names)

    def slowest_drain_seconds(self) -> int:
        return max(self.empty_at[name] - self.begun_at[name] for name in self.names)

    def slowest_reboot_seconds(self, drain: int) -> int:
        """Return the time of the slowest reboot after `drain` seconds, including its delay."""
        simulator = self.simulator
        delay = simulator.reboot_delay
        # Past runs have no completion waits.
        before_reboot = drain - max(self._completion_waits.values()) + delay
        return delay + simulator.pace.reboot_seconds(before_reboot, len(self.names))

    def begin(self, name: str, least_drain: int, together: int) -> None:
        """Begin one of `together` nodes, to drain for at least `least_drain` seconds."""
        events = self.flow.events
        drains_at = self.now + self.simulator.drain_delay
        self.begun_at[name] = self.now
        self._completion_waits[name] = self._demands[name].wait_at(drains_at)
        earliest_empty = drains_at + max(least_drain, self._completion_waits[name])
        on_empty = partial(self._note_empty, name, earliest_empty, together)
        events.at(drains_at, lambda: self.flow.drain(name, on_empty))
        events.at(drains_at + self._timeouts[name], lambda: self._time_out(name, on_empty))

    def _time_out(self, name: str, on_empty: Action) -> None:
        """Count the node as empty, although a real drain with pods to evict would fail."""
        if name not in self.empty_at:
            self.flow.give_up_drain(name)
            on_empty()

    def _note_empty(self, name: str, earliest_empty: int, together: int) -> None:
        """Note when the node is empty, and bring it back after its reboot."""
        if name in self.empty_at:
            return
        simulator = self.simulator
        begun_at = self.begun_at[name]
        completion_wait = self._completion_waits[name]
        longest_drain = simulator.drain_delay + completion_wait + self._timeouts[name]
        empty_at = min(max(self.now, earliest_empty), begun_at + longest_drain)
        self.empty_at[name] = empty_at
        reboots_at = empty_at + simulator.reboot_delay
        # Past runs did not wait for completion.
        before_reboot = reboots_at - begun_at - completion_wait
        usual_back = reboots_at + simulator.pace.reboot_seconds(before_reboot, together)
        back_at = max(usual_back, self.earliest_back.get(name, 0))
        self.flow.events.at(back_at, lambda: self.note_back(name))

    def note_back(self, name: str) -> None:
        self.back_at[name] = self.now
        self.flow.uncordon(name)

    def pods_on(self, name: str) -> list[Pod]:
        return list(self.flow.residents.get(name, {}).values())


class _TogetherSimulation(_WaveSimulation):
    def play(self, *, is_last: bool) -> None:
        names = self.names
        events = self.flow.events
        simulator = self.simulator
        # `PodPlaces.move_wave` has moved the pods; here they move one by one.
        self.places.put_back(names)
        pods_of_nodes = list(map(self.pods_on, names))
        away_before = self.flow.away_count
        self.flow.cordon(names)
        least_drain = slowest_ending_seconds(pods_of_nodes, simulator.policy.drain, simulator.pace)
        for name in names:
            self.begin(name, least_drain, together=len(names))
        events.run(lambda: self.are_all_back)
        # A rollout does not settle after its last wave.
        if not is_last:
            self._await_settled(list(chain.from_iterable(pods_of_nodes)), away_before)
        events.pass_until(self.now + round(simulator.policy.gates.soak))

    def estimated_wave(self) -> Batch:
        seconds = self.now - self.wave_begun_at
        drain = self.slowest_drain_seconds()
        reboot = self.slowest_reboot_seconds(drain)
        soak = round(self.simulator.policy.gates.soak)
        settle = max(0, seconds - drain - reboot - soak)
        estimate = Estimate(seconds, drain, reboot, settle=settle, soak=soak)
        return replace(self.wave, estimate=estimate)

    def _await_settled(self, moved: Sequence[Pod], away_before: int) -> None:
        """Wait until as many pods are ready as before, and for past waves' time."""
        events = self.flow.events
        back_at = self.now
        deadline = back_at + round(self.simulator.policy.settle_timeout)
        events.run(lambda: self.flow.away_count <= away_before, until=deadline)
        if moved:
            events.pass_until(back_at + self.simulator.pace.least_settle_seconds(moved))


class _EstimatedSimulation(_WaveSimulation):
    """A wave timed by rates; playing it only updates where pods are."""

    def play(self, *, is_last: bool) -> None:  # noqa: ARG002 - the interface of simulations
        flow = self.flow
        self._moved_pods = list(chain.from_iterable(map(self.pods_on, self.names)))
        for name in self.names:
            del flow.residents[name]
        # `PodPlaces.move_wave` has moved the pods.
        for pod in self._moved_pods:
            node = flow.scheduler.node_of(pod)
            flow.residents.setdefault(node, {})[pod.uid] = pod
        # They are no longer pending.
        flow.scheduler.untaint(self.names)

    def estimated_wave(self) -> Batch:
        simulator = self.simulator
        pace = simulator.pace
        budgets_drain = simulator.limits.drain_seconds(self.wave.demands)
        likely_drain = max(budgets_drain, simulator.slowest_ending_seconds(self.names))
        longest_wait = max(self._completion_waits.values())
        longest_drain = longest_wait + max(self._timeouts.values())
        drain = simulator.drain_delay + min(longest_drain, likely_drain)
        reboot = simulator.reboot_delay + pace.reboot_seconds(drain - longest_wait, len(self.names))
        settle = 0
        if self._moved_pods:
            owner_uids = {pod.owner.uid for pod in self._moved_pods if pod.owner}
            starting = pace.starting_seconds(owner_uids)
            settle = max(starting - reboot, pace.least_settle_seconds(self._moved_pods))
        soak = round(simulator.policy.gates.soak)
        seconds = drain + reboot + settle + soak
        estimate = Estimate(seconds, drain, reboot, settle=settle, soak=soak)
        return replace(self.wave, estimate=estimate)


class _RollingSimulation(_WaveSimulation):
    """A wave whose next node begins once one is back and the cluster has settled.

    It settles when the node's owners have no more pods away than when it began, except those
    evicted by nodes in flight. Owners are UIDs.
    """

    def __init__(self, simulator: Simulator, flow: PodFlow, places: PodPlaces, wave: Batch) -> None:
        super().__init__(simulator, flow, places, wave)
        self._rules = wave.rolling or Rolling(1)
        self._queue = RollingQueue(self._rules, self.names)
        # How many pods were away when a node began, by node and owner, until its place is free.
        self._away_before: dict[str, dict[str, int]] = {}
        # The same by owner and node.
        self._away_before_by_owner: dict[str, dict[str, int]] = defaultdict(dict)
        # Seconds from the node's return.
        self._least_settle = dict[str, int]()
        # By owner: nodes that had its ready pods and are not back.
        self._nodes_away: dict[str, set[str]] = defaultdict(set)
        # By owner: nodes that are back and wait for its pods.
        self._unsettled: dict[str, list[str]] = defaultdict(list)

    def play(self, *, is_last: bool) -> None:
        self.flow.on_ready = self._retry_unsettled
        self._begin_next()
        self.flow.events.run(lambda: self.are_all_back and (is_last or not self._away_before))

    def estimated_wave(self) -> Batch:
        simulator = self.simulator
        played_seconds = self.now - self.wave_begun_at
        drain = self.slowest_drain_seconds()
        reboot = self.slowest_reboot_seconds(drain)
        # The slowest node may take longer than the usual pace.
        slowest_ending = simulator.slowest_ending_seconds(self.names)
        slowest_drain = max(slowest_ending, *self._completion_waits.values())
        seconds = max(played_seconds, simulator.drain_delay + slowest_drain + reboot)
        # Without a settle time: the cluster settles after each node while others are in flight.
        soak = round(simulator.policy.gates.soak)
        estimate = Estimate(seconds, drain, reboot, soak=soak)
        rolling = replace(self._rules, begins={name: self.begun_at[name] for name in self.names})
        return replace(self.wave, rolling=rolling, estimate=estimate)

    def note_back(self, name: str) -> None:
        super().note_back(name)
        for owner in self._away_before[name]:
            self._nodes_away[owner].discard(name)
        events = self.flow.events
        events.at(self.now + self._least_settle[name], lambda: self._free_place_once_settled(name))
        settle_deadline = self.now + round(self.simulator.policy.settle_timeout)
        events.at(settle_deadline, lambda: self._free_place(name))

    def _begin_next(self) -> None:
        for name in self._queue.begin_all():
            self._begin_one(name)

    def _begin_one(self, name: str) -> None:
        pods = self.pods_on(name)
        simulator = self.simulator
        away_before = dict[str, int]()
        for owner in self.flow.ready_pods_by_owner(name):
            # The least: evictions by nodes in flight are temporary.
            counts = [self.flow.away_by_owner[owner], *self._away_before_by_owner[owner].values()]
            away_before[owner] = min(counts)
            self._away_before_by_owner[owner][name] = away_before[owner]
            self._nodes_away[owner].add(name)
        self._away_before[name] = away_before
        # Its host may boot slowly.
        self.earliest_back[name] = self.now + round(last_run_seconds(simulator.nodes[name]) or 0)
        self._least_settle[name] = simulator.pace.least_settle_seconds(pods) if pods else 0
        self.places.note_drain(name)
        self.flow.cordon((name,))
        least_drain = slowest_ending_seconds((pods,), simulator.policy.drain, simulator.pace)
        self.begin(name, least_drain, together=1)

    def _retry_unsettled(self, owner: str) -> None:
        for name in self._unsettled.pop(owner, ()):
            self._free_place_once_settled(name)

    def _free_place_once_settled(self, name: str) -> None:
        """Free the node's place in flight a soak after its owners have as many pods as before.

        Until they have, `_retry_unsettled` tries again.
        """
        is_place_free = name not in self._away_before
        if is_place_free:
            return
        for owner, away_before in self._away_before[name].items():
            if self._lacks_pods(owner, away_before):
                self._unsettled[owner].append(name)
                return
        soaked_at = self.now + round(self.simulator.policy.gates.soak)
        self.flow.events.at(soaked_at, lambda: self._free_place(name))

    def _lacks_pods(self, owner: str, away_before: int) -> bool:
        """Whether more pods are away than before, without nodes in flight."""
        more_away = self.flow.away_by_owner[owner] - away_before
        if more_away <= 0:
            return False
        evicted = 0
        for node in self._nodes_away[owner]:
            evicted += self.flow.count_evicted_ready(node, owner)
        return more_away > evicted

    def _free_place(self, name: str) -> None:
        away_before = self._away_before.pop(name, None)
        if away_before is None:
            return
        for owner in away_before:
            del self._away_before_by_owner[owner][name]
        self._queue.end(name)
        self._begin_next()
