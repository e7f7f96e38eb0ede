"""Which changes open a disruption budget that blocks a drain. Each one, applied alone, clears the blocker."""

from rollout.model.cluster import Budget, Pod
from rollout.planning.drain.budgets import Headcount

# Nobody scales these: a Job's pods come and go with its work, a Node's are static.
_NOT_SCALED = ("DaemonSet", "Job", "Node")
_WHOLE = 100


def fixes(*clauses: str) -> str:
    """Join the clauses that say something: `add a replica, lower its minAvailable to 1, or use --disable-eviction`."""
    offered = [clause for clause in (*clauses, "use --disable-eviction") if clause]
    if len(offered) == 1:
        return offered[0]
    comma = "," if len(offered) > 2 else ""  # noqa: PLR2004 - two are joined by "or" alone
    return f"{', '.join(offered[:-1])}{comma} or {offered[-1]}"


def let_away(budget: Budget, headcount: Headcount, away: int) -> str:
    """Return the change of the budget that lets so many of its pods be away at a time."""
    if budget.max_unavailable:
        return f"raise its maxUnavailable to {away}"
    field = "min-available" if budget.critical else "minAvailable"
    return f"lower its {field} to {max(0, headcount.most_healthy(budget) - away)}"


def scaled_up(budget: Budget, headcount: Headcount, pod: Pod) -> str:
    """Return how many replicas more make the budget allow an eviction; empty if none do, or nobody scales them."""
    if pod.owner is None or pod.owner.kind in _NOT_SCALED:
        return ""
    missing = _missing_replicas(budget, headcount)
    if not missing:
        return ""
    return "add a replica" if missing == 1 else f"add {missing} replicas"


def _missing_replicas(budget: Budget, headcount: Headcount) -> int:
    """Return 0 if the budget allows nothing, whatever the number of pods."""
    if budget.max_unavailable:
        return 0
    most = headcount.most_healthy(budget)
    if not budget.min_available.endswith("%"):
        return budget.desired_healthy - most + 1
    percent = int(budget.min_available.removesuffix("%"))
    # each percent that may be away is a pod at a hundred pods: more are never missing
    for more in range(1, _WHOLE + 1):
        needed = -(-percent * (budget.expected_pods + more) // _WHOLE)
        if most + more > needed:
            return more
    return 0
