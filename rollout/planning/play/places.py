from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from rollout.model.cluster import Pod, budget_subject
from rollout.model.drain_finding import NoRoom
from rollout.model.plan import PlanWarning
from rollout.model.warning_finding import BudgetCrowded, DownMeanwhile, PlaceWarning, StaysHere
from rollout.planning.drain.budgets import guarding_budgets
from rollout.planning.layout.sharing import NodeDemand, WaveLimits
from rollout.planning.layout.waves import Batch, join_wave
from rollout.planning.play.pod_flow import PodFlow
from rollout.wording.warnings import warning

_WarningsByNode = Mapping[str, Sequence[PlaceWarning]]


@dataclass(slots=True)
class PodPlaces:
    flow: PodFlow
    allowed: Mapping[str, int]
    # Pods that had moved to each node by its drain.
    arrivals: dict[str, int] = field(default_factory=dict)
    warnings: list[PlanWarning] = field(default_factory=list)

    def move_wave(
        self, wave: Batch, waiting_nodes: Sequence[NodeDemand], limits: WaveLimits
    ) -> tuple[Batch, list[NodeDemand]]:
        """Move the wave's pods; return the wave, and the nodes that have to wait for room.

        Waiting nodes may join within limits.
        """
        demands = wave.demands
        still_waiting = list[NodeDemand]()
        if waiting_nodes:
            demands, still_waiting = join_wave(demands, waiting_nodes, wave.own_limits(limits))
        refused = dict[str, PlaceWarning]()
        names = [demand.name for demand in demands]
        warnings = self._move_pods(names)
        while crowded := self._find_crowded_nodes(names, warnings):
            kept = [name for name in names if name not in crowded]
            if not kept:
                # One half may have room without the other.
                half = (len(names) + 1) // 2
                kept = names[:half]
            refused |= {name: crowded[name] for name in names if name not in kept}
            names = kept
            warnings = self._move_pods(names)
        self._note_moves(names, warnings)
        still_waiting += [demand for demand in demands if demand.name in refused]
        fitting = tuple(demand for demand in demands if demand.name in names)
        return replace(wave, demands=fitting, refused=refused), still_waiting

    def note_drain(self, name: str) -> None:
        """Note what the node's drain alone meets; the pods stay where they are."""
        self._note_moves([name], self._move_pods([name]))
        self.put_back([name])

    def put_back(self, names: Sequence[str]) -> None:
        self.flow.scheduler.move_back({name: self._pods_on(name) for name in names})

    def _note_moves(self, names: Sequence[str], warnings_of: _WarningsByNode) -> None:
        for name in names:
            self.arrivals[name] = sum(pod.node != name for pod in self._pods_on(name))
        for name, found in warnings_of.items():
            self.warnings += [warning(name, entry.subject, entry.finding) for entry in found]

    def _find_crowded_nodes(
        self, names: Sequence[str], warnings_of: _WarningsByNode
    ) -> Mapping[str, PlaceWarning]:
        """Return nodes with more pods that stay than if away alone, and why.

        If there are any, all pods are put back. Only numbers count: which pods stay is chance.
        """
        if not warnings_of or len(names) == 1:
            return {}
        self.put_back(names)
        crowded = dict[str, PlaceWarning]()
        for name, warnings in warnings_of.items():
            warnings_alone = self._move_pods([name])
            self.put_back([name])
            if len(warnings) > len(warnings_alone.get(name, ())):
                crowded[name] = warnings[0]
        if not crowded:
            self._move_pods(names)
        return crowded

    def _move_pods(self, names: Sequence[str]) -> _WarningsByNode:
        leaving = {name: self._pods_on(name) for name in names}
        staying = self.flow.scheduler.empty(leaving, self.flow.cordoned)
        warnings_of = dict[str, Sequence[PlaceWarning]]()
        for name, pods in staying.items():
            warnings_of[name] = list(self._warn_of_staying(leaving[name], pods))
        return warnings_of

    def _warn_of_staying(
        self, leaving: Sequence[Pod], staying: Sequence[Pod]
    ) -> Iterator[PlaceWarning]:
        scheduler = self.flow.scheduler
        down = [pod for pod in staying if not scheduler.tolerates_cordons(pod)]
        is_room_short = False
        for pod in down:
            nowhere = scheduler.why_nowhere(pod)
            is_room_short = is_room_short or isinstance(nowhere, NoRoom)
            yield PlaceWarning(f"pod/{pod.key}", DownMeanwhile(nowhere))
        if down:
            # If room is short, it is chance which pods stay.
            maybe_down = leaving if is_room_short else down
            yield from self._warn_of_crowded_budgets(leaving, maybe_down)
        for pod in staying:
            if scheduler.tolerates_cordons(pod):
                yield PlaceWarning(f"pod/{pod.key}", StaysHere())

    def _warn_of_crowded_budgets(
        self, leaving: Sequence[Pod], maybe_down: Sequence[Pod]
    ) -> Iterator[PlaceWarning]:
        index = self.flow.index
        budgets_at_risk = {key for pod in maybe_down for key in guarding_budgets(pod, index)}
        counts = Counter(key for pod in leaving for key in guarding_budgets(pod, index))
        for key, number in counts.items():
            most = self.allowed.get(key, 0)
            if number > most and key in budgets_at_risk:
                yield PlaceWarning(budget_subject(key), BudgetCrowded(most, number))

    def _pods_on(self, name: str) -> Sequence[Pod]:
        return tuple(self.flow.residents.get(name, {}).values())
