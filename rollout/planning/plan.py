"""From what was gathered to a plan. Pure: equal inputs give an equal plan, to the byte."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from rollout.model.cluster import ClusterSnapshot, Node, Pod
from rollout.model.host import HostFacts, HostObservation
from rollout.model.plan import (
    FORMAT_VERSION,
    Blocker,
    BlockerKind,
    Exclusion,
    ExclusionReason,
    PlannedNode,
    PlanSummary,
    PlanWarning,
    RolloutPlan,
    Wave,
)
from rollout.model.policy import Policy, Selection
from rollout.planning.blockers import drain_blockers, drain_warnings
from rollout.planning.budgets import BudgetIndex, drain_load
from rollout.planning.document import identify
from rollout.planning.eligibility import Candidate, excluded_by_name, exclusion
from rollout.planning.naming import natural_key
from rollout.planning.packing import Limits
from rollout.planning.verdicts import Action, DrainRules, PodVerdict, having, judge_all
from rollout.planning.waves import Layout, Piece, lay_out


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """All that a plan is made from.

    `observations` are by Node name; `selected` are the names that the selector and `--node` chose, before
    `--exclude`; `created_at` is the reading of a clock, taken outside.
    """

    snapshot: ClusterSnapshot
    observations: Mapping[str, HostObservation]
    selected: tuple[str, ...]
    selection: Selection
    policy: Policy
    created_at: datetime


@dataclass(frozen=True, slots=True)
class _Drainable:
    """An eligible node with the forecast of its drain."""

    node: Node
    facts: HostFacts
    verdicts: tuple[PodVerdict, ...]
    blockers: tuple[Blocker, ...]
    warnings: tuple[PlanWarning, ...]
    load: Mapping[str, int]


def build_plan(inputs: PlanInputs) -> RolloutPlan:
    """Decide who takes part, in which waves, and what stands in the way."""
    nodes = _selected_nodes(inputs)
    candidates = [_candidate(node, inputs) for node in nodes]
    exclusions = [found for candidate in candidates if (found := exclusion(candidate))]
    drainable = _forecast(candidates, {found.node for found in exclusions}, inputs)
    if inputs.policy.skip_blocked:
        exclusions += [_left_out(item) for item in drainable if item.blockers]
        drainable = [item for item in drainable if not item.blockers]
    limit = _wave_limit(inputs)
    layout = _layout(drainable, max(1, limit), inputs)
    return _assemble(inputs, drainable, layout, exclusions, _start_blockers(inputs, limit, drainable))


def unavailable_nodes(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Nodes that use up `--max-unavailable` whatever the rollout does: those that are not Ready."""
    return tuple(node for node in nodes if not node.is_ready)


def _selected_nodes(inputs: PlanInputs) -> list[Node]:
    wanted = set(inputs.selected)
    return sorted(
        (node for node in inputs.snapshot.nodes if node.name in wanted),
        key=lambda node: natural_key(node.name),
    )


def _candidate(node: Node, inputs: PlanInputs) -> Candidate:
    return Candidate(node, inputs.observations.get(node.name), inputs.policy, inputs.selection)


def _pods_by_node(pods: Sequence[Pod]) -> Mapping[str, list[Pod]]:
    grouped: dict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        grouped[pod.node].append(pod)
    return grouped


def _forecast(candidates: Sequence[Candidate], excluded: set[str], inputs: PlanInputs) -> list[_Drainable]:
    pods = _pods_by_node(inputs.snapshot.pods)
    rules = DrainRules.of(inputs.policy.drain, inputs.snapshot.daemon_sets)
    index = BudgetIndex.of(inputs.snapshot.budgets)
    return [
        _drainable(
            candidate.node,
            candidate.facts,
            judge_all(pods.get(candidate.node.name, ()), rules),
            index,
            inputs,
        )
        for candidate in candidates
        if candidate.node.name not in excluded and candidate.facts is not None
    ]


