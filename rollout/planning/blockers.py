"""What will stop a node's drain, found before anything is touched."""

from collections.abc import Iterable, Iterator

from rollout.model.cluster import Budget, Pod
from rollout.model.plan import Blocker, BlockerKind, PlanWarning
from rollout.planning.budgets import BudgetIndex, bypasses, can_never_allow, in_words
from rollout.planning.verdicts import Action, PodVerdict, VerdictReason

_REFUSALS = {
    VerdictReason.UNMANAGED: BlockerKind.UNMANAGED_POD,
    VerdictReason.LOCAL_STORAGE: BlockerKind.LOCAL_STORAGE,
    VerdictReason.DAEMONSET_GONE: BlockerKind.DAEMONSET_GONE,
}


def drain_blockers(
    node: str, verdicts: Iterable[PodVerdict], index: BudgetIndex, *, evicting: bool
) -> tuple[Blocker, ...]:
    """Everything that keeps this node from being drained; `evicting` is whether budgets are asked at all."""
    found: list[Blocker] = []
    for verdict in verdicts:
        if verdict.action is Action.REFUSE:
            found.append(_refusal(node, verdict))
        elif verdict.action is Action.EVICT and evicting:
            found.extend(_budget_blockers(node, verdict.pod, index.covering(verdict.pod)))
    return tuple(dict.fromkeys(found))


def _refusal(node: str, verdict: PodVerdict) -> Blocker:
    return Blocker(node, _REFUSALS[verdict.reason], f"pod/{verdict.pod.key}", verdict.message)


def _budget_blockers(node: str, pod: Pod, budgets: tuple[Budget, ...]) -> Iterator[Blocker]:
    if len(budgets) > 1 and not pod.finished and not pod.terminating:
        names = ", ".join(budget.name for budget in budgets)
        yield Blocker(
            node,
            BlockerKind.TWO_BUDGETS,
            f"pod/{pod.key}",
            f"is covered by {len(budgets)} budgets ({names}); the API server evicts no such pod: delete all but one",
        )
        return
    for budget in budgets:
        if not bypasses(pod, budget) and can_never_allow(budget):
            yield Blocker(node, BlockerKind.BUDGET_NEVER, f"pdb/{budget.key}", _never(budget))


def _never(budget: Budget) -> str:
    return (
        f"{in_words(budget)} of {budget.expected_pods} pods never allows an eviction: "
        "add a replica, relax the budget for the while, or use --disable-eviction"
    )


def drain_warnings(node: str, verdicts: Iterable[PodVerdict], index: BudgetIndex) -> tuple[PlanWarning, ...]:
    """What the operator should know about this node's drain."""
    found = [
        PlanWarning(node, f"pod/{verdict.pod.key}", warning)
        for verdict in verdicts
        if verdict.action is Action.EVICT
        for warning in verdict.warnings
    ]
    for verdict in verdicts:
        if verdict.action is Action.EVICT:
            found.extend(_budget_warnings(node, verdict.pod, index.covering(verdict.pod)))
    return tuple(dict.fromkeys(found))


def _budget_warnings(node: str, pod: Pod, budgets: tuple[Budget, ...]) -> Iterator[PlanWarning]:
    for budget in budgets:
        if bypasses(pod, budget) or can_never_allow(budget) or budget.disruptions_allowed > 0:
            continue
        yield PlanWarning(
            node,
            f"pdb/{budget.key}",
            f"allows no eviction now ({budget.current_healthy} of {budget.desired_healthy} needed pods are healthy): "
            "the drain waits for it",
        )
