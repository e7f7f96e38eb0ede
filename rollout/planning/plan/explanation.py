"""Why one node is where it is in the plan, and what its drain will do, pod by pod."""

from dataclasses import dataclass

from rollout.errors import UsageError
from rollout.model.plan import Blocker, PlanWarning
from rollout.planning.drain.forecast import Drainable
from rollout.planning.drain.verdicts import Action, VerdictReason
from rollout.planning.layout.reasons import obstacles
from rollout.planning.layout.sharing import Limits, Piece
from rollout.planning.layout.waves import Layout, Placed
from rollout.planning.plan.build import Decisions


@dataclass(frozen=True, slots=True)
class NotThere:
    """Why the node is not in an earlier wave."""

    wave: int
    because: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PodFate:
    """What its drain does with a pod. `action` and `reason` are the verdict's words; `budgets` cover the pod."""

    pod: str
    action: Action
    reason: VerdictReason
    message: str
    warnings: tuple[str, ...]
    budgets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """One node of the plan. `wave` is 0 where it takes no part; `because` then says why not.

    `arrivals` is how many more pods earlier waves will have moved here by then.
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
    """Explain a node of these decisions; `UsageError` where they do not know it."""
    if node in decisions.drainable:
        return _placed(decisions, decisions.drainable[node])
    excluded = next((entry for entry in decisions.exclusions if entry.node == node), None)
    if excluded is None:
        raise UsageError(f"the plan has no node {node}", hint="It is not selected. See: rollout status")
    return Explanation(node, 0, f"{excluded.reason}: {excluded.message}")


def _placed(decisions: Decisions, item: Drainable) -> Explanation:
    name = item.node.name
    index, own = next((i, placed) for i, placed in enumerate(decisions.layout.waves, start=1) if name in placed.names)
    foreseen = (warning for warning in decisions.foresight.warnings if warning.node == name)
    return Explanation(
        node=name,
        wave=index,
        because=own.because,
        together_with=tuple(other for other in own.names if other != name),
        not_earlier=_not_earlier(decisions.layout, index, name, decisions.limits),
        arrivals=decisions.foresight.arrivals.get(name, 0),
        pods=tuple(_fates(item)),
        blockers=item.blockers,
        warnings=(*item.warnings, *decisions.owners.all_at_once(name), *foreseen),
    )


def _not_earlier(layout: Layout, index: int, name: str, limits: Limits) -> tuple[NotThere, ...]:
    own = layout.waves[index - 1]
    piece = next(candidate for candidate in own.pieces if candidate.name == name)
    earlier = []
    for number, wave in enumerate(layout.waves[: index - 1], start=1):
        if wave.part != own.part or piece.control_plane:
            because: tuple[str, ...] = (
                f"that wave is for another part of the rollout ({wave.part or 'worker nodes'})",
            )
            if piece.control_plane and wave.part == own.part:
                because = ("control-plane nodes go one at a time",)
        else:
            because = _reasons(wave, piece, limits)
        earlier.append(NotThere(number, because))
    return tuple(earlier)


def _reasons(wave: Placed, piece: Piece, limits: Limits) -> tuple[str, ...]:
    refused = wave.refused.get(piece.name)
    reasons = obstacles(wave.pieces, piece, wave.own(limits))
    reasons = (*reasons, refused) if refused else reasons
    return reasons or ("it could go there too, but that would not save a wave",)


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
