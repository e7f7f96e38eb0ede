"""Simulate the rollout's nodes and pods in time, by the rules of its execution.

Nodes and pods are simulated together, because where pods go depends on when each event happens.
Where no past run is known, pods are assumed to use all of their grace period.
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

# Without a known past, a rollout with more nodes times pods is estimated from its budgets' rates,
# because playing it would take long.
_LARGE = 300_000


def timeout(rules: Policy) -> int:
    return max(1, round(rules.drain.timeout))


def slowest_ending(nodes: Sequence[Sequence[Pod]], rules: DrainPolicy, pace: Pace) -> int:
    seconds = 0
    # The longest grace period of pods without a known past, by node.
    graces = list[int]()
    for pods in nodes:
        known = {pod.owner.uid: pod for pod in pods if pod.owner and pod.owner.uid in pace.endings}
        unknown = [pod for pod in pods if not (pod.owner and pod.owner.uid in known)]
        if unknown:
            graces.append(max(rules.grace_of(pod.grace_period) for pod in unknown))
        for uid, pod in known.items():
            seconds = max(seconds, pace.ending_of((uid,), rules.grace_of(pod.grace_period)))
    if graces:
        seconds = max(seconds, pace.ending(max(graces), len(graces)))
    return seconds


@dataclass(frozen=True, slots=True)
class Forecast:
    """The result of playing a layout: waves that find room, with their estimates.

    `arrivals` is how many pods earlier waves moved to each node.
    """

    waves: tuple[Batch, ...]
    arrivals: Mapping[str, int]
    warnings: tuple[PlanWarning, ...]


@dataclass(frozen=True, slots=True)
class Simulator:
    """Plays layouts; `nodes` and their evicted pods, `leaving`, are by node name.

    `surging` is as in `PodFlow`.
    """

    policy: Policy
    pools: Pools
    pace: Pace
    limits: WaveLimits
    index: BudgetIndex
    nodes: Mapping[str, Node]
    leaving: Mapping[str, Sequence[Pod]]
    surging: Mapping[str, int]

    def play(self, layout: Layout, scheduler: Scheduler) -> Forecast:
        """Play the waves in order; `scheduler` has the cluster as it is before the rollout.

        A node whose pods find no room only because others are away with it goes in a later wave.
        """
        limits = layout.limits
        flow = self._pod_flow(limits, scheduler)
        places = PodPlaces(flow, limits.allowed)
        side_by_side = _SideBySideRun if self._is_played(layout) else _EstimatedRun
        played = list[Batch]()
        ahead = list(layout.waves)
        waiting = list[NodeDemand]()
        while ahead or waiting:
            # Nodes that wait get a wave of their own at the end of their part.
            if waiting and not (ahead and ahead[0].parts == played[-1].parts):
                ahead.insert(0, replace(played[-1], demands=()))
            wave = ahead.pop(0)
            if wave.rolling is None:
                wave, waiting = places.fit(wave, waiting, limits)
            run_class = side_by_side if wave.rolling is None else _RollingRun
            run = run_class(self, flow, places, wave)
            run.play(is_last=not (ahead or waiting))
            played.append(run.timed())
        return Forecast(tuple(played), places.arrivals, tuple(dict.fromkeys(places.warnings)))

    def _pod_flow(self, limits: WaveLimits, scheduler: Scheduler) -> PodFlow:
        residents = dict[str, dict[str, Pod]]()
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
        """Whether waves are played, rather than estimated.

        When a node of a rolling part starts is only known if everything before it was played.
        """
        if self.pace.is_known or any(wave.rolling for wave in layout.waves):
            return True
        pods = sum(len(pods) for pods in self.leaving.values())
        return pods * len(self.leaving) <= _LARGE

    def estimated_seconds(self, layout: Layout) -> int:
        """Estimate a layout by its budgets' rates, without playing it."""
        pauses = self.wait + self.delay + self.policy.gates.soak
        other = round(pauses + self.pace.reboot(drain=0, nodes=1) + self.pace.usual_settle)
        return sum(layout.limits.drain(wave.demands) + other for wave in layout.waves)

    @property
    def wait(self) -> int:
        return round(self.policy.exclude_from_load_balancers + self.policy.courtesy.drain_delay)

    @property
    def delay(self) -> int:
        return round(self.policy.courtesy.reboot_delay)

    def seconds(self, batch: Batch) -> Mapping[str, int]:
        """Return how long each node would be away alone; some hosts boot slowly."""
        usual = self.pace.reboot(drain=0, nodes=1)
        seconds = dict[str, int]()
        for demand in batch.demands:
            last_run = round(last_run_seconds(self.nodes[demand.name]) or 0)
            seconds[demand.name] = self.limits.drain((demand,)) + max(usual, last_run)
        return seconds

    def slowest(self, names: Sequence[str]) -> int:
        pods = [self.leaving.get(name, ()) for name in names]
        return slowest_ending(pods, self.policy.drain, self.pace)


