"""Explain why a node is in its wave, and what its drain will do, pod by pod."""

from collections.abc import Sequence
from dataclasses import dataclass

from rollout.errors import UsageError
from rollout.model.plan import Blocker, PlanWarning
from rollout.planning.drain.forecast import Drainable
from rollout.planning.drain.verdicts import Action, VerdictReason
from rollout.planning.layout.reasons import obstacles
from rollout.planning.layout.sharing import WaveLimits
from rollout.planning.layout.waves import Batch
from rollout.planning.plan.build import Decisions


@dataclass(frozen=True, slots=True)
class NotThere:
    """Why the node is not in an earlier wave."""

    wave: int
    because: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PodFate:
    """What the drain does with a pod; `budgets` are the keys of those that cover it."""

    pod: str
    action: Action
    reason: VerdictReason
    message: str
    warnings: tuple[str, ...]
    budgets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """One node of the plan; `wave` is 0 if it takes no part, and `because` then says why.

    `arrivals` is how many pods earlier waves will have moved here by then.
    """

    node: str
    wave: int
    because: str
    together_with: tuple[str, ...] = ()
    not_earlier: tuple[NotThere, ...] = ()
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
                return Explanation(
                    node=node,
                    wave=wave.index,
                    because=wave.because,
                    together_with=tuple(other.name for other in wave.nodes if other.name != node),
                    not_earlier=_not_earlier(decisions.waves, wave.index, node, decisions.limits),
                    arrivals=planned.arrivals,
                    pods=tuple(_fates(decisions.drainable[node])),
                    blockers=tuple(blocker for blocker in plan.blockers if blocker.node == node),
                    warnings=tuple(warning for warning in plan.warnings if warning.node == node),
                )
    excluded = next((entry for entry in plan.excluded if entry.node == node), None)
    if excluded is None:
        raise UsageError(
            f"the plan has no node {node}", hint="It is not selected. See: rollout status"
        )
    return Explanation(node, 0, f"{excluded.reason}: {excluded.message}")


def _not_earlier(
    waves: Sequence[Batch], index: int, name: str, limits: WaveLimits
) -> tuple[NotThere, ...]:
    own = waves[index - 1]
    demand = next(candidate for candidate in own.demands if candidate.name == name)

    def reasons(wave: Batch) -> tuple[str, ...]:
        if wave.part != own.part:
            return (
                f"that wave is for another part of the rollout ({wave.part or 'worker nodes'})",
            )
        if demand.control_plane:
            return ("control-plane nodes go one at a time",)
        refused = filter(None, (wave.refused.get(name),))
        in_the_way = (*obstacles(wave.demands, demand, wave.own(limits)), *refused)
        return in_the_way or ("it could go there too, but that would not save a wave",)

    return tuple(
        NotThere(number, reasons(wave)) for number, wave in enumerate(waves[: index - 1], start=1)
    )


def _fates(item: Drainable) -> list[PodFate]:
    return [
        PodFate(
            verdict.pod.key,
            verdict.action,
            verdict.reason,
            verdict.message,
            verdict.warnings,
            tuple(budget.key for budget in item.index.covering(verdict.pod)),
        )
        for verdict in item.verdicts
    ]
