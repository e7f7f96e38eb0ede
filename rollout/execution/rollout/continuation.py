"""Plans the rest of an interrupted rollout.

Without a readable record, only marked nodes can be continued.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from rollout.execution.record.unfinished import MarkedNode, Unfinished, find_stranded
from rollout.execution.rollout.ledger import Inheritance
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


class Continuation(Struct, frozen=True):
    plan: RolloutPlan
    inherited: Inheritance
    # How many nodes percentages refer to.
    percentage_base: int
    retried: tuple[str, ...]


def has_something_left(unfinished: Unfinished, *, retry_failed: bool) -> bool:
    if unfinished.is_garbled or not unfinished.record.ended:
        return True
    if retry_failed and (unfinished.failed or unfinished.failed_in_service):
        return True
    return bool(unfinished.in_flight or unfinished.unclear or unfinished.untouched_nodes)


def rules_of(unfinished: Unfinished) -> Policy:
    return unfinished.record.plan.policy if unfinished.record.plan else Policy()


def restrict_rules(unfinished: Unfinished, today: Policy, selected: Container[str]) -> Unfinished:
    """Return the rollout under the stricter of its own rules and today's.

    Nodes in flight are finished in any case. Others are left to a new plan if they are not
    `selected`, the pools have changed, or too many have failed. Today's gates apply if no node is
    in flight.
    """
    plan = unfinished.record.plan
    if plan is None:
        return unfinished
    rules = stricter_policy(plan.policy, today, requested_nodes(plan))
    if not unfinished.blocks_others:
        rules = replace(rules, gates=today.gates)
    record = replace(unfinished.record, plan=replace(plan, policy=rules))
    restricted = replace(unfinished, record=record)
    if is_regrouped(plan.policy, today) or has_failed_enough(restricted):
        return replace(restricted, untouched_nodes=())
    untouched = tuple(node for node in unfinished.untouched_nodes if node.name in selected)
    return replace(restricted, untouched_nodes=untouched)


def has_failed_enough(unfinished: Unfinished) -> bool:
    plan = unfinished.record.plan
    # Without a plan, the limit is unknown.
    limit = plan.policy.failure_limit(len(requested_nodes(plan))) if plan else 1
    failures = _count_all_failures(unfinished)
    return failures > 0 and failures >= limit


def pending_nodes(unfinished: Unfinished, *, retry_failed: bool) -> frozenset[str]:
    nodes = {node.name for node in unfinished.untouched_nodes}
    if retry_failed:
        nodes.update(unfinished.failed_in_service)
    return frozenset(nodes)


def _without_stranded(
    marked: Iterable[MarkedNode], stranded_results: Iterable[NodeResult]
) -> tuple[MarkedNode, ...]:
    stranded_nodes = {result.node for result in stranded_results}
    return tuple(entry for entry in marked if entry.node.name not in stranded_nodes)


def _relax(rules: Policy, *, skip_blocked: bool, include_held: bool) -> Policy:
    return replace(
        rules,
        skip_blocked=rules.skip_blocked or skip_blocked,
        include_held=rules.include_held or include_held,
    )


def plan_continuation(
    unfinished: Unfinished,
    inputs: PlanInputs,
    nodes_with_host: Container[str],
    *,
    retry_failed: bool,
    skip_blocked: bool,
    include_held: bool = False,
) -> Continuation:
    """Return a plan that continues marked nodes, and starts others under the rollout's rules."""
    marked = unfinished.in_flight
    if retry_failed:
        marked += unfinished.failed
    stranded_results = find_stranded(unfinished, marked, nodes_with_host)
    taken_up = _without_stranded(marked, stranded_results)
    earlier_plan = unfinished.record.plan
    requested = requested_nodes(earlier_plan) if earlier_plan else inputs.snapshot.nodes
    percentage_base = len(requested)
    pending = pending_nodes(unfinished, retry_failed=retry_failed)
    policy = _relax(rules_of(unfinished), skip_blocked=skip_blocked, include_held=include_held)
    inputs_of_pending = replace(
        _inputs_for_others(taken_up, unfinished, inputs),
        selected=tuple(sorted(pending)),
        policy=_policy_of_rest(policy, unfinished, inputs.snapshot, percentage_base),
        retried=frozenset(unfinished.failed_in_service if retry_failed else ()),
    )
    ended = _count_ended_waves(unfinished, taken_up, pending)
    nodes_taken_up = tuple(entry.node for entry in taken_up)
    plan_of_pending = build_plan(inputs_of_pending)
    plan = join_plans(unfinished.run_id, nodes_taken_up, plan_of_pending, ended_waves=ended)
    retried = tuple(entry.node.name for entry in taken_up if entry in unfinished.failed)
    inherited = _inheritance(
        unfinished,
        taken_up,
        plan,
        stranded_results=stranded_results,
        retried=inputs_of_pending.retried.union(retried),
        failure_limit=policy.failure_limit(percentage_base),
        retry_failed=retry_failed,
    )
    present = {node.name for node in inputs.snapshot.nodes}
    whole_plan = with_earlier_exclusions(plan, earlier_plan, present)
    return Continuation(whole_plan, inherited, percentage_base, retried)


