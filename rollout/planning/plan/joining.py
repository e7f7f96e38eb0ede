"""Continue an interrupted rollout by the stricter policy.

`standing` is the interrupted rollout's policy, `today` the policy of the process that continues it.
"""

from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from operator import and_
from typing import Any, TypeVar

from msgspec import structs
from msgspec.structs import replace

from rollout.model import marks
from rollout.model.cluster import SELF_SET, ClusterSnapshot, ConditionStatus, Node, Pod
from rollout.model.gates import AlertPolicy
from rollout.model.placement import CORDON, Taint
from rollout.model.plan import Blocker, BlockerKind, PlannedNode, RolloutPlan, Wave
from rollout.model.policy import (
    CompletionFallback,
    ControlPlaneOrder,
    DrainPolicy,
    Policy,
    Pool,
    Restart,
)
from rollout.model.quantity import Count
from rollout.planning.eligibility.pools import pools_of

_BECAUSE = "started before the interruption"


def remaining_ramp(sizes: Sequence[int], taken: int) -> tuple[Count, ...]:
    remaining = list(sizes)
    taken_in_step = max(0, taken)
    while len(remaining) > 1 and taken_in_step >= remaining[0]:
        taken_in_step -= remaining.pop(0)
    if len(remaining) > 1:
        remaining[0] -= taken_in_step
    return tuple(map(Count, remaining))


def with_nodes_back(snapshot: ClusterSnapshot, names: Container[str]) -> ClusterSnapshot:
    """Return the snapshot as if nodes in flight were back, to plan the rest."""
    nodes = tuple(_as_if_back(node) if node.name in names else node for node in snapshot.nodes)
    pods = list[Pod]()
    for pod in snapshot.pods:
        # The node's other pods were drained.
        is_static_pod_of_node = pod.mirror and pod.node in names
        pods.append(structs.replace(pod, ready=True) if is_static_pod_of_node else pod)
    return replace(snapshot, nodes=nodes, pods=tuple(pods))


def _as_if_back(node: Node) -> Node:
    is_cordoned_by_us = node.annotations.get(marks.CORDONED_BY_US) == "true"
    stays_cordoned = node.unschedulable and not is_cordoned_by_us
    taints = list[Taint]()
    for taint in node.taints:
        # Kubernetes removes the taints that it set itself, such as not-ready.
        is_removed = taint.key.startswith(SELF_SET)
        is_kept_cordon = stays_cordoned and taint.key == CORDON.key
        if is_kept_cordon or not is_removed:
            taints.append(taint)
    annotations = node.annotations.items()
    return replace(
        node,
        ready=ConditionStatus.TRUE,
        unschedulable=stays_cordoned,
        taints=tuple(taints),
        annotations={name: value for name, value in annotations if name not in marks.TRANSIENT},
    )


def count_finished_waves(plan: RolloutPlan | None, unfinished_nodes: Container[str]) -> int:
    if plan is None:
        return 0
    finished = 0
    for wave in plan.waves:
        if all(node.name not in unfinished_nodes for node in wave.nodes):
            finished += 1
    return finished


def join_plans(
    run_id: str, taken_up: tuple[PlannedNode, ...], fresh: RolloutPlan, *, ended_waves: int = 0
) -> RolloutPlan:
    """Return the nodes taken up as a first wave, then the waves of `fresh`."""
    waves = list[Wave]()
    blockers = fresh.blockers
    lower_bound = fresh.summary.waves_lower_bound
    if taken_up:
        waves.append(Wave(ended_waves + 1, taken_up, _BECAUSE, _BECAUSE))
        # Other nodes that are away must not keep these from being finished.
        blockers = tuple(item for item in blockers if not item.object.startswith("node/"))
        lower_bound += 1
    waves_before = ended_waves + len(waves)
    waves += [replace(wave, index=wave.index + waves_before) for wave in fresh.waves]
    summary = replace(
        fresh.summary,
        nodes=fresh.summary.nodes + len(taken_up),
        waves=len(waves),
        waves_lower_bound=min(len(waves), lower_bound),
    )
    return replace(fresh, plan_id=run_id, waves=tuple(waves), summary=summary, blockers=blockers)


def with_earlier_exclusions(
    plan: RolloutPlan, before: RolloutPlan | None, present: Container[str]
) -> RolloutPlan:
    """Add exclusions of the earlier plan, for nodes `present` and not in `plan`."""
    if before is None:
        return plan
    in_plan = {node.name for node in plan.nodes}
    in_plan.update(exclusion.node for exclusion in plan.excluded)
    excluded = list(plan.excluded)
    for exclusion in before.excluded:
        if exclusion.node in present and exclusion.node not in in_plan:
            message = f"when the rollout was planned: {exclusion.message}"
            excluded.append(replace(exclusion, message=message))
    return replace(plan, excluded=tuple(excluded))


