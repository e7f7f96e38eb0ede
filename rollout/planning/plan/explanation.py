"""docs/json.md explains the fields."""

from msgspec import Struct

from rollout.errors import UsageError
from rollout.model.drain_finding import VerdictReason
from rollout.model.plan import Blocker, PlannedNode, PlanWarning, Wave
from rollout.planning.drain.forecast import DrainForecast
from rollout.planning.drain.verdicts import Action
from rollout.planning.layout.reasons import obstacles_to_joining
from rollout.planning.layout.sharing import NodeDemand, WaveLimits
from rollout.planning.layout.waves import Batch
from rollout.planning.plan.build import Decisions
from rollout.wording import cause_of
from rollout.wording.drain import why_not_evicted
from rollout.wording.waves import crowding_clause, limit_words, title


class EarlierWave(Struct, frozen=True):
    """An earlier wave, and why the node is not in it."""

    wave: int
    because: tuple[str, ...]


class PodFate(Struct, frozen=True):
    """What the drain does with a pod."""

    pod: str
    action: Action
    reason: VerdictReason
    message: str
    warnings: tuple[str, ...]
    budgets: tuple[str, ...]


class Explanation(Struct, frozen=True):
    """Why a node is in its wave, or is left out."""

    node: str
    # 0 if the node is left out.
    wave: int
    because: str
    together_with: tuple[str, ...] = ()
    not_earlier: tuple[EarlierWave, ...] = ()
    arrivals: int = 0
    pods: tuple[PodFate, ...] = ()
    blockers: tuple[Blocker, ...] = ()
    warnings: tuple[PlanWarning, ...] = ()


def explain(decisions: Decisions, node: str) -> Explanation:
    """Raise `UsageError` if the plan does not have the node."""
    plan = decisions.plan
    for wave in plan.waves:
        for planned in wave.nodes:
            if planned.name == node:
                return _explain_planned(decisions, wave, planned)
    for excluded in plan.excluded:
        if excluded.node == node:
            return Explanation(node, 0, f"{excluded.reason}: {excluded.message}")
    raise UsageError(f"the plan has no node {node}", hint="It is not selected. See: rollout status")


def _explain_planned(decisions: Decisions, wave: Wave, planned: PlannedNode) -> Explanation:
    plan = decisions.plan
    name = planned.name
    return Explanation(
        node=name,
        wave=wave.index,
        because=wave.because,
        together_with=tuple(other.name for other in wave.nodes if other.name != name),
        not_earlier=_why_not_earlier(decisions, wave.index, name),
        arrivals=planned.arrivals,
        pods=_pod_fates(decisions.drains[name]),
        blockers=tuple(blocker for blocker in plan.blockers if blocker.node == name),
        warnings=tuple(warning for warning in plan.warnings if warning.node == name),
    )


def _why_not_earlier(decisions: Decisions, index: int, name: str) -> tuple[EarlierWave, ...]:
    """`index`, of the node's wave, starts at 1."""
    *earlier_waves, own_wave = decisions.waves[:index]
    demand = next(demand for demand in own_wave.demands if demand.name == name)
    reasons = list[EarlierWave]()
    for number, wave in enumerate(earlier_waves, start=1):
        is_same_part = wave.parts == own_wave.parts
        if is_same_part:
            because = _why_not_in(wave, demand, decisions.limits)
        else:
            part = title(wave.parts) or "worker nodes"
            because = (f"that wave is for another part of the rollout ({part})",)
        reasons.append(EarlierWave(number, because))
    return tuple(reasons)


def _why_not_in(wave: Batch, demand: NodeDemand, limits: WaveLimits) -> tuple[str, ...]:
    if demand.control_plane:
        return ("control-plane nodes go one at a time",)
    obstacles = obstacles_to_joining(wave.demands, demand, wave.own_limits(limits))
    reasons = [limit_words(obstacle).cause for obstacle in obstacles]
    if demand.name in wave.refused:
        reasons.append(crowding_clause(wave.refused[demand.name]))
    return tuple(reasons) or ("it could go there too, but that would not save a wave",)


def _pod_fates(drain: DrainForecast) -> tuple[PodFate, ...]:
    fates = list[PodFate]()
    for verdict in drain.verdicts:
        budgets = drain.index.covering(verdict.pod)
        fates.append(
            PodFate(
                pod=verdict.pod.key,
                action=verdict.action,
                reason=verdict.reason,
                message=why_not_evicted(verdict.because),
                warnings=tuple(map(cause_of, verdict.warnings)),
                budgets=tuple(budget.key for budget in budgets),
            )
        )
    return tuple(fates)
