"""How many nodes may be away at once, whichever, so that their pods still find places: what rolling has to know.

Waves are simulated one by one. Rolling lets any admissible set come about, so each group of nodes that certain pods are
bound to is tried with its worst one: those that have the most to move.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rollout.model.cluster import Pod
from rollout.model.plan import Rolling
from rollout.planning.forecast import places_for
from rollout.planning.rolling import together
from rollout.planning.rooms import Rooms
from rollout.planning.waves import Placed

Leaving = Mapping[str, Sequence[Pod]]


def near(name: str, leaving: Leaving, rooms: Rooms) -> frozenset[str]:
    """The nodes that the pods of this one could go to, room or not."""
    return frozenset[str]().union(*_matching((name,), leaving, rooms))


def _matching(names: Iterable[str], leaving: Leaving, rooms: Rooms) -> Iterable[frozenset[str]]:
    """The nodes that the pods of these could go to, once for all pods of the same demands."""
    matching = (rooms.matching(pod) for name in names for pod in leaving.get(name, ()))
    return {id(nodes): nodes for nodes in matching}.values()


def uncrowded(wave: Placed, leaving: Leaving, rooms: Rooms) -> Placed:
    """The wave with rules under which its pods find places; `rooms` are as before the rollout, and stay so."""
    if wave.rolling is None or wave.rolling.in_flight == 1:
        return wave
    rules = wave.rolling
    for number, members in enumerate(_bound_together(wave, leaving, rooms), start=1):
        rules = _kept_apart(rules, f"place:pods-{number}", members, leaving, rooms)
    return replace(wave, rolling=rules)


def _bound_together(wave: Placed, leaving: Leaving, rooms: Rooms) -> list[list[str]]:
    """The nodes of the wave that pods with the same demands leave, or can go to."""
    order = {name: place for place, name in enumerate(wave.names)}
    groups = (order.keys() & nodes for nodes in _matching(wave.names, leaving, rooms))
    return [sorted(members, key=order.__getitem__) for members in groups if len(members) > 1]


def _kept_apart(rules: Rolling, key: str, members: Sequence[str], leaving: Leaving, rooms: Rooms) -> Rolling:
    crowd = _Crowd(rules, members, leaving, rooms)
    worst = crowd.worst
    most = bisect_left(range(2, len(worst) + 1), 1, key=lambda size: int(not crowd.fits(worst[:size]))) + 1
    if most >= len(worst):
        return rules
    holds = {**rules.holds, **{name: {**rules.holds.get(name, {}), key: 1} for name in members}}
    return replace(rules, capacity={**rules.capacity, key: most}, holds=holds)


@dataclass(frozen=True, slots=True)
class _Crowd:
    """Nodes whose pods compete for the same places."""

    rules: Rolling
    members: Sequence[str]
    leaving: Leaving
    rooms: Rooms

    @property
    def worst(self) -> list[str]:
        """As many as may be in flight together, those with the most to move first."""
        return together(self.rules, sorted(self.members, key=self._much, reverse=True))

    def _much(self, name: str) -> tuple[int, int]:
        pods = self.leaving.get(name, ())
        return sum(pod.requests.cpu_milli for pod in pods), sum(pod.requests.memory for pod in pods)

    def fits(self, names: Sequence[str]) -> bool:
        """Whether all pods that would find a place from their node alone do so while all of these are away."""
        homes = [(name, pod) for name in names for pod in self.leaving.get(name, ())]
        homeless = self._homeless(names, homes)
        return not any(self._fits_alone(name, pod) for name, pod in homeless)

    def _homeless(self, names: Sequence[str], homes: Sequence[tuple[str, Pod]]) -> list[tuple[str, Pod]]:
        self.rooms.close(names)
        for _, pod in homes:
            self.rooms.take_out(pod)
        targets = places_for([pod for _, pod in homes], self.rooms)
        for name, pod in homes:
            if targets[pod.uid]:
                self.rooms.take_out(pod)
            self.rooms.put(pod, name)
        return [(name, pod) for name, pod in homes if not targets[pod.uid]]

    def _fits_alone(self, name: str, pod: Pod) -> bool:
        """With all that leaves its node with it."""
        own = [(name, other) for other in self.leaving.get(name, ())]
        return (name, pod) not in self._homeless((name,), own)
