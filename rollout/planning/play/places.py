"""Whether pods find places while nodes are away, asked of the cluster as the play has it by then.

Packing reckons with budgets; here each pod must find a node.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rollout.model.cluster import Pod, finding_of
from rollout.model.plan import PlanWarning, WarningKind
from rollout.planning.drain.budgets import guards
from rollout.planning.layout.sharing import Limits, NodeDemand
from rollout.planning.layout.waves import Batch, join_wave
from rollout.planning.play.pod_flow import PodFlow

_Found = Mapping[str, Sequence[PlanWarning]]
_RETURNING = (
    "tolerates cordons and fits nowhere else: it comes back to this node, and the reboot "
    "ends it without asking its budgets"
)


@dataclass(slots=True)
class PodPlaces:
    """The places of a rollout that is played, and what its nodes are warned of.

    `allowed` is how many pods of each budget may be away; `arrivals` counts by node those that came before its turn.
    """

    flow: PodFlow
    allowed: Mapping[str, int]
    arrivals: dict[str, int] = field(default_factory=dict)
    warnings: list[PlanWarning] = field(default_factory=list)

    def fit(self, wave: Batch, waiting: Sequence[NodeDemand], limits: Limits) -> tuple[Batch, list[NodeDemand]]:
        """Return the nodes of a wave, and of those that wait, that can be away together, and those that wait then.

        Their pods have left for their places.
        """
        demands, late = join_wave(wave.demands, waiting, wave.own(limits)) if waiting else (wave.demands, [])
        refused, names = dict[str, str](), [demand.name for demand in demands]
        while crowded := self._crowded(names, found := self._leave(names)):
            kept = [name for name in names if name not in crowded] or names[: (len(names) + 1) // 2]
            refused |= {name: crowded[name] for name in names if name not in kept}
            names = kept
        self._note(names, found)
        late += [demand for demand in demands if demand.name in refused]
        return replace(wave, demands=tuple(demand for demand in demands if demand.name in names), refused=refused), late

    def foresee(self, name: str) -> None:
        """Note what becomes of a node that begins now, beside those that are closed."""
        self._note([name], self._leave([name]))
        self.put_back([name])

    def put_back(self, names: Sequence[str]) -> None:
        """Let the pods of these nodes be there again."""
        self.flow.scheduler.put_back({name: self._pods(name) for name in names})

    def _note(self, names: Sequence[str], found: _Found) -> None:
        self.arrivals |= {name: sum(pod.node != name for pod in self._pods(name)) for name in names}
        self.warnings += [warning for warnings in found.values() for warning in warnings]

    def _crowded(self, names: Sequence[str], found: _Found) -> Mapping[str, str]:
        """Return the nodes of which more stay than alone, and what; which of their pods that is, is chance.

        Where there are any, all pods are put back.
        """
        if not found or len(names) == 1:
            return {}
        self.put_back(names)
        alone = dict[str, _Found]()
        for name in found:
            alone[name] = self._leave([name])
            self.put_back([name])
        crowded = {name: stray for name, stray in found.items() if len(stray) > len(alone[name].get(name, ()))}
        if not crowded:
            self._leave(names)
        return {name: f"beside these nodes, {_clause(stray[0])}" for name, stray in crowded.items()}

    def _leave(self, names: Sequence[str]) -> _Found:
        """Let the pods of these nodes leave, and return what is to be said of those without a place, by node."""
        leaving = {name: self._pods(name) for name in names}
        staying = self.flow.scheduler.empty(leaving, self.flow.closed)
        return {name: list(self._warnings(name, leaving[name], pods)) for name, pods in staying.items()}

    def _warnings(self, node: str, leaving: Sequence[Pod], staying: Sequence[Pod]) -> Iterator[PlanWarning]:
        """Yield one for each that stays, and those for budgets that may keep the node from ever being empty.

        For pods without a place use permits up; where room is short it is chance which pods these are.
        """
        scheduler, index = self.flow.scheduler, self.flow.index
        homeless = [pod for pod in staying if not scheduler.returns(pod)]
        for pod in homeless:
            message = (
                f"down until its node returns: {scheduler.why_nowhere(pod)}; make room on other nodes if it must run"
            )
            yield PlanWarning(node, f"pod/{pod.key}", message, WarningKind.FITS_NOWHERE)
        barred = {key for pod in homeless for key in guards(pod, index)}
        is_short = any(map(scheduler.lacks_room, homeless))
        counts = Counter(key for pod in leaving for key in guards(pod, index)) if homeless else {}
        for key, number in counts.items():
            if number > (most := self.allowed.get(key, 0)) and (is_short or key in barred):
                yield _waiting(node, key, most, number)
        for pod in staying:
            if scheduler.returns(pod):
                yield PlanWarning(node, f"pod/{pod.key}", _RETURNING)

    def _pods(self, name: str) -> Sequence[Pod]:
        return tuple(self.flow.residents.get(name, {}).values())


def _clause(stray: PlanWarning) -> str:
    return f"{stray.object} {'' if stray.message == _RETURNING else 'is '}{stray.message}"


def _waiting(node: str, budget: str, most: int, number: int) -> PlanWarning:
    message = (
        f"lets {most} be away of the {number} pods that are here by then, and not all pods of this node fit "
        "elsewhere: where these come last, the drain waits in vain, up to --drain-timeout; make room on other nodes"
    )
    return PlanWarning(node, finding_of(budget), message, WarningKind.FITS_NOWHERE)