class _WaveSimulation:
    """One wave as it is played.

    `begins`, `empty` and `back` are when each node started, was empty and was back; `soonest` is
    the earliest time at which it may be back. All are seconds from the start of the rollout.
    `_most` is each drain's timeout in seconds, and `_waits` how long it waits for pods to complete,
    which does not count against the timeout.
    """

    def __init__(
        self, simulator: Simulator, flow: PodFlow, places: PodPlaces, batch: Batch
    ) -> None:
        self.simulator = simulator
        self.flow = flow
        self.places = places
        self.batch = batch
        self.names = batch.names
        self._most = {
            demand.name: timeout(simulator.pools.rules(demand.pool)) for demand in batch.demands
        }
        self._waits = {demand.name: demand.wait for demand in batch.demands}
        self.begins = dict[str, int]()
        self.empty = dict[str, int]()
        self.back = dict[str, int]()
        self.soonest = dict[str, int]()
        self.begun_at = flow.events.now

    @property
    def now(self) -> int:
        return self.flow.events.now

    @property
    def are_back(self) -> bool:
        return len(self.back) == len(self.names)

    def timed(self) -> Batch:
        simulator = self.simulator
        soak = round(simulator.policy.gates.soak)
        seconds = self.now - self.begun_at
        drain = max(self.empty[name] - self.begins[name] for name in self.names)
        # Past runs did not wait for these pods.
        usual_drain = drain - max(self._waits.values())
        reboot = simulator.delay + simulator.pace.reboot(
            usual_drain + simulator.delay, len(self.names)
        )
        if self.batch.rolling is None:
            settle = max(0, seconds - drain - reboot - soak)
            return replace(
                self.batch, estimate=Estimate(seconds, drain, reboot, settle=settle, soak=soak)
            )
        # Nodes were played at the usual pace, but the slowest of them may take longer.
        slowest = max(simulator.slowest(self.names), *self._waits.values())
        seconds = max(seconds, simulator.wait + slowest + reboot)
        begins = {name: self.begins[name] for name in self.names}
        rolling = replace(self.batch.rolling, begins=begins)
        estimate = Estimate(seconds, drain, reboot, soak=soak)
        return replace(self.batch, rolling=rolling, estimate=estimate)

    def begin(self, name: str, ending: int, nodes: int) -> None:
        """Start one of `nodes` that go together; it drains for at least `ending` seconds."""
        events = self.flow.events
        drains = self.now + self.simulator.wait
        self.begins[name] = self.now
        earliest = drains + max(ending, self._waits[name])
        emptied = partial(self._emptied, name, earliest, nodes)
        events.at(drains, lambda: self.flow.drain(name, emptied))
        events.at(drains + self._most[name], lambda: self._give_up(name, emptied))

    def _give_up(self, name: str, emptied: Action) -> None:
        if name not in self.empty:
            self.flow.give_up(name)
            emptied()

    def _emptied(self, name: str, earliest: int, nodes: int) -> None:
        if name in self.empty:
            return
        simulator = self.simulator
        begin = self.begins[name]
        wait = self._waits[name]
        latest = begin + simulator.wait + wait + self._most[name]
        empty = min(max(self.now, earliest), latest)
        self.empty[name] = empty
        rebooting = empty + simulator.delay
        back = rebooting + simulator.pace.reboot(rebooting - begin - wait, nodes)
        self.flow.events.at(max(back, self.soonest.get(name, 0)), lambda: self.give_back(name))

    def give_back(self, name: str) -> None:
        self.back[name] = self.now
        self.flow.open(name)

    def pods(self, name: str) -> list[Pod]:
        return list(self.flow.residents.get(name, {}).values())