def _inputs_for_others(
    taken_up: Iterable[MarkedNode], unfinished: Unfinished, inputs: PlanInputs
) -> PlanInputs:
    """Return the inputs for the other nodes, as if the taken-up ones were back."""
    names = {entry.node.name for entry in taken_up}
    in_flight = {entry.node.name for entry in unfinished.in_flight}
    return replace(
        inputs,
        snapshot=with_nodes_back(inputs.snapshot, names),
        selection=Selection(),
        # Stranded nodes count as unavailable, too.
        taken_up=frozenset(in_flight.union(names, unfinished.unclear)),
    )


def _inheritance(
    unfinished: Unfinished,
    taken_up: Sequence[MarkedNode],
    plan: RolloutPlan,
    *,
    stranded_results: Sequence[NodeResult],
    retried: frozenset[str],
    failure_limit: int,
    retry_failed: bool,
) -> Inheritance:
    """Return the nodes to continue, the failures that still count, and the nodes left out."""
    planned = {node.name for node in plan.nodes}
    never_started = [node.name for node in unfinished.untouched_nodes]
    cordoned = [
        entry for entry in unfinished.failed if entry.is_cordoned_now and entry not in taken_up
    ]
    failed = _earlier_failures(unfinished)
    if retry_failed:
        # Only those that the plan leaves out again stay failed.
        left_out = {node.node for node in wrongly_left_out(plan.excluded)}
        failed = [node for node in failed if node.node in left_out]
    return Inheritance(
        taken_up={entry.node.name: entry.run_id for entry in taken_up},
        left_cordoned=frozenset(entry.node.name for entry in cordoned),
        health=unfinished.record.health,
        failures=count_failures(unfinished, failure_limit, retry_failed=retry_failed),
        failed=tuple(failed),
        stranded=tuple(stranded_results),
        retried=retried,
        left_over=tuple(name for name in never_started if name not in planned),
    )


def _count_ended_waves(
    unfinished: Unfinished, taken_up: Sequence[MarkedNode], pending: Iterable[str]
) -> int:
    """Return how many waves are over: the next one is numbered after them."""
    ended = unfinished.record.last_wave
    if any(entry in unfinished.in_flight for entry in taken_up):
        # A taken-up node's wave keeps its number.
        ended -= 1
    not_done = {*pending, *(entry.node.name for entry in taken_up)}
    return max(ended, count_finished_waves(unfinished.record.plan, not_done))


def _earlier_failures(unfinished: Unfinished) -> list[NotDone]:
    """Return the nodes that failed before the interruption.

    A Node's outcome may be unknown: of another version, or written by hand.
    """
    cordoned = [
        entry.node.name for entry in unfinished.failed if entry.run_id == unfinished.record.run_id
    ]
    ends = dict.fromkeys(cordoned, (Outcome.FAILED, "left cordoned"))
    for name, word in unfinished.failed_in_service.items():
        outcome = Outcome(word) if word in set(Outcome) else Outcome.FAILED
        ends[name] = (outcome, "returned")
    return [
        NotDone(name, outcome, f"failed before and was {how}; see: kubectl describe node {name}")
        for name, (outcome, how) in ends.items()
    ]


def count_failures(unfinished: Unfinished, limit: int, *, retry_failed: bool) -> int:
    """Return how many failures count: none if they are retried, or had reached the limit."""
    failures = 0 if retry_failed else _count_all_failures(unfinished)
    return failures if failures < limit else 0


def _count_all_failures(unfinished: Unfinished) -> int:
    cordoned = sum(1 for entry in unfinished.failed if entry.run_id == unfinished.record.run_id)
    outcomes = unfinished.failed_in_service.values()
    in_service = sum(1 for outcome in outcomes if outcome != Outcome.SKIPPED)
    return cordoned + in_service


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
        return remaining_ramp(steps, self.started_workers - rules.canary)


def _policy_of_rest(
    policy: Policy, unfinished: Unfinished, snapshot: ClusterSnapshot, percentage_base: int
) -> Policy:
    """Return the policy with counts for percentages, and without finished canaries."""
    pools = pools_of(policy)
    plan = unfinished.record.plan
    default_pool = NO_POOL
    sizes: Mapping[str, int] = {default_pool: percentage_base}
    if policy.pools and plan is not None:
        default_pool = DEFAULT
        requested = requested_nodes(plan)
        sizes = pools.sizes(node for node in snapshot.nodes if node.name in requested)
    progress = _progress_of_pools(policy, unfinished, snapshot, sizes)
    remaining_pools = [
        progress.get(pool.name, _PoolProgress()).remaining_pool(pool, pools.rules(pool.name))
        for pool in policy.pools
    ]
    of_default = progress.get(default_pool, _PoolProgress())
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
    pool_of = _pools_of_started_nodes(unfinished, snapshot, pools_of(policy))
    workers = [node.name for node in snapshot.nodes if not is_control_plane(node, policy)]
    started = Counter(pool_of.values())
    started_workers = Counter(pool_of[name] for name in workers if name in pool_of)
    names = sizes.keys() | started.keys()
    return {
        name: _PoolProgress(sizes.get(name, 0), started[name], started_workers[name])
        for name in names
    }


def _pools_of_started_nodes(
    unfinished: Unfinished, snapshot: ClusterSnapshot, pools: Pools
) -> Mapping[str, str]:
    labels = {node.name: node.labels for node in snapshot.nodes}
    planned = {entry.node.name: entry.node.pool for entry in unfinished.in_flight}
    pool_of = dict[str, str]()
    for name in (*unfinished.done, *planned):
        pool_of[name] = planned.get(name) or pools.pool_of(labels.get(name, {}))
    return pool_of
