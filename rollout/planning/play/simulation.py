"""The rollout played in time: its waves from what past runs took, on the room that the cluster has.

Who goes where, which pods find a place and which wait, and what therefore holds nodes up depends on when each thing
happens; so all of it is played together, nodes and pods, by the rules of those who carry it out. What no run has told
yet is assumed, and generously: pods use all of their grace.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from rollout.model.cluster import Node, Pod
from rollout.model.plan import Estimate, PlanWarning, Rolling
from rollout.model.policy import DrainPolicy, Policy
from rollout.planning.drain.budgets import BudgetIndex
from rollout.planning.drain.scheduler import Scheduler
from rollout.planning.eligibility.pools import Pools
from rollout.planning.layout.rolling import RollingQueue
from rollout.planning.layout.sharing import Limits, NodeDemand
from rollout.planning.layout.waves import Batch, Layout
from rollout.planning.play.pace import Pace, past_run
from rollout.planning.play.places import PodPlaces
from rollout.planning.play.pod_flow import Action, EventQueue, PodFlow

# Where nothing is known of the past, a rollout of more nodes times pods is estimated by the rates of its budgets, which
# takes no time.
_LARGE = 300_000


def timeout(rules: Policy) -> int:
    """Return the most seconds that a drain may take."""
    return max(1, round(rules.drain.timeout))


def slowest_ending(nodes: Sequence[Sequence[Pod]], rules: DrainPolicy, pace: Pace) -> int:
    """How many seconds the last pod of these nodes takes to end, side by side, whatever budgets make of it."""
    seconds, strange = 0, list[int]()
    for pods in nodes:
        known = {pod.owner.uid: pod for pod in pods if pod.owner and pod.owner.uid in pace.endings}
        graces = [rules.grace_of(pod.grace_period) for pod in pods if not (pod.owner and pod.owner.uid in known)]
        strange += [max(graces)] if graces else []
        for uid, pod in known.items():
            seconds = max(seconds, pace.ending_of((uid,), rules.grace_of(pod.grace_period)))
    return max(seconds, pace.ending(max(strange), len(strange)) if strange else 0)


@dataclass(frozen=True, slots=True)
class Forecast:
    """What playing a layout has shown: its waves as they can be taken, each with its times.

    `arrivals` counts, by node, the pods that earlier waves moved there.
    """

    waves: tuple[Batch, ...]
    arrivals: Mapping[str, int]
    warnings: tuple[PlanWarning, ...]


@dataclass(frozen=True, slots=True)
class Simulator:
    """What a rollout is played with. `leaving` are the pods that leave each of the `nodes`.

    `index` knows the budgets that are asked.
    """

    policy: Policy
    pools: Pools
    pace: Pace
    limits: Limits
    index: BudgetIndex
    nodes: Mapping[str, Node]
    leaving: Mapping[str, Sequence[Pod]]

    def play(self, layout: Layout, scheduler: Scheduler) -> Forecast:
        """Play the waves one after another, on a cluster as it is before the rollout.

        Nodes whose pods find no place only because of those that are away with them take their turn in a later wave.
        """
        residents = {name: {pod.uid: pod for pod in pods} for name, pods in self.leaving.items()}
        limits = layout.limits
        permits = {key: rate.permits for key, rate in limits.rates.items()}
        flow = PodFlow(EventQueue(), self.pace, permits, self.policy.drain, self.index, scheduler, residents)
        places = PodPlaces(flow, limits.allowed)
        # When a node begins that follows others is known only where all before it was played.
        is_timed = self.pace.is_known or any(batch.rolling for batch in layout.waves)
        moves = sum(map(len, self.leaving.values())) * len(self.leaving)
        together = _SideBySideRun if is_timed or moves <= _LARGE else _EstimatedRun
        played, ahead, waiting = list[Batch](), list(layout.waves), list[NodeDemand]()
        while ahead or waiting:
            if waiting and not (ahead and ahead[0].part == played[-1].part):
                ahead.insert(0, replace(played[-1], demands=()))
            wave = ahead.pop(0)
            if wave.rolling is None:
                wave, waiting = places.fit(wave, waiting, limits)
            run = (together if wave.rolling is None else _RollingRun)(self, flow, places, wave)
            run.play(is_last=not (ahead or waiting))
            played.append(run.timed())
        return Forecast(tuple(played), places.arrivals, tuple(dict.fromkeys(places.warnings)))

    def estimated_seconds(self, layout: Layout) -> int:
        """How many seconds a layout takes by the rates of its budgets, without playing it."""
        other = self.wait + self.delay + self.pace.reboot(0, 1) + self.pace.usual_settle + self.policy.gates.soak
        return sum(layout.limits.drain(wave.demands) + round(other) for wave in layout.waves)

    @property
    def wait(self) -> int:
        """Seconds before each drain."""
        return round(self.policy.exclude_from_load_balancers + self.policy.courtesy.drain_delay)

    @property
    def delay(self) -> int:
        """Seconds before each reboot."""
        return round(self.policy.courtesy.reboot_delay)

    def seconds(self, batch: Batch) -> Mapping[str, int]:
        """How long each of these nodes is away with no other beside it; a host may boot more slowly than most."""
        reboot = self.pace.reboot(0, 1)
        return {
            demand.name: self.limits.drain((demand,)) + max(reboot, round(past_run(self.nodes[demand.name]) or 0))
            for demand in batch.demands
        }

    def slowest(self, names: Sequence[str]) -> int:
        """How many seconds the last pod of these nodes takes to end, as things are before the rollout."""
        return slowest_ending([self.leaving.get(name, ()) for name in names], self.policy.drain, self.pace)


class _Run:
    """The nodes of one wave, each at its own step: when it begins, is empty, and is back.

    All are seconds from the beginning of the rollout; `_most` is how many each drain may take.
    """

    def __init__(self, simulator: Simulator, flow: PodFlow, places: PodPlaces, batch: Batch) -> None:
        self.simulator, self.flow, self.places, self.batch, self.names = simulator, flow, places, batch, batch.names
        self._most = {demand.name: timeout(simulator.pools.rules(demand.pool)) for demand in batch.demands}
        self.begins, self.empty, self.back = dict[str, int](), dict[str, int](), dict[str, int]()
        self.soonest = dict[str, int]()
        self.begun_at = flow.events.now

    @property
    def now(self) -> int:
        """Seconds since the beginning of the rollout."""
        return self.flow.events.now

    @property
    def are_back(self) -> bool:
        """Whether all of its nodes are."""
        return len(self.back) == len(self.names)

    def timed(self) -> Batch:
        """Return the wave with its times, once it has been played."""
        simulator, soak, seconds = self.simulator, round(self.simulator.policy.gates.soak), self.now - self.begun_at
        drain = max(self.empty[name] - self.begins[name] for name in self.names)
        reboot = simulator.pace.reboot(drain + simulator.delay, len(self.names)) + simulator.delay
        if self.batch.rolling is None:
            settle = max(0, seconds - drain - reboot - soak)
            return replace(self.batch, estimate=Estimate(seconds, drain, reboot, settle, soak))
        # Each is reckoned as most are, so that the slowest of them may end later than all of that.
        seconds = max(seconds, simulator.wait + simulator.slowest(self.names) + reboot)
        rolling = replace(self.batch.rolling, begins={name: self.begins[name] for name in self.names})
        return replace(self.batch, rolling=rolling, estimate=Estimate(seconds, drain, reboot, 0, soak))

    def begin(self, name: str, ending: int, nodes: int) -> None:
        """One of so many that go together begins; its last pod takes so many seconds `ending` at least."""
        events, drains = self.flow.events, self.now + self.simulator.wait
        self.begins[name] = self.now
        emptied = partial(self._emptied, name, drains + ending, nodes)
        events.at(drains, lambda: self.flow.drain(name, emptied))
        events.at(drains + self._most[name], lambda: self._give_up(name, emptied))

    def _give_up(self, name: str, emptied: Action) -> None:
        if name not in self.empty:
            self.flow.give_up(name)
            emptied()

    def _emptied(self, name: str, earliest: int, nodes: int) -> None:
        """Reboot it once it is empty, unless it was given up before."""
        if name in self.empty:
            return
        begin, simulator = self.begins[name], self.simulator
        latest = begin + simulator.wait + self._most[name]
        self.empty[name] = empty = min(max(self.now, earliest), latest)
        rebooting = empty + simulator.delay
        back = rebooting + simulator.pace.reboot(rebooting - begin, nodes)
        self.flow.events.at(max(back, self.soonest.get(name, 0)), lambda: self.give_back(name))

    def give_back(self, name: str) -> None:
        """Take it back: pods may go there."""
        self.back[name] = self.now
        self.flow.open(name)

    def pods(self, name: str) -> list[Pod]:
        """Return what is on one of its nodes."""
        return list(self.flow.residents.get(name, {}).values())


class _SideBySideRun(_Run):
    """Nodes side by side; the next wave begins once all pods are as well as before."""

    def play(self, *, is_last: bool) -> None:
        """Play it; behind the last wave the rollout does not wait for settling."""
        names, events, simulator = self.names, self.flow.events, self.simulator
        self.places.put_back(names)
        pods, before, soak = list(map(self.pods, names)), self.flow.missing, round(simulator.policy.gates.soak)
        self.flow.close(names)
        slowest = slowest_ending(pods, simulator.policy.drain, simulator.pace)
        for name in names:
            self.begin(name, slowest, len(names))
        events.run(lambda: self.are_back)
        if not is_last:
            back, moved = self.now, [pod for there in pods for pod in there]
            events.run(lambda: self.flow.missing <= before, until=back + round(simulator.policy.settle_timeout))
            events.pass_until(back + simulator.pace.settle(moved) if moved else back)
        events.pass_until(self.now + soak)


class _EstimatedRun(_Run):
    """Nodes side by side whose pods move at once, by the rates of their budgets."""

    def play(self, *, is_last: bool) -> None:  # noqa: ARG002 - asked of all
        """Let all pods be where they have places."""
        self._pods = [pod for name in self.names for pod in self.pods(name)]
        for name in self.names:
            del self.flow.residents[name]
        for pod in self._pods:
            self.flow.residents.setdefault(self.flow.scheduler.node_of(pod), {})[pod.uid] = pod
        self.flow.scheduler.untaint(self.names)

    def timed(self) -> Batch:
        """Return the wave with its times."""
        simulator, policy, names = self.simulator, self.simulator.policy, self.names
        ending = max(simulator.limits.drain(self.batch.demands), simulator.slowest(names))
        drain = simulator.wait + min(max(self._most.values()), ending)
        reboot, soak = simulator.delay + simulator.pace.reboot(drain, len(names)), round(policy.gates.soak)
        starting = simulator.pace.starting({pod.owner.uid for pod in self._pods if pod.owner})
        settle = max(starting - reboot, simulator.pace.settle(self._pods)) if self._pods else 0
        return replace(self.batch, estimate=Estimate(drain + reboot + settle + soak, drain, reboot, settle, soak))


class _RollingRun(_Run):
    """Nodes that follow one another: the next begins once the cluster has settled from one.

    `_before` is how many pods of its owners were away when each in flight began, by owner, `_befores` the same by owner
    and node; `_away` has, by owner, the nodes in flight and not back that had ready pods of it. `_unsettled` has those
    that are back and wait, by the owner of which too few pods are ready.
    """

    def __init__(self, simulator: Simulator, flow: PodFlow, places: PodPlaces, batch: Batch) -> None:
        super().__init__(simulator, flow, places, batch)
        self._following = RollingQueue(batch.rolling or Rolling(1), self.names)
        self._before, self._floor = dict[str, dict[str, int]](), dict[str, int]()
        self._befores: dict[str, dict[str, int]] = defaultdict(dict)
        self._away: dict[str, set[str]] = defaultdict(set)
        self._unsettled: dict[str, list[str]] = defaultdict(list)

    def play(self, *, is_last: bool) -> None:
        """Play it; behind the last node the rollout does not wait for settling."""
        self.flow.on_ready = self._look_again
        self._admit()
        self.flow.events.run(lambda: self.are_back and (is_last or not self._before))

    def give_back(self, name: str) -> None:
        """Take it back; it keeps its place until the cluster has settled from it."""
        super().give_back(name)
        for owner in self._before[name]:
            self._away[owner].discard(name)
        events = self.flow.events
        events.at(self.now + self._floor[name], lambda: self._look(name))
        events.at(self.now + round(self.simulator.policy.settle_timeout), lambda: self._free(name))

    def _admit(self) -> None:
        for name in self._following.begin():
            self._begin_one(name)

    def _begin_one(self, name: str) -> None:
        pods, away, simulator = self.pods(name), self.flow.away, self.simulator
        self._before[name] = before = {
            owner: min((away[owner], *self._befores[owner].values())) for owner in self.flow.ready_on(name)
        }
        for owner, missing in before.items():
            self._befores[owner][name] = missing
            self._away[owner].add(name)
        self.soonest[name] = self.now + round(past_run(simulator.nodes[name]) or 0)  # it may boot more slowly than most
        self._floor[name] = simulator.pace.settle(pods) if pods else 0
        self.places.foresee(name)
        self.flow.close((name,))
        self.begin(name, slowest_ending((pods,), simulator.policy.drain, simulator.pace), 1)

    def _look_again(self, owner: str) -> None:
        """Look at nodes that wait for a pod of this owner, as one is ready."""
        for name in self._unsettled.pop(owner, ()):
            self._look(name)

    def _look(self, name: str) -> None:
        """Free its place where the cluster has settled from it."""
        if name not in self._before:
            return
        owner = next((owner for owner, was in self._before[name].items() if self._lacks(owner, was)), None)
        if owner is None:
            soaked = self.now + round(self.simulator.policy.gates.soak)
            self.flow.events.at(soaked, lambda: self._free(name))
        else:
            self._unsettled[owner].append(name)

    def _lacks(self, owner: str, was: int) -> bool:
        """Whether more pods are away than before; what others in flight have taken is not held against it."""
        more = self.flow.away[owner] - was
        return more > 0 and more > sum(self.flow.taken(node, owner) for node in self._away[owner])

    def _free(self, name: str) -> None:
        before = self._before.pop(name, None)
        if before is not None:
            for owner in before:
                del self._befores[owner][name]
            self._following.end(name)
            self._admit()
