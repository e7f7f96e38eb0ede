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
    """Finds which nodes' pods have room elsewhere while all of them are away.

    A pod that fits nowhere else stays on its node: it is down until the node is back.
    """

    flow: PodFlow
    # Pods of each budget that may be away.
    allowed: Mapping[str, int]
    # Pods that had moved to each node by its drain.
    arrivals: dict[str, int] = field(default_factory=dict)
    warnings: list[PlanWarning] = field(default_factory=list)

    def move_wave(
        self, wave: Batch, waiting_nodes: Sequence[NodeDemand], limits: WaveLimits
    ) -> tuple[Batch, list[NodeDemand]]:
        """Move the wave's pods; return the wave, and the nodes that wait for room.

        Waiting nodes join the wave within its limits. Nodes whose pods lack room leave it.
        """
        demands = wave.demands
        still_waiting = list[NodeDemand]()
        if waiting_nodes:
            demands, still_waiting = join_wave(demands, waiting_nodes, wave.own_limits(limits))
        refused = dict[str, PlaceWarning]()
        names = [demand.name for demand in demands]
        warnings = self._move_pods(names)
        crowded = self._undo_if_crowded(names, warnings)
        while crowded:
            kept = [name for name in names if name not in crowded]
            if not kept:
                # One half may have room without the other.
                half = (len(names) + 1) // 2
                kept = names[:half]
            refused |= {name: crowded[name] for name in names if name not in kept}
            names = kept
            warnings = self._move_pods(names)
            crowded = self._undo_if_crowded(names, warnings)
        self._note_moves(names, warnings)
        still_waiting += [demand for demand in demands if demand.name in refused]
        fitting = tuple(demand for demand in demands if demand.name in names)
        return replace(wave, demands=fitting, refused=refused), still_waiting

    def note_drain(self, name: str) -> None:
        """Note the warnings and arrivals of the node's drain alone."""
        warnings_by_node = self._move_pods([name])
        self._note_moves([name], warnings_by_node)
        self.put_back([name])

    def put_back(self, names: Sequence[str]) -> None:
        self.flow.scheduler.move_back({name: self._pods_on(name) for name in names})

    def _note_moves(self, names: Sequence[str], warnings_by_node: _WarningsByNode) -> None:
        for name in names:
            # `pod.node` is where the pod was before the rollout.
            self.arrivals[name] = sum(pod.node != name for pod in self._pods_on(name))
        for name, place_warnings in warnings_by_node.items():
            for entry in place_warnings:
                self.warnings.append(warning(name, entry.subject, entry.finding))

    def _undo_if_crowded(
        self, names: Sequence[str], warnings_by_node: _WarningsByNode
    ) -> Mapping[str, PlaceWarning]:
        """Put all pods back if nodes are crowded; return a warning for each.

        A node is crowded if more of its pods stay than if it is away alone.
        """
        if not warnings_by_node or len(names) == 1:
            return {}
        self.put_back(names)
        crowded = dict[str, PlaceWarning]()
        for name, warnings in warnings_by_node.items():
            warnings_alone = self._move_pods([name]).get(name, ())
            self.put_back([name])
            # Only numbers count, because which pods stay is chance.
            if len(warnings) > len(warnings_alone):
                crowded[name] = warnings[0]
        if not crowded:
            # The trials have put the pods back.
            self._move_pods(names)
        return crowded

    def _move_pods(self, names: Sequence[str]) -> _WarningsByNode:
        leaving = {name: self._pods_on(name) for name in names}
        staying = self.flow.scheduler.empty(leaving, self.flow.cordoned)
        warnings_by_node = dict[str, Sequence[PlaceWarning]]()
        for name, pods in staying.items():
            warnings_by_node[name] = list(self._warn_of_staying(leaving[name], pods))
        return warnings_by_node

    def _warn_of_staying(
        self, leaving: Sequence[Pod], staying: Sequence[Pod]
    ) -> Iterator[PlaceWarning]:
        scheduler = self.flow.scheduler
        # A pod that tolerates cordons starts again on its node.
        tolerant = [pod for pod in staying if scheduler.tolerates_cordons(pod)]
        down = [pod for pod in staying if not scheduler.tolerates_cordons(pod)]
        is_room_short = False
        for pod in down:
            cause = scheduler.why_nowhere(pod)
            if isinstance(cause, NoRoom):
                is_room_short = True
            yield PlaceWarning(f"pod/{pod.key}", DownMeanwhile(cause))
        if down:
            maybe_down = leaving if is_room_short else down
            yield from self._warn_of_crowded_budgets(leaving, maybe_down)
        for pod in tolerant:
            yield PlaceWarning(f"pod/{pod.key}", StaysHere())

    def _warn_of_crowded_budgets(
        self, leaving: Sequence[Pod], maybe_down: Sequence[Pod]
    ) -> Iterator[PlaceWarning]:
        index = self.flow.index
        budgets_at_risk = set[str]()
        for pod in maybe_down:
            budgets_at_risk.update(guarding_budgets(pod, index))
        leaving_by_budget = Counter[str]()
        for pod in leaving:
            leaving_by_budget.update(guarding_budgets(pod, index))
        for budget, leaving_pods in leaving_by_budget.items():
            allowed = self.allowed.get(budget, 0)
            if leaving_pods > allowed and budget in budgets_at_risk:
                yield PlaceWarning(budget_subject(budget), BudgetCrowded(allowed, leaving_pods))

    def _pods_on(self, name: str) -> Sequence[Pod]:
        return tuple(self.flow.residents.get(name, {}).values())
