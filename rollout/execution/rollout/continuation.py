"""Plans the rest of an interrupted rollout.

Without a readable record, only marked nodes can be continued.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from rollout.execution.record.unfinished import MarkedNode, Unfinished, find_stranded
from rollout.execution.rollout.ledger import Inheritance
from rollout.execution.rollout.run_inputs import RunInputs
from rollout.model.cluster import ClusterSnapshot
from rollout.model.plan import RolloutPlan
from rollout.model.policy import Policy, Pool, Selection
from rollout.model.progress import NodeResult, NotDone, Outcome, wrongly_left_out
from rollout.model.quantity import Count
from rollout.planning.eligibility.candidates import is_control_plane, requested_nodes
from rollout.planning.eligibility.pools import DEFAULT, NO_POOL, Pools, pools_of
from rollout.planning.plan.build import PlanInputs, build_plan
from rollout.planning.plan.joining import (
    count_finished_waves,
    is_regrouped,
    join_plans,
    remaining_ramp,
    stricter_policy,
    with_earlier_exclusions,
    with_nodes_back,
)


def has_something_left(unfinished: Unfinished, *, retry_failed: bool) -> bool:
    if unfinished.is_garbled or not unfinished.record.ended:
        return True
    has_failed_nodes = bool(unfinished.failed or unfinished.failed_in_service)
    if retry_failed and has_failed_nodes:
        return True
    return bool(unfinished.in_flight or unfinished.unclear or unfinished.untouched_nodes)


def rules_of(unfinished: Unfinished) -> Policy:
    """The default policy if the record has no readable plan."""
    return unfinished.record.plan.policy if unfinished.record.plan else Policy()


def restrict_rules(unfinished: Unfinished, today: Policy, selected: Container[str]) -> Unfinished:
    """Apply the stricter of the rollout's own policy and `today`.

    Nodes in flight are finished in any case. Others are left to a new plan if they are not
    `selected`, the pools have changed, or too many nodes have failed. Today's gates apply unless
    the rollout must be finished first.
    """
    plan = unfinished.record.plan
    if plan is None:
        return unfinished
    policy = stricter_policy(plan.policy, today, requested_nodes(plan))
    if not unfinished.blocks_others:
        policy = replace(policy, gates=today.gates)
    record = replace(unfinished.record, plan=replace(plan, policy=policy))
    restricted = replace(unfinished, record=record)
    if is_regrouped(plan.policy, today) or has_failed_enough(restricted):
        return replace(restricted, untouched_nodes=())
    still_selected = tuple(node for node in unfinished.untouched_nodes if node.name in selected)
    return replace(restricted, untouched_nodes=still_selected)


def has_failed_enough(unfinished: Unfinished) -> bool:
    plan = unfinished.record.plan
    # Without a plan, the limit is unknown, so one failure is enough.
    limit = 1
    if plan is not None:
        limit = plan.policy.failure_limit(len(requested_nodes(plan)))
    return _count_all_failures(unfinished) >= limit


def pending_nodes(unfinished: Unfinished, *, retry_failed: bool) -> frozenset[str]:
    untouched = {node.name for node in unfinished.untouched_nodes}
    return _retried_in_service(unfinished, retry_failed=retry_failed) | untouched


def _retried_in_service(unfinished: Unfinished, *, retry_failed: bool) -> frozenset[str]:
    return frozenset(unfinished.failed_in_service if retry_failed else ())


def _without_stranded(
    marked: Iterable[MarkedNode], stranded_results: Iterable[NodeResult]
) -> tuple[MarkedNode, ...]:
    stranded_nodes = {result.node for result in stranded_results}
    return tuple(entry for entry in marked if entry.node.name not in stranded_nodes)


def _allow_more(policy: Policy, *, skip_blocked: bool, include_held: bool) -> Policy:
    return replace(
        policy,
        skip_blocked=policy.skip_blocked or skip_blocked,
        include_held=policy.include_held or include_held,
    )


def plan_continuation(
    unfinished: Unfinished,
    inputs: PlanInputs,
    nodes_with_host: Container[str],
    *,
    retry_failed: bool,
    skip_blocked: bool,
    include_held: bool = False,
) -> RunInputs:
    marked = unfinished.in_flight
    if retry_failed:
        marked += unfinished.failed
    stranded_results = find_stranded(unfinished, marked, nodes_with_host)
    taken_up = _without_stranded(marked, stranded_results)
    earlier_plan = unfinished.record.plan
    # Without a plan, it is unknown which nodes were requested.
    requested = requested_nodes(earlier_plan) if earlier_plan else inputs.snapshot.nodes
    percentage_base = len(requested)
    pending = pending_nodes(unfinished, retry_failed=retry_failed)
    policy = _allow_more(rules_of(unfinished), skip_blocked=skip_blocked, include_held=include_held)
    inputs_of_pending = replace(
        _as_if_back(taken_up, unfinished, inputs),
        selected=tuple(sorted(pending)),
        policy=_policy_of_rest(policy, unfinished, inputs.snapshot, percentage_base),
        retried=_retried_in_service(unfinished, retry_failed=retry_failed),
    )
    plan = join_plans(
        unfinished.run_id,
        tuple(entry.node for entry in taken_up),
        build_plan(inputs_of_pending),
        ended_waves=_count_ended_waves(unfinished, taken_up, pending),
    )
    inherited = _inheritance(
        unfinished,
        taken_up,
        plan,
        stranded_results=stranded_results,
        failure_limit=policy.failure_limit(percentage_base),
        retry_failed=retry_failed,
    )
    present = {node.name for node in inputs.snapshot.nodes}
    return RunInputs(
        plan=with_earlier_exclusions(plan, earlier_plan, present),
        percentage_base=percentage_base,
        own_node=inputs.own_node,
        unattended=inputs.unattended,
        proven=inputs.proven,
        is_resumed=True,
        inherited=inherited,
    )


def _as_if_back(
    taken_up: Iterable[MarkedNode], unfinished: Unfinished, inputs: PlanInputs
) -> PlanInputs:
    nodes_taken_up = {entry.node.name for entry in taken_up}
    in_flight = {entry.node.name for entry in unfinished.in_flight}
    # Nodes that cannot be continued are reported as stranded, and not as unavailable.
    started = in_flight.union(nodes_taken_up, unfinished.unclear)
    return replace(
        inputs,
        snapshot=with_nodes_back(inputs.snapshot, nodes_taken_up),
        selection=Selection(),
        taken_up=frozenset(started),
    )


def _inheritance(
    unfinished: Unfinished,
    taken_up: Sequence[MarkedNode],
    plan: RolloutPlan,
    *,
    stranded_results: Sequence[NodeResult],
    failure_limit: int,
    retry_failed: bool,
) -> Inheritance:
    planned = {node.name for node in plan.nodes}
    never_started = [node.name for node in unfinished.untouched_nodes]
    stay_cordoned = [
        entry for entry in unfinished.failed if entry.is_cordoned_now and entry not in taken_up
    ]
    retried_with_marks = [entry.node.name for entry in taken_up if entry in unfinished.failed]
    retried_in_service = _retried_in_service(unfinished, retry_failed=retry_failed)
    failed = _earlier_failures(unfinished)
    if retry_failed:
        # Failed nodes that the plan leaves out again stay failed.
        left_out = {node.node for node in wrongly_left_out(plan.excluded)}
        failed = [node for node in failed if node.node in left_out]
    return Inheritance(
        taken_up={entry.node.name: entry.run_id for entry in taken_up},
        left_cordoned=frozenset(entry.node.name for entry in stay_cordoned),
        health=unfinished.record.health,
        failures=count_failures(unfinished, failure_limit, retry_failed=retry_failed),
        failed=tuple(failed),
        stranded=tuple(stranded_results),
        retried=retried_in_service.union(retried_with_marks),
        left_over=tuple(name for name in never_started if name not in planned),
    )


def _count_ended_waves(
    unfinished: Unfinished, taken_up: Sequence[MarkedNode], pending: Iterable[str]
) -> int:
    ended_waves = unfinished.record.last_wave
    is_last_wave_continued = any(entry in unfinished.in_flight for entry in taken_up)
    if is_last_wave_continued:
        ended_waves -= 1
    not_done = {*pending, *(entry.node.name for entry in taken_up)}
    # The write of the last wave's number may have failed.
    return max(ended_waves, count_finished_waves(unfinished.record.plan, not_done))


def _earlier_failures(unfinished: Unfinished) -> list[NotDone]:
    failures = [
        _failure(entry.node.name, Outcome.FAILED, "left cordoned")
        for entry in unfinished.failed
        if entry.run_id == unfinished.record.run_id
    ]
    for name, word in unfinished.failed_in_service.items():
        # The word may be of another version of rollout, or written by hand.
        outcome = Outcome(word) if word in set(Outcome) else Outcome.FAILED
        failures.append(_failure(name, outcome, "returned"))
    return failures


def _failure(name: str, outcome: Outcome, end: str) -> NotDone:
    return NotDone(name, outcome, f"failed before and was {end}; see: kubectl describe node {name}")


def count_failures(unfinished: Unfinished, limit: int, *, retry_failed: bool) -> int:
    if retry_failed:
        return 0
    failures = _count_all_failures(unfinished)
    # An operator who continues a rollout at its limit accepts the failures.
    return failures if failures < limit else 0


def _count_all_failures(unfinished: Unfinished) -> int:
    run_id = unfinished.record.run_id
    left_cordoned = [entry for entry in unfinished.failed if entry.run_id == run_id]
    outcomes = unfinished.failed_in_service.values()
    returned = [outcome for outcome in outcomes if outcome != Outcome.SKIPPED]
    return len(left_cordoned) + len(returned)


class _PoolProgress(Struct, frozen=True):
    size: int = 0
    started: int = 0
    started_workers: int = 0

    def remaining_pool(self, pool: Pool, rules: Policy) -> Pool:
        limit = pool.max_unavailable
        return replace(
            pool,
            max_unavailable=None if limit is None else Count(limit.of(self.size)),
            canary=self.remaining_canary(rules),
            ramp=self.remaining_ramp(rules),
        )

    def remaining_canary(self, rules: Policy) -> int:
        return max(0, rules.canary - self.started)

    def remaining_ramp(self, rules: Policy) -> tuple[Count, ...]:
        steps = [step.of(self.size) for step in rules.ramp]
        # The canaries come before the ramp, and only workers are in it.
        started_in_ramp = self.started_workers - rules.canary
        return remaining_ramp(steps, started_in_ramp)


def _policy_of_rest(
    policy: Policy, unfinished: Unfinished, snapshot: ClusterSnapshot, percentage_base: int
) -> Policy:
    """Percentages become numbers, because they refer to all nodes of the rollout."""
    pools = pools_of(policy)
    plan = unfinished.record.plan
    # The policy's own canary and ramp are of this pool.
    default_pool = NO_POOL
    sizes: Mapping[str, int] = {default_pool: percentage_base}
    if policy.pools and plan is not None:
        default_pool = DEFAULT
        requested = requested_nodes(plan)
        sizes = pools.sizes(node for node in snapshot.nodes if node.name in requested)
    progress_by_pool = _progress_of_pools(policy, unfinished, snapshot, sizes)
    nothing_started = _PoolProgress()
    remaining_pools = []
    for pool in policy.pools:
        progress = progress_by_pool.get(pool.name, nothing_started)
        remaining_pools.append(progress.remaining_pool(pool, pools.rules(pool.name)))
    of_default = progress_by_pool.get(default_pool, nothing_started)
    return replace(
        policy,
        max_unavailable=Count(policy.max_unavailable.of(percentage_base)),
        max_failures=Count(policy.max_failures.of(percentage_base)),
        pools=tuple(remaining_pools),
        canary=of_default.remaining_canary(policy),
        ramp=of_default.remaining_ramp(policy),
    )


def _progress_of_pools(
    policy: Policy, unfinished: Unfinished, snapshot: ClusterSnapshot, sizes: Mapping[str, int]
) -> Mapping[str, _PoolProgress]:
    pool_by_started_node = _pools_of_started_nodes(unfinished, snapshot, pools_of(policy))
    started = Counter(pool_by_started_node.values())
    started_workers = Counter[str]()
    for node in snapshot.nodes:
        if node.name in pool_by_started_node and not is_control_plane(node, policy):
            started_workers[pool_by_started_node[node.name]] += 1
    return {
        pool: _PoolProgress(sizes.get(pool, 0), started[pool], started_workers[pool])
        for pool in sizes.keys() | started.keys()
    }


def _pools_of_started_nodes(
    unfinished: Unfinished, snapshot: ClusterSnapshot, pools: Pools
) -> Mapping[str, str]:
    labels = {node.name: node.labels for node in snapshot.nodes}
    planned_pools = {entry.node.name: entry.node.pool for entry in unfinished.in_flight}
    pool_by_node = dict[str, str]()
    for name in (*unfinished.done, *planned_pools):
        planned_pool = planned_pools.get(name)
        pool_by_node[name] = planned_pool or pools.pool_of(labels.get(name, {}))
    return pool_by_node
