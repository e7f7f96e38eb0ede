"""Simulate the rollout's nodes and pods in time.

Without a known past run, pods use all of their grace period.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from rollout.model.cluster import Node, Pod
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

# Nodes times pods. Without a known past, larger rollouts take too long to play, and are estimated
# from their budgets' rates.
_MOST_PLAYED = 300_000


def drain_timeout(rules: Policy) -> int:
    return max(1, round(rules.drain.timeout))


def slowest_ending(nodes: Sequence[Sequence[Pod]], rules: DrainPolicy, pace: Pace) -> int:
    """Return how many seconds the slowest pod takes to end; `nodes` are the pods of each."""
    seconds = 0
    # The longest grace period of pods without a known past, by node.
    graces = list[int]()
    for pods in nodes:
        with_past = dict[str, Pod]()
        without_past = list[Pod]()
        for pod in pods:
            if pod.owner and pod.owner.uid in pace.endings:
                with_past[pod.owner.uid] = pod
            else:
                without_past.append(pod)
        if without_past:
            graces.append(max(rules.grace_of(pod.grace_period) for pod in without_past))
        for uid, pod in with_past.items():
            seconds = max(seconds, pace.ending_of((uid,), rules.grace_of(pod.grace_period)))
    if graces:
        seconds = max(seconds, pace.ending(max(graces), len(graces)))
    return seconds


@dataclass(frozen=True, slots=True)
class PlayedLayout:
    """The waves that find room; `arrivals` is how many pods moved to each node."""

    waves: tuple[Batch, ...]
    arrivals: Mapping[str, int]
    warnings: tuple[PlanWarning, ...]


@dataclass(frozen=True, slots=True)
class Simulator:
    """Plays layouts; `nodes` and their evicted pods, `leaving`, are by node name."""

    policy: Policy
    pools: Pools
    pace: Pace
    limits: WaveLimits
    index: BudgetIndex
    nodes: Mapping[str, Node]
    leaving: Mapping[str, Sequence[Pod]]
    surging: Mapping[str, int]

    def play(self, layout: Layout, scheduler: Scheduler) -> PlayedLayout:
        """Play the waves in order; `scheduler` has the cluster before the rollout.

        A node whose pods lack room only because others are away goes in a later wave.
        """
        limits = layout.limits
        flow = self._pod_flow(limits, scheduler)
        places = PodPlaces(flow, limits.allowed)
        wave_run = _SideBySideRun if self._is_played(layout) else _EstimatedRun
        played = list[Batch]()
        ahead = list(layout.waves)
        waiting_nodes = list[NodeDemand]()
        while ahead or waiting_nodes:
            # Nodes that wait get a wave of their own at the end of their part.
            if waiting_nodes and not (ahead and ahead[0].parts == played[-1].parts):
                ahead.insert(0, replace(played[-1], demands=()))
            wave = ahead.pop(0)
            if wave.rolling is None:
                wave, waiting_nodes = places.fit(wave, waiting_nodes, limits)
            run_class = wave_run if wave.rolling is None else _RollingRun
            run = run_class(self, flow, places, wave)
            run.play(is_last=not (ahead or waiting_nodes))
            played.append(run.timed())
        return PlayedLayout(tuple(played), places.arrivals, tuple(dict.fromkeys(places.warnings)))

    def _pod_flow(self, limits: WaveLimits, scheduler: Scheduler) -> PodFlow:
        residents = dict[str, dict[str, Pod]]()
        # Pods that stay on their node are not simulated.
        for name, pods in self.leaving.items():
            residents[name] = {pod.uid: pod for pod in pods}
        return PodFlow(
            events=EventQueue(),
            pace=self.pace,
            permits={key: rate.permits for key, rate in limits.rates.items()},
            handovers={key: rate.handover for key, rate in limits.rates.items() if rate.handover},
            rules=self.policy.drain,
            index=self.index,
            scheduler=scheduler,
            residents=residents,
            surging=self.surging,
        )

    def _is_played(self, layout: Layout) -> bool:
        # The start of a rolling node is only known if everything before it was played.
        if self.pace.is_known or any(wave.rolling for wave in layout.waves):
            return True
        pods = sum(len(pods) for pods in self.leaving.values())
        return pods * len(self.leaving) <= _MOST_PLAYED

    def estimated_seconds(self, layout: Layout) -> int:
        pauses = self.drain_delay + self.reboot_delay + self.policy.gates.soak
        other = round(pauses + self.pace.reboot(drain=0, nodes=1) + self.pace.usual_settle)
        return sum(layout.limits.drain_seconds(wave.demands) + other for wave in layout.waves)

    @property
    def drain_delay(self) -> int:
        return round(self.policy.exclude_from_load_balancers + self.policy.courtesy.drain_delay)

    @property
    def reboot_delay(self) -> int:
        return round(self.policy.courtesy.reboot_delay)

    def seconds_away(self, batch: Batch) -> Mapping[str, int]:
        usual = self.pace.reboot(drain=0, nodes=1)
        seconds = dict[str, int]()
        for demand in batch.demands:
            last_run = round(last_run_seconds(self.nodes[demand.name]) or 0)
            seconds[demand.name] = self.limits.drain_seconds((demand,)) + max(usual, last_run)
        return seconds

    def slowest_ending(self, names: Sequence[str]) -> int:
        pods_of_nodes = [self.leaving.get(name, ()) for name in names]
        return slowest_ending(pods_of_nodes, self.policy.drain, self.pace)


class _WaveSimulation:
    """One wave as it is played. Times are seconds from the rollout's start, by node.

    `_timeouts` do not include `_completion_waits`, which are in seconds.
    """

    def __init__(
        self, simulator: Simulator, flow: PodFlow, places: PodPlaces, batch: Batch
    ) -> None:
        self.simulator = simulator
        self.flow = flow
        self.places = places
        self.batch = batch
        self.names = batch.names
        self._timeouts = dict[str, int]()
        self._completion_waits = dict[str, int]()
        for demand in batch.demands:
            self._timeouts[demand.name] = drain_timeout(simulator.pools.rules(demand.pool))
            self._completion_waits[demand.name] = demand.wait
        self.begun_at = dict[str, int]()
        self.empty_at = dict[str, int]()
        self.back_at = dict[str, int]()
        self.earliest_back = dict[str, int]()
        self.wave_begun_at = flow.events.now

    @property
    def now(self) -> int:
        return self.flow.events.now

    @property
    def are_back(self) -> bool:
        return len(self.back_at) == len(self.names)

    def timed(self) -> Batch:
        simulator = self.simulator
        soak = round(simulator.policy.gates.soak)
        seconds = self.now - self.wave_begun_at
        drain = max(self.empty_at[name] - self.begun_at[name] for name in self.names)
        # Past runs did not wait for these pods.
        usual_drain = drain - max(self._completion_waits.values())
        delay = simulator.reboot_delay
        reboot = delay + simulator.pace.reboot(usual_drain + delay, len(self.names))
        if self.batch.rolling is None:
            settle = max(0, seconds - drain - reboot - soak)
            return replace(
                self.batch, estimate=Estimate(seconds, drain, reboot, settle=settle, soak=soak)
            )
        # Nodes were played at the usual pace, but the slowest may take longer.
        slowest = max(simulator.slowest_ending(self.names), *self._completion_waits.values())
        seconds = max(seconds, simulator.drain_delay + slowest + reboot)
        begins = {name: self.begun_at[name] for name in self.names}
        rolling = replace(self.batch.rolling, begins=begins)
        estimate = Estimate(seconds, drain, reboot, soak=soak)
        return replace(self.batch, rolling=rolling, estimate=estimate)

    def begin(self, name: str, ending: int, nodes: int) -> None:
        """Start one of `nodes` that go together; it drains for at least `ending` seconds."""
        events = self.flow.events
        drains_at = self.now + self.simulator.drain_delay
        self.begun_at[name] = self.now
        earliest = drains_at + max(ending, self._completion_waits[name])
        emptied = partial(self._note_empty, name, earliest, nodes)
        events.at(drains_at, lambda: self.flow.drain(name, emptied))
        events.at(drains_at + self._timeouts[name], lambda: self._give_up(name, emptied))

    def _give_up(self, name: str, emptied: Action) -> None:
        if name not in self.empty_at:
            self.flow.give_up(name)
            emptied()

    def _note_empty(self, name: str, earliest: int, nodes: int) -> None:
        if name in self.empty_at:
            return
        simulator = self.simulator
        begun_at = self.begun_at[name]
        wait = self._completion_waits[name]
        latest = begun_at + simulator.drain_delay + wait + self._timeouts[name]
        empty_at = min(max(self.now, earliest), latest)
        self.empty_at[name] = empty_at
        reboots_at = empty_at + simulator.reboot_delay
        usual_back = reboots_at + simulator.pace.reboot(reboots_at - begun_at - wait, nodes)
        back_at = max(usual_back, self.earliest_back.get(name, 0))
        self.flow.events.at(back_at, lambda: self.return_node(name))

    def return_node(self, name: str) -> None:
        self.back_at[name] = self.now
        self.flow.open(name)

    def pods(self, name: str) -> list[Pod]:
        return list(self.flow.residents.get(name, {}).values())


class _SideBySideRun(_WaveSimulation):
    """All nodes at once; the wave ends when as many pods are ready as before."""

    def play(self, *, is_last: bool) -> None:
        names = self.names
        events = self.flow.events
        simulator = self.simulator
        # `PodPlaces.fit` has moved the pods already; here they move one by one.
        self.places.put_back(names)
        pods_of_nodes = list(map(self.pods, names))
        unready_before = self.flow.unready_count
        self.flow.close(names)
        slowest = slowest_ending(pods_of_nodes, simulator.policy.drain, simulator.pace)
        for name in names:
            self.begin(name, slowest, len(names))
        events.run(lambda: self.are_back)
        # The rollout does not wait for the last wave to settle.
        if not is_last:
            self._await_settled(list(chain.from_iterable(pods_of_nodes)), unready_before)
        events.pass_until(self.now + round(simulator.policy.gates.soak))

    def _await_settled(self, moved: Sequence[Pod], unready_before: int) -> None:
        """Wait until as many pods are ready as before, at least as long as past waves took."""
        events = self.flow.events
        back_at = self.now
        deadline = back_at + round(self.simulator.policy.settle_timeout)
        events.run(lambda: self.flow.unready_count <= unready_before, until=deadline)
        if moved:
            events.pass_until(back_at + self.simulator.pace.settle(moved))


class _EstimatedRun(_WaveSimulation):
    """A wave whose pods move at once; its time is estimated from its budgets' rates."""

    def play(self, *, is_last: bool) -> None:  # noqa: ARG002 - the interface of runs
        flow = self.flow
        self._pods = list(chain.from_iterable(map(self.pods, self.names)))
        for name in self.names:
            del flow.residents[name]
        for pod in self._pods:
            node = flow.scheduler.node_of(pod)
            flow.residents.setdefault(node, {})[pod.uid] = pod
        flow.scheduler.untaint(self.names)

    def timed(self) -> Batch:
        simulator = self.simulator
        pace = simulator.pace
        slowest = simulator.slowest_ending(self.names)
        ending = max(simulator.limits.drain_seconds(self.batch.demands), slowest)
        longest_wait = max(self._completion_waits.values())
        drain = simulator.drain_delay + min(longest_wait + max(self._timeouts.values()), ending)
        reboot = simulator.reboot_delay + pace.reboot(drain - longest_wait, len(self.names))
        settle = 0
        if self._pods:
            starting = pace.starting({pod.owner.uid for pod in self._pods if pod.owner})
            settle = max(starting - reboot, pace.settle(self._pods))
        soak = round(simulator.policy.gates.soak)
        seconds = drain + reboot + settle + soak
        return replace(
            self.batch, estimate=Estimate(seconds, drain, reboot, settle=settle, soak=soak)
        )


