"""An interrupted plan, joined with a new one of the nodes that were never begun."""

from collections.abc import Container, Sequence
from dataclasses import replace

from rollout.model.plan import BlockerKind, PlannedNode, RolloutPlan, Wave
from rollout.model.quantity import Count

_BECAUSE = "begun before the interruption"


def remaining_ramp(sizes: Sequence[int], taken: int) -> tuple[Count, ...]:
    """A ramp of these sizes once that many nodes have taken it; the last size is for all further nodes."""
    steps, taken = list(sizes), max(0, taken)
    while len(steps) > 1 and taken >= steps[0]:
        taken -= steps.pop(0)
    if len(steps) > 1:
        steps[0] -= taken
    return tuple(map(Count, steps))


def joined(run: str, begun: tuple[PlannedNode, ...], fresh: RolloutPlan) -> RolloutPlan:
    """One plan under the run's own id: first the nodes under way, then the waves of the others.

    That nodes are away is no reason not to begin: those under way are among them, and waiting is what waves do.
    """
    first = (Wave(1, begun, _BECAUSE),) if begun else ()
    waves = (*first, *(replace(wave, index=wave.index + len(first)) for wave in fresh.waves))
    summary = replace(
        fresh.summary,
        nodes=fresh.summary.nodes + len(begun),
        waves=len(waves),
        waves_lower_bound=min(len(waves), fresh.summary.waves_lower_bound + len(first)),
    )
    blockers = tuple(blocker for blocker in fresh.blockers if not (begun and blocker.object.startswith("node/")))
    return replace(fresh, plan_id=run, waves=waves, summary=summary, blockers=blockers)


def with_earlier_exclusions(plan: RolloutPlan, before: RolloutPlan | None, present: Container[str]) -> RolloutPlan:
    """The plan with what the one `before` left out in the first place: its end accounts for that, whoever brings it.

    `present` are the Nodes of the cluster.
    """
    known_nodes = {node.name for node in plan.nodes} | {exclusion.node for exclusion in plan.excluded}
    carried = tuple(
        replace(exclusion, message=f"when the rollout was planned: {exclusion.message}")
        for exclusion in (before.excluded if before else ())
        if exclusion.node in present and exclusion.node not in known_nodes
    )
    return replace(plan, excluded=(*plan.excluded, *carried))


def without_accepted_blockers(plan: RolloutPlan, before: RolloutPlan | None) -> RolloutPlan:
    """The plan without the blockers beside which its operator began it: whoever goes on is not asked about them.

    No rollout begins beside another coordinator: a record that says so was forged.
    """
    named = before.blockers if before else ()
    accepted = {(item.node, item.kind, item.object) for item in named if item.kind is not BlockerKind.RIVAL}
    blockers = tuple(item for item in plan.blockers if (item.node, item.kind, item.object) not in accepted)
    return replace(plan, blockers=blockers)
