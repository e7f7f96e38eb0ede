"""The course of a rollout: its waves played in time, from what past runs took, on the room that the cluster has.

Who goes where, which pods find a place and which wait, and what therefore holds nodes up depends on when each thing
happens; so all of it is played together, nodes and pods, by the rules of those who carry it out.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from rollout.model.cluster import Node, Pod
from rollout.model.plan import Rolling
from rollout.model.policy import Policy
from rollout.planning.budgets import BudgetIndex
from rollout.planning.estimates import Pace, past_run
from rollout.planning.rooms import Rooms
from rollout.planning.schedule import Turns
from rollout.planning.settling import Action, Agenda, Flow

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
