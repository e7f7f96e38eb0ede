"""The plan played through wave by wave, all of a wave's nodes away at once.

Packing reckons with the room of the whole cluster; here each pod must find a node. Nodes whose pods would find none
only because of those that are away with them do not go along: they take their turn in a later wave.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from rollout.model.cluster import Pod
from rollout.model.plan import PlanWarning, WarningKind
from rollout.planning.forecast import settle
from rollout.planning.packing import Limits
from rollout.planning.rooms import Rooms
from rollout.planning.waves import Piece, Placed, joined, latecomers, without


@dataclass(frozen=True, slots=True)
class Foresight:
    """What playing a plan through has shown; `arrivals` counts, by node, the pods that earlier waves moved there."""

    arrivals: Mapping[str, int]
    warnings: tuple[PlanWarning, ...]


@dataclass(frozen=True, slots=True)
class _Move:
    """A pod that leaves a node for another; empty: for nowhere."""

    pod: Pod
    node: str
    to: str


class Simulation:
    """The cluster as the plan goes on. `leaving` are each node's movable pods; `rooms` ends as the cluster would."""

    def __init__(self, leaving: Mapping[str, Sequence[Pod]], rooms: Rooms) -> None:
        self._residents: dict[str, list[Pod]] = defaultdict(list, {name: list(pods) for name, pods in leaving.items()})
        self._rooms = rooms
        self._arrivals: dict[str, int] = {}
        self._warnings: list[PlanWarning] = []

    def take(self, part: Sequence[Placed], limits: Limits) -> list[Placed]:
        """Simulate the waves of one part of the rollout; they come back as they can be, more of them where needed."""
        played: list[Placed] = []
        waiting: list[Piece] = []
        for wave in part:
            fuller, waiting = joined(wave, waiting, limits)
            played.append(self._taken(fuller, waiting, limits))
        while waiting:
            further, waiting = latecomers(part[-1], waiting, limits)
            played.append(self._taken(further, waiting, limits))
        return played

    def _taken(self, wave: Placed, waiting: list[Piece], limits: Limits) -> Placed:
        """The part of a wave that can be away together, moved for good; the others join the waiting."""
        names, refused = list(wave.names), dict[str, str]()
        while crowded := self._go(names):
            staying = [name for name in names if name not in crowded] or names[: (len(names) + 1) // 2]
            refused |= {name: crowded[name] for name in names if name not in staying}
            names = staying
        waiting += [piece for piece in wave.pieces if piece.name in refused]
        return without(wave, refused, limits) if refused else wave

    def seen(self) -> Foresight:
        """What it has shown so far."""
        arrivals = {name: count for name, count in self._arrivals.items() if count}
        return Foresight(arrivals, tuple(dict.fromkeys(self._warnings)))

    def _go(self, names: Sequence[str]) -> Mapping[str, str]:
        """Move the pods of these nodes; where company alone keeps some from a place, move none, and say whose."""
        moved = self._depart(names)
        if len(names) > 1 and any(not move.to for move in moved):
            crowded = self._crowded_out(moved)
            if crowded:
                return crowded
            moved = self._depart(names)
        self._arrive(names, moved)
        return {}

    def _depart(self, names: Sequence[str]) -> list[_Move]:
        """Close these nodes, and find their pods places; those without one stand nowhere."""
        self._rooms.close(names)
        going = [(name, pod) for name in names for pod in self._residents.get(name, ())]
        for _, pod in going:
            self._rooms.take_out(pod)
        targets = settle([pod for _, pod in going], self._rooms)
        return [_Move(pod, name, targets[pod.uid]) for name, pod in going]

    def _crowded_out(self, moved: Sequence[_Move]) -> Mapping[str, str]:
        """Of nodes that have pods without a place, those that would not have them if they went alone; all go back."""
        homeless = [(move, self._rooms.why_nowhere(move.pod)) for move in moved if not move.to]
        for move in moved:
            if move.to:
                self._rooms.take_out(move.pod)
            self._rooms.put(move.pod, move.node)
        crowded: dict[str, str] = {}
        for move, why in homeless:
            if move.node not in crowded and self._fits_alone(move):
                crowded[move.node] = f"while these nodes are down, {move.pod.key} would fit nowhere: {why}"
        return crowded

    def _fits_alone(self, move: _Move) -> bool:
        self._rooms.close((move.node,))
        self._rooms.take_out(move.pod)
        target = self._rooms.place(move.pod)
        self._rooms.put(move.pod, move.node)
        return bool(target)

    def _arrive(self, names: Sequence[str], moved: Sequence[_Move]) -> None:
        """Make moves final; a pod without a place comes back to its node."""
        for name in names:
            self._arrivals[name] = sum(pod.node != name for pod in self._residents.pop(name, ()))
        self._warnings += [_homeless(move, self._rooms) for move in moved if not move.to]
        self._warnings += [_returning(move) for move in moved if move.to in self._rooms.closed]
        for move in moved:
            if not move.to:
                self._rooms.put(move.pod, move.node)
            self._residents[move.to or move.node].append(move.pod)


def simulate(
    waves: Sequence[Placed], leaving: Mapping[str, Sequence[Pod]], rooms: Rooms, limits: Limits
) -> tuple[tuple[Placed, ...], Foresight]:
    """The waves as they can be taken, in order, and what that has shown."""
    simulation = Simulation(leaving, rooms)
    played = [wave for part in _parts(waves) for wave in simulation.take(part, limits)]
    return tuple(played), simulation.seen()


def _parts(waves: Sequence[Placed]) -> Iterator[list[Placed]]:
    """Waves side by side that belong to one part of the rollout."""
    return (list(part) for _, part in groupby(waves, key=lambda wave: wave.part))


def _homeless(move: _Move, rooms: Rooms) -> PlanWarning:
    why = rooms.why_nowhere(move.pod)
    message = f"down until its node returns: {why}; make room on other nodes if it must run"
    return PlanWarning(move.node, f"pod/{move.pod.key}", message, WarningKind.FITS_NOWHERE)


def _returning(move: _Move) -> PlanWarning:
    message = (
        "tolerates cordons and fits nowhere else: it comes back to this node, and the reboot "
        "ends it without asking its budgets"
    )
    return PlanWarning(move.node, f"pod/{move.pod.key}", message, WarningKind.POD)