def without_accepted_blockers(plan: RolloutPlan, before: RolloutPlan | None) -> RolloutPlan:
    """Drop blockers that the user accepted in the earlier plan."""
    if before is None:
        return plan
    # A record that accepts another coordinator is forged.
    acceptable = [item for item in before.blockers if item.kind is not BlockerKind.RIVAL]
    accepted = {_identity(item) for item in acceptable}
    blockers = tuple(item for item in plan.blockers if _identity(item) not in accepted)
    return replace(plan, blockers=blockers)


def _identity(blocker: Blocker) -> tuple[str, BlockerKind, str]:
    return blocker.node, blocker.kind, blocker.object


T = TypeVar("T")
_Choice = Callable[[Any, Any], Any]


def stricter_policy(
    standing: Policy, today: Policy, pool_by_requested: Mapping[str, str]
) -> Policy:
    """Return the rules of `standing`, or today's if stricter.

    A pool's percentages refer to its own nodes, other percentages to all.
    """
    pool_sizes = Counter(pool_by_requested.values())
    pools = list[Pool]()
    for pool in standing.pools:
        choices = _choices(pool_sizes[pool.name])
        pools.append(_merge_pool(pool, standing, today, choices))
    merged = _merge(standing, today, _choices(len(pool_by_requested)))
    return replace(merged, pools=tuple(pools))


def _merge(standing: T, today: T, choices: Mapping[str, _Choice]) -> T:
    fields = dict[str, Any]()
    for name, choose in choices.items():
        fields[name] = choose(getattr(standing, name), getattr(today, name))
    return replace(standing, **fields)  # type: ignore[type-var]


def _choices(nodes: int) -> Mapping[str, _Choice]:
    """Rules that are not listed stay as they were."""
    return {
        "max_unavailable": partial(_fewer, nodes=nodes),
        "max_failures": partial(_fewer, nodes=nodes),
        "canary": max,
        "ramp": partial(_slower, nodes=nodes),
        "spread_by": _todays_if_set,
        "control_plane": _excluding,
        "control_plane_selector": _todays_if_set,
        "include_held": and_,
        "include_cordoned": and_,
        "reboot_idle": and_,
        "drain": partial(_merge, choices=_DRAIN),
        "reboot_timeout": _todays,
        "ready_timeout": _todays,
        "settle_timeout": max,
        "exclude_from_load_balancers": max,
        "own_reboot_command": _todays,
        "detect": _in_both_or_todays,
        "gates": partial(_merge, choices=_GATES),
        "courtesy": partial(_merge, choices=_COURTESY),
    }


def with_timeouts_of(policy: Policy, timeouts_from: Policy) -> Policy:
    """Apply the other policy's timeouts, also to pools with the same name."""
    hooks = replace(policy.gates.hooks, timeout=timeouts_from.gates.hooks.timeout)
    pools = list[Pool]()
    for pool in policy.pools:
        other = _find_pool(timeouts_from, pool)
        pools.append(_with_pool_timeouts(pool, other) if other else pool)
    return replace(
        policy,
        drain=_with_drain_timeouts(policy.drain, timeouts_from.drain),
        reboot_timeout=timeouts_from.reboot_timeout,
        ready_timeout=timeouts_from.ready_timeout,
        settle_timeout=timeouts_from.settle_timeout,
        gates=replace(policy.gates, timeout=timeouts_from.gates.timeout, hooks=hooks),
        pools=tuple(pools),
    )


def _with_drain_timeouts(drain: DrainPolicy, timeouts_from: DrainPolicy) -> DrainPolicy:
    completion = replace(drain.completion, timeout=timeouts_from.completion.timeout)
    return replace(drain, timeout=timeouts_from.timeout, completion=completion)


def _find_pool(policy: Policy, pool: Pool) -> Pool | None:
    return next((other for other in policy.pools if other.name == pool.name), None)


def _with_pool_timeouts(pool: Pool, timeouts_from: Pool) -> Pool:
    return replace(
        pool,
        drain_timeout=timeouts_from.drain_timeout,
        reboot_timeout=timeouts_from.reboot_timeout,
        ready_timeout=timeouts_from.ready_timeout,
    )


