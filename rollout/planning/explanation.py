"""Why one node is where it is in the plan, and what its drain will do, pod by pod."""

from dataclasses import dataclass

from rollout.errors import UsageError
from rollout.model.plan import Blocker, PlanWarning
from rollout.planning.drainable import Drainable
from rollout.planning.packing import Limits
from rollout.planning.plan import Decisions
from rollout.planning.waves import Layout, Piece, Placed, obstacles


@dataclass(frozen=True, slots=True)
class NotThere:
    """Why the node is not in an earlier wave."""

    wave: int
    because: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PodFate:
    """What its drain does with a pod. `action` and `reason` are the verdict's words; `budgets` cover the pod."""

    pod: str
    action: str
    reason: str
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


def explain(made: Decisions, node: str) -> Explanation:
    """Explain a node of these decisions; `UsageError` where they do not know it."""
    if node in made.drainable:
        return _placed(made, made.drainable[node])
    left_out = next((found for found in made.exclusions if found.node == node), None)
    if left_out is None:
        raise UsageError(
            f"the plan does not know a node {node}", hint="It is not among the selected ones; see `rollout status`."
        )
    return Explanation(node, 0, f"{left_out.reason}: {left_out.message}")


def _placed(made: Decisions, item: Drainable) -> Explanation:
    name = item.node.name
    index, own = next((i, placed) for i, placed in enumerate(made.layout.waves, start=1) if name in placed.names)
    foreseen = (found for found in made.foresight.warnings if found.node == name)
    return Explanation(
        node=name,
        wave=index,
        because=own.because,
        together_with=tuple(other for other in own.names if other != name),
        not_earlier=_not_earlier(made.layout, index, name, made.limits),
        arrivals=made.foresight.arrivals.get(name, 0),
        pods=tuple(_fates(item)),
        blockers=item.blockers,
        warnings=(*item.warnings, *made.owners.all_at_once(name), *foreseen),
    )


def _not_earlier(layout: Layout, index: int, name: str, limits: Limits) -> tuple[NotThere, ...]:
    own = layout.waves[index - 1]
    piece = next(each for each in own.pieces if each.name == name)
    found = []
    for number, wave in enumerate(layout.waves[: index - 1], start=1):
        if wave.part != own.part or piece.control_plane:
            because: tuple[str, ...] = (f"it is for another part of the rollout ({wave.part or 'worker nodes'})",)
            if piece.control_plane and wave.part == own.part:
                because = ("control-plane nodes go one at a time",)
        else:
            because = _reasons(wave, piece, limits)
        found.append(NotThere(number, because))
    return tuple(found)


def _reasons(wave: Placed, piece: Piece, limits: Limits) -> tuple[str, ...]:
    refused = wave.refused.get(piece.name)
    found = obstacles(wave.pieces, piece, wave.own(limits))
    found = (*found, refused) if refused else found
    return found or ("it could be there as well; that would not save a wave",)


def _fates(item: Drainable) -> list[PodFate]:
    return [
        PodFate(
            verdict.pod.key,
            verdict.action.value,
            verdict.reason.value,
            verdict.message,
            verdict.warnings,
            tuple(budget.key for budget in item.index.covering(verdict.pod)),
        )
        for verdict in item.verdicts
    ]