class _SideBySideRun(_WaveSimulation):
    """All nodes at once; the wave ends when as many pods are ready as before."""

    def play(self, *, is_last: bool) -> None:
        names = self.names
        events = self.flow.events
        simulator = self.simulator
        self.places.put_back(names)
        pods = list(map(self.pods, names))
        before = self.flow.missing
        self.flow.close(names)
        slowest = slowest_ending(pods, simulator.policy.drain, simulator.pace)
        for name in names:
            self.begin(name, slowest, len(names))
        events.run(lambda: self.are_back)
        # The rollout does not wait for the last wave to settle.
        if not is_last:
            self._await_settled(list(chain.from_iterable(pods)), before)
        events.pass_until(self.now + round(simulator.policy.gates.soak))

    def _await_settled(self, moved: Sequence[Pod], missing_before: int) -> None:
        """Wait until as many pods are ready as before, but at least as long as past waves took."""
        events = self.flow.events
        back = self.now
        deadline = back + round(self.simulator.policy.settle_timeout)
        events.run(lambda: self.flow.missing <= missing_before, until=deadline)
        if moved:
            events.pass_until(back + self.simulator.pace.settle(moved))


class _EstimatedRun(_WaveSimulation):
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
        ending = max(simulator.limits.drain(self.batch.demands), simulator.slowest(self.names))
        longest_wait = max(self._waits.values())
        drain = simulator.wait + min(longest_wait + max(self._most.values()), ending)
        reboot = simulator.delay + pace.reboot(drain - longest_wait, len(self.names))
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

    A node has settled when no more pods of its owners are away than when it started, except for
    those that other nodes in flight have evicted. Owners are UIDs. `_before` is how many pods were
    away when each node in flight started, by node and owner; `_before_by_owner` by owner and node.
    `_away` has, by owner, the nodes that had ready pods of it and are not back. `_unsettled` has
    the nodes that are back, by an owner that they still wait for. `_floor` is how many seconds each
    node takes at least to settle.
    """

    def __init__(
        self, simulator: Simulator, flow: PodFlow, places: PodPlaces, batch: Batch
    ) -> None:
        super().__init__(simulator, flow, places, batch)
        self._queue = RollingQueue(batch.rolling or Rolling(1), self.names)
        self._before = dict[str, dict[str, int]]()
        self._floor = dict[str, int]()
        self._before_by_owner: dict[str, dict[str, int]] = defaultdict(dict)
        self._away: dict[str, set[str]] = defaultdict(set)
        self._unsettled: dict[str, list[str]] = defaultdict(list)

    def play(self, *, is_last: bool) -> None:
        self.flow.on_ready = self._check_waiting
        self._begin_next()
        self.flow.events.run(lambda: self.are_back and (is_last or not self._before))

    def give_back(self, name: str) -> None:
        super().give_back(name)
        for owner in self._before[name]:
            self._away[owner].discard(name)
        events = self.flow.events
        events.at(self.now + self._floor[name], lambda: self._check_settled(name))
        events.at(self.now + round(self.simulator.policy.settle_timeout), lambda: self._free(name))

    def _begin_next(self) -> None:
        for name in self._queue.begin_all():
            self._begin_one(name)

    def _begin_one(self, name: str) -> None:
        pods = self.pods(name)
        simulator = self.simulator
        before = dict[str, int]()
        for owner in self.flow.ready_on(name):
            # Pods of nodes in flight are away only for now, so they do not count as away before.
            counts = [self.flow.away[owner], *self._before_by_owner[owner].values()]
            before[owner] = min(counts)
            self._before_by_owner[owner][name] = before[owner]
            self._away[owner].add(name)
        self._before[name] = before
        # It is back no sooner than after its own last run: its host may boot more slowly than most.
        self.soonest[name] = self.now + round(last_run_seconds(simulator.nodes[name]) or 0)
        self._floor[name] = simulator.pace.settle(pods) if pods else 0
        self.places.note_drain(name)
        self.flow.close((name,))
        ending = slowest_ending((pods,), simulator.policy.drain, simulator.pace)
        self.begin(name, ending, nodes=1)

    def _check_waiting(self, owner: str) -> None:
        for name in self._unsettled.pop(owner, ()):
            self._check_settled(name)

    def _check_settled(self, name: str) -> None:
        """Free the node's place a soak after all owners of its pods have as many as before.

        Until then the node waits for the first owner that has not. `_check_waiting` checks it
        again.
        """
        if name not in self._before:
            return
        for owner, before in self._before[name].items():
            if self._lacks_pods(owner, before):
                self._unsettled[owner].append(name)
                return
        soaked = self.now + round(self.simulator.policy.gates.soak)
        self.flow.events.at(soaked, lambda: self._free(name))

    def _lacks_pods(self, owner: str, before: int) -> bool:
        more = self.flow.away[owner] - before
        if more <= 0:
            return False
        return more > sum(self.flow.taken(node, owner) for node in self._away[owner])

    def _free(self, name: str) -> None:
        before = self._before.pop(name, None)
        if before is None:
            return
        for owner in before:
            del self._before_by_owner[owner][name]
        self._queue.end(name)
        self._begin_next()