def _drainable(
    node: Node, facts: HostFacts, verdicts: tuple[PodVerdict, ...], index: BudgetIndex, inputs: PlanInputs
) -> _Drainable:
    evicting = not inputs.policy.drain.disable_eviction
    return _Drainable(
        node,
        facts,
        verdicts,
        drain_blockers(node.name, verdicts, index, evicting=evicting),
        drain_warnings(node.name, verdicts, index) if evicting else (),
        drain_load(having(Action.EVICT, verdicts), index) if evicting else {},
    )


def _left_out(item: _Drainable) -> Exclusion:
    first = item.blockers[0]
    return Exclusion(
        item.node.name, ExclusionReason.BLOCKED, f"left out by --skip-blocked: {first.object} {first.message}"
    )


def _wave_limit(inputs: PlanInputs) -> int:
    """How many nodes may be taken at once: the limit, less the nodes that are away already."""
    chosen = [name for name in inputs.selected if not excluded_by_name(name, inputs.selection)]
    return inputs.policy.max_unavailable.of(len(chosen)) - len(unavailable_nodes(inputs.snapshot.nodes))


def _layout(drainable: Sequence[_Drainable], limit: int, inputs: PlanInputs) -> Layout:
    allowed = {budget.key: budget.disruptions_allowed for budget in inputs.snapshot.budgets}
    pieces = [_piece(item, inputs.policy) for item in drainable]
    return lay_out(pieces, Limits(limit, allowed), inputs.policy)


def _piece(item: _Drainable, policy: Policy) -> Piece:
    group = item.node.labels.get(policy.spread_by, "") if policy.spread_by else ""
    return Piece(item.node.name, group, item.node.is_control_plane, item.load)


def _start_blockers(inputs: PlanInputs, limit: int, drainable: Sequence[_Drainable]) -> list[Blocker]:
    if limit > 0 or not drainable:
        return []
    return [
        Blocker(
            node.name,
            BlockerKind.NODES_UNAVAILABLE,
            f"node/{node.name}",
            f"is not Ready and uses up --max-unavailable {inputs.policy.max_unavailable}: mend it, or raise the limit",
        )
        for node in unavailable_nodes(inputs.snapshot.nodes)
    ]


def _planned(item: _Drainable) -> PlannedNode:
    return PlannedNode(
        name=item.node.name,
        boot_id=item.facts.boot_id,
        node_uid=item.node.uid,
        running_version=item.facts.running_version,
        staged_version=item.facts.update.new_version if item.facts.update.needs_reboot else "",
        evict=len(having(Action.EVICT, item.verdicts)),
        leave=len(having(Action.LEAVE, item.verdicts)),
        cordoned=item.node.unschedulable,
        staged=item.facts.update.needs_reboot,
    )


def _assemble(
    inputs: PlanInputs,
    drainable: Sequence[_Drainable],
    layout: Layout,
    exclusions: Sequence[Exclusion],
    start_blockers: Sequence[Blocker],
) -> RolloutPlan:
    planned = {item.node.name: _planned(item) for item in drainable}
    waves = tuple(
        Wave(index, tuple(planned[name] for name in placed.names), placed.because)
        for index, placed in enumerate(layout.waves, start=1)
    )
    draft = RolloutPlan(
        format_version=FORMAT_VERSION,
        plan_id="",
        created_at=inputs.created_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        cluster=inputs.snapshot.identity,
        selection=inputs.selection,
        policy=inputs.policy,
        waves=waves,
        excluded=tuple(sorted(exclusions, key=lambda found: natural_key(found.node))),
        blockers=(*start_blockers, *(found for item in drainable for found in item.blockers)),
        warnings=tuple(found for item in drainable for found in item.warnings),
        summary=PlanSummary(len(planned), len(waves), layout.lower_bound),
    )
    return replace(draft, plan_id=identify(draft))