class _RollingRun(_WaveSimulation):
    """Rolling nodes: the next starts once the cluster has settled after one is back.

    A node has settled when no more pods of its owners (UIDs) are away than at its start
    (`_away_before`), except for those that other nodes in flight have evicted. `_nodes_away` has,
    by owner, the nodes that had ready pods of it and are not back; `_unsettled` those that are back
    and wait for it.
    """

    def __init__(
        self, simulator: Simulator, flow: PodFlow, places: PodPlaces, batch: Batch
    ) -> None:
        super().__init__(simulator, flow, places, batch)
        self._queue = RollingQueue(batch.rolling or Rolling(1), self.names)
        self._away_before = dict[str, dict[str, int]]()
        self._least_settle = dict[str, int]()
        self._away_before_by_owner: dict[str, dict[str, int]] = defaultdict(dict)
        self._nodes_away: dict[str, set[str]] = defaultdict(set)
        self._unsettled: dict[str, list[str]] = defaultdict(list)

    def play(self, *, is_last: bool) -> None:
        self.flow.on_ready = self._check_unsettled
        self._begin_next()
        self.flow.events.run(lambda: self.are_back and (is_last or not self._away_before))

    def return_node(self, name: str) -> None:
        super().return_node(name)
        for owner in self._away_before[name]:
            self._nodes_away[owner].discard(name)
        events = self.flow.events
        events.at(self.now + self._least_settle[name], lambda: self._check_settled(name))
        settle_deadline = self.now + round(self.simulator.policy.settle_timeout)
        events.at(settle_deadline, lambda: self._free_place(name))

    def _begin_next(self) -> None:
        for name in self._queue.begin_all():
            self._begin_one(name)

    def _begin_one(self, name: str) -> None:
        pods = self.pods(name)
        simulator = self.simulator
        away_before = dict[str, int]()
        for owner in self.flow.ready_on(name):
            # Pods of nodes in flight are away only for now.
            counts = [self.flow.away[owner], *self._away_before_by_owner[owner].values()]
            away_before[owner] = min(counts)
            self._away_before_by_owner[owner][name] = away_before[owner]
            self._nodes_away[owner].add(name)
        self._away_before[name] = away_before
        # Its host may boot more slowly than most.
        self.earliest_back[name] = self.now + round(last_run_seconds(simulator.nodes[name]) or 0)
        self._least_settle[name] = simulator.pace.settle(pods) if pods else 0
        self.places.note_drain(name)
        self.flow.close((name,))
        ending = slowest_ending((pods,), simulator.policy.drain, simulator.pace)
        self.begin(name, ending, nodes=1)

    def _check_unsettled(self, owner: str) -> None:
        for name in self._unsettled.pop(owner, ()):
            self._check_settled(name)

    def _check_settled(self, name: str) -> None:
        """Free the node's place a soak after all owners of its pods have as many as before.

        `_check_unsettled` repeats this when an owner gets a pod.
        """
        if name not in self._away_before:
            return  # Its place is free already.
        for owner, away_before in self._away_before[name].items():
            if self._lacks_pods(owner, away_before):
                self._unsettled[owner].append(name)
                return
        soaked_at = self.now + round(self.simulator.policy.gates.soak)
        self.flow.events.at(soaked_at, lambda: self._free_place(name))

    def _lacks_pods(self, owner: str, away_before: int) -> bool:
        """Whether more pods are away than before, not counting nodes in flight."""
        more_away = self.flow.away[owner] - away_before
        if more_away <= 0:
            return False
        nodes_away = self._nodes_away[owner]
        return more_away > sum(self.flow.evicted_ready(node, owner) for node in nodes_away)

    def _free_place(self, name: str) -> None:
        away_before = self._away_before.pop(name, None)
        if away_before is None:
            return
        for owner in away_before:
            del self._away_before_by_owner[owner][name]
        self._queue.end(name)
        self._begin_next()
