"""The rollout played in time: its waves from what past runs took, on the room that the cluster has.

Who goes where, which pods find a place and which wait, and what therefore holds nodes up depends on when each thing
happens; so all of it is played together, nodes and pods, by the rules of those who carry it out. As long as all is
assumed, it is reckoned generously by the rates of budgets.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from rollout.model.cluster import Node, Pod
from rollout.model.plan import Estimate, Rolling, TimeEstimate, Wave
from rollout.model.policy import DrainPolicy, Policy
from rollout.model.quantity import LONGEST
from rollout.planning.budgets import BudgetIndex
from rollout.planning.estimates import Pace, past_run, settled, wave_estimate
from rollout.planning.pod_flow import Action, Agenda, Flow
from rollout.planning.pools import Pools
from rollout.planning.rolling import Turns, schedule, slow_first
from rollout.planning.scheduler import Rooms
from rollout.planning.sharing import Limits
from rollout.planning.waves import Placed

# So often is a course played that a scheduler's choice between equal nodes may change, as long as there is so little
# to play: pods times nodes.
_DRAWS = 9
_MANY = 50_000


@dataclass(frozen=True, slots=True)
class Stretch:
    """A wave to be played: its nodes in their order, how they follow one another, and the most that each drain takes.

    `rolling` is None where they go side by side; `most` is in seconds.
    """

    names: Sequence[str]
    rolling: Rolling | None
    most: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Turn:
    """When a node begins, is empty, and is back, in seconds from the beginning of the rollout."""

    begin: int
    empty: int
    back: int


@dataclass(frozen=True, slots=True)
class Leg:
    """A wave as it was played: when it begins, when all of its nodes are back, and when the next may begin."""

    begin: int
    turns: Mapping[str, Turn]
    end: int

    @property
    def back(self) -> int:
        """When the last node is back."""
        return max((turn.back for turn in self.turns.values()), default=self.begin)


@dataclass(frozen=True, slots=True)
class Setting:
    """What a rollout is played with. `leaving` are the pods that leave each node; `tainted` have the soft taint.

    `rooms` makes the cluster's room as it is at the beginning, by the draw between nodes that are equal to a scheduler.
    `slowest` tells how many seconds the last pod of some nodes takes to end, whatever budgets make of it.
    """

    policy: Policy
    pace: Pace
    permits: Mapping[str, int]
    index: BudgetIndex
    nodes: Mapping[str, Node]
    leaving: Mapping[str, Sequence[Pod]]
    tainted: Sequence[str]
    rooms: Callable[[int], Rooms]
    slowest: Callable[[Sequence[Sequence[Pod]]], int]

    @property
    def wait(self) -> int:
        """Seconds before each drain."""
        return round(self.policy.exclude_from_load_balancers + self.policy.courtesy.drain_delay)

    @property
    def delay(self) -> int:
        """Seconds before each reboot."""
        return round(self.policy.courtesy.reboot_delay)

    @property
    def draws(self) -> int:
        """How often to play it: the more there is to play, the less the draw between equal nodes decides."""
        pods = sum(map(len, self.leaving.values()))
        return max(1, min(_DRAWS, _MANY // max(1, pods * len(self.nodes))))

    def flow(self, draw: int) -> Flow:
        """The pods, before anything has happened."""
        rooms = self.rooms(draw)
        rooms.taint(self.tainted)
        residents = {name: {pod.uid: pod for pod in pods} for name, pods in self.leaving.items()}
        return Flow(Agenda(), self.pace, self.permits, self.policy.drain, self.index, rooms, residents)


def played(setting: Setting, stretches: Sequence[Stretch]) -> Iterator[tuple[Leg, ...]]:
    """The waves, one after another, as often as there are draws between nodes that are equal to a scheduler.

    Those that follow one another are played in the order in which they begin, where there is not too much to play.
    """
    for draw in range(setting.draws):
        legs = _played(setting, stretches, draw)
        again = tuple(map(_as_begun, stretches, legs))
        if setting.draws == 1 or again == tuple(stretches):
            yield tuple(_in_order(leg, stretch.names) for leg, stretch in zip(legs, again, strict=True))
        else:
            yield _played(setting, again, draw)


def _in_order(leg: Leg, names: Sequence[str]) -> Leg:
    return replace(leg, turns={name: leg.turns[name] for name in names})


def _as_begun(stretch: Stretch, leg: Leg) -> Stretch:
    if stretch.rolling is None:
        return stretch
    return replace(stretch, names=sorted(stretch.names, key=lambda name: leg.turns[name].begin))


def _played(setting: Setting, stretches: Sequence[Stretch], draw: int) -> tuple[Leg, ...]:
    flow, legs = setting.flow(draw), list[Leg]()
    for number, stretch in enumerate(stretches, start=1):
        kind = _Together if stretch.rolling is None else _Following
        legs.append(kind(setting, flow, stretch).run(is_last=number == len(stretches)))
    return tuple(legs)


class _Wave:
    """The nodes of one wave, each at its own step."""

    def __init__(self, setting: Setting, flow: Flow, stretch: Stretch) -> None:
        self.setting, self.flow, self.stretch = setting, flow, stretch
        self.begins, self.empty, self.back = dict[str, int](), dict[str, int](), dict[str, int]()

    @property
    def now(self) -> int:
        """Seconds since the beginning of the rollout."""
        return self.flow.agenda.now

    @property
    def are_back(self) -> bool:
        """Whether all of its nodes are."""
        return len(self.back) == len(self.stretch.names)

    def begin(self, name: str, ending: int, nodes: int) -> None:
        """One of so many that go together begins; its last pod takes so many seconds `ending` at least."""
        agenda, drains = self.flow.agenda, self.now + self.setting.wait
        self.begins[name] = self.now
        emptied = partial(self._empty, name, drains + ending, nodes)
        agenda.at(drains, lambda: self.flow.drain(name, emptied))
        agenda.at(drains + self.stretch.most[name], lambda: self._give_up(name, emptied))

    def _give_up(self, name: str, emptied: Action) -> None:
        if name not in self.empty:
            self.flow.give_up(name)
            emptied()

    def _empty(self, name: str, earliest: int, nodes: int) -> None:
        """It is empty, unless it was given up before."""
        if name in self.empty:
            return
        begin, setting = self.begins[name], self.setting
        latest = begin + setting.wait + self.stretch.most[name]
        self.empty[name] = empty = min(max(self.now, earliest), latest)
        rebooting = empty + setting.delay
        back = rebooting + setting.pace.reboot(rebooting - begin, nodes)
        self.flow.agenda.at(max(back, self.soonest(name)), lambda: self.give_back(name))

    def soonest(self, name: str) -> int:
        """When it is back at the soonest."""
        return self.begins[name]

    def give_back(self, name: str) -> None:
        """It is back: pods may go there."""
        self.back[name] = self.now
        self.flow.open(name)

    def leg(self, begin: int, end: int) -> Leg:
        """What came of it."""
        turns = {name: Turn(self.begins[name], self.empty[name], self.back[name]) for name in self.stretch.names}
        return Leg(begin, turns, end)

    def pods(self, name: str) -> list[Pod]:
        """What is on one of its nodes."""
        return list(self.flow.residents.get(name, {}).values())


class _Together(_Wave):
    """Nodes side by side; the next wave begins once all pods are as well as before."""

    def run(self, *, is_last: bool) -> Leg:
        """Play it; behind the last wave the rollout does not wait for settling."""
        begin, names, agenda, policy = self.now, self.stretch.names, self.flow.agenda, self.setting.policy
        pods, before, soak = list(map(self.pods, names)), self.flow.missing, round(policy.gates.soak)
        self.flow.close(names)
        slowest = self.setting.slowest(pods)
        for name in names:
            self.begin(name, slowest, len(names))
        agenda.run(lambda: self.are_back)
        if is_last:
            return self.leg(begin, self.now + soak)
        back, moved = self.now, [pod for there in pods for pod in there]
        agenda.run(lambda: self.flow.missing <= before, until=back + round(policy.settle_timeout))
        agenda.pass_until(back + self.setting.pace.settle(moved) if moved else back)
        agenda.pass_until(self.now + soak)
        return self.leg(begin, self.now)


class _Following(_Wave):
    """Nodes that follow one another: the next begins once the cluster has settled from one.

    `_before` is how many pods of its owners were away when each in flight began, by owner, `_befores` the same by owner
    and node; `_away` has, by owner, the nodes in flight and not back that had ready pods of it. `_unsettled` has those
    that are back and wait, by the owner of which too few pods are ready.
    """

    def __init__(self, setting: Setting, flow: Flow, stretch: Stretch) -> None:
        super().__init__(setting, flow, stretch)
        self._rules, names = stretch.rolling or Rolling(1), stretch.names
        self._turns, self._places = Turns(self._rules, names), {name: place for place, name in enumerate(names)}
        self._before, self._floor = dict[str, dict[str, int]](), dict[str, int]()
        self._befores: dict[str, dict[str, int]] = defaultdict(dict)
        self._away: dict[str, set[str]] = defaultdict(set)
        self._unsettled: dict[str, list[str]] = defaultdict(list)

    def run(self, *, is_last: bool) -> Leg:
        """Play it; behind the last node the rollout does not wait for settling."""
        begin = self.now
        self.flow.on_ready = self._look_again
        self._admit()
        self.flow.agenda.run(lambda: self.are_back and (is_last or not self._before))
        return self.leg(begin, self.now)

    def soonest(self, name: str) -> int:
        """A host may boot more slowly than most."""
        return self.begins[name] + round(past_run(self.setting.nodes[name]) or 0)

    def give_back(self, name: str) -> None:
        """It is back, and keeps its place until the cluster has settled from it."""
        super().give_back(name)
        for owner in self._before[name]:
            self._away[owner].discard(name)
        agenda = self.flow.agenda
        agenda.at(self.now + self._floor[name], lambda: self._look(name))
        agenda.at(self.now + round(self.setting.policy.settle_timeout), lambda: self._free(name))

    def _admit(self) -> None:
        while len(self._before) < self._rules.in_flight and (place := self._turns.next_one()) is not None:
            self._begin_one(self.stretch.names[place])

    def _begin_one(self, name: str) -> None:
        pods, away = self.pods(name), self.flow.away
        self._before[name] = before = {
            owner: min((away[owner], *self._befores[owner].values())) for owner in self.flow.ready_on(name)
        }
        for owner, missing in before.items():
            self._befores[owner][name] = missing
            self._away[owner].add(name)
        self._floor[name] = self.setting.pace.settle(pods) if pods else 0
        self.flow.close((name,))
        self.begin(name, self.setting.slowest((pods,)), 1)

    def _look_again(self, owner: str) -> None:
        """A pod of this owner is ready."""
        for name in self._unsettled.pop(owner, ()):
            self._look(name)

    def _look(self, name: str) -> None:
        """Free its place where the cluster has settled from it."""
        if name not in self._before:
            return
        before, away = self._before[name], self.flow.away
        lacking = (owner for owner, was in before.items() if away[owner] > was and self._lacks(owner, was))
        owner = next(lacking, None)
        if owner is None:
            soaked = self.now + round(self.setting.policy.gates.soak)
            self.flow.agenda.at(soaked, lambda: self._free(name))
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
            self._turns.end(self._places[name])
            self._admit()


# As a share of the whole.
_WORTH_TELLING = 0.1


def timeout(rules: Policy) -> int:
    """The most seconds that a drain may take."""
    return round(rules.drain.timeout) or LONGEST


def slowest_ending(nodes: Sequence[Sequence[Pod]], rules: DrainPolicy, pace: Pace) -> int:
    """How many seconds the last pod of these nodes takes to end, side by side, whatever budgets make of it."""
    known, strange = [0], list[int]()
    for pods in nodes:
        graces = [rules.grace_of(pod.grace_period) for pod in pods if not _is_known(pod, pace)]
        strange += [max(graces)] if graces else []
        tellers = {
            pod.owner.uid: rules.grace_of(pod.grace_period) for pod in pods if pod.owner and _is_known(pod, pace)
        }
        known += [pace.ending_of((uid,), grace) for uid, grace in tellers.items()]
    return max(*known, pace.ending(max(strange), len(strange)) if strange else 0)


def _is_known(pod: Pod, pace: Pace) -> bool:
    return pod.owner is not None and pod.owner.uid in pace.endings


@dataclass(frozen=True, slots=True)
class Timing:
    """What estimates go by; `leaving` are the pods that leave each of the `nodes` as things are now."""

    policy: Policy
    pools: Pools
    pace: Pace
    limits: Limits
    nodes: Mapping[str, Node]
    leaving: Mapping[str, Sequence[Pod]]
    setting: Setting

    @property
    def wait(self) -> int:
        """Seconds before each drain."""
        return round(self.policy.exclude_from_load_balancers + self.policy.courtesy.drain_delay)

    def timed(self, waves: Sequence[Wave], layout: Sequence[Placed]) -> tuple[tuple[Wave, ...], TimeEstimate]:
        """The waves with their times, and how long the whole is likely to take."""
        if not waves or not self.pace.is_known:
            assumed = tuple(self._by_rates(waves, layout))
            return assumed, self._whole(assumed)
        stretches = [self._stretch(placed) for placed in layout]
        courses = [tuple(map(self._as_played, waves, layout, legs)) for legs in played(self.setting, stretches)]
        courses.sort(key=_total)
        likely, least, most = courses[len(courses) // 2], _total(courses[0]), _total(courses[-1])
        whole = self._whole(likely)
        is_open = most - least > _WORTH_TELLING * whole.seconds
        return likely, replace(whole, at_least=least, at_most=most) if is_open else whole

    def _whole(self, waves: Sequence[Wave]) -> TimeEstimate:
        return TimeEstimate(_total(waves), self.pace.basis) if waves else TimeEstimate()

    def _by_rates(self, waves: Sequence[Wave], layout: Sequence[Placed]) -> Iterator[Wave]:
        before = 0
        for wave, placed in zip(waves, layout, strict=True):
            timed = replace(wave, estimate=self._assumed(placed))
            timed = timed if placed.rolling is None else self._rolling(timed, placed, placed.rolling, before)
            before += timed.estimate.seconds
            yield timed

    def _stretch(self, placed: Placed) -> Stretch:
        names = placed.names if placed.rolling is None else list(slow_first(self._each_alone(placed)))
        return Stretch(names, placed.rolling, self._most(placed))

    def _as_played(self, wave: Wave, placed: Placed, leg: Leg) -> Wave:
        soak, delay = round(self.policy.gates.soak), round(self.policy.courtesy.reboot_delay)
        reboot = self.pace.reboot(0, len(leg.turns)) + delay
        drain = max(turn.empty - turn.begin for turn in leg.turns.values())
        if placed.rolling is None:
            estimate = Estimate(leg.end - leg.begin, drain, reboot, leg.end - leg.begin - drain - reboot - soak, soak)
            return replace(wave, estimate=estimate)
        # Each is reckoned as most are, so that the slowest of them may end later than all of that.
        nodes = {node.name: node for node in wave.nodes}
        whole = max(leg.end - leg.begin, self.wait + self.slowest(placed.names) + reboot)
        return replace(
            wave,
            nodes=tuple(nodes[name] for name in leg.turns),
            rolling=replace(placed.rolling, begins={name: turn.begin for name, turn in leg.turns.items()}),
            estimate=Estimate(whole, drain, reboot, 0, soak),
        )

    def slowest(self, names: Sequence[str]) -> int:
        """How many seconds the last pod of these nodes takes to end."""
        return slowest_ending([self.leaving.get(name, ()) for name in names], self.policy.drain, self.pace)

    def _assumed(self, placed: Placed) -> Estimate:
        """A wave whose nodes drain side by side, by the rates of their budgets."""
        policy, slowest, most = self.policy, self.slowest(placed.names), self._most(placed)
        shared = self.limits.rates.drains(placed.pieces)
        drains = [self.wait + min(most[name], max(seconds, slowest)) for name, seconds in shared.items()]
        estimate = wave_estimate(drains, self.pace, policy.gates.soak, policy.courtesy.reboot_delay)
        pods = [pod for name in placed.names for pod in self.leaving.get(name, ())]
        late = self._ready(pods, estimate.drain) - estimate.drain - estimate.reboot
        return settled(estimate, max(late, self.pace.settle(pods)) if pods else 0)

    def _ready(self, pods: Sequence[Pod], drain: int) -> int:
        """When the replacements of these pods are ready whose last is gone then, where they tell of their starts."""
        ready, grace_of = 0, self.policy.drain.grace_of
        for uid, pod in {pod.owner.uid: pod for pod in pods if pod.owner}.items():
            if uid in self.pace.starts:
                ready = max(ready, drain + self.pace.starting(grace_of(pod.grace_period), (uid,)))
        return ready

    def _rolling(self, wave: Wave, placed: Placed, rules: Rolling, before: int) -> Wave:
        """A wave whose nodes follow one another, with when each may begin: `before` seconds are over by then."""
        begins, whole = schedule(rules, self._in_company(placed, rules, slow_first(self._each_alone(placed))))
        # Each is reckoned as most are, so that the slowest of them may end later than all of that.
        whole = max(whole, wave.estimate.seconds - wave.estimate.drain + self.slowest(placed.names))
        shifted = {name: before + begin for name, begin in begins.items()}
        nodes = tuple(sorted(wave.nodes, key=lambda node: shifted[node.name]))
        return replace(
            wave, nodes=nodes, rolling=replace(rules, begins=shifted), estimate=replace(wave.estimate, seconds=whole)
        )

    def _most(self, placed: Placed) -> Mapping[str, int]:
        """The most seconds that each drain may take."""
        return {piece.name: timeout(self.pools.rules(piece.pool)) for piece in placed.pieces}

    def _each_alone(self, placed: Placed) -> Mapping[str, int]:
        return {piece.name: self._alone(replace(placed, pieces=(piece,))) for piece in placed.pieces}

    def _alone(self, placed: Placed) -> int:
        """How long a node alone is likely to take: as long as its own last run did, where that was longer."""
        estimate, node = self._assumed(placed), self.nodes[placed.names[0]]
        return max(estimate.seconds, round(past_run(node) or 0) + estimate.settle + estimate.soak)

    def _in_company(self, placed: Placed, rules: Rolling, alone: Mapping[str, int]) -> Mapping[str, int]:
        """How long each is away where drains meet; a schedule of the longest waits shows whose do."""
        rates, pieces = self.limits.rates, placed.pieces
        waits = rates.waits(pieces, rules.in_flight) if self.limits.rounds else {}
        if not any(waits.values()):
            return alone
        begins, _ = schedule(rules, _prolonged(alone, waits))
        return _prolonged(alone, rates.waits_beside(pieces, begins, waits))


def _total(waves: Sequence[Wave]) -> int:
    return sum(wave.estimate.seconds for wave in waves)


def _prolonged(seconds: Mapping[str, int], waits: Mapping[str, int]) -> Mapping[str, int]:
    return {name: alone + waits.get(name, 0) for name, alone in seconds.items()}