def is_regrouped(standing: Policy, today: Policy) -> bool:
    """Whether the pools have other nodes, or another order."""
    standing_groups = [(pool.name, pool.selector, pool.after) for pool in standing.pools]
    groups_today = [(pool.name, pool.selector, pool.after) for pool in today.pools]
    return standing_groups != groups_today


def _todays(_standing: T, today: T) -> T:
    return today


def _todays_if_set(standing: T, today: T) -> T:
    return today or standing


def _excluding(standing: ControlPlaneOrder, today: ControlPlaneOrder) -> ControlPlaneOrder:
    return today if today is ControlPlaneOrder.EXCLUDE else standing


def _fewer(one: Count, other: Count, nodes: int) -> Count:
    return min(one, other, key=lambda count: count.of(nodes))


def _slower(one: tuple[Count, ...], other: tuple[Count, ...], nodes: int) -> tuple[Count, ...]:
    if not one:
        return other
    if not other:
        return one
    steps = list[Count]()
    for step in range(max(len(one), len(other))):
        size = one[min(step, len(one) - 1)]
        other_size = other[min(step, len(other) - 1)]
        steps.append(_fewer(size, other_size, nodes))
    return tuple(steps)


def _longer(one: int | None, other: int | None) -> int | None:
    """None means each pod's own grace period."""
    if one is None or other is None:
        return None
    return max(one, other)


def _in_either(one: tuple[T, ...], other: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(dict.fromkeys((*one, *other)))


def _in_both(one: tuple[T, ...], other: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(entry for entry in one if entry in other)


def _in_both_or_todays(standing: tuple[T, ...], today: tuple[T, ...]) -> tuple[T, ...]:
    return _in_both(standing, today) or today


def _choose_alerts(standing: AlertPolicy, today: AlertPolicy) -> AlertPolicy:
    if not standing.url:
        return today
    if not today.url:
        return standing
    if standing.matchers == today.matchers:
        return today
    # The alerts of both must count. Without matchers, every alert does.
    return AlertPolicy(today.url)


def _gentler(one: CompletionFallback, other: CompletionFallback) -> CompletionFallback:
    return one if one is CompletionFallback.RETURN else other


def _milder(one: Restart, other: Restart) -> Restart:
    return one if one is Restart.NEVER else other


_COMPLETION: Mapping[str, _Choice] = {
    "selectors": _in_either,
    "timeout": _todays,
    "fallback": _gentler,
}
_DRAIN: Mapping[str, _Choice] = {
    "timeout": _todays,
    "grace_period": _longer,
    "force": and_,
    "delete_emptydir_data": and_,
    "disable_eviction": and_,
    # Without a selector, no pod is left out.
    "pod_selector": lambda one, other: one if one == other else "",
    # 0 waits for every pod.
    "skip_wait_for_delete_timeout": lambda one, other: max(one, other) if one and other else 0,
    "critical": _in_either,
    "completion": partial(_merge, choices=_COMPLETION),
    "restart": _milder,
}
_GATES: Mapping[str, _Choice] = {
    "windows": partial(
        _merge, choices={"windows": _todays_if_set, "wait": and_, "freezes": _in_either}
    ),
    "hooks": _todays,
    "alerts": _choose_alerts,
    "blocking_pods": _in_either,
    "timeout": _todays,
    "health_checks": max,
    "soak": max,
    "ignored_rivals": _in_both,
    "healthy": _in_either,
}
_COURTESY: Mapping[str, _Choice] = {"drain_delay": max, "reboot_delay": max}


def _merge_pool(
    pool: Pool, standing: Policy, today: Policy, choices: Mapping[str, _Choice]
) -> Pool:
    pool_today = _find_pool(today, pool) or Pool(pool.name, pool.selector)
    # These include the policy's rules for what the pool does not set.
    rules_standing = pools_of(standing).rules(pool.name)
    rules_today = pools_of(today).rules(pool.name)
    rules = _merge(rules_standing, rules_today, choices)
    # The policy's limit applies to all nodes, in addition to the pool's.
    limit = pool.max_unavailable or pool_today.max_unavailable
    if pool.max_unavailable and pool_today.max_unavailable:
        limit = choices["max_unavailable"](pool.max_unavailable, pool_today.max_unavailable)
    return replace(
        _with_pool_timeouts(pool, pool_today),
        max_unavailable=limit,
        canary=rules.canary,
        ramp=rules.ramp,
        spread_by=rules.spread_by,
        reboot_idle=rules.reboot_idle,
        window=pool_today.window or pool.window,
    )
