"""Whether pods find places while nodes are away: the waves one by one, all nodes of each away at once.

Packing reckons with the room of the whole cluster; here each pod must find a node. Nodes whose pods would find none
only because of those that are away with them do not go along: they take their turn in a later wave.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from rollout.model.cluster import Pod, finding_of
from rollout.model.plan import PlanWarning, WarningKind
from rollout.planning.drain.budgets import BudgetIndex, guards
from rollout.planning.drain.scheduler import Scheduler
from rollout.planning.layout.sharing import Limits, Piece
from rollout.planning.layout.waves import Placed, joining


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


class _Fitting:
    """The cluster as the plan goes on. `leaving` are the pods that leave each node; the scheduler ends as it would."""

    def __init__(self, leaving: Mapping[str, Sequence[Pod]], scheduler: Scheduler, index: BudgetIndex) -> None:
        self._residents: dict[str, list[Pod]] = defaultdict(list, {name: list(pods) for name, pods in leaving.items()})
        self._scheduler = scheduler
        self._index = index
        self._arrivals: dict[str, int] = {}
        self._warnings: list[PlanWarning] = []

    def take(self, part: Sequence[Placed], limits: Limits) -> list[Placed]:
        """Fit the waves of one part of the rollout; they come back as they can be, more of them where needed."""
        played: list[Placed] = []
        waiting: list[Piece] = []
        for wave in part:
            fuller, waiting = _joined(wave, waiting, limits) if waiting else (wave, [])
            played.append(self._taken(fuller, waiting, limits))
        while waiting:
            further, waiting = _joined(replace(part[-1], pieces=()), waiting, limits)
            played.append(self._taken(further, waiting, limits))
        return played

    def _taken(self, wave: Placed, waiting: list[Piece], limits: Limits) -> Placed:
        """Return the part of a wave that can be away together, moved for good; the others join the waiting."""
        refused, names = dict[str, str](), wave.names
        while crowded := self._go(names, limits):
            kept = tuple(name for name in names if name not in crowded) or names[: (len(names) + 1) // 2]
            refused |= {name: crowded[name] for name in names if name not in kept}
            names = kept
        waiting += [piece for piece in wave.pieces if piece.name in refused]
        return replace(wave, pieces=tuple(piece for piece in wave.pieces if piece.name in names), refused=refused)

    def seen(self) -> Foresight:
        """Return what it has shown so far."""
        arrivals = {name: count for name, count in self._arrivals.items() if count}
        return Foresight(arrivals, tuple(dict.fromkeys(self._warnings)))

    def _go(self, names: Sequence[str], limits: Limits) -> Mapping[str, str]:
        """Move the pods of these nodes; where company alone keeps some from a place, move none, and say whose."""
        leaving = {name: tuple(self._residents.get(name, ())) for name in names}
        moved = self._depart(leaving)
        if len(names) > 1 and not all(move.to for move in moved):
            self._scheduler.move_back([(move.node, move.pod) for move in moved], {m.pod.uid: m.to for m in moved})
            if crowded := self._scheduler.crowded(leaving):
                return {name: f"while these nodes are down, {why}" for name, why in crowded.items()}
            moved = self._depart(leaving)
        self._warn_of_waiting(moved, limits)
        self._arrive(names, moved)
        return {}

    def _warn_of_waiting(self, moved: Sequence[_Move], limits: Limits) -> None:
        """Name the budgets that may keep a node from ever being empty, as pods without a place use their permits up.

        Where room is short it is chance which pods have none. As soon as it is as many pods of one budget as that lets
        be away, the others stay.
        """
        homeless = [move for move in moved if not move.to]
        short = {move.node for move in homeless if self._scheduler.lacks_room(move.pod)}
        barred = {(move.node, key) for move in homeless for key in guards(move.pod, self._index)}
        pods = Counter((move.node, key) for move in moved for key in guards(move.pod, self._index)) if homeless else {}
        for (node, key), number in pods.items():
            if number > (most := limits.allowed.get(key, 0)) and (node in short or (node, key) in barred):
                self._warnings.append(_waiting(node, key, most, number))

    def _depart(self, leaving: Mapping[str, Sequence[Pod]]) -> list[_Move]:
        """Close these nodes, and find their pods places; those without one stand nowhere."""
        self._scheduler.close(leaving)
        targets = self._scheduler.move_out([pod for pods in leaving.values() for pod in pods])
        return [_Move(pod, name, targets[pod.uid]) for name, pods in leaving.items() for pod in pods]

    def _arrive(self, names: Sequence[str], moved: Sequence[_Move]) -> None:
        """Make moves final; a pod without a place comes back to its node."""
        for name in names:
            pods = self._residents.pop(name, ())
            self._arrivals[name] = sum(pod.node != name for pod in pods)
        self._warnings += [_homeless(move, self._scheduler) for move in moved if not move.to]
        self._warnings += [_returning(move) for move in moved if move.to in self._scheduler.closed]
        for move in moved:
            if not move.to:
                self._scheduler.put(move.pod, move.node)
            self._residents[move.to or move.node].append(move.pod)
        self._scheduler.untaint(names)


def _joined(wave: Placed, waiting: Sequence[Piece], limits: Limits) -> tuple[Placed, list[Piece]]:
    """Return a wave with those of the waiting that can go along under its limits, and those that cannot."""
    pieces, remaining = joining(wave.pieces, waiting, wave.own(limits))
    return replace(wave, pieces=pieces), remaining


def fitted(
    waves: Sequence[Placed],
    leaving: Mapping[str, Sequence[Pod]],
    scheduler: Scheduler,
    limits: Limits,
    index: BudgetIndex,
) -> tuple[tuple[Placed, ...], Foresight]:
    """Return the waves as they can be taken, and what that has shown; `index` knows the budgets that are asked."""
    fitting = _Fitting(leaving, scheduler, index)
    played = [wave for part in _parts(waves) for wave in fitting.take(part, limits)]
    return tuple(played), fitting.seen()


def _parts(waves: Sequence[Placed]) -> Iterator[list[Placed]]:
    """Waves side by side that belong to one part of the rollout."""
    return (list(part) for _, part in groupby(waves, key=lambda wave: wave.part))


def _homeless(move: _Move, scheduler: Scheduler) -> PlanWarning:
    why = scheduler.why_nowhere(move.pod)
    message = f"down until its node returns: {why}; make room on other nodes if it must run"
    return PlanWarning(move.node, f"pod/{move.pod.key}", message, WarningKind.FITS_NOWHERE)


def _waiting(node: str, budget: str, most: int, number: int) -> PlanWarning:
    message = (
        f"lets {most} be away of the {number} pods that are here by then, and not all pods of this node fit "
        "elsewhere: where these come last, the drain waits in vain, up to --drain-timeout; make room on other nodes"
    )
    return PlanWarning(node, finding_of(budget), message, WarningKind.FITS_NOWHERE)


def _returning(move: _Move) -> PlanWarning:
    message = (
        "tolerates cordons and fits nowhere else: it comes back to this node, and the reboot "
        "ends it without asking its budgets"
    )
    return PlanWarning(move.node, f"pod/{move.pod.key}", message, WarningKind.POD)
